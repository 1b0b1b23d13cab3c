// Products and convolutions of operands with any strides, against those of contiguous copies, bit by bit.
#include <gtest/gtest.h>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/kernels/layout_cases.h"

namespace gradus {
namespace {

// Cases of tools/fuzz-conv.sh --layouts --seed 0.
TEST(Layouts, ProductsAndConvolutionsOfRandomStridesAreThoseOfContiguousCopies) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const kerneltest::LayoutCase one(seed);
    std::string wrong;
    try {
      wrong = one.wrong();
    } catch (const std::exception& e) {
      wrong = e.what();
    }
    EXPECT_EQ(wrong, "") << "seed " << seed << ": " << one.text();
  }
}

class InterleavedMatrices : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, InterleavedMatrices,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16, DType::kF64),
                         [](const auto& info) { return std::string(name_of(info.param)); });

void expect_product_of_copies(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(bmm(a, b).to_vector<double>(),
            bmm(clone(contiguous(a)), clone(contiguous(b))).to_vector<double>());
}

TEST_P(InterleavedMatrices, EverySliceOfAPermutedTensor) {
  const Tensor a = to(randint(4, {4, 6, 1}), GetParam()), b = to(randint(4, {7, 10, 1}), GetParam());
  expect_product_of_copies(a, slice(permute(b, {1, 2, 0}), 0, 0, 10, 3));
}

TEST_P(InterleavedMatrices, WindowsThatOverlap) {
  const Tensor windows = permute(unfold_dim(to(randint(4, {2, 100}), GetParam()), 1, 40, 20), {1, 0, 2});
  expect_product_of_copies(windows, to(randint(4, {4, 40, 3}), GetParam()));
}

}  // namespace
}  // namespace gradus
