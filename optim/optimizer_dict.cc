// OptimizerDict: a list of named OptimizerWrappers in the order of construction, and their combined state, in
// which the entries of the optimizer "disc" begin with "disc.".
#include "gradus/optim/optimizer_dict.h"

#include <algorithm>

namespace gradus::optim {
namespace {

constexpr const char* kOp = "OptimizerDict";

template <class List> void append_prefixed(List& to, const std::string& prefix, const List& from) {
  for (const auto& [name, value] : from) to.emplace_back(prefix + name, value);
}

}  // namespace

// An entry without ownership: the caller owns the wrapper.
OptimizerDict::Entry::Entry(std::string name, OptimizerWrapper& wrapper)
    : name(std::move(name)), wrapper(std::shared_ptr<void>(), &wrapper) {}

OptimizerDict::Entry::Entry(std::string name, Optimizer& optimizer)
    : name(std::move(name)), wrapper(std::make_shared<OptimizerWrapper>(optimizer)) {}

OptimizerDict::Entry::Entry(std::string name, Optimizer& optimizer, GradManager& gm,
                            OptimizerWrapperOptions options)
    : name(std::move(name)), wrapper(std::make_shared<OptimizerWrapper>(optimizer, gm, std::move(options))) {}

OptimizerDict::OptimizerDict(std::initializer_list<Entry> optimizers) {
  for (const Entry& entry : optimizers) {
    const std::string& name = entry.name;
    if (name.empty() || name.find('.') != std::string::npos)
      throw ValueError(kOp, "a name may not be empty or have a dot, got '", name, "'");
    if (contains(name)) throw ValueError(kOp, "the name '", name, "' is given more than once");
    for (const Entry& other : entries_)
      if (&other.wrapper->optimizer() == &entry.wrapper->optimizer())
        throw ValueError(kOp, "'", other.name, "' and '", name, "' are the same optimizer");
    entries_.push_back(entry);
  }
}

OptimizerWrapper& OptimizerDict::operator[](const std::string& name) const {
  std::string known;
  for (const auto& [key, wrapper] : entries_) {
    if (key == name) return *wrapper;
    known += " '" + key + "'";
  }
  throw ValueError(kOp, "no optimizer '", name, "'; there are:", known);
}

bool OptimizerDict::contains(const std::string& name) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == name; });
}

std::vector<std::string> OptimizerDict::names() const {
  std::vector<std::string> all;
  for (const Entry& e : entries_) all.push_back(e.name);
  return all;
}

const OptimizerDict& OptimizerDict::clear_grad() const {
  for (const Entry& e : entries_) e.wrapper->clear_grad();
  return *this;
}

std::map<std::string, std::vector<double>> OptimizerDict::lr() const {
  std::map<std::string, std::vector<double>> all;
  for (const auto& [name, wrapper] : entries_) all[name] = wrapper->lr();
  return all;
}

std::map<std::string, std::vector<double>> OptimizerDict::momentum() const {
  std::map<std::string, std::vector<double>> all;
  for (const auto& [name, wrapper] : entries_) all[name] = wrapper->momentum();
  return all;
}

// Errors: StateError naming an optimizer with accumulated gradients.
void OptimizerDict::check_between_steps() const {
  for (const auto& [name, wrapper] : entries_) wrapper->check_between_steps("'" + name + "': ");
}

State OptimizerDict::state_dict() const {
  check_between_steps();
  State all;
  for (const auto& [name, wrapper] : entries_) {
    const State state = wrapper->state_dict();
    append_prefixed(all.tensors, name + ".", state.tensors);
    append_prefixed(all.numbers, name + ".", state.numbers);
  }
  return all;
}

void OptimizerDict::load_state_dict(const State& state) const {
  check_between_steps();
  StateReader in(state);
  for (const auto& [name, wrapper] : entries_) wrapper->optimizer().read_state(in.with_prefix(name));
  in.finish("these optimizers");  // applies what the optimizers have read, if all of it fits
}

}  // namespace gradus::optim
