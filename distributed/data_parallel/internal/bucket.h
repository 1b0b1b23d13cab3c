// Bucket: gradients of one dtype and device that travel together, in one piece of memory.
#pragma once

#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/data_parallel/internal/reducer_checks.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// An attached tensor in the backward under way.
struct Gradient {
  Tensor param;
  Tensor grad = {};       // this rank's
  bool mine = false;      // reached here, or kept
  bool used = false;      // on some rank
  bool is_ours = false;   // nobody else looks at `grad`
  bool in_place = false;  // it becomes the result itself
};
using Gradients = std::vector<Gradient>;

// A gradient of so many bytes is not packed with others: it is reduced where it lies, if nobody else sees it.
inline constexpr int64_t kAloneBytes = 1 << 20;

// A gradient as an all-reduce takes it: row-major, written by its device.
struct BucketPart {
  size_t param;
  int64_t bytes;
  Tensor grad;  // undefined: zeros
  bool in_place;
};

struct Bucket {
  DType dtype;
  bool as_views;               // gradient_as_bucket_view
  std::vector<size_t> params;  // in the order of sending
  Tensor memory = {};          // [elements of all]

  // Takes new memory if somebody's gradients are still views of the last backward's.
  void make_room(const Gradients& gradients);
  // Returns a view of the memory from this element on.
  Tensor view(int64_t offset, const Shape& shape) const;
  // Calls f(param, its gradient, its view) for those that some rank uses, which lie in a row. Returns their
  // number of elements.
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
  // Returns all of this rank's gradients, for an all-reduce that packs when it knows which are used.
  std::vector<BucketPart> parts(Gradients& gradients, FiniteCheck& check) const;
  // Delivers the used gradients. Returns their bytes.
  int64_t unpack(Gradients& gradients, std::vector<GradCallback::Delivery>& to) const;
};

}  // namespace gradus::dist::internal
