// Module (as torch.nn.Module): the tree of modules and named tensors, state dicts, conversion of dtype and
// device, and scopes that replace parameters or training modes. A module has pointers to its children and to
// the Parameter and Buffer members of its class (Slot), which register and unregister themselves; it owns
// none of them. Names are dotted paths. Modules are not thread-safe.
#include "gradus/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/recording_state.h"
#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/autograd/indexing.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/nn/placement.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/warning.h"

namespace gradus::nn {
namespace {

// Returns "prefix.name".
std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : name.empty() ? prefix : prefix + "." + name;
}

// Appends a line "what (count): names", with `max` of the names.
void append_names(std::string& text, const char* what, const std::vector<std::string>& names,
                  size_t max = SIZE_MAX) {
  if (names.empty()) return;
  text += concat("\n  ", what, " (", names.size(), "):");
  for (size_t i = 0; i < std::min(max, names.size()); ++i) text += " " + names[i];
  if (names.size() > max) text += concat(" ... and ", names.size() - max, " more");
}
constexpr size_t kMaxNames = 8;  // names per category in errors of load_state_dict

// Makes x, which stays the same TensorImpl, refer to the storage, layout and dtype of `with`, which has the
// same shape. Raises the new storage's version above the old one's, by which kernels and saved tensors detect
// the change.
void replace_contents(TensorImpl& x, const TensorImpl& with) {
  while (with.storage->version() <= x.storage->version()) with.storage->bump_version();
  if (x.storage.get() != with.storage.get()) x.storage->set_replaced();
  x.storage = with.storage;
  x.offset = with.offset;
  x.strides = with.strides;
  x.dtype = with.dtype;
  x.row_major = with.row_major;
}

}  // namespace

Parameter::Parameter(Module* owner, std::string name, Tensor value)
    : Tensor(std::move(value)), owner_(owner) {
  owner->register_parameter(std::move(name), *this);
}
Indexed Parameter::operator[](std::initializer_list<Index> index) const {
  return static_cast<const Tensor&>(*this)[index];
}
Indexed Parameter::operator[](const Index& index) const { return static_cast<const Tensor&>(*this)[index]; }

Parameter::~Parameter() { owner_->unregister(this); }

Buffer::Buffer(Module* owner, std::string name, Tensor value, BufferOptions options)
    : Tensor(std::move(value)), owner_(owner) {
  owner->register_buffer(std::move(name), *this, options);
}
Buffer::~Buffer() { owner_->unregister(this); }

Module::Module(Module* parent, std::string name) : name_(std::move(name)), parent_(parent) {
  if (!parent) throw ValueError("Module", "the parent of '", name_, "' is null: a root takes no arguments");
  parent->check_new_name(name_);
  parent->children_.push_back(this);
  training_ = parent->training_;
}

Module::~Module() {
  if (parent_) std::erase(parent_->children_, this);
  for (Module* child : children_) child->parent_ = nullptr;
}

std::string Module::path() const { return parent_ ? join(parent_->path(), name_) : ""; }

void Module::check_new_name(const std::string& name) const {
  const auto taken = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const Slot& s) { return s.name == name; });
  };
  if (name.empty() || name.find('.') != std::string::npos)
    throw ValueError("Module", "a name may not be empty or have a dot, got '", name, "'");
  if (taken(parameters_) || taken(buffers_) ||
      std::any_of(children_.begin(), children_.end(), [&](const Module* c) { return c->name_ == name; }))
    throw ValueError("Module", "the name '", name, "' is taken in ", type_name(), path().empty() ? "" : " ",
                     path());
}

// Converts a tensor at its registration: moves it to the device of the open Placement, if any, and to the
// dtype and device of the last to() of this module or its nearest ancestor.
void Module::convert_registered(const std::string& name, Tensor& member) const {
  if (internal::Placement* placement = internal::Placement::current()) {
    const Device place = placement->register_tensor(join(path(), name));
    if (member.defined()) member = raw::to(member, place);
  }
  if (!member.defined()) return;
  std::optional<DType> dtype;
  std::optional<Device> device;
  for (const Module* m = this; m; m = m->parent_) {
    if (!dtype) dtype = m->dtype_;
    if (!device) device = m->device_;
  }
  if (dtype && is_floating(member.dtype())) member = raw::to(member, *dtype);
  if (device) member = raw::to(member, *device);
}

