// 1000 steps of every optimizer, and gradient clipping, in f64 against PyTorch; LAMB, LARS and Lion, which
// PyTorch lacks, against their papers in numpy (optimizers.py).
#include <functional>
#include <memory>

#include "gradus/optim/optim.h"
#include "gradus/tests/golden/golden.h"

namespace gradus {
namespace {

using namespace optim;

using Params = std::vector<Tensor>;

// Two groups of one parameter each, the second at half the rate.
template <class O, class Options> std::unique_ptr<Optimizer> two_groups(const Params& p, Options options) {
  auto opt = std::make_unique<O>(Params{p[0]}, options);
  options.lr = 0.5 * double(options.lr);
  opt->add_param_group({p[1]}, options);
  return opt;
}

struct Trajectory {
  const char* name;
  std::function<std::unique_ptr<Optimizer>(const Params&)> make;
};

template <class O, class Options> Trajectory of(const char* name, Options options) {
  return {name, [options](const Params& p) { return two_groups<O>(p, options); }};
}

const std::vector<Trajectory>& trajectories() {
  static const std::vector<Trajectory> all = {
      of<SGD>("sgd", SGDOptions{.lr = 0.1}),
      of<SGD>("sgd_momentum", SGDOptions{.lr = 0.1, .momentum = 0.9}),
      of<SGD>("sgd_dampening", SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.2}),
      of<SGD>("sgd_nesterov", SGDOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true}),
      of<SGD>("sgd_weight_decay", SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.05}),
      of<SGD>("sgd_maximize", SGDOptions{.lr = 0.001, .momentum = 0.5, .maximize = true}),
      of<Adam>("adam", AdamOptions{.lr = 0.01}),
      of<Adam>("adam_options",
               AdamOptions{.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1}),
      of<Adam>("adam_amsgrad", AdamOptions{.lr = 0.02, .amsgrad = true}),
      of<AdamW>("adamw", AdamWOptions{.lr = 0.01}),
      of<AdamW>("adamw_options",
                AdamWOptions{.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.2}),
      of<AdamW>("adamw_amsgrad", AdamWOptions{.lr = 0.02, .amsgrad = true}),
      of<Adadelta>("adadelta", AdadeltaOptions{.lr = 1.0}),
      of<Adadelta>("adadelta_options",
                   AdadeltaOptions{.lr = 0.7, .rho = 0.8, .eps = 1e-5, .weight_decay = 0.05}),
      of<Adam>("adam_maximize", AdamOptions{.lr = 0.001, .maximize = true}),
      of<AdamW>("adamw_maximize", AdamWOptions{.lr = 0.001, .maximize = true}),
      of<Adadelta>("adadelta_maximize", AdadeltaOptions{.lr = 0.1, .maximize = true}),
      of<Adagrad>("adagrad", AdagradOptions{.lr = 0.1}),
      of<Adagrad>("adagrad_options", AdagradOptions{.lr = 0.2,
                                                    .lr_decay = 0.01,
                                                    .weight_decay = 0.1,
                                                    .initial_accumulator_value = 0.3,
                                                    .eps = 1e-6}),
      of<Adagrad>("adagrad_maximize", AdagradOptions{.lr = 0.01, .maximize = true}),
      of<RMSprop>("rmsprop", RMSpropOptions{.lr = 0.01}),
      of<RMSprop>("rmsprop_momentum",
                  RMSpropOptions{.lr = 0.003, .alpha = 0.9, .weight_decay = 0.1, .momentum = 0.9}),
      of<RMSprop>("rmsprop_centered", RMSpropOptions{.lr = 0.01, .eps = 1e-4, .centered = true}),
      of<RMSprop>("rmsprop_both",
                  RMSpropOptions{.lr = 0.002, .eps = 1e-3, .momentum = 0.8, .centered = true}),
      of<RMSprop>("rmsprop_maximize", RMSpropOptions{.lr = 0.001, .maximize = true}),
      of<Adamax>("adamax", AdamaxOptions{.lr = 0.01}),
      of<Adamax>("adamax_options",
                 AdamaxOptions{.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-5, .weight_decay = 0.1}),
      of<Adamax>("adamax_maximize", AdamaxOptions{.lr = 0.001, .maximize = true}),
      of<NAdam>("nadam", NAdamOptions{.lr = 0.01}),
      of<NAdam>(
          "nadam_options",
          NAdamOptions{
              .lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1, .momentum_decay = 0.01}),
      of<NAdam>("nadam_maximize", NAdamOptions{.lr = 0.001, .maximize = true}),
      of<RAdam>("radam", RAdamOptions{.lr = 0.01}),
      of<RAdam>("radam_options",
                RAdamOptions{.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1}),
      of<Rprop>("rprop", RpropOptions{.lr = 0.01}),
      of<Rprop>("rprop_options", RpropOptions{.lr = 0.02, .etas = {0.4, 1.3}, .step_sizes = {1e-3, 0.1}}),
      of<Rprop>("rprop_maximize", RpropOptions{.lr = 0.001, .step_sizes = {1e-6, 0.01}, .maximize = true}),
      of<ASGD>("asgd", ASGDOptions{.lr = 0.05}),
      of<ASGD>("asgd_options",
               ASGDOptions{.lr = 0.1, .lambd = 1e-2, .alpha = 0.6, .t0 = 5, .weight_decay = 0.05}),
      of<ASGD>("asgd_maximize", ASGDOptions{.lr = 0.001, .maximize = true}),
      of<Lion>("lion", LionOptions{.lr = 0.003}),
      of<Lion>("lion_options", LionOptions{.lr = 0.002, .betas = {0.95, 0.98}, .weight_decay = 0.1}),
      of<Lion>("lion_maximize", LionOptions{.lr = 0.001, .maximize = true}),
      of<LAMB>("lamb", LAMBOptions{.lr = 0.01}),
      of<LAMB>(
          "lamb_options",
          LAMBOptions{.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-5, .weight_decay = 0.1, .max_norm = 2.0}),
      of<LAMB>("lamb_uncorrected", LAMBOptions{.lr = 0.01, .bias_correction = false}),
      of<LAMB>("lamb_maximize", LAMBOptions{.lr = 0.001, .maximize = true}),
      of<LARS>("lars", LARSOptions{.lr = 1.0}),
      of<LARS>("lars_options",
               LARSOptions{
                   .lr = 2.0, .momentum = 0.8, .weight_decay = 0.05, .trust_coefficient = 5e-3, .eps = 1e-4}),
      of<LARS>("lars_maximize", LARSOptions{.lr = 0.2, .maximize = true}),
  };
  return all;
}

