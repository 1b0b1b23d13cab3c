// The base of all optimizers: parameter groups, the step loop, and state dicts. A step first makes a StepItem
// (tensors and scalars) of each parameter with a gradient and checks all of them, then calls the subclass's
// step_group once per group, then counts the step. So an error in a check leaves parameters unchanged.
// Optional modes: f32 master weights of 16-bit parameters; step counts and learning rates on CUDA devices,
// for graph capture or a skip by a device flag.
#include "gradus/optim/optimizer.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/optim/scaled_gradient.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/warning.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::optim {
namespace {

std::string state_name(size_t param, const char* name) { return concat("state.", param, ".", name); }
std::string group_name(size_t group, const char* name) { return concat("group.", group, ".", name); }
constexpr const char* kMaster = "master";

// Convert the step count and the scalar state of a parameter to StepItem::on_device, f64 [3], and back.
// read_back waits for the device.
Tensor put_on(Device device, int64_t step, const std::array<double, 2>& numbers) {
  return raw::to(tensor<double>({double(step), numbers[0], numbers[1]}, {3}), device);
}
std::pair<int64_t, std::array<double, 2>> read_back(const Tensor& on_device) {
  const std::vector<double> n = on_device.to_vector<double>();
  return {int64_t(n[0]), {n[1], n[2]}};
}

}  // namespace

void Optimizer::add_params(const std::vector<Tensor>& params) {
  if (params.empty())
    throw ValueError(kind(), "expected at least one parameter, got an empty list; ", kEmptyParametersHint);
  std::unordered_set<const TensorImpl*> known;
  for (const Group& g : groups_)
    for (const Tensor& p : g.params) known.insert(p.ref().get());
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor& p = params[i];
    if (!p.defined()) throw ValueError(kind(), "parameter ", i, " is undefined");
    if (!is_floating(p.dtype()))
      throw DTypeError(kind(), "expected floating-point parameters, parameter ", i, " is ", describe(p));
    check_param(p);
    if (!known.insert(p.ref().get()).second)
      throw ValueError(kind(), "parameter ", i, " (", describe(p), ") is listed more than once");
  }
  ++changes_;
  groups_.push_back({params, std::vector<ParamState>(params.size()), {}, {}});
}

void Optimizer::add_param_group(const std::vector<Tensor>& params,
                                const std::vector<std::pair<std::string, double>>& changes) {
  OptionValues values = option_values(0);
  for (const auto& [name, value] : changes) {
    const auto it = std::ranges::find_if(values, [&](const auto& option) { return option.first == name; });
    if (it != values.end()) {
      it->second = value;
      continue;
    }
    std::string names;
    for (const auto& [known, v] : values) names += concat(" ", known);
    throw ValueError(kind(), "has no option '", name, "'; there are:", names);
  }
  add_group(params, values);
}

// Returns the initial state tensor number `state` of a parameter, in step_dtype (f32 or f64).
Tensor Optimizer::new_state(size_t group, size_t state, const Tensor& param) const {
  return full(*state_shape(state, param), initial_state(group, state),
              {raw::step_dtype(param.dtype()), param.device()});
}

std::optional<Shape> Optimizer::state_shape(size_t, const Tensor& param) const { return param.shape(); }

std::vector<const char*> Optimizer::state_names_of(std::vector<const char*> names,
                                                   const Tensor& param) const {
  for (size_t k = 0; k < names.size(); ++k)
    if (!state_shape(k, param)) names[k] = nullptr;
  return names;
}

Optimizer& Optimizer::keep_master_weights(bool on) {
  ++changes_;
  master_weights_ = on;
  for (Group& group : groups_)
    for (ParamState& state : group.states)
      if (!on) state.master = Tensor();
  return *this;
}

Optimizer& Optimizer::make_capturable(bool on) {
  if (on && !can_skip_on_device())
    throw ValueError(kind(),
                     "has no kernels that read the learning rate and the counts of steps on a device");
  if (capturable_ != on) ++changes_;
  capturable_ = on;
  for (Group& group : groups_)
    if (!on) group.rates.clear();
  return *this;
}