Tensor Module::uninitialized() {
  uninitialized_ = true;
  return {};
}

void Module::initialize(Tensor& member, Tensor value) {
  for (const std::vector<Slot>* slots : {&parameters_, &buffers_})
    for (const Slot& s : *slots)
      if (s.tensor == &member) convert_registered(s.name, value);
  member = std::move(value);
}

bool Module::is_initialized() const {
  return !uninitialized_ &&
         std::ranges::all_of(children_, [](const Module* child) { return child->is_initialized(); });
}

void Module::check_initialized() const {
  if (uninitialized_)
    throw StateError("Module", type_name(), path().empty() ? "" : " ", path(),
                     " has a size of kLazy: call the network once, on an input of the right size, before its "
                     "parameters are attached, counted, loaded or saved");
  for (const Module* child : children_) child->check_initialized();
}

void Module::register_parameter(std::string name, Tensor& member) {
  check_new_name(name);
  if (member.defined() && !is_floating(member.dtype()))
    throw DTypeError("Module", "parameter '", name, "' must be floating point, got ", describe(member));
  convert_registered(name, member);
  parameters_.push_back({std::move(name), &member, true});
}

void Module::register_buffer(std::string name, Tensor& member, BufferOptions options) {
  check_new_name(name);
  convert_registered(name, member);
  buffers_.push_back({std::move(name), &member, options.persistent});
}

Tensor& Module::unregister_parameter(const std::string& name) {
  std::string names;
  for (const Slot& s : parameters_) {
    if (!s.tensor->defined()) continue;
    if (s.name == name) {
      Tensor& member = *s.tensor;
      unregister(&member);
      return member;
    }
    names += " " + s.name;
  }
  throw ValueError("Module", type_name(), " has no parameter '", name, "'; there are:", names);
}

void Module::unregister(const Tensor* member) {
  const auto is_it = [&](const Slot& s) { return s.tensor == member; };
  std::erase_if(parameters_, is_it);
  std::erase_if(buffers_, is_it);
}

// Calls f(dotted name, slot, is_parameter) for all defined tensors below this module: its own, then the
// children's. A tensor that several members share is visited several times.
template <class F> void Module::each_slot(const std::string& prefix, F&& f) const {
  for (const Slot& s : parameters_)
    if (s.tensor->defined()) f(join(prefix, s.name), s, true);
  for (const Slot& s : buffers_)
    if (s.tensor->defined()) f(join(prefix, s.name), s, false);
  for (const Module* child : children_) child->each_slot(join(prefix, child->name_), f);
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> all;
  const std::function<void(const std::string&, Module&)> visit = [&](const std::string& prefix, Module& m) {
    all.emplace_back(prefix, &m);
    for (Module* child : m.children_) visit(join(prefix, child->name_), *child);
  };
  visit("", *this);
  return all;
}

Module& Module::find(const std::string& path) {
  const auto all = named_modules();
  for (const auto& [name, m] : all)
    if (name == path) return *m;
  std::string names;
  for (const auto& [name, m] : all) names += " " + (name.empty() ? "\"\"" : name);
  throw ValueError("Module::find", "no module '", path, "' in ", type_name(), "; there are:", names);
}

StateDict Module::named_parameters() const {
  check_initialized();
  StateDict all;
  std::unordered_set<const TensorImpl*> seen;
  each_slot("", [&](std::string name, const Slot& s, bool is_parameter) {
    if (is_parameter && seen.insert(s.tensor->ref().get()).second)
      all.emplace_back(std::move(name), *s.tensor);
  });
  return all;
}

