// How gradients are put together for the way: few large messages instead of many small ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

struct BucketItem {
  int64_t bytes = 0;
  DType dtype = DType::kF32;
  Device device;
};

// Puts items, in their order, into buckets of one dtype and device each. A bucket is closed when it holds at
// least its limit: limits[0] for the first one of a dtype and device, limits[1] for the next, and so on; the
// last limit serves all that follow. Returns the items' indices, buckets ordered by their first item: the
// lists of PyTorch's _compute_bucket_assignment_by_size.
std::vector<std::vector<size_t>> assign_buckets(std::span<const BucketItem> items,
                                                std::span<const int64_t> limits);

// A number that is equal where shapes and dtypes are, and (very likely) nowhere else.
class Fingerprint {
 public:
  void add(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3; }
  void add(const Tensor& x);
  int64_t value() const { return int64_t(hash_); }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace gradus::dist::internal
