// StepInBackward. A recording records nothing while its backward runs, so that a callback may write to parameters. An
// op that has saved the old value finds another version of its storage, and throws.
#include "gradus/optim/step_in_backward.h"

#include <algorithm>
#include <string>

#include "gradus/tensor/runtime/capture.h"

namespace gradus::optim {
namespace {

auto find(const auto& entries, const Tensor& param) {
  return std::ranges::find_if(entries, [&](const auto& entry) { return entry.first.is_same(param); });
}

}  // namespace

void StepInBackward::attached_to(const Tensor& param) {
  if (find(entries_, param) != entries_.end()) return;
  std::unique_ptr<Optimizer> optimizer = factory_(param);
  const std::vector<Tensor> params = optimizer ? optimizer->parameters() : std::vector<Tensor>();
  if (params.size() != 1 || !params[0].is_same(param))
    throw ValueError("StepInBackward", "expected an optimizer of the one parameter ", describe(param),
                     ", got ", optimizer ? concat("one of ", params.size(), " parameters") : "none");
  entries_.emplace_back(param, std::move(optimizer));
}

std::optional<Tensor> StepInBackward::ready(const Tensor& param, const Tensor& grad) {
  refuse_capture("StepInBackward", "the optimizer steps within the backward");
  if (!grad.defined()) return grad;
  if (param.grad().defined())
    throw StateError("StepInBackward", "another backward has set the gradient of ", describe(param),
                     ": clear it with set_grad({}) before this backward");
  const auto entry = find(entries_, param);
  if (entry == entries_.end())
    throw StateError("StepInBackward", "the factory gave no optimizer of ", describe(param));
  param.set_grad(grad);
  const struct Scope {
    ~Scope() { optimizer.clear_grad(); }  // also when step() throws
    Optimizer& optimizer;
  } scope{*entry->second};
  entry->second->step();
  return Tensor();
}

std::vector<Optimizer*> StepInBackward::optimizers() const {
  std::vector<Optimizer*> all;
  for (const auto& [param, optimizer] : entries_) all.push_back(optimizer.get());
  return all;
}

State StepInBackward::state_dict() const {
  State all;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const State state = entries_[i].second->state_dict();
    for (const auto& [name, value] : state.tensors) all.tensors.emplace_back(concat(i, ".", name), value);
    for (const auto& [name, value] : state.numbers) all.numbers.emplace_back(concat(i, ".", name), value);
  }
  return all;
}

void StepInBackward::load_state_dict(const State& state) const {
  StateReader in(state);
  for (size_t i = 0; i < entries_.size(); ++i) entries_[i].second->read_state(in.with_prefix(concat(i)));
  in.finish("these optimizers");
}

}  // namespace gradus::optim
