// Batch norm fused with leaky_relu of slope 0 on cuda:0 has the bits of the two ops; signs of zeros and
// infinities, which the op table's tolerance does not distinguish.
#include <gtest/gtest.h>

#include "gradus/tests/ops/leaky_batch_norm.h"

namespace gradus {
namespace {

TEST(CudaBatchNormLeakyRelu, OfSlope0IsNoRelu) { expect_slope_0_as_of_two_ops(Device::parse("cuda:0")); }

}  // namespace
}  // namespace gradus