// Returns the group's learning rate as a scalar on `device`, created on first use.
Tensor Optimizer::device_lr(Device device, size_t group) {
  std::vector<Tensor>& rates = groups_[group].rates;
  for (const Tensor& rate : rates)
    if (rate.device() == device) return rate;
  return rates.emplace_back(full({}, group_lr(group), {DType::kF64, device}));
}

void Optimizer::count_change(const OptionValues& before, const OptionValues& after) {
  for (size_t i = 0; i < before.size(); ++i)
    if (std::string_view(before[i].first) != "lr" && before[i].second != after[i].second) ++changes_;
}

void Optimizer::update_device_lr(size_t group, double lr) const {
  for (const Tensor& rate : groups_[group].rates) raw::fill_(rate, lr);
}

bool Optimizer::keeps_master_of(const Tensor& param) const {
  return master_weights_ && size_of(param.dtype()) == 2;
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> all;
  for (const Group& g : groups_) all.insert(all.end(), g.params.begin(), g.params.end());
  return all;
}

void Optimizer::check_step(const Tensor& param, const Tensor& grad) const {
  if (param.defined() && param.ref()->slot && param.ref()->slot->is_recorded())
    throw StateError(kind(),
                     "step would overwrite a parameter that an open recording follows: ", describe(param),
                     "; run the recording's backward or release it first");
  if (const internal::Factor* factor = grad.defined() ? internal::factor_of(grad) : nullptr)
    throw StateError(kind(), "step would use a gradient that a GradScaler has multiplied", factor->text(),
                     ": ", describe(param), "; call scaler.step(opt)");
}

Optimizer& Optimizer::step() { return step_all(Tensor()); }

Optimizer& Optimizer::step_unless(const Tensor& found) {
  const auto on_device_of_found = [&](const Group& g) {
    return std::ranges::all_of(
        g.params, [&](const Tensor& p) { return !p.grad().defined() || p.device() == found.device(); });
  };
  if (found.device().type == DeviceType::kCUDA && can_skip_on_device() &&
      std::ranges::all_of(groups_, on_device_of_found))
    return step_all(found);
  return found.item<float>() != 0 ? *this : step();
}

Optimizer& Optimizer::step_all(const Tensor& found) {
  const OpCall call(kind());
  const RunningRange running = observed({.kind = RangeKind::kUser, .name = "optimizer step"});
  Capture* const capture = Context::current().capture.get();
  if (capture && capture->device().type == DeviceType::kCUDA) make_capturable();
  std::vector<Gradient> grads;
  for (size_t g = 0; g < groups_.size(); ++g)
    for (size_t i = 0; i < groups_[g].params.size(); ++i)
      if (const Tensor grad = groups_[g].params[i].grad(); grad.defined()) grads.push_back({g, i, grad});
  if (grads.empty())
    warn_once(concat(kind(),
                     "::step changes nothing: no parameter has a gradient. Attach them with gm.attach(), ",
                     "and call gm.backward(loss) before it"));
  if (capture && capture->device() == kCPU) {
    capture->valid_while([this, changes = changes_] { return changes == changes_; });
    capture->run_on_host(kind(), [this, grads, found] { step_with(grads, found); });
    return *this;
  }
  step_with(grads, found);
  if (capture) {
    capture->valid_while([this, changes = changes_] { return changes == changes_ && are_masters_current(); });
    capture->after_replay([this] {
      for (Group& group : groups_)
        for (size_t i = 0; i < group.params.size(); ++i)
          if (group.states[i].master.defined())
            group.states[i].rounded_version = group.params[i].storage()->version();
    });
  }
  return *this;
}

// Returns whether no other code has written to a parameter since its master copy was rounded into it.
bool Optimizer::are_masters_current() const {
  for (const Group& group : groups_)
    for (size_t i = 0; i < group.params.size(); ++i)
      if (const auto& rounded = group.states[i].rounded_version;
          rounded && *rounded != group.params[i].storage()->version())
        return false;
  return true;
}

