// The checks of checks.h, made of the helpers of tests/cuda/device. Tolerance: rounding of a sum of n terms
// in f64.
#include "checks.h"

#include "gradus/optim/rules/lars.h"
#include "gradus/optim/rules/sgd.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tests/cuda/device/elementwise_test.h"
#include "gradus/tests/cuda/device/loss_sums_test.h"
#include "gradus/tests/cuda/device/optim_steps_test.h"
#include "gradus/tests/cuda/device/reductions_test.h"

namespace mutants {

using namespace device_test;  // NOLINT

void test_elementwise() {
  Group group("element-wise");
  if (!group) return;
  test_functor<float, float, float, float, float>(group, gradus::functors::Add{});
  test_functor<bf16, float, float, float, float>(group, gradus::functors::Add{});
  test_functor<double, double, double, uint8_t, double, double>(group, gradus::functors::Where{});
}

void test_reductions() {
  Group group("sum");
  if (!group) return;
  run_reduction(group, cuda::Sum<uint8_t>{}, true,
                [](int64_t got, const uint8_t* x, int64_t n, int64_t stride) {
                  int64_t sum = 0;
                  for (int64_t i = 0; i < n; ++i) sum += x[i * stride];
                  return got == sum;
                });
  run_reduction(group, cuda::Variance<double>{}, false,
                [](double got, const double* x, int64_t n, int64_t stride) {
                  double sum = 0, squares = 0;
                  for (int64_t i = 0; i < n; ++i) sum += x[i * stride];
                  const double mean = sum / static_cast<double>(n);
                  for (int64_t i = 0; i < n; ++i) squares += (x[i * stride] - mean) * (x[i * stride] - mean);
                  return std::abs(got - squares) <= static_cast<double>(n) * 1e-13;
                });
  run_extremum<float>(group, true);
}

void test_optim_steps() {
  Group group("steps");
  if (!group) return;
  struct Numbers {
    double lr = 0.125, momentum = 0.75, weight_decay = 0.25, trust_coefficient = 0.5, eps = 0.001;
    bool maximize = false;
  };
  test_rule<float>(group, gradus::optim::MomentumRule<float>{0.01f, 0.9f, 0.1f, 0.5f, 0.5f});
  test_rule_by_norms<bf16>(group, gradus::optim::LARSRuleFactory::of(Numbers{}).rule<float>({}));
  test_decided_there<float>(group, gradus::optim::MomentumRuleFactory{0.01, 0.9, 0.5, 0, 1});
  test_decided_by_norms_there<bf16>(group, gradus::optim::LARSRuleFactory::of(Numbers{}));
}

void test_loss_sums() { test_loss_sums_in<float>("f32"); }

}  // namespace mutants
