// Convolutions on the CPU: results and gradients of each kernel against a plain loop, f64 or exact sums of
// integers; layouts, threads, errors, derivatives.
#include "gradus/autograd/ops/images/conv.h"

#include <tuple>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/cpu/conv/kernels.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/processor.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

struct Case {
  const char* name;
  Shape x, w;
  Conv2dFuncOptions options;
};

const Case kCases[] = {
    {"Plain", {2, 3, 7, 8}, {4, 3, 3, 3}, {}},
    {"OneChannel", {3, 1, 9, 9}, {8, 1, 3, 3}, {}},
    {"Pointwise", {2, 5, 4, 4}, {7, 5, 1, 1}, {}},
    {"Padding", {2, 3, 5, 6}, {4, 3, 3, 3}, {.padding = 1}},
    {"StrideWithRest", {2, 3, 8, 9}, {4, 3, 3, 3}, {.stride = 2}},
    {"StridePadding", {1, 4, 9, 7}, {6, 4, 3, 3}, {.stride = {2, 1}, .padding = {1, 2}}},
    {"Dilation", {2, 2, 9, 9}, {3, 2, 3, 2}, {.padding = 2, .dilation = {2, 3}}},
    {"Groups", {2, 6, 6, 5}, {4, 3, 3, 3}, {.padding = 1, .groups = 2}},
    {"Depthwise", {2, 8, 6, 5}, {8, 1, 3, 3}, {.padding = 1, .groups = 8}},
    {"DepthwiseTwofold", {2, 4, 6, 5}, {8, 1, 3, 3}, {.stride = 2, .padding = 1, .groups = 4}},
    {"WholeImage", {2, 3, 5, 4}, {6, 3, 5, 4}, {}},
    {"MoreThanOneBlock", {2, 32, 10, 10}, {64, 32, 3, 3}, {.padding = 1}},
    {"SixteenFilters", {3, 5, 9, 8}, {16, 5, 3, 3}, {}},
    {"UnevenTiles",
     {2, 7, 12, 11},
     {112, 7, 3, 5},
     {.stride = {2, 3}, .padding = {2, 1}, .dilation = {2, 1}}},
    {"Stem", {2, 3, 21, 30}, {64, 3, 7, 7}, {.stride = 2, .padding = 3}},
    {"PointwiseStride", {2, 24, 9, 7}, {48, 24, 1, 1}, {.stride = 2, .dilation = 3}},
    {"ManySums", {2, 100, 6, 6}, {320, 100, 3, 3}, {.padding = 1}},
    {"PointwiseInChunks", {3, 32, 20, 17}, {64, 32, 1, 1}, {}},
    {"PointwiseOddFilters", {6, 32, 10, 9}, {33, 32, 1, 1}, {}},
    {"PointwiseStrideInChunks", {6, 32, 20, 17}, {33, 32, 1, 1}, {.stride = 2}},
    {"StrideInChunks", {7, 32, 15, 17}, {48, 32, 3, 3}, {.stride = 2, .padding = 1}},
    {"Winograd", {6, 32, 9, 11}, {64, 32, 3, 3}, {.padding = 1}},
    {"PaddingBeyondKernel", {1, 2, 4, 4}, {3, 2, 2, 2}, {.padding = 3}},
    // Some implementation in oneDNN is wrong at each of these shapes: docs/internals/kernels.md.
    {"NarrowerThanStride", {2, 4, 1, 2}, {6, 4, 1, 5}, {.stride = {1, 4}, .padding = {0, 2}}},
    {"OneChannelStridePadding", {2, 1, 1, 8}, {3, 1, 1, 3}, {.stride = {1, 2}, .padding = {0, 2}}},
    {"DepthwiseNarrowerThanStride",
     {4, 40, 11, 2},
     {40, 1, 7, 3},
     {.stride = {1, 5}, .padding = {0, 1}, .groups = 40}},
    {"PointwiseStrideFewChannels", {3, 6, 12, 8}, {1, 6, 1, 1}, {.stride = {2, 1}, .dilation = {1, 2}}},
    {"PointwiseOddChannels", {3, 47, 10, 9}, {40, 47, 1, 1}, {}},
    {"PointwiseFiveFilters", {1, 50, 12, 30}, {5, 50, 1, 1}, {}},
    {"StrideBeyondFilter", {3, 65, 14, 36}, {4, 65, 1, 3}, {.stride = {2, 5}, .padding = {0, 2}}},
    {"TallDilation", {2, 58, 12, 11}, {17, 58, 2, 4}, {.stride = {1, 4}, .dilation = {2, 1}}},
};

Shape result_shape(const Case& c) {
  auto extent = [](int64_t n, int64_t k, int64_t s, int64_t p, int64_t d) {
    return (n + 2 * p - d * (k - 1) - 1) / s + 1;
  };
  const auto& o = c.options;
  return {c.x[0], c.w[0], extent(c.x[2], c.w[2], o.stride.h, o.padding.h, o.dilation.h),
          extent(c.x[3], c.w[3], o.stride.w, o.padding.w, o.dilation.w)};
}

// The definition, element by element, from row-major values.
Tensor naive(const Tensor& x, const Tensor& w, const Tensor& bias, const Case& c) {
  const auto& o = c.options;
  const Shape shape = result_shape(c);
  Tensor y = empty(shape, {DType::kF64, kCPU});
  const auto xs = x.to_vector<double>(), ws = w.to_vector<double>(), bs = bias.to_vector<double>();
  const int64_t C = c.x[1], H = c.x[2], W = c.x[3], Cg = c.w[1], KH = c.w[2], KW = c.w[3],
                Og = c.w[0] / o.groups;
  double* at = y.ptr<double>();
  for (int64_t n = 0; n < shape[0]; ++n)
    for (int64_t i = 0; i < shape[1]; ++i)
      for (int64_t p = 0; p < shape[2]; ++p)
        for (int64_t q = 0; q < shape[3]; ++q) {
          double s = bs[i];
          for (int64_t k = 0; k < Cg; ++k)
            for (int64_t a = 0; a < KH; ++a)
              for (int64_t b = 0; b < KW; ++b) {
                const int64_t h = p * o.stride.h - o.padding.h + a * o.dilation.h;
                const int64_t v = q * o.stride.w - o.padding.w + b * o.dilation.w;
                if (h < 0 || h >= H || v < 0 || v >= W) continue;
                s += xs[((n * C + i / Og * Cg + k) * H + h) * W + v] * ws[((i * Cg + k) * KH + a) * KW + b];
              }
          *at++ = s;
        }
  return y;
}

