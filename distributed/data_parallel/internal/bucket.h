// Bucket: gradients of one dtype and device that are reduced together, in one contiguous buffer.
#pragma once

#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/data_parallel/internal/reducer_checks.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// An attached tensor and its gradient in the current backward.
struct Gradient {
  Tensor param;
  Tensor grad = {};        // this rank's gradient; undefined: zeros
  bool has_local = false;  // this rank has a gradient: reached by its backward or accumulated under no_sync
  bool used = false;       // some rank has a gradient
  bool is_exclusive = false;  // `grad` is the only owner of its memory, which may be overwritten
  bool in_place = false;      // `grad` is reduced in its own memory and becomes the result
};
using Gradients = std::vector<Gradient>;

// Gradients of at least this size are sent in separate messages, and reduced in place if nothing else shares
// their memory.
inline constexpr int64_t kMinSeparateBytes = 1 << 20;

// A gradient as the all-reduce reads it: row-major, with all device work completed.
struct BucketEntry {
  size_t param;
  int64_t bytes;
  Tensor grad;  // undefined: zeros
  bool in_place;
};

struct Bucket {
  DType dtype;
  bool as_views;               // gradient_as_bucket_view
  std::vector<size_t> params;  // indices of attached tensors, in the order of sending
  Tensor memory = {};          // [sum of numel]

  // Allocates `memory`. Reuses the memory of the last backward unless gradients are still views of it.
  void allocate(const Gradients& gradients);
  // Returns a row-major view of the memory that starts at element `offset`.
  Tensor view(int64_t offset, const Shape& shape) const;
  // Calls f(index, gradient, view of memory) for the tensors that some rank uses; their views are adjacent.
  // Returns the total number of elements.
  template <class F> int64_t for_each_used(Gradients& gradients, F f) const {
    int64_t offset = 0;
    for (size_t i : params) {
      if (!gradients[i].used) continue;
      const Tensor& x = gradients[i].param;
      f(i, gradients[i], view(offset, x.shape()));
      offset += x.numel();
    }
    return offset;
  }

  // Copies this rank's used gradients into the memory. Returns the number of elements.
  int64_t pack(Gradients& gradients, FiniteCheck& check) const;
  // Returns all of this rank's gradients. The all-reduce packs them later, once the used ones are known.
  std::vector<BucketEntry> local_gradients(Gradients& gradients, FiniteCheck& check) const;
  // Appends the used tensors' reduced gradients to `to`. Returns their size in bytes.
  int64_t unpack(Gradients& gradients, std::vector<GradCallback::Delivery>& to) const;
};

}  // namespace gradus::dist::internal