// Steps the parameters of these gradients.
void Optimizer::step_with(const std::vector<Gradient>& grads, const Tensor& found) {
  // Once the counts of steps are on a device, they stay there.
  const bool counts_on_device =
      found.defined() || capturable_ || std::ranges::any_of(groups_, [](const Group& group) {
        return std::ranges::any_of(group.states, [](const ParamState& s) { return s.on_device.defined(); });
      });
  std::vector<std::vector<raw::StepItem>> items(groups_.size());
  std::vector<std::vector<size_t>> indices(groups_.size());  // of the parameters that have an item
  for (const Gradient& grad : grads) {
    items[grad.group].push_back(step_item(grad, found, counts_on_device));
    indices[grad.group].push_back(grad.param);
  }
  // Checks all groups before it steps any.
  for (const auto& group : items) raw::check_step_items(kind(), group);
  for (size_t g = 0; g < groups_.size(); ++g)
    if (!items[g].empty()) step_group(g, items[g]);
  for (size_t g = 0; g < groups_.size(); ++g)
    for (size_t k = 0; k < items[g].size(); ++k) end_step(g, indices[g][k], items[g][k]);
}

// Returns the arguments of one parameter's step, and prepares the parameter's state for that step.
raw::StepItem Optimizer::step_item(const Gradient& of, const Tensor& found, bool counts_on_device) {
  const size_t g = of.group;
  const Tensor& p = groups_[g].params[of.param];
  ParamState& state = groups_[g].states[of.param];
  Tensor grad = of.grad, rows;
  check_step(p, grad);
  if (autograd::is_sparse(grad) && supports_sparse_rows(g))
    rows = autograd::sparse_rows(grad).indices, grad = autograd::elements_of(grad);
  else if (needs_sparse_rows())
    throw ValueError(kind(), "expected a sparse gradient, got ", describe(grad),
                     ": dense gradients, as on GPUs and with callbacks, are for Adam");
  else
    grad = autograd::to_dense(grad);
  prepare_state(g, p, state, counts_on_device);
  std::array<Tensor, 3> tensors;
  const std::vector<const char*> names = state_names_of(group_state_names(g), p);
  for (size_t k = 0; k < names.size(); ++k)
    if (names[k]) tensors[k] = state.tensors[k];
  Tensor target = p;
  if (keeps_master_of(p)) {
    // Storage versions count writes: a version other than that of the last rounding shows a foreign write.
    const bool changed = state.rounded_version && *state.rounded_version != p.storage()->version();
    if (!state.master.defined() || changed) state.master = raw::to(p, DType::kF32);
    target = state.master, grad = raw::to(grad, DType::kF32);
  }
  const Tensor lr = capturable_ && state.on_device.defined() ? device_lr(p.device(), g) : Tensor();
  return {
      target, std::move(grad), std::move(tensors), state.step + 1, state.numbers, state.on_device, found, lr,
      rows};
}

// Makes the state tensors that the group's options use, and moves state to the device and dtype of the
// parameter, which Module::to may have changed.
void Optimizer::prepare_state(size_t g, const Tensor& p, ParamState& state, bool counts_on_device) {
  const std::vector<const char*> names = state_names_of(group_state_names(g), p);
  for (size_t k = 0; k < names.size(); ++k) {
    if (!names[k]) continue;
    Tensor& tensor = state.tensors[k];
    tensor = tensor.defined() ? raw::to(raw::to(tensor, raw::step_dtype(p.dtype())), p.device())
                              : new_state(g, k, p);
    if (const Shape shape = *state_shape(k, p); tensor.shape() != shape)
      throw ShapeError(kind(), "expected ", names[k], " of shape ", shape, ", got ", describe(tensor),
                       ", for the parameter ", describe(p));
  }
  if (state.on_device.defined() && state.on_device.device() != p.device()) {
    std::tie(state.step, state.numbers) = read_back(state.on_device);
    state.on_device = Tensor();
  }
  if (state.step == 0) state.numbers = initial_numbers(g);
  if (counts_on_device && p.device().type == DeviceType::kCUDA && !state.on_device.defined())
    state.on_device = put_on(p.device(), state.step, state.numbers);
}