class Conv2d : public testing::TestWithParam<std::tuple<DType, Case>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  const Case& shape() const { return std::get<1>(GetParam()); }
  double tolerance() const { return dtype() == DType::kF64 ? 1e-11 : 5e-5; }
};
INSTANTIATE_TEST_SUITE_P(
    Cases, Conv2d, testing::Combine(testing::Values(DType::kF32, DType::kF64), testing::ValuesIn(kCases)),
    [](const auto& info) {
      return std::get<1>(info.param).name + std::string("_") + std::string(name_of(std::get<0>(info.param)));
    });

TEST_P(Conv2d, IsTheDefinition) {
  const Case& c = shape();
  const Tensor x = random_tensor(c.x, dtype(), 1), w = random_tensor(c.w, dtype(), 2),
               b = random_tensor({c.w[0]}, dtype(), 3);
  const Tensor y = raw::conv2d(x, w, b, c.options);
  EXPECT_TRUE(y.is_channels_last() || y.is_row_major());
  expect_near(y, naive(x, w, b, c), tolerance());
  expect_near(raw::conv2d(raw::channels_last(x), raw::channels_last(w), b, c.options), y, tolerance());
}

// <conv(x, w), dy> = <x, input_grad(dy, w)> = <w, weight_grad(dy, x)>, for any x, w and dy.
TEST_P(Conv2d, GradientsAreItsTransposes) {
  const Case& c = shape();
  const Tensor x = random_tensor(c.x, dtype(), 1), w = random_tensor(c.w, dtype(), 2);
  const Tensor dy = random_tensor(result_shape(c), dtype(), 3);
  const double want = sum_of_products(raw::conv2d(x, w, {}, c.options), dy);
  const double slack = tolerance() * dy.numel();
  const Tensor dx = raw::conv2d_input_grad(dy, w, c.x, c.options);
  EXPECT_EQ(dx.shape(), c.x);
  EXPECT_NEAR(sum_of_products(x, dx), want, slack);
  const auto [dw, db] = raw::conv2d_weight_grad(dy, x, c.w, true, c.options);
  EXPECT_TRUE(dw.is_row_major());
  EXPECT_NEAR(sum_of_products(w, dw), want, slack);
  const Tensor alone = raw::conv2d_weight_grad(dy, x, c.w, false, c.options).first;
  expect_near(alone, dw, tolerance() * 10);
  for (int64_t o = 0; o < c.w[0]; ++o) {
    double s = 0;
    for (double v : raw::select(dy, 1, o).to_vector<double>()) s += v;
    EXPECT_NEAR(db.to_vector<double>()[o], s, slack);
  }
}

TEST_P(Conv2d, GradientsAgreeWithTheReference) {
  const Case& c = shape();
  const Tensor x = raw::channels_last(random_tensor(c.x, dtype(), 1)), w = random_tensor(c.w, dtype(), 2);
  const Tensor dy = raw::channels_last(random_tensor(result_shape(c), dtype(), 3));
  Tensor dx = empty_channels_last(c.x, {dtype(), kCPU}), dw = empty(c.w, {dtype(), kCPU});
  conv_input_grad_reference({dx, w, {}, dy, c.options});
  conv_weight_grad_reference({x, dw, {}, dy, c.options});
  expect_near(raw::conv2d_input_grad(dy, w, c.x, c.options), dx, tolerance());
  expect_near(raw::conv2d_weight_grad(dy, x, c.w, false, c.options).first, dw, tolerance() * 10);
}

// Output gradients that are mostly zeros have kernels of their own with AVX-512.
const Case kSparseCases[] = {
    {"Plain", {3, 32, 9, 8}, {64, 32, 3, 3}, {}},
    {"Padding", {2, 32, 7, 9}, {32, 32, 3, 3}, {.padding = 1}},
    {"WidePadding", {2, 16, 5, 4}, {16, 16, 3, 3}, {.padding = {3, 4}}},
    {"StridePadding", {2, 48, 11, 12}, {48, 48, 3, 3}, {.stride = {2, 3}, .padding = {1, 2}}},
    {"TallDilation", {2, 16, 12, 9}, {16, 16, 3, 3}, {.padding = {2, 1}, .dilation = {2, 1}}},
    {"FiveByFive", {9, 16, 10, 9}, {32, 16, 5, 5}, {.padding = 2}},
};

// One element in `every` is not zero; one in six, as in the gradient of a pooled relu with dropout.
Tensor sparse(const Shape& shape, uint32_t every = 6) {
  Tensor dy = random_tensor(shape, DType::kF32, 3);
  for (int64_t i = 0; i < dy.numel(); ++i)
    if (philox(4, 0, uint64_t(i))[0] % every) dy.ptr<float>()[i] = 0;
  return raw::channels_last(dy);
}