StateDict Module::named_buffers() const {
  check_initialized();
  StateDict all;
  std::unordered_set<const TensorImpl*> seen;
  each_slot("", [&](std::string name, const Slot& s, bool is_parameter) {
    if (!is_parameter && seen.insert(s.tensor->ref().get()).second)
      all.emplace_back(std::move(name), *s.tensor);
  });
  return all;
}

namespace {
std::vector<Tensor> tensors_of(StateDict&& named) {
  std::vector<Tensor> tensors;
  tensors.reserve(named.size());
  for (auto& [name, t] : named) tensors.push_back(std::move(t));
  return tensors;
}
}  // namespace

std::vector<Tensor> Module::parameters() const { return tensors_of(named_parameters()); }
std::vector<Tensor> Module::buffers() const { return tensors_of(named_buffers()); }

Tensor Module::parameter(const std::string& name) const {
  check_initialized();
  Tensor found;  // searches all slots, because a shared parameter has several names
  each_slot("", [&](const std::string& own, const Slot& s, bool is_parameter) {
    if (is_parameter && own == name) found = *s.tensor;
  });
  return found.defined() ? found : named_parameters().at(name);  // throws
}

Tensor Module::buffer(const std::string& name) const { return named_buffers().at(name); }

int64_t Module::num_parameters() const {
  int64_t n = 0;
  for (const auto& [name, p] : named_parameters()) n += p.numel();
  return n;
}

StateDict Module::state_dict() const {
  check_initialized();
  StateDict state;
  each_slot("", [&](std::string name, const Slot& s, bool) {
    if (s.persistent) state.emplace_back(std::move(name), *s.tensor);
  });
  return state;
}

namespace {

// Returns whether `name` equals `path` or is the name of a tensor below the module `path`.
bool is_under(const std::string& name, const std::string& path) {
  return name.starts_with(path) && (name.size() == path.size() || name[path.size()] == '.');
}

bool is_under(const std::string& name, const std::vector<std::string>& paths) {
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& p) { return is_under(name, p); });
}

void check_except(const Module& m, const StateDict& own, const std::vector<std::string>& except) {
  for (const std::string& path : except)
    if (std::none_of(own.begin(), own.end(), [&](const auto& entry) { return is_under(entry.first, path); }))
      throw ValueError("load_state_dict", m.type_name(), " has no '", path, "' to except");
}

}  // namespace

StateDict Module::named_parameters(const ParameterOptions& options) const {
  const StateDict all = named_parameters();
  for (const auto* paths : {&options.only, &options.except})
    for (const std::string& path : *paths)
      if (std::none_of(all.begin(), all.end(),
                       [&](const auto& entry) { return is_under(entry.first, path); })) {
        std::vector<std::string> names;
        for (const auto& [name, p] : all) names.push_back(name);
        std::string text;
        append_names(text, "there are", names);
        throw ValueError("parameters", type_name(), " has no parameter below '", path, "'", text);
      }
  StateDict some;
  for (const auto& [name, p] : all)
    if ((options.only.empty() || is_under(name, options.only)) && !is_under(name, options.except))
      some.emplace_back(name, p);
  return some;
}

std::vector<Tensor> Module::parameters(const ParameterOptions& options) const {
  return tensors_of(named_parameters(options));
}

