// Batch norm on cuda:0, where the op table's tolerance tells no difference.
#include <gtest/gtest.h>

#include "gradus/tests/ops/leaky_batch_norm.h"

namespace gradus {
namespace {

TEST(CudaBatchNormLeakyRelu, OfSlope0IsNoRelu) { expect_slope_0_as_of_two_ops(Device::parse("cuda:0")); }

}  // namespace
}  // namespace gradus
