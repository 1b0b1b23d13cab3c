// AttachedParams: the parameters to which an all-reduce callback is attached, in the order of attaching; and
// checks of parameters and gradients. Not thread-safe: only the thread that runs the backward calls them.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gradus/autograd/graph/node.h"
#include "gradus/distributed/group/group.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

struct AttachedParam {
  Ref<autograd::Leaf> leaf;  // the parameter's node in the graph; does not keep the tensor alive
  // Number of the last synchronizing backward in which some rank reached the tensor. Initially the number of
  // the last synchronizing backward before attaching.
  int64_t last_reached;
  bool locally_unused = false;  // in the last synchronizing backward, only other ranks reached the tensor
  Tensor accumulated = {};      // gradient accumulated under no_sync
};

class AttachedParams {
 public:
  using NameOf = std::function<std::string(const Tensor&)>;
  explicit AttachedParams(NameOf name_of) : user_name_of_(std::move(name_of)) {}

  // Appends a tensor unless it is attached already. Returns whether the list changed.
  bool add(const Tensor& param, int64_t last_reached);
  // Removes tensors that no longer exist. Returns whether the list changed.
  bool remove_destroyed();

  size_t size() const { return params_.size(); }
  AttachedParam& operator[](size_t i) { return params_[i]; }
  // Returns an undefined tensor if tensor i no longer exists.
  Tensor tensor(size_t i) const { return params_[i].leaf->tensor(); }
  // Returns the tensors that still exist.
  std::vector<Tensor> tensors() const;
  size_t index_of(const Tensor& param) const;  // Errors: InternalError unless attached
  std::string name_of(size_t i) const;         // "parameter i" if the user's function returns none
  // Returns the names of the existing tensors for which `predicate` returns true.
  std::vector<std::string> names(const std::function<bool(const AttachedParam&)>& predicate) const;

  // Adds a gradient to the accumulated gradient of tensor i (no_sync). An undefined gradient adds nothing.
  void accumulate(size_t i, const Tensor& grad);
  void clear_accumulated();
  // Returns whether `predicate` returns true for the accumulated gradient of some tensor.
  template <class F> bool has_accumulated(F predicate) const {
    return std::ranges::any_of(
        params_, [&](const AttachedParam& p) { return p.accumulated.defined() && predicate(p.accumulated); });
  }

 private:
  const NameOf user_name_of_;
  std::vector<AttachedParam> params_;
  std::unordered_map<const AutogradSlot*, size_t> index_;
};

// Returns a + b. An undefined tensor counts as zeros; if both are undefined, the result is undefined.
Tensor sum_of(const Tensor& a, const Tensor& b);

// Checks that a parameter, or its gradient, can be averaged between ranks.
// Errors: DeviceError for a tensor on the meta device.
void check_can_average(std::string_view op, std::string_view what, const Tensor& x);

// check_finite: searches the gradients of one backward for NaN and infinity.
class FiniteCheck {
 public:
  explicit FiniteCheck(bool enabled) : enabled_(enabled) {}
  // Checks this rank's gradient of the attached tensor number `param`. Gradients on GPUs are deferred to
  // findings(), so that the host synchronizes once.
  void check(size_t param, const Tensor& grad);
  // Returns a text, equal on all ranks, that names ranks, tensors and elements; "" if all ranks' gradients
  // are finite or the check is not enabled. Collective. `params` is the list that check()'s indices refer to.
  std::string findings(const Group& group, const AttachedParams& params);

 private:
  void check_elements(size_t param, const Tensor& grad);
  void check_gpu_gradients();

  const bool enabled_;
  int64_t param_ = -1, element_ = 0;  // first element that is not finite; param_ is -1 if there is none
  std::vector<std::pair<size_t, Tensor>> on_gpus_;
};

}  // namespace gradus::dist::internal