LoadReport Module::load_state_dict(const StateDict& state, LoadOptions options) {
  LoadReport report;
  std::vector<std::string> repeated, misfits, followed;  // followed: tracked by an open recording
  std::unordered_map<std::string, const Tensor*> given;
  for (const auto& [name, t] : state)
    if (!is_under(name, options.except) && !given.emplace(name, &t).second) repeated.push_back(name);

  const StateDict all = state_dict();
  check_except(*this, all, options.except);
  std::vector<std::pair<Tensor, Tensor>> copies;  // to, from
  for (const auto& [name, own] : all) {
    if (is_under(name, options.except)) {
      report.kept.push_back(name);
      continue;
    }
    const auto it = given.find(name);
    if (it == given.end()) {
      report.missing.push_back(name);
      continue;
    }
    const Tensor& from = *it->second;
    if (!from.defined())
      misfits.push_back(concat("\n    ", name, ": expected ", describe(own), ", got an undefined tensor"));
    else if (from.shape() != own.shape() || is_floating(from.dtype()) != is_floating(own.dtype()))
      misfits.push_back(concat("\n    ", name, ": expected ", describe(own), ", got ", describe(from)));
    else if (autograd::is_tracked(own))
      followed.push_back(name);
    else
      copies.emplace_back(own, from);
    given.erase(it);  // what remains is unexpected
  }
  for (const auto& [name, t] : state)
    if (given.erase(name)) report.unexpected.push_back(name);

  std::string text;
  if (options.strict) append_names(text, "missing", report.missing, kMaxNames);
  if (options.strict) append_names(text, "unexpected", report.unexpected, kMaxNames);
  append_names(text, "given more than once", repeated, kMaxNames);
  append_names(text, "does not fit", misfits, kMaxNames);
  if (!misfits.empty()) text += "\n  (LoadOptions::except names what is to stay as it is)";
  if (!text.empty()) throw ValueError("load_state_dict", "the state does not fit ", type_name(), ':', text);
  if (!followed.empty()) {
    append_names(text, "followed", followed, kMaxNames);
    throw StateError("load_state_dict", "an open recording follows parameters of ", type_name(),
                     ": run its backward or release it first", text);
  }
  for (const auto& [to, from] : copies)
    if (!to.is_same(from)) raw::copy_(to, from);
  return report;
}

Module& Module::train(bool on) {
  training_ = on;
  for (Module* child : children_) child->train(on);
  return *this;
}

// Replaces the contents of every parameter and buffer by f(tensor), and of gradients alike. The TensorImpl
// stays, so optimizers and GradManagers keep their parameters. `op` is for errors.
void Module::convert(const std::function<Tensor(const Tensor&)>& f, const char* op) {
  const OpCall call(op);
  std::vector<Tensor> all;
  std::unordered_set<const TensorImpl*> seen;
  each_slot("", [&](const std::string& name, const Slot& s, bool) {
    if (!seen.insert(s.tensor->ref().get()).second) return;
    if (autograd::is_tracked(*s.tensor))
      throw StateError(op, "an open recording follows '", name, "': run its backward or release it first");
    all.push_back(*s.tensor);
  });
  // Converts all tensors before it replaces the first one, so that an error leaves the module unchanged.
  std::vector<Tensor> contents, gradients;
  for (const Tensor& t : all) {
    contents.push_back(f(t));
    const Tensor grad = t.grad();
    gradients.push_back(grad.defined() ? f(autograd::to_dense(grad)) : grad);
  }
  // Waits for queued kernels, which have references to these tensors and would read the new contents.
  for (size_t i = 0; i < all.size(); ++i)
    if (!contents[i].is_same(all[i])) synchronize(all[i].device());
  for (size_t i = 0; i < all.size(); ++i) {
    if (contents[i].is_same(all[i])) continue;
    replace_contents(all[i].impl(), contents[i].impl());
    if (gradients[i].defined()) all[i].set_grad(gradients[i]);
  }
}

Module& Module::to(DType dtype) {
  if (!is_floating(dtype)) throw DTypeError("Module::to", "expected a floating-point dtype, got ", dtype);
  convert(
      [&](const Tensor& t) { return is_floating(t.dtype()) && t.dtype() != dtype ? raw::to(t, dtype) : t; },
      "Module::to");
  return apply([&](Module& m) { m.dtype_ = dtype; });
}

Module& Module::to(Device device) {
  convert([&](const Tensor& t) { return t.device() == device ? t : raw::to(t, device); }, "Module::to");
  return apply([&](Module& m) { m.device_ = device; });
}

Tensor Module::to(const Tensor& x, DType dtype) { return gradus::to(x, dtype); }
Tensor Module::to(const Tensor& x, Device device) { return gradus::to(x, device); }

