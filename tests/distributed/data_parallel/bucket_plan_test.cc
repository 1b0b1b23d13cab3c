// How gradients are put into buckets: PyTorch's lists.
#include "gradus/distributed/data_parallel/internal/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gradus::dist::internal {
namespace {

using testing::ElementsAre;
using Lists = std::vector<std::vector<size_t>>;

BucketItem f32(int64_t n, Device device = kCPU) { return {4 * n, DType::kF32, device}; }
BucketItem f64(int64_t n) { return {8 * n, DType::kF64, kCPU}; }

Lists assign(std::vector<BucketItem> items, std::vector<int64_t> limits) {
  return assign_buckets(items, limits);
}

// The four cases of PyTorch's ComputeBucketAssignmentTest.
TEST(AssignBuckets, OneLimitOneDtype) {
  EXPECT_EQ(assign({f32(100), f32(200), f32(100), f32(50)}, {400}), (Lists{{0}, {1}, {2}, {3}}));
}

TEST(AssignBuckets, OneLimitTwoDtypes) {
  EXPECT_EQ(assign({f32(50), f64(25), f32(50), f64(25), f32(50), f64(25)}, {400}),
            (Lists{{0, 2}, {1, 3}, {4}, {5}}));
}

TEST(AssignBuckets, TwoLimitsOneDtype) {
  EXPECT_EQ(assign({f32(10), f32(10), f32(10), f32(10)}, {40, 80}), (Lists{{0}, {1, 2}, {3}}));
}

TEST(AssignBuckets, TwoLimitsTwoDtypes) {
  EXPECT_EQ(assign({f32(50), f64(25), f32(50), f64(25), f32(50), f64(25)}, {200, 400}),
            (Lists{{0}, {1}, {2, 4}, {3, 5}}));
}

TEST(AssignBuckets, TheLastLimitServesAllThatFollow) {
  EXPECT_EQ(assign({f32(10), f32(10), f32(10), f32(10), f32(10), f32(10)}, {40, 80}),
            (Lists{{0}, {1, 2}, {3, 4}, {5}}));
}

TEST(AssignBuckets, ABucketMayExceedItsLimitByItsLastItem) {
  EXPECT_EQ(assign({f32(99), f32(1000), f32(1)}, {400}), (Lists{{0, 1}, {2}}));
}

TEST(AssignBuckets, DevicesDoNotMix) {
  const Device other{DeviceType::kCPU, 1};
  EXPECT_EQ(assign({f32(1), f32(1, other), f32(1), f32(1, other)}, {400}), (Lists{{0, 2}, {1, 3}}));
}

TEST(AssignBuckets, OfNothingThereAreNone) { EXPECT_EQ(assign({}, {400}), Lists{}); }

TEST(Fingerprint, TellsShapesAndDtypesApart) {
  const auto of = [](const Tensor& x, const Tensor& y) {
    Fingerprint f;
    f.add(x);
    f.add(y);
    return f.value();
  };
  const Tensor a = empty({2, 3}), b = empty({6});
  EXPECT_EQ(of(a, b), of(empty({2, 3}), empty({6})));
  EXPECT_NE(of(a, b), of(b, a));
  EXPECT_NE(of(a, b), of(a, empty({6}, {.dtype = DType::kF64})));
  EXPECT_NE(of(a, b), of(empty({3, 2}), b));
}

}  // namespace
}  // namespace gradus::dist::internal
