#include "gradus/optim/optimizer.h"

#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "gradus/tensor/ops/copy.h"

namespace gradus::autograd {
bool is_tracked(const Tensor& x);  // autograd/record.h; met at link time, as Tensor::grad is
}

namespace gradus::optim {
namespace {

std::string state_name(size_t param, const char* name) { return concat("state.", param, ".", name); }
std::string group_name(size_t group, const char* name) { return concat("group.", group, ".", name); }

}  // namespace

void Optimizer::add_params(const std::vector<Tensor>& params) {
  if (params.empty()) throw ValueError(kind(), "expected at least one parameter, given an empty list");
  std::unordered_set<const TensorImpl*> known;
  for (const Group& g : groups_)
    for (const Tensor& p : g.params) known.insert(p.ref().get());
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor& p = params[i];
    if (!p.defined()) throw ValueError(kind(), "parameter ", i, " is undefined");
    if (p.dtype() != DType::kF32 && p.dtype() != DType::kF64)
      throw DTypeError(kind(), "expected f32 or f64 parameters, parameter ", i, " is ", describe(p));
    if (!known.insert(p.ref().get()).second)
      throw ValueError(kind(), "parameter ", i, " (", describe(p), ") is given more than once");
  }
  groups_.push_back({params, std::vector<ParamState>(params.size())});
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> all;
  for (const Group& g : groups_) all.insert(all.end(), g.params.begin(), g.params.end());
  return all;
}

Optimizer& Optimizer::step() {
  std::vector<std::vector<raw::StepItem>> items(groups_.size());
  std::vector<ParamState*> stepped;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const size_t num_states = state_names(g).size();
    for (size_t i = 0; i < group.params.size(); ++i) {
      const Tensor& p = group.params[i];
      Tensor grad = p.grad();
      if (!grad.defined()) continue;
      if (autograd::is_tracked(p))
        throw StateError(kind(),
                         "step would overwrite a parameter that an open recording follows: ", describe(p),
                         "; run the recording's backward or release it first");
      ParamState& state = group.states[i];
      for (size_t k = 0; k < num_states; ++k)
        if (!state.tensors[k].defined()) {
          state.tensors[k] = empty(p.shape(), {p.dtype(), p.device()});
          raw::fill_(state.tensors[k], 0);
        }
      items[g].push_back({p, std::move(grad), state.tensors, state.step + 1});
      stepped.push_back(&state);
    }
  }
  // All groups are checked before any is stepped.
  for (const auto& group : items) raw::check_step_items(kind(), group);
  for (size_t g = 0; g < groups_.size(); ++g)
    if (!items[g].empty()) step_group(g, items[g]);
  for (ParamState* s : stepped) ++s->step;
  return *this;
}

Optimizer& Optimizer::clear_grad() {
  for (const Group& g : groups_)
    for (const Tensor& p : g.params) p.set_grad({});
  return *this;
}

double Optimizer::lr(size_t group) const {
  if (group >= groups_.size()) throw IndexError(kind(), "group ", group, " of ", groups_.size());
  return group_lr(group);
}

void Optimizer::set_lr(double lr) {
  for (size_t g = 0; g < groups_.size(); ++g) set_lr(g, lr);
}

void Optimizer::set_lr(size_t group, double lr) {
  if (group >= groups_.size()) throw IndexError(kind(), "group ", group, " of ", groups_.size());
  check_option(lr >= 0, kind(), "lr", ">= 0", lr);
  set_group_lr(group, lr);
}

double Optimizer::momentum(size_t group) const {
  if (group >= groups_.size()) throw IndexError(kind(), "group ", group, " of ", groups_.size());
  for (const auto& [name, value] : group_numbers(group))
    if (name == std::string_view("momentum") || name == std::string_view("beta1")) return value;
  return 0;
}

State Optimizer::state_dict() const {
  State out;
  size_t number = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    out.numbers.emplace_back(group_name(g, "params"), double(groups_[g].params.size()));
    for (const auto& [name, value] : group_numbers(g)) out.numbers.emplace_back(group_name(g, name), value);
    const std::vector<const char*> names = state_names(g);
    for (const ParamState& s : groups_[g].states) {
      if (s.step > 0) {
        out.numbers.emplace_back(state_name(number, "step"), double(s.step));
        for (size_t k = 0; k < names.size(); ++k)
          out.tensors.emplace_back(state_name(number, names[k]), s.tensors[k]);
      }
      ++number;
    }
  }
  return out;
}

