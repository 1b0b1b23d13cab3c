// The fused optimizer kernels for each rule and dtype against the same rules on the host
// (optim_steps_test.h).
#include "gradus/optim/rules/adam.h"
#include "gradus/optim/rules/lars.h"
#include "gradus/optim/rules/rmsprop.h"
#include "gradus/optim/rules/sgd.h"
#include "optim_steps_test.h"

namespace device_test {
namespace {

using namespace gradus::optim;  // NOLINT

// Hyperparameters of the rules by norms.
struct Numbers {
  double lr = 0.125, momentum = 0.75, weight_decay = 0.25, trust_coefficient = 0.5, eps = 0.001, max_norm = 0;
  std::array<double, 2> betas = {0.9, 0.99};
  bool maximize = false, bias_correction = true;
};

template <class P, class Rule> void test(const char* rule_name, const char* type, const Rule& rule) {
  Group group(std::string("steps of ") + rule_name + " in " + type);
  if (group) test_rule<P>(group, rule);
}

template <class T> const auto kMoments = gradus::raw::Moments<T>::of(0.9, 0.99);

// Rules tested for f32 and f64 alone.
template <class T> void test_rules(const char* type) {
  const T lr(0.01), half(0.5), eps(1e-3), most(0.9), rest(0.1);
  test<T>("Adadelta", type, AdadeltaRule<T>{lr, most, rest, eps});
  test<T>("Adagrad", type, AdagradRule<T>{lr, eps});
  test<T>("Adam", type, AdamRule<T, false>{kMoments<T>, most, lr, T(3), eps});
  test<T>("Adamax", type, AdamaxRule<T>{most, rest, half, lr, eps});
  test<T>("ASGD", type, ASGDRule<T>{lr, most, half});
  test<T>("Lion", type, LionRule<T>{lr, most, most, rest, half, half});
  test<T>("NAdam", type, NAdamRule<T>{kMoments<T>, lr, half, T(3), eps});
  test<T>("RAdam", type, RAdamRule<T>{kMoments<T>, lr, half, eps});
  test<T>("RMSprop", type, RMSpropRule<T, false, false>{lr, most, rest, eps, half});
  test<T>("centered RMSprop", type, RMSpropRule<T, false, true>{lr, most, rest, eps, half});
  test<T>("centered RMSprop with momentum", type, RMSpropRule<T, true, true>{lr, most, rest, eps, half});
  test<T>("Rprop", type, RpropRule<T>{half, T(1.2), eps, T(50)});
}

// Rules tested for all float dtypes: with no, one and three states, and those that use norms.
template <class P> void test_types(const char* type) {
  using T = cuda::compute_t<P>;
  const T lr(0.01), half(0.5), eps(1e-3), most(0.9), rest(0.1);
  test<P>("averages", type, gradus::raw::AverageRule<T>{rest});
  test<P>("SGD", type, SGDRule<T>{lr});
  test<P>("SGD with momentum", type, MomentumRule<T>{lr, most, rest, half, half});
  test<P>("Adam with amsgrad", type, AdamRule<T, true>{kMoments<T>, most, lr, T(3), eps});
  Group group(std::string("steps by norms in ") + type);
  if (!group) return;
  test_rule_by_norms<P>(group, LARSRuleFactory::of(Numbers{}).rule<T>({}));
  test_rule_by_norms<P>(group, LAMBRuleFactory::of(Numbers{}).rule<T>({.step = 3, .more = {}}));
  test_rule_by_norms<P>(group, LAMBRuleFactory::of(Numbers{.max_norm = 2}).rule<T>({.step = 3, .more = {}}));
}

// Steps whose step count and learning rate are on the device. These rules call pow() only with exponent 0.
template <class P> void test_decided(const char* type) {
  Group group(std::string("steps that the device decides in ") + type);
  if (!group) return;
  test_decided_there<P>(group, MomentumRuleFactory{0.01, 0.9, 0.5, 0, 1});
  test_decided_there<P>(group, ASGDRuleFactory{0.01, 0.5, 0, 0});
  test_decided_by_norms_there<P>(group, LARSRuleFactory::of(Numbers{}));
}

}  // namespace

void test_optim_steps() {
  test_rules<float>("f32");
  test_rules<double>("f64");
  test_types<float>("f32");
  test_types<double>("f64");
  test_types<f16>("f16");
  test_types<bf16>("bf16");
  test_decided<float>("f32");
  test_decided<double>("f64");
  test_decided<bf16>("bf16");
}

}  // namespace device_test
