// A table of all optimizers that have step kernels, and one of those whose steps are raw ops, for parameterized
// tests of their common properties.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradus/optim/optim.h"
#include "gradus/tensor/kernel.h"

namespace gradus::optim {

struct OptimizerCase {
  std::string name;
  std::function<std::unique_ptr<Optimizer>(const std::vector<Tensor>&)> make;
  std::vector<std::string> state;  // names of a parameter's state, tensors first
  // Expects a ValueError for each of the invalid options.
  std::function<void(const std::vector<Tensor>&)> expect_options_refused;
  // While the result exists, the CUDA kernel gets NaN instead of the host's learning rate.
  std::function<std::shared_ptr<void>()> without_rate;  // null without a step kernel
  bool by_norms = false;  // step sizes use norms, whose sums may round differently on another device
};

// Replaces the learning rate among the options of a CUDA kernel by NaN.
template <class Options> class WithoutRate {
 public:
  WithoutRate() { kernel_ = std::exchange(Options::step_kernel.cuda, &run); }
  ~WithoutRate() { Options::step_kernel.cuda = kernel_; }
  WithoutRate(const WithoutRate&) = delete;
  WithoutRate& operator=(const WithoutRate&) = delete;

 private:
  static void run(const Tensor& some, const std::vector<raw::StepItem>& items, const Options& options) {
    Options rateless = options;
    rateless.lr = std::numeric_limits<double>::quiet_NaN();
    kernel_(some, items, rateless);
  }
  static inline decltype(Options::step_kernel.cuda) kernel_ = nullptr;
};

template <class O, class Options>
OptimizerCase optimizer_case(const char* name, Options options, std::vector<std::string> state,
                             std::vector<Options> invalid, bool by_norms = false) {
  using Params = std::vector<Tensor>;
  OptimizerCase named{.name = name,
                      .make = [options](const Params& p) { return std::make_unique<O>(p, options); },
                      .state = std::move(state),
                      .expect_options_refused =
                          [options, invalid = std::move(invalid)](const Params& p) {
                            for (const Options& o : invalid) EXPECT_THROW(O(p, o), ValueError);
                            O opt(p, options);
                            for (const Options& o : invalid) EXPECT_THROW(opt.set_options(0, o), ValueError);
                            EXPECT_THROW(opt.set_lr(-1), ValueError);
                          },
                      .by_norms = by_norms};
  if constexpr (requires { Options::step_kernel; })
    named.without_rate = []() -> std::shared_ptr<void> { return std::make_shared<WithoutRate<Options>>(); };
  return named;
}

// Invalid options that the optimizers with two decay rates have in common.
template <class Options> std::vector<Options> invalid_rates_and_betas(std::vector<Options> more = {}) {
  for (const Options& o : {Options{.lr = -1}, Options{.lr = std::nan("")}, Options{.betas = {-0.1, 0.9}},
                           Options{.betas = {1, 0.9}}, Options{.betas = {0.9, -0.1}},
                           Options{.betas = {0.9, 1}}, Options{.weight_decay = -1}})
    more.push_back(o);
  if constexpr (requires(Options o) { o.eps; }) more.push_back({.eps = -1});
  return more;
}

inline const std::vector<OptimizerCase>& all_optimizers() {
  // An optimizer; name, options, names of the state, invalid options.
  static const std::vector<OptimizerCase> all = {
      optimizer_case<SGD>("SGD", SGDOptions{.lr = 0.1, .weight_decay = 0.1, .maximize = true}, {"step"},
                          {{.lr = -1.0}, {.lr = 1.0, .momentum = -1}, {.lr = 1.0, .weight_decay = -1}}),
      optimizer_case<SGD>("Momentum",
                          SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.1},
                          {"momentum_buffer", "step"}, {}),
      optimizer_case<SGD>("Nesterov", SGDOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true},
                          {"momentum_buffer", "step"}, {}),
      optimizer_case<Adam>("Adam", AdamOptions{.lr = 0.1, .weight_decay = 0.1},
                           {"exp_avg", "exp_avg_sq", "step"}, invalid_rates_and_betas<AdamOptions>()),
      optimizer_case<Adam>("AmsgradAdam", AdamOptions{.lr = 0.1, .amsgrad = true, .maximize = true},
                           {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"}, {}),
      optimizer_case<AdamW>("AdamW", AdamWOptions{.lr = 0.1}, {"exp_avg", "exp_avg_sq", "step"},
                            invalid_rates_and_betas<AdamWOptions>()),
      optimizer_case<AdamW>("AmsgradAdamW", AdamWOptions{.lr = 0.1, .amsgrad = true},
                            {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"}, {}),
      optimizer_case<Adamax>("Adamax", AdamaxOptions{.lr = 0.1}, {"exp_avg", "exp_inf", "step"},
                             invalid_rates_and_betas<AdamaxOptions>()),
      optimizer_case<NAdam>("NAdam", NAdamOptions{.lr = 0.1}, {"exp_avg", "exp_avg_sq", "step", "mu_product"},
                            invalid_rates_and_betas<NAdamOptions>({{.momentum_decay = -1}})),
      optimizer_case<RAdam>("RAdam", RAdamOptions{.lr = 0.1, .betas = {0.9, 0.7}},
                            {"exp_avg", "exp_avg_sq", "step"}, invalid_rates_and_betas<RAdamOptions>()),
      optimizer_case<Adadelta>("Adadelta", AdadeltaOptions{}, {"square_avg", "acc_delta", "step"},
                               {{.lr = -1}, {.rho = -0.1}, {.rho = 1.1}, {.eps = -1}, {.weight_decay = -1}}),
      optimizer_case<Adagrad>("Adagrad",
                              AdagradOptions{.lr = 0.1, .lr_decay = 0.1, .initial_accumulator_value = 0.5},
                              {"sum", "step"},
                              {{.lr = -1},
                               {.lr_decay = -1},
                               {.weight_decay = -1},
                               {.initial_accumulator_value = -1},
                               {.eps = -1}}),
      optimizer_case<RMSprop>(
          "RMSprop", RMSpropOptions{.lr = 0.1}, {"square_avg", "step"},
          {{.lr = -1}, {.alpha = -1}, {.eps = -1}, {.weight_decay = -1}, {.momentum = -1}}),
      optimizer_case<RMSprop>("MomentumRMSprop", RMSpropOptions{.lr = 0.1, .momentum = 0.5},
                              {"square_avg", "momentum_buffer", "step"}, {}),
      optimizer_case<RMSprop>("CenteredRMSprop", RMSpropOptions{.lr = 0.1, .eps = 1e-3, .centered = true},
                              {"square_avg", "grad_avg", "step"}, {}),
      optimizer_case<RMSprop>("CenteredMomentumRMSprop",
                              RMSpropOptions{.lr = 0.1, .momentum = 0.5, .centered = true},
                              {"square_avg", "momentum_buffer", "grad_avg", "step"}, {}),
      optimizer_case<Lion>("Lion", LionOptions{.lr = 0.01, .weight_decay = 0.1}, {"exp_avg", "step"},
                           invalid_rates_and_betas<LionOptions>()),
      optimizer_case<Rprop>("Rprop", RpropOptions{}, {"prev", "step_size", "step"},
                            {{.lr = -1},
                             {.etas = {0, 1.2}},
                             {.etas = {1, 1.2}},
                             {.etas = {0.5, 1}},
                             {.step_sizes = {-1, 1}},
                             {.step_sizes = {2, 1}}}),
      optimizer_case<ASGD>("ASGD", ASGDOptions{.lr = 0.1, .lambd = 0.1, .t0 = 2}, {"ax", "step", "eta", "mu"},
                           {{.lr = -1}, {.lambd = -1}, {.weight_decay = -1}}),
      optimizer_case<LAMB>("LAMB", LAMBOptions{.lr = 0.1, .weight_decay = 0.1, .max_norm = 20},
                           {"exp_avg", "exp_avg_sq", "step"},
                           invalid_rates_and_betas<LAMBOptions>({{.max_norm = -1}}), true),
      optimizer_case<LARS>("LARS", LARSOptions{.lr = 1.0, .weight_decay = 0.1}, {"momentum_buffer", "step"},
                           {{.lr = -1.0},
                            {.lr = 1.0, .momentum = -1},
                            {.lr = 1.0, .weight_decay = -1},
                            {.lr = 1.0, .trust_coefficient = -1},
                            {.lr = 1.0, .eps = -1}},
                           true),
  };
  return all;
}

// Optimizers without a step kernel that take parameters of all shapes.
inline const std::vector<OptimizerCase>& optimizers_by_ops() {
  static const std::vector<OptimizerCase> all = {
      optimizer_case<Adafactor>(
          "Adafactor",
          AdafactorOptions{.lr = 0.1, .eps = {1e-6, 1e-3}, .weight_decay = 0.1, .maximize = true},
          {"variance", "step"},
          {{.lr = -1},
           {.beta2_decay = 0.1},
           {.eps = {-2, 1e-3}},
           {.eps = {std::nan(""), 1e-3}},
           {.eps = {-1, -1}},
           {.d = 0.5},
           {.weight_decay = -1}},
          true),
  };
  return all;
}

inline std::string name_of_case(const testing::TestParamInfo<size_t>& info) {
  return all_optimizers()[info.param].name;
}

// Instantiates a suite of testing::TestWithParam<size_t>, whose parameter is an index into the table.
#define INSTANTIATE_FOR_ALL_OPTIMIZERS(Suite) \
  INSTANTIATE_TEST_SUITE_P(All, Suite, testing::Range<size_t>(0, all_optimizers().size()), name_of_case)

}  // namespace gradus::optim
