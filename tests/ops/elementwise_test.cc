// Element-wise ops: accuracy against the C library in f64, special values, dtypes, layouts, broadcasting,
// in-place forms, gradients at kinks, errors. raw:: ops are those without autograd.
#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/activations.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/math.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

// --- gradients at corners ---

// Expected: PyTorch 2.15's.
TEST(Clamp, AtItsBoundsTheGradientIsZero) {
  const Tensor x = tensor({-kInf, -1.f, 0.f, 0.5f, 1.f, 2.f, kInf, kNaN});
  const auto slope = [&](const autograd::UnaryFunction& f) {
    return values(autograd::grad(f, x, ones_like(x)));
  };
  using V = std::vector<double>;
  EXPECT_EQ(slope([](const Tensor& v) { return clamp(v, 0, 1); }), (V{0, 0, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(slope([](const Tensor& v) { return clamp(v, 0); }), (V{0, 0, 0, 1, 1, 1, 1, 0}));
  EXPECT_EQ(slope([](const Tensor& v) { return clamp(v, -kInf, 1); }), (V{1, 1, 1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(slope([](const Tensor& v) { return clamp(v, 1, 0); }), (V{0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(slope([](const Tensor& v) { return hardtanh(v, 0, 1); }), (V{0, 0, 0, 1, 0, 0, 0, 1}));
}

TEST(Clamp, BetweenTensorsABoundThatIsMetTakesHalf) {
  const Tensor x = tensor({-1.f, 0.f, 0.5f, 1.f, 2.f}), low = zeros({5}), high = ones({5});
  const auto g = autograd::grad([](const std::vector<Tensor>& v) { return clamp(v[0], v[1], v[2]); },
                                {x, low, high}, ones({5}));
  using V = std::vector<double>;
  EXPECT_EQ(values(g[0]), (V{0, 0.5, 1, 0.5, 0}));
  EXPECT_EQ(values(g[1]), (V{1, 0.5, 0, 0, 0}));
  EXPECT_EQ(values(g[2]), (V{0, 0, 0, 0.5, 1}));
}

// --- accuracy ---

struct Function {
  const char* name;
  Tensor (*run)(const Tensor&);
  double (*reference)(double);
  double ulps;          // allowed, of the f32 result
  double absolute = 0;  // also allowed
};

const Function kFunctions[] = {
    {"exp", raw::unary<functors::Exp>, std::exp, 2},
    {"expm1", raw::unary<functors::Expm1>, std::expm1, 3},
    {"log", raw::unary<functors::Log>, std::log, 2},
    {"log1p", raw::unary<functors::Log1p>, std::log1p, 3},
    {"tanh", raw::unary<functors::Tanh>, std::tanh, 3},
    {"erf", raw::unary<functors::Erf>, std::erf, 3},
    {"sqrt", raw::unary<functors::Sqrt>, std::sqrt, 1},
    {"sin", raw::unary<functors::Sin>, std::sin, 2},
    {"cos", raw::unary<functors::Cos>, std::cos, 2},
    {"rsqrt", raw::unary<functors::Rsqrt>, [](double v) { return 1 / std::sqrt(v); }, 2},
    {"sigmoid", raw::unary<functors::Sigmoid>, [](double v) { return 1 / (1 + std::exp(-v)); }, 4, 0x1p-126},
};

// Every 4099th float: 2^32 / 4099 of them, all exponents, subnormals, infinities and NaNs included.
TEST(ElementwiseAccuracy, FloatFunctionsMatchTheCLibraryOverTheWholeRange) {
  std::vector<float> inputs;
  for (uint64_t bits = 0; bits < (uint64_t(1) << 32); bits += 4099)
    inputs.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (float special :
       {0.f, -0.f, 1.f, -1.f, kInf, -kInf, kNaN, 88.72f, 88.73f, -87.4f, -103.9f, -104.1f, 0.625f})
    inputs.push_back(special);
  const Tensor x = tensor(inputs, {int64_t(inputs.size())});
  for (const Function& f : kFunctions) {
    const auto got = f.run(x).to_vector<float>();
    for (size_t i = 0; i < inputs.size(); ++i) {
      const float want = float(f.reference(double(inputs[i])));
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got[i])) << f.name << "(" << inputs[i] << ") = " << got[i];
        continue;
      }
      if (std::isinf(want) || std::isinf(got[i])) {
        // Next to overflow one may be the largest finite number.
        const float finite = std::isinf(want) ? got[i] : want;
        ASSERT_TRUE(want == got[i] || std::abs(finite) > 3.40e38f)
            << f.name << "(" << inputs[i] << ") = " << got[i];
        continue;
      }
      const double unit = std::max(double(std::nextafter(std::abs(want), kInf)) - std::abs(want), 0x1p-149);
      ASSERT_LE(std::abs(double(got[i]) - f.reference(double(inputs[i]))), f.ulps * unit + f.absolute)
          << f.name << "(" << inputs[i] << ") = " << got[i] << ", expected " << want;
    }
  }
}

TEST(ElementwiseAccuracy, VectorsAndSingleElementsGiveTheSameBits) {
  const Tensor x = random_tensor({37}) * 5;
  for (const Function& f : kFunctions) {
    const auto all = f.run(x).to_vector<float>();
    for (int64_t i = 0; i < 37; ++i) {
      const float alone = f.run(view_as_strided(x, {1}, {1}, i)).item<float>();
      ASSERT_EQ(std::bit_cast<uint32_t>(alone), std::bit_cast<uint32_t>(all[size_t(i)]))
          << f.name << " at " << i;
    }
  }
}

// --- layouts ---

// The same elements in other layouts: channels-last, reversed dims, two swaps of dims, every second column.
std::vector<Tensor> layouts_of(const Tensor& x) {
  std::vector<Tensor> all = {x, raw::channels_last(x)};
  all.push_back(raw::permute(raw::contiguous(raw::permute(x, {3, 2, 1, 0})), {3, 2, 1, 0}));
  all.push_back(raw::permute(raw::contiguous(raw::permute(x, {1, 0, 3, 2})), {1, 0, 3, 2}));
  const Shape s = x.shape();
  const Tensor wide = full({s[0], s[1], s[2], 2 * s[3]}, 77, {.dtype = x.dtype()});
  const Tensor gapped = view_as_strided(wide, s, {wide.stride(0), wide.stride(1), wide.stride(2), 2}, 1);
  raw::copy_(gapped, x);
  all.push_back(gapped);
  return all;
}

TEST(ElementwiseLayouts, ResultsDoNotDependOnThreads) {
  Context context = Context::current().snapshot();
  const Tensor a = random_tensor({3, 40, 37, 41}, DType::kF32, 1),
               b = random_tensor({40, 1, 1}, DType::kF32, 2);
  std::vector<std::vector<double>> results;
  for (int threads : {1, 2, 3}) {
    context.threads = threads;
    ContextScope scope(context);
    results.push_back(values(raw::add(a, b)));
    ASSERT_EQ(values(raw::add(raw::channels_last(a), b)), results[0]);
    ASSERT_EQ(results.back(), results[0]);
  }
}

TEST(ElementwiseLayouts, ResultsTakeTheOperandsLayout) {
  const Tensor rows = random_tensor({2, 3, 4, 5}), image = raw::channels_last(rows);
  const Tensor bias = random_tensor({3, 1, 1});
  EXPECT_TRUE(raw::add(rows, rows).is_row_major());
  EXPECT_TRUE(raw::add(image, image).is_channels_last());
  EXPECT_TRUE(raw::add(image, rows).is_channels_last());
  EXPECT_TRUE(raw::add(rows, image).is_channels_last());
  EXPECT_TRUE(raw::add(image, bias).is_channels_last());
  EXPECT_TRUE(raw::add(bias, image).is_channels_last());
  EXPECT_TRUE(raw::unary<functors::Relu>(image).is_channels_last());
  EXPECT_TRUE(raw::gt(image, 0).is_channels_last());
  EXPECT_TRUE(raw::where(raw::gt(image, 0), image, raw::operand(0, image)).is_channels_last());
  const Tensor transposed = raw::permute(random_tensor({6, 5}), {1, 0});
  EXPECT_EQ(raw::mul(transposed, transposed).strides(), transposed.strides());
}

// --- broadcasting ---

TEST(ElementwiseBroadcast, EveryPairOfShapesFollowsNumPysRule) {
  const Shape shapes[] = {{}, {1}, {5}, {3, 1}, {1, 5}, {3, 5}, {2, 1, 1}, {2, 3, 5}, {2, 1, 5}, {1, 3, 1}};
  for (const Shape& s : shapes)
    for (const Shape& t : shapes) {
      const Tensor a = random_tensor(s, DType::kF64, 3), b = random_tensor(t, DType::kF64, 4);
      const Shape out = broadcast_shapes(s, t, "test");
      const Tensor y = raw::sub(a, b);
      ASSERT_EQ(y.shape(), out);
      // Reference: expand both by hand.
      const auto at = [&](const Tensor& x, int64_t i) {
        int64_t offset = 0;
        for (int d = out.size() - 1; d >= 0; --d) {
          const int own = d - (out.size() - x.dim());
          const int64_t index = i % out[d];
          i /= out[d];
          if (own >= 0 && x.shape()[own] != 1) offset += index * x.strides()[own];
        }
        return x.ptr<double>()[offset];
      };
      const auto v = values(y);
      for (int64_t i = 0; i < y.numel(); ++i)
        ASSERT_EQ(v[size_t(i)], at(a, i) - at(b, i)) << s << " and " << t;
    }
}

TEST(ElementwiseBroadcast, LongRowsAndManyRowsAgree) {
  for (const auto& [s, t] : {std::pair<Shape, Shape>{{3, 1000}, {3, 1}},
                             {{1000, 3}, {1000, 1}},
                             {{3, 1000}, {1000}},
                             {{40, 600}, {1, 600}},
                             {{2000, 2}, {1, 2}},
                             {{70, 1}, {1, 70}}}) {
    const Tensor a = random_tensor(s, DType::kF32, 5), b = random_tensor(t, DType::kF32, 6);
    const Shape out = broadcast_shapes(s, t, "test");
    const auto expanded = [&](const Tensor& x) {
      const Tensor y = empty(out);
      raw::copy_(y, x);
      return y;
    };
    EXPECT_EQ(values(raw::add(a, b)), values(raw::add(expanded(a), expanded(b)))) << s << t;
  }
}

TEST(ElementwiseBroadcast, EmptyTensorsStayEmpty) {
  EXPECT_EQ(raw::add(empty({0, 3}), empty({1, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(raw::unary<functors::Exp>(empty({2, 0})).shape(), (Shape{2, 0}));
  EXPECT_EQ(raw::where(empty({0}, {.dtype = DType::kBool}), empty({0}), empty({1})).numel(), 0);
}

// --- special values ---

TEST(ElementwiseSpecial, NaNFollowsItsRules) {
  const Tensor nan = tensor({kNaN}), one = tensor({1.f});
  for (const auto& pair : {std::pair{nan, one}, {one, nan}, {nan, nan}}) {
    EXPECT_TRUE(std::isnan(raw::maximum(pair.first, pair.second).item<float>()));
    EXPECT_TRUE(std::isnan(raw::minimum(pair.first, pair.second).item<float>()));
    EXPECT_EQ(raw::eq(pair.first, pair.second).item<float>(), 0);
    EXPECT_EQ(raw::ne(pair.first, pair.second).item<float>(), 1);
    EXPECT_EQ(raw::le(pair.first, pair.second).item<float>(), 0);
  }
  EXPECT_TRUE(std::isnan(raw::unary<functors::Relu>(nan).item<float>()));
  EXPECT_TRUE(std::isnan(raw::clamp(nan, -1, 1).item<float>()));
  EXPECT_TRUE(std::isnan(raw::unary<functors::LeakyRelu>(nan, 0.1).item<float>()));
  EXPECT_EQ(raw::unary<functors::Sign>(nan).item<float>(), 0);
  EXPECT_EQ(values(raw::unary<functors::IsNaN>(tensor({kNaN, kInf, 1.f}))), (std::vector<double>{1, 0, 0}));
  EXPECT_EQ(values(raw::unary<functors::IsFinite>(tensor({kNaN, kInf, -kInf, 1.f}))),
            (std::vector<double>{0, 0, 0, 1}));
  // where ignores a NaN that it does not select.
  EXPECT_EQ(raw::where(raw::gt(one, 0), one, nan).item<float>(), 1);
}

TEST(ElementwiseSpecial, RemainderHasTheDivisorsSign) {
  EXPECT_EQ(values(raw::remainder(tensor({5.5f, -5.5f, 5.5f, -5.5f}), tensor({3.f, 3.f, -3.f, -3.f}))),
            (std::vector<double>{2.5, 0.5, -0.5, -2.5}));
  EXPECT_EQ(values(raw::remainder(tensor({7, -7, 7, -7, 7}), tensor({3, 3, -3, -3, 0}))),
            (std::vector<double>{1, 2, -2, -1, 0}));
  EXPECT_EQ(raw::remainder(tensor({INT64_MIN}), tensor({int64_t(-1)})).item<int64_t>(), 0);
}

TEST(ElementwiseSpecial, RoundTakesHalvesToTheEvenNeighbor) {
  EXPECT_EQ(values(raw::unary<functors::Round>(tensor({0.5f, 1.5f, 2.5f, -0.5f, -1.5f}))),
            (std::vector<double>{0, 2, 2, 0, -2}));
}

TEST(ElementwiseSpecial, SoftplusAndGeluAreRightFarOut) {
  const auto s = values(raw::unary<functors::Softplus>(tensor({-200.f, 0.f, 30.f, 1000.f}), 1.0, 20.0));
  EXPECT_EQ(s[0], 0);
  EXPECT_NEAR(s[1], std::log(2.0), 1e-7);
  EXPECT_EQ(s[2], 30);
  EXPECT_EQ(s[3], 1000);
  for (const Tensor& y : {raw::unary<functors::Gelu>(tensor({-40.f, 40.f})),
                          raw::unary<functors::GeluTanh>(tensor({-40.f, 40.f}))}) {
    EXPECT_EQ(values(y)[0], 0);
    EXPECT_EQ(values(y)[1], 40);
  }
}

// --- dtypes ---

TEST(ElementwiseTypes, PromotionFollowsPyTorch) {
  const Tensor f32 = ones({2}), f64 = ones({2}, {.dtype = DType::kF64}),
               f16 = ones({2}, {.dtype = DType::kF16});
  const Tensor i64 = ones({2}, {.dtype = DType::kI64}), u8 = ones({2}, {.dtype = DType::kU8});
  const Tensor flag = ones({2}, {.dtype = DType::kBool});
  EXPECT_EQ(raw::add(f32, f64).dtype(), DType::kF64);
  EXPECT_EQ(raw::add(f16, i64).dtype(), DType::kF16);
  EXPECT_EQ(raw::add(u8, i64).dtype(), DType::kI64);
  EXPECT_EQ(raw::add(flag, u8).dtype(), DType::kU8);
  EXPECT_EQ(raw::add(flag, flag).dtype(), DType::kBool);
  EXPECT_EQ(raw::div(i64, i64).dtype(), DType::kF32);
  EXPECT_EQ(raw::unary<functors::Exp>(i64).dtype(), DType::kF32);
  EXPECT_EQ(raw::unary<functors::Floor>(i64).dtype(), DType::kI64);
  // A 0-dimensional tensor matters only by its kind: bool, integer, floating.
  EXPECT_EQ(raw::add(f32, scalar(1, {.dtype = DType::kF64})).dtype(), DType::kF32);
  EXPECT_EQ(raw::add(i64, scalar(1.5)).dtype(), DType::kF32);
  EXPECT_EQ(raw::add(u8, scalar(1, {.dtype = DType::kI64})).dtype(), DType::kU8);
}

TEST(ElementwiseTypes, NumbersTakeTheTensorsDtype) {
  EXPECT_EQ((ones({2}, {.dtype = DType::kF16}) * 0.5).dtype(), DType::kF16);
  EXPECT_EQ((ones({2}, {.dtype = DType::kI32}) + 1).dtype(), DType::kI32);
  EXPECT_EQ(values(arange(3) * 0.5), (std::vector<double>{0, 0.5, 1}));
  EXPECT_EQ((arange(3) * 0.5).dtype(), DType::kF32);
  EXPECT_EQ((ones({2}, {.dtype = DType::kBool}) + 1).dtype(), DType::kI64);
  EXPECT_EQ(clamp(arange(5), 0.5, 3).dtype(), DType::kF32);
  EXPECT_EQ(values(raw::clamp(arange(5), 1, INFINITY)), (std::vector<double>{1, 1, 2, 3, 4}));
  EXPECT_EQ(values(raw::clamp(raw::to(arange(5), DType::kU8), -3, 300)),
            (std::vector<double>{0, 1, 2, 3, 4}));
}

TEST(ElementwiseTypes, ParametersTakeTheTypeThatTheFunctorHas) {
  const Tensor x = tensor({-1.f, 0.5f, 3.f});
  EXPECT_EQ(values(raw::unary<functors::LeakyRelu>(x, 2)), values(raw::unary<functors::LeakyRelu>(x, 2.0)));
  EXPECT_EQ(values(raw::unary<functors::Polygamma>(x, 1)), values(polygamma(1, x)));
}

TEST(ElementwiseTypes, IntegersWrapAndDoNotTrap) {
  EXPECT_EQ(values(raw::pow(tensor({2, -3, 0, 5}), tensor({10, 3, 0, -1}))),
            (std::vector<double>{1024, -27, 1, 0}));
  EXPECT_EQ(values(raw::pow(tensor({1, -1, -1}), tensor({-5, -5, -4}))), (std::vector<double>{1, -1, 1}));
  const Tensor u = raw::to(tensor({200, 3}), DType::kU8);
  EXPECT_EQ(values(raw::add(u, u)), (std::vector<double>{144, 6}));
  EXPECT_EQ(values(raw::sub(u, 201)), (std::vector<double>{255, 58}));
  const Tensor i = raw::to(tensor({INT32_MAX, INT32_MIN}), DType::kI32);
  EXPECT_EQ(raw::add(i, i).to_vector<int32_t>(), (std::vector<int32_t>{-2, 0}));
  EXPECT_EQ(raw::unary<functors::Square>(i).to_vector<int32_t>(), (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(raw::unary<functors::Abs>(i).to_vector<int32_t>(), (std::vector<int32_t>{INT32_MAX, INT32_MIN}));
}

TEST(ElementwiseTypes, ClosenessOfIntegersIsOfTheirTrueDifference) {
  const Tensor a = to(tensor({0, 1, 7}), DType::kU8), b = to(tensor({255, 3, 4}), DType::kU8);
  EXPECT_EQ(isclose(a, b, {.rtol = 0, .atol = 2}).to_vector<bool>(), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(isclose(gt(a, 0), gt(b, 0)).to_vector<bool>(), (std::vector<bool>{false, true, true}));
}

TEST(ElementwiseTypes, UnsupportedOnesAreErrors) {
  const Tensor flag = ones({2}, {.dtype = DType::kBool});
  EXPECT_ERROR(DTypeError, sub(flag, flag), "[sub]", "bool");
  EXPECT_ERROR(DTypeError, neg(flag), "[neg]", "bool");
  EXPECT_ERROR(DTypeError, where(ones({2}), ones({2}), ones({2})), "[where]", "bool", "f32[2]");
  EXPECT_ERROR(DTypeError, sigmoid_backward(arange(2), arange(2)), "i64[2]");
}

// --- errors ---

TEST(ElementwiseErrors, NameTheOpAndBothOperands) {
  EXPECT_ERROR(ShapeError, add(ones({2, 3}), ones({2, 4})), "[add]", "[2,3]", "[2,4]");
  EXPECT_ERROR(DeviceError, mul(ones({2}), ones({2}, {.device = Device::parse("cpu:1")})), "[mul]",
               "f32[2] cpu", "f32[2] cpu:1");
  EXPECT_ERROR(ValueError, clamp(ones({2}), NAN, 1), "[clamp]");
  EXPECT_ERROR(ValueError, clamp_(ones({2}), 0, NAN), "[clamp_]");
  // Bounds between which the dtype has no value; a bound beyond its range alone is accepted.
  const double top = 9223372036854775808.0;  // 2^63
  for (auto [dtype, low, high] : {std::tuple(DType::kI8, 128., 300.),
                                  {DType::kI8, -300., -129.},
                                  {DType::kU8, 256., INFINITY},
                                  {DType::kU8, -5., -1.},
                                  {DType::kI64, top, INFINITY},
                                  {DType::kI64, -INFINITY, -top - 4096}}) {
    const Tensor x = ones({2}, {dtype});
    EXPECT_ERROR(ValueError, raw::clamp(x, low, high), "[clamp]", "lies between the bounds");
    EXPECT_ERROR(ValueError, raw::clamp_(x, low, high), "[clamp_]", "lies between the bounds");
    EXPECT_EQ(values(raw::clamp(x, low < 0 ? low : 1, high < 0 ? 1 : high)), (std::vector<double>{1, 1}));
  }
  EXPECT_ERROR(ValueError, clamp(ones({2}, {DType::kI8}), 128, 300), "[clamp]", "lies between the bounds");
  EXPECT_ERROR(ValueError, clamp_(ones({2}, {DType::kU8}), -5, -1), "[clamp_]", "lies between the bounds");
  EXPECT_ERROR(DTypeError, clamp_(ones({2}, {DType::kI32}), 0.5, 2), "[clamp_]", "i32[2]");
  EXPECT_ERROR(ValueError, softplus(ones({2}), 0), "[softplus]", "0");
  EXPECT_ERROR(StateError, add(Tensor(), ones({2})), "undefined");
}

// --- in place ---

TEST(ElementwiseInPlace, WritesTheDestinationThroughAnyLayout) {
  for (const Tensor& x : layouts_of(random_tensor({2, 3, 4, 5}))) {
    const Tensor b = random_tensor({3, 1, 1}, DType::kF32, 9);
    const auto sum = values(raw::add(x, b)), product = values(raw::mul(raw::add(x, b), 2));
    const uint32_t version = x.storage()->version();
    add_(x, b);
    EXPECT_EQ(values(x), sum) << describe(x);
    mul_(x, 2);
    EXPECT_EQ(values(x), product) << describe(x);
    EXPECT_EQ(x.storage()->version(), version + 2);
  }
}

TEST(ElementwiseInPlace, FusedFormsMatchTheirFormulas) {
  const auto fresh = [] { return random_tensor({50}, DType::kF64, 1); };
  const Tensor a = random_tensor({50}, DType::kF64, 2);
  const auto check = [&](auto f, const Tensor& want) {
    const Tensor x = fresh();
    f(x);
    expect_near(x, want, 1e-14);
  };
  const Tensor x = fresh();
  check([&](const Tensor& t) { raw::add_(t, a, -0.5); }, x + a * -0.5);
  check([&](const Tensor& t) { raw::lerp_(t, a, 0.3); }, x + (a - x) * 0.3);
  check([&](const Tensor& t) { raw::clamp_(t, -0.1, 0.1); }, clamp(x, -0.1, 0.1));
  check([&](const Tensor& t) { raw::unary_<functors::Square>("square_", t); }, x * x);
}

TEST(ElementwiseInPlace, OverlappingOperandsAreReadFirst) {
  const Tensor x = random_tensor({20, 20});
  const auto want = values(raw::add(x, raw::permute(x, {1, 0})));
  add_(x, raw::permute(x, {1, 0}));
  EXPECT_EQ(values(x), want);
  add_(x, x);
  for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(values(x)[i], 2 * want[i]);
  const Tensor row = random_tensor({5});
  const auto shifted = values(raw::mul(row, row.ptr<float>()[2]));
  mul_(row, view_as_strided(row, {1}, {1}, 2));
  EXPECT_EQ(values(row), shifted);
}

TEST(ElementwiseInPlace, RefusesWhatDoesNotFit) {
  EXPECT_ERROR(ShapeError, add_(ones({3}), ones({2, 3})), "[add_]", "f32[3]", "f32[2,3]");
  EXPECT_ERROR(DTypeError, add_(arange(3), ones({3})), "[add_]", "f32", "i64[3]");
  EXPECT_ERROR(DTypeError, div_(arange(3), arange(3)), "[div_]", "i64[3]");
  EXPECT_ERROR(DTypeError, add_(arange(3), 0.5), "[add_]");
  const Tensor x = ones({3});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  EXPECT_ERROR(StateError, add_(x, x), "[add_]", "recording");
  EXPECT_ERROR(StateError, mul_(x, 2), "[mul_]");
  EXPECT_EQ(values(x), (std::vector<double>{1, 1, 1}));
}

TEST(ElementwiseInPlace, ReluOfATemporaryReusesItsBufferAlsoWhileRecording) {
  Tensor x = random_tensor({100});
  const void* buffer = x.raw_ptr();
  const auto want = values(raw::unary<functors::Relu>(x));
  const Tensor y = relu(std::move(x));
  EXPECT_EQ(y.raw_ptr(), buffer);
  EXPECT_EQ(values(y), want);

  const Tensor w = random_tensor({100});
  GradManager gm;
  gm.attach(w);
  auto recording = gm.record();
  Tensor product = w * 3;
  buffer = product.raw_ptr();
  const Tensor z = relu(std::move(product));
  EXPECT_EQ(z.raw_ptr(), buffer);
  // exp saved its result: that buffer must stay as it is.
  Tensor e = exp(w);
  buffer = e.raw_ptr();
  const Tensor kept = relu(std::move(e));
  EXPECT_NE(kept.raw_ptr(), buffer);
  gm.backward(sum(z) + sum(kept));
  const auto dw = values(w.grad()), v = values(w);
  for (size_t i = 0; i < v.size(); ++i) EXPECT_NEAR(dw[i], (v[i] > 0 ? 3 : 0) + std::exp(v[i]), 1e-5);
}

// --- gradients beyond the op table ---

TEST(ElementwiseGrad, TiesShareTheGradientAndKinksTakeTheirSide) {
  const auto gradient = [](const Tensor& at, auto f) {
    const Tensor x = raw::clone(at);
    GradManager gm;
    gm.attach(x);
    auto recording = gm.record();
    gm.backward(sum(f(x)));
    return values(x.grad());
  };
  const Tensor x = tensor({1.f, 2.f, 3.f});
  const Tensor two = tensor({2.f, 2.f, 2.f});
  EXPECT_EQ(gradient(x, [&](const Tensor& t) { return maximum(t, two); }), (std::vector<double>{0, 0.5, 1}));
  EXPECT_EQ(gradient(x, [&](const Tensor& t) { return minimum(two, t); }), (std::vector<double>{1, 0.5, 0}));
  EXPECT_EQ(gradient(x, [&](const Tensor& t) { return maximum(t, 2); }), (std::vector<double>{0, 0.5, 1}));
  EXPECT_EQ(gradient(x, [&](const Tensor& t) { return clamp(t, 1, 2.5); }), (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(gradient(tensor({-1.f, 0.f, 1.f}), [](const Tensor& t) { return relu(t); }),
            (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(gradient(tensor({-1.f, 0.f, 1.f}), [](const Tensor& t) { return abs(t); }),
            (std::vector<double>{-1, 0, 1}));
  EXPECT_EQ(gradient(tensor({0.f, 2.f}), [](const Tensor& t) { return pow(t, 0); }),
            (std::vector<double>{0, 0}));
  EXPECT_EQ(gradient(tensor({0.f, 2.f}),
                     [](const Tensor& t) {
                       return pow(t, tensor({0.f, 3.f}));
                     }),
            (std::vector<double>{0, 12}));
  EXPECT_EQ(gradient(tensor({0.f, 2.f}),
                     [](const Tensor& t) {
                       return pow(tensor({0.f, 1.f}), t);
                     }),
            (std::vector<double>{0, 0}));
}

TEST(ElementwiseGrad, TheSameTensorTwiceSumsBothWays) {
  const Tensor x = tensor({3.f});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  gm.backward(x * x + x / x + x - x);
  EXPECT_NEAR(x.grad().item<float>(), 6, 1e-6);
}

// A temporary's buffer becomes the result's only if nothing else refers to it.
TEST(Temporaries, GiveTheirBufferToSumsAndMultiples) {
  const Tensor a = random_tensor({3, 4}, DType::kF32, 1), b = random_tensor({4}, DType::kF32, 2);
  const auto values = [](const Tensor& t) { return t.to_vector<float>(); };
  const auto same_buffer = [&](auto op) {
    Tensor t = exp(a);
    const void* buffer = t.raw_ptr();
    return op(std::move(t)).raw_ptr() == buffer;
  };
  EXPECT_TRUE(same_buffer([&](Tensor t) { return std::move(t) + b; }));
  EXPECT_TRUE(same_buffer([&](Tensor t) { return b + std::move(t); }));
  EXPECT_TRUE(same_buffer([&](Tensor t) { return std::move(t) - b; }));
  EXPECT_TRUE(same_buffer([&](Tensor t) { return std::move(t) * 2.0; }));
  EXPECT_TRUE(same_buffer([&](Tensor t) { return 1.0 + std::move(t) - 3.0; }));
  EXPECT_FALSE(same_buffer([&](Tensor t) {
    const Tensor kept = t;
    return std::move(t) + b;
  }));
  EXPECT_FALSE(same_buffer([&](Tensor t) {
    return std::move(t) + random_tensor({2, 3, 4}, DType::kF32, 3);
  }));
  EXPECT_FALSE(same_buffer([&](Tensor t) { return std::move(t) + random_tensor({3, 4}, DType::kF64, 3); }));
  EXPECT_EQ(values(exp(a) + b), values(add(static_cast<const Tensor&>(exp(a)), b)));
  EXPECT_EQ(values(exp(a) - 2.0), values(sub(static_cast<const Tensor&>(exp(a)), 2.0)));
}

// exp saves its result for backward, so the sum needs a buffer of its own.
TEST(Temporaries, KeepTheBufferThatARuleHasSaved) {
  const Tensor x = random_tensor({5}, DType::kF64, 1), ones = random_tensor({5}, DType::kF64, 2) * 0 + 1;
  const auto g =
      autograd::grad([](const std::vector<Tensor>& v) { return (exp(v[0]) + 1.0) * 3.0 - v[0]; }, {x}, ones);
  for (size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(g[0].to_vector<double>()[i], 3 * std::exp(x.to_vector<double>()[i]) - 1, 1e-12);
}

// Angles, powers and logarithms at the limits of f32.
TEST(Functions, KeepTheEdgesOfTheCLibrary) {
  for (float f : {0.f, -0.f, 1.f, -1.f, kInf, -kInf, kNaN, 1e30f, 1e-42f, 0.5f, -2.5f, 88.9f, 1e10f}) {
    const double v = f;
    const Tensor x = full({3}, v);
    const auto same = [&](const char* name, const Tensor& y, double e) {
      const float got = y.to_vector<float>()[1], want = float(e);
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got)
                                   : got == want || std::abs(got - want) <= 4e-7f * std::abs(want))
          << name << "(" << v << ") is " << got << ", expected " << want;
    };
    same("asin", asin(x), std::asin(v)), same("acos", acos(x), std::acos(v)),
        same("atan", atan(x), std::atan(v));
    same("sinh", sinh(x), std::sinh(float(v))), same("cosh", cosh(x), std::cosh(float(v)));
    same("asinh", asinh(x), std::asinh(v)), same("acosh", acosh(x), std::acosh(v)),
        same("atanh", atanh(x), std::atanh(v));
    same("exp2", exp2(x), std::exp2(v)), same("log2", log2(x), std::log2(float(v))),
        same("log10", log10(x), std::log10(float(v)));
    same("erfc", erfc(x), std::erfc(v)), same("pow", pow(x, -1.5), std::pow(float(v), -1.5)),
        same("pow", pow(x, 3), std::pow(float(v), 3.0));
    if (std::isfinite(v) && std::abs(v) <= 1e10)
      same("sin", sin(x), std::sin(float(v))), same("cos", cos(x), std::cos(float(v)));
  }
}

TEST(Functions, BytesAreFractionsBeforeTheyAreSubtractedOrAdded) {
  const Tensor x = to(tensor({0, 1, 2, 255}), DType::kU8);
  const auto y = logit(x).to_vector<float>();
  EXPECT_EQ(y[0], -INFINITY);
  EXPECT_EQ(y[1], INFINITY);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(softsign(x).to_vector<float>()[3], 255.f / 256);
}

TEST(Functions, AllcloseAndEqualLookAtAllElements) {
  const Tensor a = tensor({1.f, 2.f, INFINITY}), b = tensor({1.f, 2.00001f, INFINITY});
  EXPECT_TRUE(allclose(a, b));
  EXPECT_FALSE(allclose(a, b, {.rtol = 0, .atol = 1e-7}));
  EXPECT_TRUE(equal(a, a));
  EXPECT_FALSE(equal(a, b));
  EXPECT_FALSE(equal(a, reshape(a, {3, 1})));
  const Tensor nan = tensor({NAN});
  EXPECT_FALSE(equal(nan, nan));
  EXPECT_FALSE(allclose(nan, nan));
  EXPECT_TRUE(allclose(nan, nan, {.equal_nan = true}));
  EXPECT_THROW(allclose(a, b, {.atol = -1}), ValueError);
}

TEST(Functions, PolesAndEnds) {
  const auto v = digamma(tensor({0.0, -0.0, -1.0, -2.0})).to_vector<double>();
  EXPECT_EQ(v[0], -INFINITY);
  EXPECT_EQ(v[1], INFINITY);
  EXPECT_TRUE(std::isnan(v[2]) && std::isnan(v[3]));
  const auto e = erfinv(tensor({1.0, -1.0, 1.5, 0.0})).to_vector<double>();
  EXPECT_EQ(e[0], INFINITY);
  EXPECT_EQ(e[1], -INFINITY);
  EXPECT_TRUE(std::isnan(e[2]));
  EXPECT_EQ(e[3], 0);
}

// PyTorch's trigamma is too coarse to compare with.
TEST(Functions, TrigammaOfWholeAndHalfNumbers) {
  const double pi2 = M_PI * M_PI;
  const auto v = polygamma(1, tensor({1.0, 2.0, 0.5, -0.5})).to_vector<double>();
  EXPECT_NEAR(v[0], pi2 / 6, 1e-14);
  EXPECT_NEAR(v[1], pi2 / 6 - 1, 1e-14);
  EXPECT_NEAR(v[2], pi2 / 2, 1e-13);
  EXPECT_NEAR(v[3], pi2 / 2 + 4, 1e-13);
}

TEST(Functions, PolygammaOfTheLargestOrderHasAGradient) {
  const Tensor x = tensor({1.5});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  gm.backward(polygamma(100, x));
  // 101! sum_k (x + k)^-102: the terms after the first are below the precision.
  EXPECT_NEAR(x.grad().item<double>() / (std::tgamma(102.0) * std::pow(1.5, -102)), 1, 1e-11);
}

TEST(Functions, HugeAnglesAreReducedExactly) {
  std::vector<float> angles;
  for (int i = 0; i < 100; ++i) angles.push_back(float(std::ldexp(1.0 + i * 0.017, i)));
  const Tensor x = tensor(angles, Shape{100});
  const auto s = sin(x).to_vector<float>();
  const auto c = cos(x).to_vector<float>();
  for (size_t i = 0; i < angles.size(); ++i) {
    EXPECT_NEAR(s[i], std::sin(double(angles[i])), 1e-6) << angles[i];
    EXPECT_NEAR(c[i], std::cos(double(angles[i])), 1e-6) << angles[i];
  }
}

TEST(Functions, PowersOfFloatsAreThoseOfDoublesRounded) {
  for (float a : {0.f, -0.f, 1.f, -1.f, 0.5f, -2.f, 3.7f, 1e-30f, 1e-42f, 1e30f, INFINITY, -INFINITY, NAN})
    for (float b : {0.f, 1.f, -1.f, 2.f, 3.f, -3.f, 0.5f, -0.5f, 1e-3f, 1e10f, INFINITY, -INFINITY, NAN}) {
      const float given = pow(tensor({a, 2.f}), tensor({b, 2.f})).to_vector<float>()[0];
      const float expected = float(std::pow(double(a), double(b)));
      if (std::isnan(expected))
        EXPECT_TRUE(std::isnan(given)) << a << " " << b << " " << given;
      else if (std::isinf(expected) || expected == 0)
        EXPECT_EQ(given, expected) << a << " " << b;
      else
        EXPECT_NEAR(given / expected, 1, 3e-7) << a << " " << b;
    }
}

TEST(Functions, BitsOfBoolsAndWrongDtypes) {
  const Tensor t = tensor({1.f, 0.f}), b = gt(t, 0);
  EXPECT_EQ(bitwise_and(b, bitwise_not(b)).dtype(), DType::kBool);
  EXPECT_THROW(bitwise_not(t), DTypeError);
}

}  // namespace
}  // namespace gradus
