// Bucket: gradients of one dtype and device that one backward all-reduces together, in one contiguous buffer
// on their GPU or in host memory (the counterpart of DDP's Bucket). Attached tensors are the parameters of AllReduceCallback.
// `reduced` (Consensus::reduced) flags the attached tensors for which some rank has a gradient; ranks without
// one send zeros.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/base/reduce_op.h"
#include "gradus/distributed/data_parallel/internal/attached_params.h"
#include "gradus/distributed/data_parallel/internal/consensus.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Whether a gradient's memory may be overwritten.
enum class Ownership {
  kShared,     // other tensors may use the memory
  kExclusive,  // the gradient is the only owner of its memory
  kInPlace,    // exclusive; the gradient is reduced in its own memory and becomes the result
};

// An attached tensor and its gradient in the current backward.
struct Gradient {
  size_t index;  // of the attached tensor
  Tensor param;
  int64_t bytes;     // size of param
  Tensor grad = {};  // this rank's gradient; undefined: zeros
  Tensor sent = {};  // `grad` as the all-reduce reads it: row-major, on the bucket's device
  Ownership ownership = Ownership::kShared;
};

// Gradients of at least this size are sent in separate messages, and reduced in place if nothing else shares
// their memory.
inline constexpr int64_t kMinSeparateBytes = 1 << 20;

// The queued all-reduce shares the Bucket: until `work` is done, only the thread that communicates may use
// `memory`, `sent`, `start` and `end`. That thread does not use `param`.
struct Bucket {
  bool as_views = false;            // gradient_as_bucket_view
  std::vector<Gradient> gradients;  // in the order of sending
  Tensor memory = {};               // [sum of numel], on the gradients' GPU or the host
  int num_pending = 0;              // number of gradients that this rank's backward has yet to compute
  Work work = {};
  std::function<void()> complete = {};  // completion of the comm hook
  TimePoint start = {}, end = {};       // interval of the communication; on GPUs of queuing it
  int64_t bytes = 0;                    // size of the gradients that some rank has

  DType dtype() const { return gradients[0].param.dtype(); }
  bool on_gpu() const { return memory.device().type == DeviceType::kCUDA; }
  bool is_reduced(const std::vector<bool>& reduced) const;
  // Sets `memory` to `reusable`, the memory of the last backward (may be undefined), if no gradient is a view
  // of it, and dtype and device fit; else allocates.
  void allocate(const Tensor& reusable);

  // For a comm hook: copies this rank's gradients with `reduced` into the memory, and zeros for missing ones.
  void pack(const std::vector<bool>& reduced, FiniteCheck& check);
  // For the all-reduce, which packs once the Consensus is known: sets `sent` of this rank's gradients.
  // Errors: DeviceError for a gradient on the meta device.
  void prepare(FiniteCheck& check);
  // Appends the results of the tensors with `reduced` to `to`.
  void unpack(const std::vector<bool>& reduced, std::vector<GradCallback::Delivery>& to);

  // Calls f(gradient, view of memory) for the tensors with `reduced`; their views are adjacent. Sets `bytes`.
  template <class F> void for_each_reduced(const std::vector<bool>& reduced, F f) {
    int64_t offset = 0;
    for (Gradient& g : gradients) {
      if (!reduced[g.index]) continue;
      f(g, view(offset, g.param.shape()));
      offset += g.param.numel();
    }
    bytes = offset * size_of(dtype());
  }
  // Returns a row-major view of the memory that starts at element `offset`.
  Tensor view(int64_t offset, const Shape& shape) const;
};

// Returns a queued collective that packs the bucket's gradients of Consensus::reduced and all-reduces them.
// The group runs its collectives in order, so when the call starts, the consensus is known. The memory gets
// the result, except for gradients that are reduced in place.
Collective bucket_all_reduce(const std::shared_ptr<Bucket>& bucket, ReduceOp op, const Group& group,
                             const std::shared_ptr<const Consensus>& consensus);

// Divides a contiguous tensor, in place: the sum of a mean.
void divide(const Tensor& sum, int divisor);

inline TimePoint clock_now() { return std::chrono::steady_clock::now(); }

}  // namespace gradus::dist::internal