class SparseConv2d : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Cases, SparseConv2d, testing::ValuesIn(kSparseCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(SparseConv2d, GradientsAreThoseOfF64) {
  const Case& c = GetParam();
  const Tensor x = raw::channels_last(random_tensor(c.x)), w = random_tensor(c.w, DType::kF32, 2);
  const Tensor dy = sparse(result_shape(c));
  if (cpu::has_avx512()) {
    const Tensor dense = raw::channels_last(random_tensor(result_shape(c)));
    EXPECT_TRUE(sparse_grad_kernels().weight_grad.applies({x, w, {}, dy, c.options}));
    EXPECT_FALSE(sparse_grad_kernels().weight_grad.applies({x, w, {}, dense, c.options}));
  }
  const Tensor x64 = raw::to(x, DType::kF64), w64 = raw::to(w, DType::kF64), dy64 = raw::to(dy, DType::kF64);
  const auto [dw, db] = raw::conv2d_weight_grad(dy, x, c.w, true, c.options);
  const auto [dw64, db64] = raw::conv2d_weight_grad(dy64, x64, c.w, true, c.options);
  // Sums of at most dy.numel() / O products below 1, each rounded to 2^-24 of a partial sum
  // below their number.
  const double tolerance = 0x1p-24 * static_cast<double>(dy.numel() / c.w[0]);
  expect_near(dw, dw64, tolerance);
  expect_near(db, db64, tolerance);
  expect_near(raw::conv2d_input_grad(dy, w, c.x, c.options),
              raw::conv2d_input_grad(dy64, w64, c.x, c.options), 1e-5);
}

// A row of a filter fills whole vectors, as those of 3x3 or 5x5 filters, but a row clipped at the border does
// not.
TEST(FewNonzeros, ChannelsNeedNotFillVectors) {
  for (const Case& c : {Case{"", {2, 12, 7, 9}, {16, 12, 3, 4}, {.padding = 1}},
                        Case{"", {2, 6, 7, 9}, {16, 6, 3, 8}, {.padding = 2}},
                        Case{"", {4, 24, 3, 36}, {32, 24, 3, 2}, {.stride = {1, 5}, .padding = {2, 1}}},
                        Case{"", {1, 24, 13, 3}, {32, 24, 3, 4}, {.stride = {1, 2}, .padding = {0, 3}}},
                        Case{"", {2, 20, 8, 9}, {16, 20, 5, 4}, {.padding = 2}}}) {
    const Tensor x = raw::channels_last(random_tensor(c.x)), w = random_tensor(c.w, DType::kF32, 2);
    const Tensor dy = sparse(result_shape(c), 50);
    const Tensor x64 = raw::to(x, DType::kF64), w64 = raw::to(w, DType::kF64),
                 dy64 = raw::to(dy, DType::kF64);
    expect_near(raw::conv2d_weight_grad(dy, x, c.w, false, c.options).first,
                raw::conv2d_weight_grad(dy64, x64, c.w, false, c.options).first, 1e-5);
    expect_near(raw::conv2d_input_grad(dy, w, c.x, c.options),
                raw::conv2d_input_grad(dy64, w64, c.x, c.options), 1e-5);
  }
}

TEST_P(SparseConv2d, GradientsDoNotDependOnTheNumberOfThreads) {
  if (!cpu::has_avx512()) GTEST_SKIP() << "needs AVX-512: oneDNN's sums depend on it";
  const Case& c = GetParam();
  const Tensor x = raw::channels_last(random_tensor(c.x)), w = random_tensor(c.w, DType::kF32, 2);
  const Tensor dy = sparse(result_shape(c));
  const int before = num_threads();
  std::vector<std::vector<float>> dws, dxs;
  for (int threads : {1, 2, 5}) {
    set_num_threads(threads);
    dws.push_back(raw::conv2d_weight_grad(dy, x, c.w, true, c.options).first.to_vector<float>());
    dxs.push_back(raw::conv2d_input_grad(dy, w, c.x, c.options).to_vector<float>());
  }
  set_num_threads(before);
  EXPECT_EQ(dws[0], dws[1]);
  EXPECT_EQ(dws[0], dws[2]);
  EXPECT_EQ(dxs[0], dxs[1]);
  EXPECT_EQ(dxs[0], dxs[2]);
}

// Shapes that the Winograd kernels take: 3x3 filters of stride 1, and 4x4 filters of stride 2 ("Halving").
const Case kWinogradCases[] = {
    {"Even", {4, 64, 16, 12}, {96, 64, 3, 3}, {.padding = 1}},
    {"OddSizes", {7, 32, 9, 7}, {64, 32, 3, 3}, {.padding = 1}},
    {"WithoutPadding", {3, 64, 15, 18}, {32, 64, 3, 3}, {}},
    {"PaddedAllAround", {2, 32, 13, 14}, {32, 32, 3, 3}, {.padding = 2}},
    {"PaddedOneWay", {4, 32, 12, 17}, {64, 32, 3, 3}, {.padding = {0, 1}}},
    {"OneRow", {11, 32, 1, 30}, {32, 32, 3, 3}, {.padding = 1}},
    {"ManyChannels", {8, 320, 7, 8}, {288, 320, 3, 3}, {.padding = 1}},
    {"SeveralChunks", {3, 128, 28, 28}, {64, 128, 3, 3}, {.padding = 1}},
    {"Halving", {11, 64, 16, 12}, {96, 64, 4, 4}, {.stride = 2, .padding = 1}},
    {"HalvingToOddSizes", {7, 32, 18, 14}, {64, 32, 4, 4}, {.stride = 2, .padding = 1}},
    {"HalvingToOnePixel", {130, 32, 2, 2}, {32, 32, 4, 4}, {.stride = 2, .padding = 1}},
    {"HalvingToOneRow", {11, 32, 2, 62}, {32, 32, 4, 4}, {.stride = 2, .padding = 1}},
    {"HalvingManyChannels", {33, 320, 8, 8}, {288, 320, 4, 4}, {.stride = 2, .padding = 1}},
    {"HalvingManyFilters", {64, 96, 8, 8}, {512, 96, 4, 4}, {.stride = 2, .padding = 1}},
    {"HalvingSeveralChunks", {3, 128, 58, 56}, {64, 128, 4, 4}, {.stride = 2, .padding = 1}},
};
class WinogradConv2d : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const ConvKernels& kernels = shape.w[2] == 4 ? winograd_stride2_kernels() : winograd_kernels();
    for (const ConvKernel& kernel : {kernels.forward, kernels.input_grad, kernels.weight_grad})
      ASSERT_TRUE(kernel.applies({x, w, {}, dy, shape.options}));
  }
  const Case& shape = GetParam();
  Tensor x = raw::channels_last(random_tensor(shape.x, DType::kF32, 1));
  Tensor w = random_tensor(shape.w, DType::kF32, 2), b = random_tensor({shape.w[0]}, DType::kF32, 3);
  Tensor dy = raw::channels_last(random_tensor(result_shape(shape), DType::kF32, 4));
};
INSTANTIATE_TEST_SUITE_P(Cases, WinogradConv2d, testing::ValuesIn(kWinogradCases),
                         [](const auto& info) { return info.param.name; });

