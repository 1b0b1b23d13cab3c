// Implementation of AttachedParams.
#include "gradus/distributed/data_parallel/internal/attached_params.h"

#include <algorithm>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/tensor/ops/arithmetic.h"

namespace gradus::dist::internal {

bool AttachedParams::add(const Tensor& param, int64_t last_use) {
  Ref<autograd::Leaf> leaf = autograd::leaf_of(param);
  if (!index_.try_emplace(leaf.get(), params_.size()).second) return false;
  params_.push_back({.leaf = std::move(leaf), .last_use = last_use});
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

std::string AttachedParams::name_of(size_t i) const {
  const Tensor x = tensor(i);
  if (given_name_ && x.defined())
    if (std::string name = given_name_(x); !name.empty()) return name;
  return concat("parameter ", i);
}

std::vector<std::string> AttachedParams::names(const std::function<bool(const AttachedParam&)>& is) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < params_.size(); ++i)
    if (is(params_[i]) && tensor(i).defined()) names.push_back(name_of(i));
  return names;
}

void AttachedParams::accumulate(size_t i, const Tensor& grad) {
  Tensor& accumulated = params_[i].accumulated;
  if (!grad.defined()) return;
  if (!accumulated.defined())
    accumulated = grad.sole_owner() ? grad : clone(grad);
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

}  // namespace gradus::dist::internal
