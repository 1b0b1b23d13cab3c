// View ops, and ops that join and split tensors: shared storage, shapes, layouts, values, errors; gradients
// against difference quotients.
#include "gradus/autograd/ops/view.h"

#include <numeric>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

using Values = std::vector<float>;

// f32 elements 0, 1, 2, ...
Tensor counting(const Shape& shape) {
  Tensor x = empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i) x.ptr<float>()[i] = static_cast<float>(i);
  return x;
}

bool share(const Tensor& a, const Tensor& b) { return a.storage() == b.storage(); }

TEST(View, SharesItsStorage) {
  const Tensor x = counting({2, 3, 4});
  for (const Tensor& y :
       {reshape(x, {6, 4}), view(x, {-1}), flatten(x, 1), permute(x, {2, 0, 1}), transpose(x, 0, -1),
        expand(unsqueeze(x, 0), {5, 2, 3, 4}), narrow(x, 1, 1, 2), slice(x, 2, 0, 4, 2), select(x, 0, -1),
        movedim(x, 0, 2), squeeze(unsqueeze(x, 1), 1)})
    EXPECT_TRUE(share(x, y)) << describe(y);
  Tensor y = view(x, {24});
  y.mutable_data<float>()[23] = -1;
  EXPECT_EQ(x.data<float>()[23], -1);
}

TEST(View, InfersOneSize) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(reshape(x, {-1, 2}).shape(), (Shape{12, 2}));
  EXPECT_EQ(reshape(x, {4, -1, 3}).shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(reshape(counting({0, 3}), {3, 0}).shape(), (Shape{3, 0}));
  EXPECT_EQ(reshape(counting({1}), {}).shape(), Shape{});
  EXPECT_EQ(reshape(counting({}), {1, 1}).shape(), (Shape{1, 1}));
}

TEST(View, RefusesShapesThatDoNotFit) {
  const Tensor x = counting({2, 3});
  EXPECT_ERROR(ShapeError, reshape(x, {4}), "[reshape]", "[4]", "f32[2,3] cpu");
  EXPECT_ERROR(ShapeError, reshape(x, {-1, 4}), "[-1,4]", "f32[2,3] cpu");
  EXPECT_ERROR(ShapeError, reshape(x, {-1, -1}), "more than one -1");
  EXPECT_ERROR(ShapeError, reshape(counting({0}), {-1, 0}), "ambiguous");
  EXPECT_ERROR(ShapeError, view(transpose(x, 0, 1), {6}), "[view]", "call reshape()", "f32[3,2]");
  EXPECT_ERROR(ShapeError, permute(x, {0, 0}), "twice");
  EXPECT_ERROR(ShapeError, permute(x, {0}), "[0]");
  EXPECT_ERROR(ShapeError, expand(x, {2, 4}), "[2,4]", "f32[2,3] cpu");
  EXPECT_ERROR(ShapeError, expand(x, {3}), "fewer");
  EXPECT_ERROR(ShapeError, flatten(x, 1, 0), "start 1", "end 0");
  EXPECT_ERROR(ShapeError, t(counting({1, 2, 3})), "transpose()");
  EXPECT_ERROR(IndexError, transpose(x, 0, 2), "2");
  EXPECT_ERROR(IndexError, select(x, 1, 3), "index 3", "dim 1", "size 3");
  EXPECT_ERROR(IndexError, narrow(x, 1, 2, 2), "start 2", "length 2", "size 3");
  EXPECT_ERROR(ValueError, slice(x, 0, 0, 2, 0), "step");
}

TEST(View, ViewsStridedTensorsWhereItCan) {
  const Tensor x = permute(counting({4, 2, 3}), {1, 2, 0});  // [2,3,4]; the first two dims can be merged
  EXPECT_TRUE(share(x, view(x, {6, 4})));
  EXPECT_TRUE(share(x, view(x, {3, 2, 2, 2})));
  EXPECT_EQ(view(x, {6, 2, 2}).to_vector<float>(), x.to_vector<float>());
  EXPECT_THROW(view(x, {24}), ShapeError);
  EXPECT_EQ(reshape(x, {24}).to_vector<float>(), x.to_vector<float>());
  EXPECT_FALSE(share(x, reshape(x, {24})));
  const Tensor part = slice(counting({4, 6}), 1, 0, 6, 2);
  EXPECT_EQ(view(part, {2, 2, 3}).to_vector<float>(), part.to_vector<float>());
  EXPECT_EQ(reshape(part, {12}).to_vector<float>(), (Values{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22}));
}

