#include "gradus/autograd/ops/concat.h"

#include <numeric>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

using Values = std::vector<float>;

Tensor counting(const Shape& shape) {
  Tensor x = empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i) x.ptr<float>()[i] = static_cast<float>(i);
  return x;
}

TEST(Join, CatUndoesSplitOverAnyDimAndLayout) {
  const Tensor x = random_tensor({4, 6, 5, 3});
  for (const Tensor& y : {x, channels_last(x), permute(x, {1, 3, 0, 2})}) {
    for (int dim = -1; dim < 3; ++dim) {
      const auto parts = split(y, 2, dim);
      EXPECT_EQ(parts.size(), size_t((y.size(dim) + 1) / 2));
      EXPECT_EQ(cat(parts, dim).to_vector<float>(), y.to_vector<float>());
      EXPECT_EQ(stack(unbind(y, dim), dim).to_vector<float>(), y.to_vector<float>());
    }
  }
}

TEST(Join, KeepsChannelsLastWhenAllAre) {
  const Tensor x = channels_last(counting({2, 3, 4, 4}));
  EXPECT_TRUE(cat({x, x}, 1).is_channels_last());
  EXPECT_TRUE(cat({x, x}, 0).is_channels_last());
  EXPECT_TRUE(cat({x, contiguous(x)}, 1).is_row_major());
}

TEST(Join, PromotesDTypes) {
  EXPECT_EQ(cat({tensor({1, 2}), tensor({0.5f})}).to_vector<float>(), (Values{1, 2, 0.5f}));
  EXPECT_EQ(cat({to(tensor({1}), DType::kI32), tensor({2})}).dtype(), DType::kI64);
}

TEST(Join, PiecesAreViews) {
  const Tensor x = counting({5, 2});
  for (const Tensor& part : chunk(x, 3)) EXPECT_TRUE(part.storage() == x.storage());
  EXPECT_EQ(chunk(x, 3)[2].shape(), (Shape{1, 2}));
  EXPECT_EQ(chunk(x, 4).size(), 3u);  // as PyTorch: pieces of 2
  EXPECT_EQ(chunk(empty({2, 0}), 3, 1).size(), 3u);
  EXPECT_EQ(chunk(empty({2, 0}), 3, 1)[2].shape(), (Shape{2, 0}));
  EXPECT_EQ(split(x, {1, 0, 4})[2].to_vector<float>(), (Values{2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(split(counting({0, 2}), 3).size(), 1u);
  EXPECT_EQ(unbind(counting({0, 2})).size(), 0u);
  EXPECT_EQ(split(counting({20, 1}), 2).size(), 10u);
}

TEST(Join, EmptyPieces) {
  EXPECT_EQ(cat({counting({0, 2}), counting({1, 2})}).to_vector<float>(), (Values{0, 1}));
  EXPECT_EQ(stack({counting({}), counting({})}).shape(), Shape{2});
}

TEST(Join, NamesWhatDoesNotFit) {
  const Tensor x = counting({2, 3});
  EXPECT_ERROR(ValueError, cat({}), "[cat]");
  EXPECT_ERROR(ValueError, stack({}), "[stack]");
  EXPECT_ERROR(ShapeError, cat({x, counting({2, 4})}), "tensor 1", "f32[2,4]", "f32[2,3]", "dim 0");
  EXPECT_ERROR(ShapeError, cat({x, counting({3})}), "f32[3]");
  EXPECT_ERROR(ShapeError, cat({counting({})}), "stack()");
  EXPECT_ERROR(ShapeError, split(x, {1, 1}, 1), "2", "size 3");
  EXPECT_ERROR(ShapeError, split(x, {2, 2}, 1), "size 3");
  EXPECT_ERROR(ValueError, split(x, 0), "0");
  EXPECT_ERROR(ValueError, chunk(x, 0), "0");
  EXPECT_ERROR(IndexError, cat({x}, 2), "2");
  EXPECT_ERROR(IndexError, stack({x}, 4), "4");
}

TEST(Join, PiecesThatNobodyUsesGetZeroGradients) {
  const auto f = [](const Tensor& x) { return square(split(x, 2)[1]); };
  EXPECT_EQ(autograd::grad(f, counting({5})).to_vector<float>(), (Values{0, 0, 4, 6, 0}));
  const auto g = [](const Tensor& x) { return unbind(x, 1)[0] * 3; };
  EXPECT_EQ(autograd::grad(g, counting({2, 2})).to_vector<float>(), (Values{3, 0, 3, 0}));
}

TEST(Join, OneHot) {
  const Tensor y = one_hot(tensor({2, 0}), 3);
  EXPECT_EQ(y.dtype(), DType::kI64);
  EXPECT_EQ(y.to_vector<float>(), (Values{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(one_hot(tensor({1}), 2, DType::kF32).to_vector<float>(), (Values{0, 1}));
  EXPECT_EQ(one_hot(sum(tensor({1})), 2).shape(), Shape{2});
  EXPECT_ERROR(IndexError, one_hot(tensor({3}), 3), "[one_hot]", "index 3", "size 3");
  EXPECT_ERROR(IndexError, one_hot(tensor({-1}), 3), "index -1");
  EXPECT_ERROR(ValueError, one_hot(tensor({0}), 0), "1 class");
}

}  // namespace
}  // namespace gradus
