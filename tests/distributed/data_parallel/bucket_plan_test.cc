// assign_buckets groups gradients by dtype and device into buckets, as PyTorch's
// compute_bucket_assignment_by_size.
#include "gradus/distributed/data_parallel/internal/bucket_plan.h"

#include <gtest/gtest.h>

namespace gradus::dist::internal {
namespace {

BucketItem f32(int64_t n, Device device = kCPU) { return {4 * n, DType::kF32, device}; }
BucketItem f64(int64_t n) { return {8 * n, DType::kF64, kCPU}; }

TEST(AssignBuckets, GivesTheListsOfPyTorch) {
  const Device other{DeviceType::kCPU, 1};
  const struct {
    const char* name;
    std::vector<BucketItem> items;
    std::vector<int64_t> limits;  // bytes of the first, second, ... bucket of a dtype and device
    std::vector<std::vector<size_t>> expected;  // the items of each bucket
  } rows[] = {
      // The four cases of PyTorch's ComputeBucketAssignmentTest.
      {"one limit", {f32(100), f32(200), f32(100), f32(50)}, {400}, {{0}, {1}, {2}, {3}}},
      {"two dtypes",
       {f32(50), f64(25), f32(50), f64(25), f32(50), f64(25)},
       {400},
       {{0, 2}, {1, 3}, {4}, {5}}},
      {"two limits", {f32(10), f32(10), f32(10), f32(10)}, {40, 80}, {{0}, {1, 2}, {3}}},
      {"two limits, two dtypes",
       {f32(50), f64(25), f32(50), f64(25), f32(50), f64(25)},
       {200, 400},
       {{0}, {1}, {2, 4}, {3, 5}}},
      {"the last limit serves all that follow",
       {f32(10), f32(10), f32(10), f32(10), f32(10), f32(10)},
       {40, 80},
       {{0}, {1, 2}, {3, 4}, {5}}},
      {"a bucket may exceed its limit by its last item", {f32(99), f32(1000), f32(1)}, {400}, {{0, 1}, {2}}},
      {"devices do not mix", {f32(1), f32(1, other), f32(1), f32(1, other)}, {400}, {{0, 2}, {1, 3}}},
      {"nothing", {}, {400}, {}},
  };
  for (const auto& row : rows) EXPECT_EQ(assign_buckets(row.items, row.limits), row.expected) << row.name;
}

}  // namespace
}  // namespace gradus::dist::internal