// Rounds a stepped master copy into its parameter, and counts the step on the host unless the device counts.
void Optimizer::end_step(size_t g, size_t i, const raw::StepItem& item) {
  const Tensor& p = groups_[g].params[i];
  ParamState& state = groups_[g].states[i];
  if (keeps_master_of(p)) {
    raw::copy_(p, state.master);
    state.rounded_version = p.storage()->version();
  }
  if (item.on_device.defined()) return;
  advance_numbers(g, item, state.numbers);
  state.step = item.step;
}

Optimizer& Optimizer::clear_grad() {
  for (const Group& g : groups_)
    for (const Tensor& p : g.params) p.set_grad({});
  accumulated_ = 0;
  return *this;
}

void Optimizer::check_group(size_t group) const {
  if (group >= groups_.size()) throw IndexError(kind(), "group ", group, " of ", groups_.size());
}

double Optimizer::lr(size_t group) const {
  check_group(group);
  return group_lr(group);
}

void Optimizer::set_lr(double lr) {
  for (size_t g = 0; g < groups_.size(); ++g) set_lr(g, lr);
}

void Optimizer::set_lr(size_t group, double lr) {
  check_group(group);
  check_option(lr >= 0, kind(), "lr", ">= 0", lr);
  set_group_lr(group, lr);
}

namespace {
bool is_momentum(std::string_view name) { return name == "momentum" || name == "beta1"; }
}  // namespace

double Optimizer::momentum(size_t group) const {
  check_group(group);
  for (const auto& [name, value] : option_values(group))
    if (is_momentum(name)) return value;
  return 0;
}

bool Optimizer::has_momentum() const {
  const OptionValues values = option_values(0);
  return std::any_of(values.begin(), values.end(), [](const auto& n) { return is_momentum(n.first); });
}

void Optimizer::set_momentum(size_t group, double momentum) {
  check_group(group);
  OptionValues values = option_values(group);
  const auto it =
      std::find_if(values.begin(), values.end(), [](const auto& n) { return is_momentum(n.first); });
  if (it == values.end()) throw ValueError(kind(), "has no momentum to set to ", momentum);
  it->second = momentum;
  set_option_values(group, values);
}

double Optimizer::initial_lr(size_t group) const {
  check_group(group);
  return groups_[group].initial_lr.value_or(group_lr(group));
}

void Optimizer::set_initial_lr(size_t group, double lr) {
  check_group(group);
  groups_[group].initial_lr = lr;
}

void Optimizer::check_between_steps(const std::string& name) const {
  if (accumulated_ == 0) return;
  throw StateError(
      kind(), name, "the gradients of ", accumulated_,
      " batches wait for the step of an OptimizerWrapper, and are no part of the state: save and "
      "load between two steps, where its accumulated() is 0");
}

// Parameters without a step have no state entries. Parameter numbers count over all groups.
State Optimizer::state_dict() const {
  check_between_steps("");
  State out;
  size_t number = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    out.numbers.emplace_back(group_name(g, "params"), double(groups_[g].params.size()));
    for (const auto& [name, value] : option_values(g)) out.numbers.emplace_back(group_name(g, name), value);
    if (groups_[g].initial_lr) out.numbers.emplace_back(group_name(g, "initial_lr"), *groups_[g].initial_lr);
    const std::vector<const char*> numbers = number_names();
    for (size_t i = 0; i < groups_[g].states.size(); ++i, ++number) {
      ParamState s = groups_[g].states[i];
      if (s.on_device.defined()) std::tie(s.step, s.numbers) = read_back(s.on_device);
      if (s.step == 0) continue;
      out.numbers.emplace_back(state_name(number, "step"), double(s.step));
      for (size_t k = 0; k < numbers.size(); ++k)
        out.numbers.emplace_back(state_name(number, numbers[k]), s.numbers[k]);
      const std::vector<const char*> names = state_names_of(group_state_names(g), groups_[g].params[i]);
      // A state that became necessary by a change of options since the last step counts as new.
      for (size_t k = 0; k < names.size(); ++k)
        if (names[k])
          out.tensors.emplace_back(state_name(number, names[k]), s.tensors[k].defined()
                                                                     ? s.tensors[k]
                                                                     : new_state(g, k, groups_[g].params[i]));
      if (s.master.defined()) out.tensors.emplace_back(state_name(number, kMaster), s.master);
    }
  }
  return out;
}

