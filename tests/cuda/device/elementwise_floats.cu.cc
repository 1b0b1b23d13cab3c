#include "elementwise_test.h"
#include "gradus/tensor/ops/activations.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/losses/loss_functors.h"
#include "gradus/tensor/ops/math.h"

namespace device_test {

using namespace gradus::functors;  // NOLINT

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
  test_unary("Poisson loss of 3", AgainstNumber<PoissonNllOfLogs>{{}, 3}, Exact::kNearlyOfInputs);
  {
    Group group("element-wise smooth L1's slope");
    if (group)
      test_functor<double, double, double, double, double, double>(
          group, TimesFactor<SmoothL1Backward>{{{}, 0.7}, 0.3});
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