// Tolerance: the rounding error of adding the definition's terms, each below 1, one by one.
TEST_P(WinogradConv2d, IsThatOfF64) {
  const auto wide = [](const Tensor& t) { return raw::to(t, DType::kF64); };
  const auto slack = [](int64_t terms) { return 0x1p-24 * double(terms); };
  const auto& o = shape.options;
  expect_near(raw::conv2d(x, w, b, o), raw::conv2d(wide(x), wide(w), wide(b), o),
              slack(w.numel() / w.size(0)));
  expect_near(raw::conv2d_input_grad(dy, w, x.shape(), o),
              raw::conv2d_input_grad(wide(dy), wide(w), x.shape(), o), slack(w.numel() / w.size(1)));
  expect_near(raw::conv2d_weight_grad(dy, x, w.shape(), false, o).first,
              raw::conv2d_weight_grad(wide(dy), wide(x), w.shape(), false, o).first,
              slack(dy.numel() / dy.size(1)));
}

// Sums of small integers are exact: the factors of the transforms are 0, 1 and 1/2.
TEST_P(WinogradConv2d, IsExactForIntegers) {
  const auto integers = [](const Tensor& t) {
    Tensor i = raw::clone(t);
    for (int64_t k = 0; k < i.numel(); ++k) i.ptr<float>()[k] = std::round(4 * t.ptr<float>()[k]);
    return i;
  };
  const Tensor xs = integers(x), ws = integers(w), dys = integers(dy);
  const auto wide = [](const Tensor& t) { return raw::to(t, DType::kF64); };
  const auto& o = shape.options;
  expect_near(raw::conv2d(xs, ws, {}, o), raw::conv2d(wide(xs), wide(ws), {}, o), 0);
  expect_near(raw::conv2d_input_grad(dys, ws, x.shape(), o),
              raw::conv2d_input_grad(wide(dys), wide(ws), x.shape(), o), 0);
  expect_near(raw::conv2d_weight_grad(dys, xs, w.shape(), false, o).first,
              raw::conv2d_weight_grad(wide(dys), wide(xs), w.shape(), false, o).first, 0);
}

TEST_P(WinogradConv2d, GivesTheSameBitsAgain) {
  const auto& o = shape.options;
  std::vector<float> y, dx, dw;
  int last = 0;
  for (const int threads : {1, 2, 3, 3}) {
    Context context = Context::current();
    context.threads = threads;
    const ContextScope scope(context);
    const auto ys = raw::conv2d(x, w, b, o).to_vector<float>();
    const auto dxs = raw::conv2d_input_grad(dy, w, x.shape(), o).to_vector<float>();
    const auto dws = raw::conv2d_weight_grad(dy, x, w.shape(), false, o).first.to_vector<float>();
    if (threads > 1) {  // with any number of threads
      EXPECT_EQ(y, ys);
      EXPECT_EQ(dx, dxs);
    }
    if (threads == last) {
      EXPECT_EQ(dw, dws);
    }
    y = ys, dx = dxs, dw = dws, last = threads;
  }
}

// Weight gradients of pointwise filters and of filters with a stride.
const Case kSumCases[] = {
    {"Pointwise", {3, 64, 17, 19}, {160, 64, 1, 1}, {}},
    {"PointwiseSeveralChunks", {2, 32, 40, 37}, {48, 32, 1, 1}, {}},
    {"PointwiseManyFilters", {2, 96, 13, 12}, {544, 96, 1, 1}, {}},
    {"PointwiseManyChannels", {2, 544, 13, 12}, {128, 544, 1, 1}, {}},
    {"PointwiseStride", {3, 64, 21, 22}, {130, 64, 1, 1}, {.stride = 2}},
    {"Stride", {3, 64, 23, 22}, {96, 64, 3, 3}, {.stride = 2, .padding = 1}},
    {"StrideManyTaps", {3, 32, 24, 23}, {40, 32, 5, 5}, {.stride = 2, .padding = 2}},
    {"StrideManyFilters",
     {3, 32, 24, 21},
     {520, 32, 3, 3},
     {.stride = {2, 1}, .padding = {0, 2}, .dilation = 2}},
};
class SumConv2d : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Cases, SumConv2d, testing::ValuesIn(kSumCases),
                         [](const auto& info) { return info.param.name; });

// Sums of small integers are exact, whatever the order.
TEST_P(SumConv2d, WeightGradientsAreExactForIntegers) {
  const Case& c = GetParam();
  const auto integers = [](const Shape& shape, uint64_t seed) {
    Tensor t = random_tensor(shape, DType::kF32, seed);
    for (int64_t k = 0; k < t.numel(); ++k) t.ptr<float>()[k] = std::round(4 * t.ptr<float>()[k]);
    return raw::channels_last(t);
  };
  const Tensor x = integers(c.x, 1), dy = integers(result_shape(c), 2);
  const Tensor exact =
      raw::conv2d_weight_grad(raw::to(dy, DType::kF64), raw::to(x, DType::kF64), c.w, false, c.options).first;
  const int before = num_threads();
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    expect_near(raw::conv2d_weight_grad(dy, x, c.w, false, c.options).first, exact, 0);
  }
  set_num_threads(before);
}