Module& Module::apply(const std::function<void(Module&)>& f) {
  for (Module* child : children_) child->apply(f);
  f(*this);
  return *this;
}

std::string Module::type_name() const {
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, nullptr), &std::free);
  std::string name = text ? text.get() : typeid(*this).name();
  const size_t colons = name.substr(0, name.find('<')).rfind("::");
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

namespace {

// The module whose call is innermost on this thread.
constinit thread_local const Module* innermost = nullptr;
// Collects the texts of warn_unregistered_call; null: warnings only.
constinit thread_local internal::UnregisteredCalls* unregistered_calls = nullptr;

void add_once(std::vector<std::string>& all, const std::string& text) {
  if (std::ranges::find(all, text) == all.end()) all.push_back(text);
}

}  // namespace

internal::UnregisteredCalls::UnregisteredCalls() : outer_(unregistered_calls) { unregistered_calls = this; }
internal::UnregisteredCalls::~UnregisteredCalls() { unregistered_calls = outer_; }

template <class F> bool Module::any_parameter(const F& predicate) const {
  const auto of = [&](const Slot& s) { return s.tensor->defined() && predicate(*s.tensor); };
  return std::ranges::any_of(parameters_, of) ||
         std::ranges::any_of(children_, [&](const Module* c) { return c->any_parameter(predicate); });
}

// Note [Unregistered modules]
// A module without a parent that is called in the forward of another module is probably a member that should
// have been constructed with {this, "name"}: its parameters are neither attached, optimized nor saved with
// the calling module. It may be intended, as with a teacher network or a perceptual loss. The warning is
// therefore given only if recordings follow parameters of the calling module's tree and no parameter of the
// called module. `outer` is the calling module.
void Module::warn_unregistered_call(const Module& outer) const {
  const auto& recordings = Context::current().recordings;
  if (recordings.empty() && !unregistered_calls) return;
  if (!any_parameter([](const Tensor&) { return true; })) return;
  const Module* root = &outer;
  while (root->parent_) root = root->parent_;
  const auto text = [&](const char* whose) {
    return concat(type_name(), " is called in the forward of ", outer.type_name(), whose,
                  " but has no parent: its ", parameters().size(),
                  " parameters are neither trained nor saved with it. Give it one where it is made, `",
                  type_name(),
                  " name{this, \"name\"};`; a class of your own says `using Layer::Layer;` for that");
  };
  if (unregistered_calls) add_once(unregistered_calls->messages_, text(""));
  if (recordings.empty() || any_parameter(&autograd::is_tracked) ||
      !root->any_parameter(&autograd::is_tracked))
    return;
  const std::string note = text(", whose parameters are followed,");
  for (const Ref<Counted>& r : recordings) autograd::as_recording(r)->add_explanation(note);
  warn_once(note);
}

Module::CallScope::CallScope(const Module& m) : outer_(innermost), pushed_(!m.name_.empty()) {
  if (outer_ && !m.parent_ && outer_ != &m) [[unlikely]]
    m.warn_unregistered_call(*outer_);
  if (pushed_) Context::current().module_path.push_back(&m.name_);
  if (Observer* o = observer()) [[unlikely]] {
    const std::string path = Context::current().module_path_text();
    running_ = RunningRange(*o, {.kind = RangeKind::kModule, .name = m.type_name(), .module = path});
  }
  innermost = &m;
}
Module::CallScope::~CallScope() {
  innermost = outer_;
  if (pushed_) Context::current().module_path.pop_back();
}

void copy_state_(const Module& from, Module& to) { to.load_state_dict(from.state_dict()); }

bool Module::is_substituted() const {
  for (const Module* m = parent_; m; m = m->parent_)
    if (m->open_scopes_ > 0) return true;
  const auto below = [](const auto& self, const Module& m) -> bool {
    return m.open_scopes_ > 0 ||
           std::ranges::any_of(m.children_, [&](const Module* c) { return self(self, *c); });
  };
  return below(below, *this);
}