Tensor from_formula(const Shape& shape, uint64_t key, double scale) {
  const std::vector<double> v = golden::formula(shape.product(), key, scale);
  return tensor(v, shape);
}

class Trajectories : public testing::TestWithParam<size_t> {};

TEST_P(Trajectories, AgreeToTheLastStep) {
  static const io::SafetensorsFile file = golden::load("optimizers");
  const Trajectory& t = trajectories()[GetParam()];
  const std::vector<int64_t> steps = file.at("steps").to_vector<int64_t>();
  const Params p = {from_formula({3, 4}, 1, 2), from_formula({5}, 2, 2)};
  const auto opt = t.make(p);
  size_t row = 0;
  for (int64_t step = 1; step <= steps.back(); ++step) {
    for (const Tensor& x : p) {
      std::vector<double> g = x.to_vector<double>();
      for (double& v : g) v = 0.5 * v + std::sin(3 * v + 0.1 * double(step));
      x.set_grad(tensor(g, x.shape()));
    }
    opt->step().clear_grad();
    if (step != steps[row]) continue;
    for (size_t k = 0; k < p.size(); ++k) {
      const std::string key = std::string(t.name) + "/p" + std::to_string(k);
      const std::vector<double> all = file.at(key).to_vector<double>();
      std::vector<double> now = p[k].to_vector<double>();
      // In the file ASGD's average of the first parameter follows that parameter.
      if (k == 0 && std::string(t.name).starts_with("asgd"))
        for (const auto& [state, ax] : opt->state_dict().tensors)
          if (state == "state.0.ax")
            for (double v : ax.to_vector<double>()) now.push_back(v);
      for (size_t i = 0; i < now.size(); ++i) {
        const double expected = all[row * now.size() + i];
        ASSERT_NEAR(now[i], expected, 1e-9 * std::max(1.0, std::abs(expected)))
            << key << " element " << i << " after step " << step;
      }
    }
    ++row;
  }
  EXPECT_EQ(row, steps.size());
}

INSTANTIATE_TEST_SUITE_P(PyTorch, Trajectories, testing::Range(size_t(0), trajectories().size()),
                         [](const auto& info) { return std::string(trajectories()[info.param].name); });

TEST(ClipGradNorm, AgreesWithPyTorch) {
  const io::SafetensorsFile file = golden::load("optimizers");
  for (const char* norm_type : {"0.5", "1", "2", "3.5", "inf"})
    for (const char* max_norm : {"0.7", "100"}) {
      const std::string key = std::string("clip/") + norm_type + "/" + max_norm;
      const Params p = {from_formula({3, 4}, 1, 1), from_formula({5}, 2, 1)};
      for (size_t k = 0; k < p.size(); ++k) p[k].set_grad(from_formula(p[k].shape(), 7 + k, 3));
      const Tensor norm = clip_grad_norm_(p, std::stod(max_norm), {.norm_type = std::stod(norm_type)});
      golden::expect_near(norm, file.at(key + "/norm"), 1e-12, key);
      for (size_t k = 0; k < p.size(); ++k)
        golden::expect_near(p[k].grad(), file.at(key + "/g" + std::to_string(k)), 1e-12, key);
    }
}

}  // namespace
}  // namespace gradus
