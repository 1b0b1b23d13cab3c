// Element-wise float functors on the device against the same functors on the host: bit-equal, except f64
// results of math library functions (Exact::kNearly...).
#include "elementwise_test.h"
#include "gradus/tensor/ops/activations.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/losses/loss_functors.h"
#include "gradus/tensor/ops/math.h"

namespace device_test {

using namespace gradus::functors;  // NOLINT

namespace {

// S times a scalar operand in f32; 0.1 is not representable in 16-bit floats and must not be rounded to S.
template <class S> void test_number(Group& group) {
  constexpr float kNumber = 0.1f;
  const Elements<float> number(std::vector<float>{kNumber});
  for (const size_t n : {7, 64, 1031}) {
    std::vector<S> x(n);
    for (size_t i = 0; i < n; ++i) x[i] = sample<S>(i, 1);
    const Elements<S> in(x), out(n);
    const Sizes sizes{static_cast<int64_t>(n)};
    const cuda::StridedIndex index =
        cuda::make_strided_index(sizes, std::vector<cuda::Strides>{{1}, {1}, {0}});
    const std::vector<cuda::View> views = {{out.data(), gradus::dtype_v<S>},
                                           {in.data(), gradus::dtype_v<S>},
                                           {number.data(), gradus::DType::kF32}};
    cuda::elementwise<float, float, float, float>("test", Mul{}, index, views.data(), nullptr);
    const std::vector<S> got = out.take();
    for (size_t i = 0; i < n; ++i) {
      const S want = stored<S>(widened(x[i]) * kNumber);
      group.check(same(got[i], want), "element %zu of %zu: %.17g, the host has %.17g", i, n,
                  as_double(got[i]), as_double(want));
    }
  }
}

}  // namespace

void test_elementwise_floats() {
  test_binary("add", Add{});
  test_binary("mul", Mul{});
  test_binary("div", Div{});
  test_binary("a + alpha b", AddScaled{{}, 0.3, 0});
  test_binary("maximum", Maximum{});
  test_binary("remainder", Remainder{}, Exact::kNearly);
  test_binary("pow", Pow{}, Exact::kNearly);
  test_binary("relu_backward", ReluBackward{});
  test_binary("gelu_backward", GeluBackward{}, Exact::kNearlyOfInputs);
  test_unary("relu", Relu{});
  test_unary("sqrt", Sqrt{});
  test_unary("rsqrt", Rsqrt{});
  test_unary("exp", Exp{}, Exact::kNearly);
  test_unary("log", Log{}, Exact::kNearly);
  test_unary("tanh", Tanh{}, Exact::kNearly);
  test_unary("sigmoid", Sigmoid{}, Exact::kNearly);
  test_unary("gelu", Gelu{}, Exact::kNearly);
  test_unary("erf", Erf{}, Exact::kNearly);
  test_unary("round", Round{});
  test_binary("smooth L1 loss", SmoothL1{{}, 0.7});
  test_binary("KL divergence", KlDiv{}, Exact::kNearlyOfInputs);
  test_unary("Poisson loss of 3", WithScalarTarget<PoissonNllOfLogs>{{}, 3}, Exact::kNearlyOfInputs);
  {
    Group group("element-wise smooth L1's slope");
    if (group)
      test_functor<double, double, double, double, double, double>(
          group, ScaledGradient<SmoothL1Backward>{{{}, 0.7}, 0.3});
  }
  {
    Group group("element-wise mul by a number");
    if (group) test_number<bf16>(group), test_number<f16>(group), test_number<float>(group);
  }
  {
    Group group("element-wise addcmul");
    if (group) {
      test_functor<float, float, float, float, float, float>(group, AddCMul{{}, 0.3});
      test_functor<bf16, float, float, float, float, float>(group, AddCMul{{}, 0.3});
      test_functor<double, double, double, double, double, double>(group, AddCMul{{}, 0.3});
    }
  }
}

}  // namespace device_test