ParameterScope::ParameterScope(Module& module, const std::vector<Tensor>& tensors) : module_(module) {
  const StateDict own = module.named_parameters();
  if (tensors.size() != own.size())
    throw ValueError("ParameterScope", module.type_name(), " has ", own.size(), " parameters, got ",
                     tensors.size(), " tensors");
  std::unordered_map<const TensorImpl*, const Tensor*> by_original;
  for (size_t i = 0; i < own.size(); ++i) {
    if (!tensors[i].defined() || tensors[i].shape() != own[i].second.shape())
      throw ShapeError("ParameterScope", "'", own[i].first, "' is ", describe(own[i].second), ", got ",
                       describe(tensors[i]));
    by_original[own[i].second.ref().get()] = &tensors[i];
  }
  module.each_slot("", [&](const std::string&, const Module::Slot& s, bool is_parameter) {
    if (is_parameter) originals_.emplace_back(s.tensor, *s.tensor);
  });
  for (auto& [slot, original] : originals_) *slot = *by_original.at(original.ref().get());
  ++module_.open_scopes_;
  if (!originals_.empty()) ++gradus::internal::exchanged_parameters;
}

ParameterScope::ParameterScope(Module& module, const StateDict& tensors, ParameterScopeOptions options)
    : module_(module) {
  module.check_initialized();
  struct Own {
    Tensor* slot;
    bool is_parameter;
  };
  std::unordered_map<std::string, Own> slots;
  module.each_slot("", [&](const std::string& name, const Module::Slot& s, bool is_parameter) {
    slots[name] = {s.tensor, is_parameter};
  });
  std::unordered_map<std::string, const Tensor*> by_name;
  std::unordered_map<const TensorImpl*, const Tensor*> by_original;  // tensors may have several names
  bool has_buffers = false;
  for (const auto& [name, t] : tensors) {
    const auto it = slots.find(name);
    if (it == slots.end())
      throw ValueError("ParameterScope", module.type_name(), " has no parameter or buffer '", name, "'");
    const auto& [slot, is_parameter] = it->second;
    if (!t.defined() || t.shape() != slot->shape())
      throw ShapeError("ParameterScope", "'", name, "' is ", describe(*slot), ", got ", describe(t));
    by_name[name] = &t;
    by_original.emplace(slot->ref().get(), &t);
    has_buffers = has_buffers || !is_parameter;
  }
  std::vector<const Tensor*> replacements;
  std::string missing;
  module.each_slot("", [&](const std::string& name, const Module::Slot& s, bool is_parameter) {
    const auto named = by_name.find(name);
    const auto same = by_original.find(s.tensor->ref().get());
    if (named != by_name.end() || same != by_original.end()) {
      originals_.emplace_back(s.tensor, *s.tensor);
      replacements.push_back(named != by_name.end() ? named->second : same->second);
    } else if (is_parameter || has_buffers) {
      missing += concat(missing.empty() ? "'" : ", '", name, '\'');
    }
  });
  if (!missing.empty() && !options.partial)
    throw ValueError("ParameterScope", module.type_name(), " has more than is given: ", missing,
                     "; give a tensor for each, or say .partial = true to keep them as they are");
  for (size_t i = 0; i < replacements.size(); ++i) *originals_[i].first = *replacements[i];
  ++module_.open_scopes_;
  ++gradus::internal::exchanged_parameters;
}

ParameterScope::~ParameterScope() {
  --module_.open_scopes_;
  if (!originals_.empty()) ++gradus::internal::exchanged_parameters;
  for (auto it = originals_.rbegin(); it != originals_.rend(); ++it) *it->first = std::move(it->second);
}

ModeScope::ModeScope(Module& module, bool training) {
  for (const auto& [path, m] : module.named_modules()) modes_.emplace_back(m, m->is_training());
  module.train(training);
}

ModeScope::~ModeScope() {
  // Modules are listed before their children: train() also sets the children, which are restored later.
  for (const auto& [module, training] : modes_) module->train(training);
}

}  // namespace gradus::nn