// 1x1 filters: the number of pixels, and of input and output channels.
struct PointwiseCase {
  const char* name;
  int64_t pixels, C, O;
};
const PointwiseCase kPointwiseCases[] = {
    {"Even", 448, 64, 96},
    {"OddPixels", 269, 32, 64},
    {"SeveralChunks", 1003, 96, 32},
    {"PixelsApartByPages", 300, 1024, 64},
    {"FewPixelsManyFilters", 259, 1056, 512},
};
class PointwiseConv2d : public testing::TestWithParam<std::tuple<DType, PointwiseCase>> {};
INSTANTIATE_TEST_SUITE_P(Cases, PointwiseConv2d,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16),
                                          testing::ValuesIn(kPointwiseCases)),
                         [](const auto& info) {
                           return std::get<1>(info.param).name + std::string("_") +
                                  std::string(name_of(std::get<0>(info.param)));
                         });

// Sums of small integers are exact, whatever the order; bf16 rounds them once.
TEST_P(PointwiseConv2d, IsExactForIntegers) {
  const auto& [dtype, c] = GetParam();
  const bool serves = dtype == DType::kF32 ? cpu::has_avx512() : cpu::has_avx512_bf16();
  if (!serves) GTEST_SKIP() << "needs AVX-512";
  const auto integers = [dtype = dtype](const Shape& shape, uint64_t seed) {
    Tensor t = random_tensor(shape, DType::kF32, seed);
    for (int64_t k = 0; k < t.numel(); ++k) t.ptr<float>()[k] = std::round(4 * t.ptr<float>()[k]);
    return raw::to(shape[2] > 1 ? raw::channels_last(t) : t, dtype);
  };
  const Tensor x = integers({1, c.C, c.pixels, 1}, 1), w = integers({c.O, c.C, 1, 1}, 2),
               dy = integers({1, c.O, c.pixels, 1}, 3);
  const auto wide = [](const Tensor& t) { return raw::to(t, DType::kF64); };
  const auto rounded = [&](const Tensor& t) { return wide(raw::to(t, dtype)); };
  const Tensor y64 = rounded(raw::conv2d(wide(x), wide(w), {}, {})),
               dx64 = rounded(raw::conv2d_input_grad(wide(dy), wide(w), x.shape(), {}));
  const int before = num_threads();
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    const Tensor y = empty_channels_last(dy.shape(), {dtype}), dx = empty_channels_last(x.shape(), {dtype});
    const bool is_best =
        dtype == DType::kF32 || cpu::level() == cpu::Level::kAvx512Bf16;  // with AMX oneDNN is faster
    ASSERT_EQ(pointwise_kernels().input_grad.applies({dx, w, {}, dy, Conv2dFuncOptions{}}), is_best);
    pointwise_kernels().forward.run({x, w, {}, y, Conv2dFuncOptions{}});
    pointwise_kernels().input_grad.run({dx, w, {}, dy, Conv2dFuncOptions{}});
    expect_near(wide(y), y64, 0);
    expect_near(wide(dx), dx64, 0);
  }
  set_num_threads(before);
}

// 16-bit floats: the same sums in f32, rounded once.
class NarrowConv2d : public testing::TestWithParam<std::tuple<DType, Case>> {};
INSTANTIATE_TEST_SUITE_P(Cases, NarrowConv2d,
                         testing::Combine(testing::Values(DType::kBF16, DType::kF16),
                                          testing::ValuesIn(kCases)),
                         [](const auto& info) {
                           return std::get<1>(info.param).name + std::string("_") +
                                  std::string(name_of(std::get<0>(info.param)));
                         });

TEST_P(NarrowConv2d, IsRoundedOnce) {
  const auto& [dtype, c] = GetParam();
  const Tensor x = random_tensor(c.x, dtype, 1), w = random_tensor(c.w, dtype, 2),
               b = random_tensor({c.w[0]}, dtype, 3), dy = random_tensor(result_shape(c), dtype, 4);
  const auto exact = [](const Tensor& t) { return raw::to(t, DType::kF64); };
  const double taps = double(c.w[2] * c.w[3]), pixels = double(dy.numel() / c.w[0]);
  expect_rounded_once(raw::conv2d(x, w, b, c.options), raw::conv2d(exact(x), exact(w), exact(b), c.options),
                      double(c.w[1]) * taps + 1);
  expect_rounded_once(raw::conv2d_input_grad(dy, w, c.x, c.options),
                      raw::conv2d_input_grad(exact(dy), exact(w), c.x, c.options),
                      double(c.w[0] / c.options.groups) * taps);
  const auto [dw, db] = raw::conv2d_weight_grad(dy, x, c.w, true, c.options);
  const auto [dw64, db64] = raw::conv2d_weight_grad(exact(dy), exact(x), c.w, true, c.options);
  EXPECT_EQ(dw.dtype(), dtype);
  expect_rounded_once(dw, dw64, pixels);
  expect_rounded_once(db, db64, pixels);
}

