// Denormals: kept by element-wise ops unless the caller flushes them; flushed by matrix products,
// convolutions and norms, on each thread that computes a part of the result.
#include "gradus/tensor/runtime/flush_denormal.h"

#include <algorithm>

#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/images/conv.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/ops/norm/batch_norm.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

constexpr float kDenormal = 1e-40f;

class FlushDenormal : public testing::Test {
 protected:
  void SetUp() override {
    context_.threads = 4;
    if (!set_flush_denormal(false)) GTEST_SKIP() << "this processor does not flush denormals";
  }
  void TearDown() override { set_flush_denormal(false); }

  // The number of elements that are not exactly `value`.
  static int64_t others(const Tensor& x, float value) {
    const float* p = x.ptr<float>();
    return std::count_if(p, p + x.numel(), [=](float v) { return v != value; });
  }
  // An f32 product whose elements are 0 if denormals are flushed.
  static Tensor product() { return raw::matmul(full({512, 64}, kDenormal), full({64, 512}, 1)); }

  Context context_;
  ContextScope scope_{context_};
};

TEST_F(FlushDenormal, ElementwiseOpsKeepThemOnAllThreads) {
  const Tensor x = full({1 << 18}, kDenormal), one = ones({1 << 18});
  EXPECT_EQ(others(raw::mul(x, one), kDenormal), 0);
  product();
  EXPECT_EQ(others(raw::mul(x, one), kDenormal), 0) << "after a product";
}

TEST_F(FlushDenormal, ElementwiseOpsFlushThemIfTheCallerDoes) {
  const Tensor x = full({1 << 18}, kDenormal), one = ones({1 << 18});
  EXPECT_TRUE(set_flush_denormal(true));
  const Tensor flushed = raw::mul(x, one);
  EXPECT_TRUE(set_flush_denormal(false));
  EXPECT_EQ(others(flushed, 0), 0);
  EXPECT_EQ(others(raw::mul(x, one), kDenormal), 0);
}

TEST_F(FlushDenormal, ProductsAndNormsFlushThem) {
  EXPECT_EQ(others(product(), 0), 0);
  const Tensor x = full({4, 32, 16, 16}, kDenormal);
  for (const Shape& filter : {Shape{32, 32, 3, 3}, Shape{32, 32, 1, 1}, Shape{7, 32, 5, 5}})
    EXPECT_EQ(others(raw::conv2d(x, ones(filter), {}), 0), 0) << to_string(filter);
  const Tensor rows = full({512, 64}, kDenormal);
  for (int64_t i = 0; i < rows.numel() / 2; ++i) rows.ptr<float>()[i] = -kDenormal;
  EXPECT_EQ(others(raw::batch_norm(rows, {}, {}, 1e-12).y, 0), 0);
}

TEST_F(FlushDenormal, AKernelLeavesTheCallersModeAsItWas) {
  product();
  EXPECT_EQ(internal::denormal_mode(), 0u);
  set_flush_denormal(true);
  product();
  EXPECT_NE(internal::denormal_mode(), 0u);
}

}  // namespace
}  // namespace gradus