void Optimizer::load_state_dict(const State& state) {
  StateReader in(state);
  read_state(in);
  in.finish(concat("this ", kind()));
}

// Reads into copies of the groups, which replace the groups only if the whole state is valid.
void Optimizer::read_state(StateReader in) {
  check_between_steps("");
  size_t number = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group group{groups_[g].params, std::vector<ParamState>(groups_[g].params.size()), groups_[g].initial_lr,
                groups_[g].rates};
    const double size = double(group.params.size());
    StateReader of_group = in.with_prefix(concat("group.", g));
    if (const double n = of_group.number("params", size); n != size)
      of_group.add_error("params", concat("expected ", size, ", got ", n));
    OptionValues options = option_values(g);
    for (auto& [name, value] : options) value = of_group.number(name, value);
    // Only optimizers with a schedule have an initial rate.
    if (of_group.contains("initial_lr")) group.initial_lr = of_group.number("initial_lr");
    std::vector<const char*> names = group_state_names(g);
    try {
      names = state_names_with(options);
    } catch (const ValueError& error) {
      in.add_error(concat("group.", g), error.what());
    }
    for (size_t i = 0; i < group.states.size(); ++i, ++number) {
      StateReader of_param = in.with_prefix(concat("state.", number));
      if (!of_param.contains("step")) continue;  // this parameter was never stepped
      const Tensor& p = group.params[i];
      ParamState& state = group.states[i];
      const auto tensor = [&](const char* name, const Shape& shape) {
        return of_param.tensor(name, shape, {raw::step_dtype(p.dtype()), p.device()});
      };
      state.step = of_param.count("step", 1);
      for (size_t k = 0; const char* name : number_names()) state.numbers[k++] = of_param.number(name);
      const std::vector<const char*> own_names = state_names_of(names, p);
      for (size_t k = 0; k < own_names.size(); ++k)
        if (own_names[k]) state.tensors[k] = tensor(own_names[k], *state_shape(k, p));
      if (keeps_master_of(p) && of_param.contains(kMaster)) state.master = tensor(kMaster, p.shape());
    }
    in.on_success([this, g, options, group] {
      ++changes_;
      set_option_values(g, options);
      groups_[g] = group;
    });
  }
}

void check_option(bool holds, const char* op, const char* name, const char* expected, double value) {
  if (!holds) throw ValueError(op, "expected ", name, " ", expected, ", got ", value);
}

void check_not_negative(const char* op, std::initializer_list<std::pair<const char*, double>> options) {
  for (const auto& [name, value] : options) check_option(value >= 0, op, name, ">= 0", value);
}

void check_no_weight_decay_for_sparse(const char* op, double weight_decay) {
  if (weight_decay != 0)
    throw ValueError(op, "expected weight_decay 0 for a parameter with a sparse gradient, got ", weight_decay,
                     ": put the parameter in a group of its own");
}

void check_betas(const char* op, const std::array<double, 2>& betas) {
  check_option(betas[0] >= 0 && betas[0] < 1, op, "beta1", "in [0, 1)", betas[0]);
  check_option(betas[1] >= 0 && betas[1] < 1, op, "beta2", "in [0, 1)", betas[1]);
}

}  // namespace gradus::optim