// Without AVX-512, kernels read and write bf16 and compute in f32. Around the numbers of channels and tiles
// from which they apply, the results have the bits of f32 results rounded once.
TEST(NarrowConv2dKernels, GiveTheBitsOfF32Rounded) {
  if (cpu::has_avx512()) GTEST_SKIP() << "AVX-512 computes bf16 by kernels of its own";
  struct Filter {
    int64_t size;
    Conv2dFuncOptions options;
  };
  const Filter filters[] = {
      {3, {}}, {3, {.padding = 1}}, {3, {.padding = 2}}, {4, {.stride = 2, .padding = 1}},
      {5, {}}, {5, {.padding = 2}}};
  const auto wide = [](const Tensor& t) { return raw::to(t, DType::kF32); };
  const auto rounded = [](const Tensor& t) { return raw::to(t, DType::kBF16).to_vector<float>(); };
  uint64_t seed = 1;
  for (const auto& [size, options] : filters)
    for (const auto& [C, O] :
         {std::pair(16, 8), {16, 16}, {16, 32}, {32, 16}, {48, 16}, {32, 24}, {15, 16}, {17, 32}, {64, 33}})
      for (const auto& [images, width] : {std::pair(1, 9), {5, 6}, {5, 14}, {8, 8}}) {
        const Case c{"", {images, C, 8, width}, {O, C, size, size}, options};
        const Shape y = result_shape(c);
        const Tensor x = random_tensor(c.x, DType::kBF16, ++seed), w = random_tensor(c.w, DType::kBF16, 2),
                     b = random_tensor({O}, DType::kBF16, 3);
        const Tensor y32 = raw::conv2d(wide(x), wide(w), wide(b), options);
        ASSERT_EQ(raw::conv2d(x, w, b, options).to_vector<float>(), rounded(y32)) << c.x << c.w;
        for (const uint32_t one_in : {1, 4, 20}) {
          const Tensor dy = random_tensor(y, DType::kBF16, ++seed);
          for (int64_t i = 0; i < dy.numel(); ++i)
            if (philox(seed, 0, uint64_t(i))[0] % one_in) dy.ptr<bf16>()[i] = 0.f;
          const auto what = [&] { return concat(c.x, c.w, " one in ", one_in); };
          ASSERT_EQ(raw::conv2d_input_grad(dy, w, c.x, options).to_vector<float>(),
                    rounded(raw::conv2d_input_grad(wide(dy), wide(w), c.x, options)))
              << what();
          const auto [dw, db] = raw::conv2d_weight_grad(dy, x, c.w, true, options);
          const auto [dw32, db32] = raw::conv2d_weight_grad(wide(dy), wide(x), c.w, true, options);
          ASSERT_EQ(dw.to_vector<float>(), rounded(dw32)) << what();
          ASSERT_EQ(db.to_vector<float>(), rounded(db32)) << what();
          const auto unrounded =
              raw::conv_weight_grad("conv2d", dy, x, c.w, false, options, DType::kF32).first;
          ASSERT_EQ(unrounded.to_vector<float>(),
                    raw::conv2d_weight_grad(wide(dy), wide(x), c.w, false, options).first.to_vector<float>())
              << what();
        }
      }
}

// Large extents at which some implementation in oneDNN is wrong: docs/internals/kernels.md.
const Case kLongCases[] = {
    {"ManyChannels", {8, 8960, 1, 4}, {1, 8960, 1, 2}, {}},
    {"ManyFilters", {1, 5, 3, 5}, {1025, 5, 2, 1}, {}},
    {"LongRows", {2, 1024, 1, 4}, {9, 1024, 1, 3}, {.stride = {1, 2}}},
    {"LongRowsSquare", {1, 512, 4, 4}, {9, 512, 4, 4}, {.stride = 2}},
    {"WideImage", {1, 3, 12, 256}, {16, 3, 3, 3}, {.padding = 1}},
    {"VeryWideImage", {1, 1, 4, 1000}, {1, 1, 3, 3}, {.padding = 1}},
    {"WidePadding", {1, 3, 1, 21}, {64, 3, 1, 5}, {.padding = {0, 4}}},
};
class LongConv2d : public testing::TestWithParam<std::tuple<DType, Case>> {};
INSTANTIATE_TEST_SUITE_P(Cases, LongConv2d,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16),
                                          testing::ValuesIn(kLongCases)),
                         [](const auto& info) {
                           return std::get<1>(info.param).name + std::string("_") +
                                  std::string(name_of(std::get<0>(info.param)));
                         });

// Sums of small integers are exact, and rounded once at the end.
TEST_P(LongConv2d, IsExactForIntegers) {
  const auto& [dtype, c] = GetParam();
  const auto integers = [](const Shape& shape, uint64_t seed) {
    Tensor t = random_tensor(shape, DType::kF64, seed);
    for (int64_t k = 0; k < t.numel(); ++k) t.ptr<double>()[k] = std::round(4 * t.ptr<double>()[k]);
    return t;
  };
  const Tensor x64 = integers(c.x, 1), w64 = integers(c.w, 2), dy64 = integers(result_shape(c), 3);
  const Tensor x = raw::to(x64, dtype), w = raw::to(w64, dtype), dy = raw::to(dy64, dtype);
  const Tensor y = raw::to(raw::conv2d(x64, w64, {}, c.options), dtype),
               dx = raw::to(raw::conv2d_input_grad(dy64, w64, c.x, c.options), dtype),
               dw = raw::to(raw::conv2d_weight_grad(dy64, x64, c.w, false, c.options).first, dtype);
  const int before = num_threads();
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    expect_near(raw::conv2d(x, w, {}, c.options), y, 0);
    expect_near(raw::conv2d_input_grad(dy, w, c.x, c.options), dx, 0);
    expect_near(raw::conv2d_weight_grad(dy, x, c.w, false, c.options).first, dw, 0);
  }
  set_num_threads(before);
}

// Weight gradients in bf16 sum pixels in blocks, which are split among threads if there are few sums.
const Case kBlockCases[] = {
    {"FewSums", {3, 40, 24, 23}, {24, 40, 3, 3}, {.padding = 1}},
    {"PointwiseFewSums", {5, 64, 20, 15}, {200, 64, 1, 1}, {}},
    {"ManySums", {2, 130, 17, 15}, {130, 130, 3, 3}, {.padding = {1, 0}}},
    {"ManySumsStride", {3, 256, 13, 12}, {70, 256, 3, 3}, {.stride = {2, 1}, .dilation = {1, 2}}},
    {"Columns", {2, 40, 70, 60}, {24, 40, 3, 3}, {.padding = 1}},  // blocks end within images
    {"ColumnsManySums", {3, 130, 30, 34}, {130, 130, 3, 3}, {.padding = 1}},
    {"ColumnsStride", {5, 256, 47, 44}, {70, 256, 3, 3}, {.stride = 2, .padding = 1}},
};