void Optimizer::load_state_dict(const State& state) {
  std::unordered_map<std::string, double> numbers;
  std::unordered_map<std::string, Tensor> tensors;
  std::string wrong;
  for (const auto& [name, v] : state.numbers)
    if (!numbers.emplace(name, v).second) wrong += "\n  given more than once: " + name;
  for (const auto& [name, t] : state.tensors)
    if (!tensors.emplace(name, t).second) wrong += "\n  given more than once: " + name;
  const auto take = [&](const std::string& name) {
    const auto it = numbers.find(name);
    if (it == numbers.end()) return wrong += "\n  missing: " + name, 0.0;
    const double v = it->second;
    numbers.erase(it);
    return v;
  };

  std::vector<Numbers> group_values(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (const double n = take(group_name(g, "params")); n != double(groups_[g].params.size()))
      wrong += concat("\n  group ", g, " has ", groups_[g].params.size(), " parameters, given ", n);
    for (const auto& [name, value] : group_numbers(g))
      group_values[g].emplace_back(name, take(group_name(g, name)));
  }
  if (!wrong.empty()) throw ValueError("load_state_dict", "the state does not fit this ", kind(), ':', wrong);

  // The options say which states there are, so they are set first, and put back if the rest does not fit.
  std::vector<Numbers> previous;
  for (size_t g = 0; g < groups_.size(); ++g) previous.push_back(group_numbers(g));
  try {
    for (size_t g = 0; g < groups_.size(); ++g) set_group_numbers(g, group_values[g]);
    std::vector<std::vector<ParamState>> loaded;
    size_t number = 0;
    for (size_t g = 0; g < groups_.size(); ++g) {
      const std::vector<const char*> names = state_names(g);
      std::vector<ParamState>& states = loaded.emplace_back(groups_[g].params.size());
      for (size_t i = 0; i < states.size(); ++i, ++number) {
        const Tensor& p = groups_[g].params[i];
        const auto step = numbers.find(state_name(number, "step"));
        if (step == numbers.end()) continue;  // this parameter was never stepped
        if (!(step->second >= 1 && step->second < 0x1p53) || step->second != double(int64_t(step->second)))
          wrong += concat("\n  ", step->first, ": expected a whole number above 0, given ", step->second);
        states[i].step = wrong.empty() ? static_cast<int64_t>(step->second) : 0;
        numbers.erase(step);
        for (size_t k = 0; k < names.size(); ++k) {
          const std::string name = state_name(number, names[k]);
          const auto it = tensors.find(name);
          if (it == tensors.end()) {
            wrong += "\n  missing: " + name;
          } else if (!it->second.defined() || it->second.shape() != p.shape() ||
                     !is_floating(it->second.dtype())) {
            wrong += concat("\n  ", name, ": expected the shape of ", describe(p), ", given ",
                            describe(it->second));
            tensors.erase(it);
          } else {
            states[i].tensors[k] = empty(p.shape(), {p.dtype(), p.device()});
            raw::copy_(states[i].tensors[k], it->second);
            tensors.erase(it);
          }
        }
      }
    }
    for (const auto& [name, v] : state.numbers)
      if (numbers.erase(name)) wrong += "\n  unexpected: " + name;
    for (const auto& [name, t] : state.tensors)
      if (tensors.erase(name)) wrong += "\n  unexpected: " + name;
    if (!wrong.empty())
      throw ValueError("load_state_dict", "the state does not fit this ", kind(), ':', wrong);
    for (size_t g = 0; g < groups_.size(); ++g) groups_[g].states = std::move(loaded[g]);
  } catch (...) {
    for (size_t g = 0; g < groups_.size(); ++g) set_group_numbers(g, previous[g]);
    throw;
  }
}

void check_option(bool holds, const char* op, const char* name, const char* expected, double given) {
  if (!holds) throw ValueError(op, "expected ", name, " ", expected, ", given ", given);
}

}  // namespace gradus::optim
