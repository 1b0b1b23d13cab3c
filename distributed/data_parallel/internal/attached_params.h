// AttachedParams: the tensors that an all-reduce callback was attached with, in the order of attaching.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "gradus/autograd/graph/node.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

struct AttachedParam {
  Ref<autograd::Leaf> leaf;
  // The last synchronizing backward in which some rank reached it, or the one before the first.
  int64_t last_use;
  bool unused_here = false;  // in the last one, though another rank reached it
  Tensor kept = {};          // the gradient that no_sync keeps back
};

class AttachedParams {
 public:
  using NameOf = std::function<std::string(const Tensor&)>;
  explicit AttachedParams(NameOf name_of) : given_name_(std::move(name_of)) {}

  // Both return whether anything has changed.
  bool add(const Tensor& param, int64_t last_use);
  bool forget_dead();

  size_t size() const { return params_.size(); }
  AttachedParam& operator[](size_t i) { return params_[i]; }
  Tensor tensor(size_t i) const { return params_[i].leaf->tensor(); }
  // Returns those that are alive.
  std::vector<Tensor> tensors() const;
  size_t index_of(const Tensor& param) const;
  std::string name_of(size_t i) const;
  // Returns the names of those that are alive and for which `is` holds.
  std::vector<std::string> names(const std::function<bool(const AttachedParam&)>& is) const;

  // Adds a gradient to what is kept back.
  void keep(size_t i, const Tensor& grad);
  void drop_kept();

 private:
  const NameOf given_name_;
  std::vector<AttachedParam> params_;
  std::unordered_map<const AutogradSlot*, size_t> index_;
};

}  // namespace gradus::dist::internal
