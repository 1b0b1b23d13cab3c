// 200 steps of every optimizer, in f64, against PyTorch's trajectories; and the schedules' rates over 40
// epochs.
#include <functional>
#include <memory>

#include "gradus/optim/adadelta.h"
#include "gradus/optim/adam.h"
#include "gradus/optim/lr_schedule.h"
#include "gradus/optim/sgd.h"
#include "gradus/tests/golden/golden.h"

namespace gradus {
namespace {

using Params = std::vector<Tensor>;

// Two groups of one parameter each, the second at half the rate.
template <class Optimizer, class Options>
std::unique_ptr<optim::Optimizer> two_groups(const Params& p, Options options) {
  auto opt = std::make_unique<Optimizer>(Params{p[0]}, options);
  options.lr = 0.5 * double(options.lr);
  opt->add_param_group({p[1]}, options);
  return opt;
}

struct Trajectory {
  const char* name;
  std::function<std::unique_ptr<optim::Optimizer>(const Params&)> make;
};

template <class Optimizer, class Options>
Trajectory of(const char* name, Options options) {
  return {name, [options](const Params& p) { return two_groups<Optimizer>(p, options); }};
}

const std::vector<Trajectory>& trajectories() {
  using optim::AdadeltaOptions, optim::AdamOptions, optim::AdamWOptions, optim::SGDOptions;
  static const std::vector<Trajectory> all = {
      of<optim::SGD>("sgd", SGDOptions{.lr = 0.1}),
      of<optim::SGD>("sgd_momentum", SGDOptions{.lr = 0.1, .momentum = 0.9}),
      of<optim::SGD>("sgd_dampening", SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.2}),
      of<optim::SGD>("sgd_nesterov", SGDOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true}),
      of<optim::SGD>("sgd_weight_decay", SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.05}),
      of<optim::SGD>("sgd_maximize", SGDOptions{.lr = 0.001, .momentum = 0.5, .maximize = true}),
      of<optim::Adam>("adam", AdamOptions{.lr = 0.01}),
      of<optim::Adam>("adam_options",
                      AdamOptions{.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1}),
      of<optim::Adam>("adam_amsgrad", AdamOptions{.lr = 0.02, .amsgrad = true}),
      of<optim::AdamW>("adamw", AdamWOptions{.lr = 0.01}),
      of<optim::AdamW>(
          "adamw_options",
          AdamWOptions{.lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.2}),
      of<optim::AdamW>("adamw_amsgrad", AdamWOptions{.lr = 0.02, .amsgrad = true}),
      of<optim::Adadelta>("adadelta", AdadeltaOptions{.lr = 1.0}),
      of<optim::Adadelta>("adadelta_options",
                          AdadeltaOptions{.lr = 0.7, .rho = 0.8, .eps = 1e-5, .weight_decay = 0.05}),
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
      const std::vector<double> all = file.at(key).to_vector<double>(), now = p[k].to_vector<double>();
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

TEST(Schedules, AgreeWithPyTorch) {
  const io::SafetensorsFile file = golden::load("schedules");
  const auto check = [&](const char* name,
                         const std::function<std::unique_ptr<optim::LRSchedule>(optim::Optimizer&)>& make) {
    optim::SGD opt({empty({1})}, {.lr = 0.8});
    const auto schedule = make(opt);
    const std::vector<double> expected = file.at(name).to_vector<double>();
    for (size_t epoch = 0; epoch < expected.size(); ++epoch) {
      EXPECT_NEAR(opt.lr(), expected[epoch], 1e-12) << name << " epoch " << epoch;
      schedule->step();
    }
  };
  using namespace optim;
  check("step_1", [](Optimizer& o) {
    return std::make_unique<StepLR>(o, StepLROptions{.step_size = 1, .gamma = 0.7});
  });
  check("step_3", [](Optimizer& o) { return std::make_unique<StepLR>(o, StepLROptions{.step_size = 3}); });
  check("multi_step", [](Optimizer& o) {
    return std::make_unique<MultiStepLR>(o, MultiStepLROptions{.milestones = {4, 11, 30}, .gamma = 0.2});
  });
  check("exponential",
        [](Optimizer& o) { return std::make_unique<ExponentialLR>(o, ExponentialLROptions{.gamma = 0.9}); });
  check("cosine", [](Optimizer& o) {
    return std::make_unique<CosineAnnealingLR>(o, CosineAnnealingLROptions{.t_max = 40, .eta_min = 0.05});
  });
}

}  // namespace
}  // namespace gradus
