// AttachedParams: the list of parameters whose gradients an all-reduce callback averages, with the gradients
// that no_sync accumulates. A parameter is found by its autograd leaf, and is not kept alive. FiniteCheck:
// searches the gradients for NaN and infinity, element by element on the CPU, by the infinity norm per device
// on GPUs.
#include "gradus/distributed/data_parallel/internal/attached_params.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/distributed/data_parallel/checksum.h"
#include "gradus/distributed/data_parallel/internal/compare.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::dist::internal {

bool AttachedParams::add(const Tensor& param, int64_t last_reached) {
  Ref<autograd::Leaf> leaf = autograd::leaf_of(param);
  if (!index_.try_emplace(leaf.get(), params_.size()).second) return false;
  params_.push_back({.leaf = std::move(leaf), .last_reached = last_reached});
  return true;
}

bool AttachedParams::remove_destroyed() {
  if (std::erase_if(params_, [](const auto& p) { return !p.leaf->tensor().defined(); }) == 0) return false;
  index_.clear();
  for (size_t i = 0; i < params_.size(); ++i) index_[params_[i].leaf.get()] = i;
  return true;
}

std::vector<Tensor> AttachedParams::tensors() const {
  std::vector<Tensor> existing;
  for (const AttachedParam& p : params_)
    if (Tensor x = p.leaf->tensor(); x.defined()) existing.push_back(std::move(x));
  return existing;
}

size_t AttachedParams::index_of(const Tensor& param) const {
  const auto it = index_.find(param.ref()->slot.get());
  if (it == index_.end())
    throw InternalError("a gradient of a tensor that is not attached: ", describe(param));
  return it->second;
}

// Returns the name that the caller's function gives, or "parameter i" if it gives none.
std::string AttachedParams::name_of(size_t i) const {
  const Tensor x = tensor(i);
  if (user_name_of_ && x.defined())
    if (std::string name = user_name_of_(x); !name.empty()) return name;
  return concat("parameter ", i);
}

std::vector<std::string> AttachedParams::names(
    const std::function<bool(const AttachedParam&)>& predicate) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < params_.size(); ++i)
    if (predicate(params_[i]) && tensor(i).defined()) names.push_back(name_of(i));
  return names;
}

void AttachedParams::accumulate(size_t i, const Tensor& grad) {
  // Adds in place only if no other handle shares the buffer and no recording follows either tensor.
  Tensor& accumulated = params_[i].accumulated;
  if (!grad.defined()) return;
  if (!accumulated.defined())
    accumulated = grad.is_sole_owner() ? grad : clone(grad);
  else if (autograd::may_reuse(accumulated) && !autograd::is_tracked(accumulated) &&
           !autograd::is_tracked(grad))
    raw::add_(accumulated, grad);
  else
    accumulated = gradus::add(accumulated, grad);
}

void AttachedParams::clear_accumulated() {
  for (AttachedParam& p : params_) p.accumulated = Tensor();
}

Tensor sum_of(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  return add(a, b);
}

void check_can_average(std::string_view op, std::string_view what, const Tensor& x) {
  if (x.device().type == DeviceType::kMeta)
    throw DeviceError(op, "expected ", what, " with data, got ", describe(x));
}

void FiniteCheck::check(size_t param, const Tensor& grad) {
  if (!enabled_) return;
  if (grad.device().type == DeviceType::kCUDA)
    on_gpus_.emplace_back(param, grad);
  else
    check_elements(param, grad);
}

// Keeps the first finding of this rank; `param` is an index into AttachedParams.
void FiniteCheck::check_elements(size_t param, const Tensor& grad) {
  if (param_ >= 0) return;
  element_ = first_not_finite(grad);
  if (element_ >= 0) param_ = int64_t(param);
}

// Computes the infinity norm per device. Searches the gradients' elements only if a norm is not finite.
void FiniteCheck::check_gpu_gradients() {
  std::map<int, std::vector<Tensor>> by_device;
  for (const auto& [param, grad] : on_gpus_) by_device[grad.device().index].push_back(grad);
  std::vector<Tensor> norms;
  for (const auto& [device, grads] : by_device)
    norms.push_back(raw::norm_of(grads, std::numeric_limits<double>::infinity()));
  const bool all_finite =
      std::ranges::all_of(norms, [](const Tensor& norm) { return std::isfinite(norm.item<double>()); });
  for (const auto& [param, grad] : std::exchange(on_gpus_, {}))
    if (!all_finite) check_elements(param, grad);
}

std::string FiniteCheck::findings(const Group& group, const AttachedParams& params) {
  if (!enabled_) return {};
  check_gpu_gradients();
  std::vector<std::vector<int64_t>> all{{param_, element_}};
  if (group.size() > 1) all = gather_lists(Op::kCheckSynchronized, all[0], group);
  std::string text;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i][0] >= 0)
      text += concat(text.empty() ? "" : "; ", "rank ", group.ranks()[i],
                     " has NaN or infinity in the gradient of ", params.name_of(all[i][0]),
                     ", first in element ", all[i][1]);
  return text;
}

}  // namespace gradus::dist::internal
