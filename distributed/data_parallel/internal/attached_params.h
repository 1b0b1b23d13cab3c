// AttachedParams: the tensors to which an all-reduce callback is attached, in the order of attaching.
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
  // Number of the last synchronizing backward in which some rank reached the tensor. Initially the number of
  // the last synchronizing backward before attaching.
  int64_t last_use;
  bool locally_unused = false;  // in the last synchronizing backward, only other ranks reached the tensor
  Tensor accumulated = {};      // gradient accumulated under no_sync
};

class AttachedParams {
 public:
  using NameOf = std::function<std::string(const Tensor&)>;
  explicit AttachedParams(NameOf name_of) : given_name_(std::move(name_of)) {}

  // Appends a tensor unless it is attached already. Returns whether the list changed.
  bool add(const Tensor& param, int64_t last_use);
  // Removes tensors that no longer exist. Returns whether the list changed.
  bool remove_destroyed();

  size_t size() const { return params_.size(); }
  AttachedParam& operator[](size_t i) { return params_[i]; }
  Tensor tensor(size_t i) const { return params_[i].leaf->tensor(); }
  // Returns the tensors that still exist.
  std::vector<Tensor> tensors() const;
  size_t index_of(const Tensor& param) const;
  std::string name_of(size_t i) const;
  // Returns the names of the existing tensors for which `is` returns true.
  std::vector<std::string> names(const std::function<bool(const AttachedParam&)>& is) const;

  // Adds a gradient to the accumulated gradient of tensor i (no_sync).
  void accumulate(size_t i, const Tensor& grad);
  void clear_accumulated();

 private:
  const NameOf given_name_;
  std::vector<AttachedParam> params_;
  std::unordered_map<const AutogradSlot*, size_t> index_;
};

// Returns a + b. An undefined tensor counts as zeros; if both are undefined, the result is undefined.
Tensor sum_of(const Tensor& a, const Tensor& b);

}  // namespace gradus::dist::internal