class BlockedConv2d : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Cases, BlockedConv2d, testing::ValuesIn(kBlockCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(BlockedConv2d, WeightGradientsAreRoundedOnceByAnyNumberOfThreads) {
  const Case& c = GetParam();
  const Tensor x = random_tensor(c.x, DType::kBF16, 1), dy = random_tensor(result_shape(c), DType::kBF16, 2);
  const auto [dw64, db64] =
      raw::conv2d_weight_grad(raw::to(dy, DType::kF64), raw::to(x, DType::kF64), c.w, true, c.options);
  const double pixels = double(dy.numel() / c.w[0]);
  const int before = num_threads();
  for (int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    const auto [dw, db] = raw::conv2d_weight_grad(dy, x, c.w, true, c.options);
    expect_rounded_once(dw, dw64, pixels);
    expect_rounded_once(db, db64, pixels);
  }
  set_num_threads(before);
}

TEST(Conv2dWeights, AnUpdateIsSeen) {  // cached reordered copies of weights are dropped at a change
  const Tensor x = random_tensor({2, 32, 6, 6}), w = random_tensor({32, 32, 3, 3}, DType::kF32, 2);
  const auto before = raw::conv2d(x, w, {}).to_vector<float>();
  EXPECT_EQ(raw::conv2d(x, w, {}).to_vector<float>(), before);
  raw::fill_(w, 0);
  expect_near(raw::conv2d(x, w, {}), raw::conv2d(x, raw::clone(w), {}), 0);
  EXPECT_EQ(raw::conv2d(x, w, {}).to_vector<float>(), std::vector<float>(2 * 32 * 16, 0.f));
}

TEST(Conv2dWeights, TwoInOneStorageAreKeptApart) {
  const Tensor both = random_tensor({2, 32, 32, 3, 3}), x = random_tensor({1, 32, 6, 6}, DType::kF32, 2);
  for (int round = 0; round < 2; ++round)
    for (int i : {0, 1})
      expect_near(raw::conv2d(x, raw::select(both, 0, i), {}),
                  raw::conv2d(x, raw::clone(raw::select(both, 0, i)), {}), 0);
}

TEST(Conv2dSizes, AnEmptyBatchWorks) {
  for (DType t : {DType::kF32, DType::kF64}) {
    const Tensor x = empty({0, 3, 8, 8}, {t, kCPU}), w = random_tensor({4, 3, 3, 3}, t),
                 b = random_tensor({4}, t);
    const Tensor y = raw::conv2d(x, w, b);
    EXPECT_EQ(y.shape(), Shape({0, 4, 6, 6}));
    EXPECT_EQ(raw::conv2d_input_grad(y, w, x.shape()).shape(), x.shape());
    const auto [dw, db] = raw::conv2d_weight_grad(y, x, w.shape(), true);
    EXPECT_EQ(dw.to_vector<double>(), std::vector<double>(108, 0));
    EXPECT_EQ(db.to_vector<double>(), std::vector<double>(4, 0));
  }
}

TEST(Conv2dSizes, StridedInputsAreRead) {
  const Tensor big = random_tensor({2, 6, 9, 16}), w = random_tensor({4, 3, 3, 3}, DType::kF32, 2);
  const Tensor x = raw::slice(raw::narrow(big, 1, 2, 3), 3, 0, 16, 2);
  expect_near(raw::conv2d(x, w, {}), raw::conv2d(raw::clone(x), w, {}), 1e-6);
}

// x's elements in its layout, at an offset of six elements into a larger storage.
Tensor part_of_larger(const Tensor& x) {
  const Tensor larger = empty({x.numel() + 6}, {.dtype = x.dtype()});
  raw::fill_(larger, 77);
  const Tensor part = view_as_strided(larger, x.shape(), x.strides(), 6);
  raw::copy_(part, x);
  return part;
}

TEST(Conv2dSizes, PartsOfLargerTensorsAreReadFromWhereTheyBegin) {
  const Case cases[] = {{"Pointwise", {3, 16, 6, 5}, {8, 16, 1, 1}, {}},
                        {"PointwiseWithAStride", {3, 16, 6, 5}, {8, 16, 1, 1}, {.stride = 2}},
                        {"WithAStride", {3, 5, 6, 7}, {8, 5, 3, 3}, {.stride = {2, 1}, .padding = 1}},
                        {"Winograd", {4, 64, 16, 12}, {96, 64, 3, 3}, {.padding = 1}},
                        {"Depthwise", {2, 24, 9, 9}, {24, 1, 3, 3}, {.padding = 1, .groups = 24}}};
  for (const Case& c : cases)
    for (DType t : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64})
      for (bool channels_last : {false, true}) {
        const auto made = [&](const Shape& shape, uint64_t seed) {
          const Tensor x = raw::to(random_tensor(shape, DType::kF32, seed), t);
          return channels_last ? raw::channels_last(x) : x;
        };
        const Tensor x = made(c.x, 1), w = raw::to(random_tensor(c.w, DType::kF32, 2), t),
                     dy = made(result_shape(c), 3);
        const Tensor part_x = part_of_larger(x), part_w = part_of_larger(w), part_dy = part_of_larger(dy);
        const std::string what = concat(c.name, ' ', t, channels_last ? " channels-last" : "");
        const auto same = [&](const Tensor& a, const Tensor& b, const char* of) {
          EXPECT_EQ(a.to_vector<double>(), b.to_vector<double>()) << what << ": " << of;
        };
        same(raw::conv2d(part_x, part_w, {}, c.options), raw::conv2d(x, w, {}, c.options), "forward");
        same(raw::conv2d_input_grad(part_dy, part_w, c.x, c.options),
             raw::conv2d_input_grad(dy, w, c.x, c.options), "input gradient");
        same(raw::conv2d_weight_grad(part_dy, part_x, c.w, false, c.options).first,
             raw::conv2d_weight_grad(dy, x, c.w, false, c.options).first, "weight gradient");
      }
}