TEST(View, FlattenOfChannelsLastIsRowMajor) {
  const Tensor x = counting({2, 3, 2, 2});
  const Tensor y = flatten(channels_last(x), 1);
  EXPECT_TRUE(y.is_row_major());
  EXPECT_EQ(y.shape(), (Shape{2, 12}));
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(flatten(counting({})).shape(), Shape{1});
}

TEST(View, PermuteOfChannelsLastToNhwcIsRowMajor) {
  EXPECT_TRUE(permute(channels_last(counting({2, 3, 4, 5})), {0, 2, 3, 1}).is_row_major());
}

TEST(View, ATensorWithoutDimsHasNoneToMove) {
  const Tensor x = scalar(3);
  EXPECT_EQ(movedim(x, 0, 0).item<float>(), 3);
  EXPECT_EQ(movedim(x, -1, 0).dim(), 0);
  EXPECT_ERROR(IndexError, movedim(x, 1, 0), "[movedim]");
}

TEST(View, SlicesClampAsPython) {
  const Tensor x = counting({5});
  EXPECT_EQ(slice(x, 0, -2, 100).to_vector<float>(), (Values{3, 4}));
  EXPECT_EQ(slice(x, 0, -100, 2).to_vector<float>(), (Values{0, 1}));
  EXPECT_EQ(slice(x, 0, 0, 5, 3).to_vector<float>(), (Values{0, 3}));
  EXPECT_EQ(slice(x, 0, 1, 5, 100).to_vector<float>(), Values{1});
  EXPECT_EQ(slice(x, 0, 4, 2).shape(), Shape{0});
  EXPECT_EQ(slice(x, 0, 5, 9).shape(), Shape{0});
  EXPECT_EQ(slice(x, 0, INT64_MIN, INT64_MAX).numel(), 5);
}

TEST(View, ExpandRepeatsWithoutCopying) {
  const Tensor x = counting({3, 1});
  const Tensor y = expand(x, {2, -1, 2});
  EXPECT_EQ(y.to_vector<float>(), (Values{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(expand(counting({}), {2}).to_vector<float>(), (Values{0, 0}));
  EXPECT_EQ(expand(x, {3, 0}).shape(), (Shape{3, 0}));
}

TEST(View, SumToUndoesABroadcast) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(sum_to(x, {3}).to_vector<float>(), (Values{3, 5, 7}));
  EXPECT_EQ(sum_to(x, {2, 1}).to_vector<float>(), (Values{3, 12}));
  EXPECT_EQ(sum_to(x, {}).item<float>(), 15);
  EXPECT_TRUE(sum_to(x, {2, 3}).is_same(x));
  EXPECT_EQ(sum_to(counting({1, 3}), {3}).to_vector<float>(), (Values{0, 1, 2}));
  EXPECT_EQ(sum_to(counting({0, 3}), {3}).to_vector<float>(), (Values{0, 0, 0}));
  EXPECT_THROW(sum_to(x, {2}), ShapeError);
  EXPECT_THROW(sum_to(counting({3}), {1, 3}), ShapeError);
}

TEST(View, GradientsFlowBackThroughChains) {
  const auto f = [](const std::vector<Tensor>& x) {
    const Tensor a = permute(narrow(x[0], 1, 1, 2), {2, 0, 1});
    const Tensor b = expand(unsqueeze(select(x[0], 1, -1), 0), {3, 2, 4});
    return square(slice(flatten(a, 1), 1, 0, 4, 2)) + reshape(slice(b, 2, 1, 3), {3, 4});
  };
  // The shapes of f's sum do not broadcast.
  EXPECT_THROW(f({random_tensor({2, 3, 4}, DType::kF64)}), ShapeError);
  const auto g = [](const std::vector<Tensor>& x) {
    const Tensor a = flatten(permute(narrow(x[0], 1, 1, 2), {2, 0, 1}), 1);                // [4,4]
    const Tensor b = movedim(expand(unsqueeze(select(x[0], 1, -1), 0), {2, 2, 4}), 2, 0);  // [4,2,2]
    return square(slice(a, 1, 0, 4, 2)) * slice(reshape(b, {4, 4}), -1, 1, 3);
  };
  const std::vector<Tensor> x = {random_tensor({2, 3, 4}, DType::kF64)};
  EXPECT_TRUE(autograd::gradcheck(g, x)) << autograd::gradcheck(g, x).message;
  EXPECT_TRUE(autograd::gradgradcheck(g, x)) << autograd::gradgradcheck(g, x).message;
}

// ---- joining ----

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
