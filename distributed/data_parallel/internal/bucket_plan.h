// How gradients are packed into buckets: few large messages instead of many small ones.
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
// least its limit. The limit is limits[0] for the first bucket of a dtype and device, limits[1] for the next,
// and so on; the last limit serves all further buckets. Returns the items' indices, with buckets ordered by
// their first item. These are the lists of PyTorch's _compute_bucket_assignment_by_size.
std::vector<std::vector<size_t>> assign_buckets(std::span<const BucketItem> items,
                                                std::span<const int64_t> limits);

// A hash of shapes and dtypes. Equal shapes and dtypes have equal values; others very likely do not.
class Fingerprint {
 public:
  void add(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3; }
  void add(const Tensor& x);
  int64_t value() const { return int64_t(hash_); }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace gradus::dist::internal