TEST(Conv2dErrors, SayWhatWasGiven) {
  const Tensor x = empty({2, 8, 28, 28}), w = empty({4, 16, 3, 3});
  EXPECT_ERROR(ShapeError, raw::conv2d(x, w, {}), "[conv2d] weight has 16 input channels but x has 8",
               "x f32[2,8,28,28] cpu", "weight f32[4,16,3,3]");
  EXPECT_ERROR(ShapeError, raw::conv2d(empty({8, 28, 28}), w, {}), "[N,C,H,W]", "f32[8,28,28]");
  EXPECT_ERROR(ShapeError, raw::conv2d(x, empty({4, 8, 3}), {}), "weight must be", "[4,8,3]");
  const Tensor v = empty({4, 8, 3, 3});
  EXPECT_ERROR(ShapeError, raw::conv2d(x, v, empty({3})), "bias must have 4 elements", "f32[3]");
  EXPECT_ERROR(ShapeError, raw::conv2d(empty({2, 8, 2, 5}), v, {}), "larger than the padded input", "2x5");
  EXPECT_ERROR(ShapeError, raw::conv2d(x, empty({6, 2, 3, 3}), {}, {.groups = 4}),
               "do not divide into 4 groups");
  EXPECT_ERROR(ShapeError, raw::conv2d(x, empty({4, 0, 3, 3}), {}), "must not be empty");
  EXPECT_ERROR(ValueError, raw::conv2d(x, v, {}, {.stride = 0}), "stride must be at least 1, got 0x0");
  EXPECT_ERROR(ValueError, raw::conv2d(x, v, {}, {.padding = -1}), "padding");
  EXPECT_ERROR(ValueError, raw::conv2d(x, v, {}, {.dilation = 0}), "dilation");
  EXPECT_ERROR(ValueError, raw::conv2d(x, v, {}, {.padding = int64_t(1) << 40}), "padding");
  EXPECT_ERROR(ValueError, raw::conv2d(x, v, {}, {.groups = 0}), "groups");
  EXPECT_ERROR(DTypeError, raw::conv2d(x, empty({4, 8, 3, 3}, {DType::kF64, kCPU}), {}),
               "x is f32 but weight is f64", "to(x, DType::kF64) converts x");
  EXPECT_ERROR(DTypeError, raw::conv2d(empty({2, 8, 28, 28}, {DType::kI64, kCPU}), v, {}), "i64");
  EXPECT_ERROR(DeviceError, raw::conv2d(x, empty({4, 8, 3, 3}, {DType::kF32, Device::parse("cpu:1")}), {}),
               "cpu:1");
  EXPECT_ERROR(ShapeError, raw::conv2d_input_grad(empty({2, 4, 26, 27}), v, {2, 8, 28, 28}),
               "dy must be [2,4,26,26]", "f32[2,4,26,27]");
}

TEST(Conv2dDevices, MetaAndFurtherCpus) {
  const Device meta = Device::parse("meta"), other = Device::parse("cpu:1");
  EXPECT_EQ(raw::conv2d(empty({1 << 20, 8, 512, 512}, {DType::kF32, meta}),
                        empty({4, 8, 3, 3}, {DType::kF32, meta}), {})
                .shape(),
            Shape({1 << 20, 4, 510, 510}));
  const Tensor x = random_tensor({2, 3, 8, 8}), w = random_tensor({4, 3, 3, 3}, DType::kF32, 2);
  expect_near(raw::conv2d(raw::to(x, other), raw::to(w, other), {}), raw::conv2d(x, w, {}), 1e-6);
  // An f32 gradient of few bf16 channels is widened in the kernel.
  const Tensor xs = raw::to(x, DType::kBF16), dy = random_tensor({2, 4, 6, 6}, DType::kBF16, 3);
  const auto dw = [&](Device d) {
    const char* op = "conv2d_weight_grad";
    return raw::conv_weight_grad(op, raw::to(dy, d), raw::to(xs, d), w.shape(), true, Conv2dFuncOptions{},
                                 DType::kF32);
  };
  const auto [dw0, db0] = dw(kCPU);
  const auto [dw1, db1] = dw(other);
  EXPECT_EQ(dw1.device(), other);
  EXPECT_EQ(dw1.to_vector<float>(), dw0.to_vector<float>());
  EXPECT_EQ(db1.to_vector<float>(), db0.to_vector<float>());
}

TEST_P(Conv2d, IsDifferentiable) {
  const Case& c = shape();
  const Tensor x = random_tensor(c.x, dtype(), 1), w = random_tensor(c.w, dtype(), 2),
               b = random_tensor({c.w[0]}, dtype(), 3);
  const Tensor dy = random_tensor(result_shape(c), dtype(), 4);
  const auto grads = autograd::grad(
      [&](const std::vector<Tensor>& v) { return conv2d(v[0], v[1], v[2], c.options); }, {x, w, b}, dy);
  expect_near(grads[0], raw::conv2d_input_grad(dy, w, c.x, c.options), tolerance());
  const auto [dw, db] = raw::conv2d_weight_grad(dy, x, c.w, true, c.options);
  expect_near(grads[1], dw, tolerance() * 10);
  expect_near(grads[2], db, tolerance() * 10);
}

// The joint gradient of weight and bias, differentiated again: d<(dw, db), (g, h)>/d(dy, x) =
// (conv2d(x, g, h), ...).
TEST_P(Conv2d, WeightAndBiasGradientIsDifferentiable) {
  const Case& c = shape();
  const Tensor x = random_tensor(c.x, dtype(), 1), dy = random_tensor(result_shape(c), dtype(), 2);
  const Tensor g = random_tensor(c.w, dtype(), 3), h = random_tensor({c.w[0]}, dtype(), 4);
  const auto grads = autograd::grad(
      [&](const std::vector<Tensor>& v) {
        const auto [dw, db] = conv2d_weight_grad(v[0], v[1], c.w, true, c.options);
        return sum(dw * g) + sum(db * h);
      },
      {dy, x});
  expect_near(grads[0], raw::conv2d(x, g, h, c.options), tolerance());
  expect_near(grads[1], raw::conv2d_input_grad(dy, g, c.x, c.options), tolerance());
}

}  // namespace
}  // namespace gradus
