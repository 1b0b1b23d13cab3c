// Learning rates and momenta of every schedule, epoch by epoch, against PyTorch's (optimizers.py), also when
// resumed from a state dict.
#include <functional>
#include <memory>

#include "gradus/optim/optim.h"
#include "gradus/tests/golden/golden.h"

namespace gradus {
namespace {

using namespace optim;

// Keeps the schedules alive that a SequentialLR or ChainedScheduler refers to.
using Owned = std::vector<std::shared_ptr<LRSchedule>>;

struct Case {
  const char* name;
  bool exact;  // equal to the last bit, as only +, * and / are used; otherwise to 1e-12
  std::function<std::shared_ptr<LRSchedule>(Optimizer&, Owned&)> make;
};

template <class S, class Options> Case of(const char* name, bool exact, Options options) {
  return {name, exact, [options](Optimizer& o, Owned&) { return std::make_shared<S>(o, options); }};
}

double halves(int64_t epoch) { return std::pow(0.5, double(epoch / 4)); }
double rational(int64_t epoch) { return 1 / (1 + 0.25 * double(epoch)); }

std::vector<LRSchedule*> pointers(const Owned& owned) {
  std::vector<LRSchedule*> all;
  for (const auto& s : owned) all.push_back(s.get());
  return all;
}

template <class S, class... Args> void own(Owned& owned, Optimizer& o, Args... args) {
  owned.push_back(std::make_shared<S>(o, args...));
}

const std::vector<Case>& cases() {
  using CosineAnnealingWarmRestartsOptions = optim::CosineAnnealingWarmRestartsOptions;
  static const std::vector<Case> all = {
      {"lambda", true, [](Optimizer& o, Owned&) { return std::make_shared<LambdaLR>(o, rational); }},
      {"lambda_list", true, [](Optimizer& o, Owned&) {
         return std::make_shared<LambdaLR>(o, std::vector<LambdaLR::Factor>{halves, rational});
       }},
      {"multiplicative", true, [](Optimizer& o, Owned&) { return std::make_shared<MultiplicativeLR>(o,
          rational); }},
      of<StepLR>("step_1", true, StepLROptions{.step_size = 1, .gamma = 0.7}),
      of<StepLR>("step_3", true, StepLROptions{.step_size = 3}),
      of<MultiStepLR>("multi_step", false, MultiStepLROptions{.milestones = {4, 11, 11, 30}, .gamma = 0.2}),
      of<ConstantLR>("constant", true, ConstantLROptions{}),
      of<ConstantLR>("constant_0", true, ConstantLROptions{.factor = 0.3, .total_iters = 0}),
      of<LinearLR>("linear", true, LinearLROptions{}),
      of<LinearLR>("linear_down", true, LinearLROptions{.start_factor = 0.9, .end_factor = 0.1,
          .total_iters = 17}),
      of<ExponentialLR>("exponential", true, ExponentialLROptions{.gamma = 0.9}),
      of<PolynomialLR>("polynomial", true, PolynomialLROptions{}),
      of<PolynomialLR>("polynomial_2", false, PolynomialLROptions{.total_iters = 30, .power = 2.5}),
      of<CosineAnnealingLR>("cosine", false, CosineAnnealingLROptions{.t_max = 40, .eta_min = 0.05}),
      of<CosineAnnealingLR>("cosine_again", false, CosineAnnealingLROptions{.t_max = 7}),
      of<CosineAnnealingWarmRestarts>("restarts", false, CosineAnnealingWarmRestartsOptions{.t_0 = 10}),
      of<CosineAnnealingWarmRestarts>("restarts_mult", false,
          CosineAnnealingWarmRestartsOptions{.t_0 = 4, .t_mult = 2, .eta_min = 0.02}),
      of<OneCycleLR>("one_cycle", false, OneCycleLROptions{.max_lr = 1.5, .total_steps = 60}),
      of<OneCycleLR>("one_cycle_groups", true, OneCycleLROptions{.max_lr = {1.0, 2.0}, .epochs = 6,
          .steps_per_epoch = 10,
          .pct_start = 0.25, .anneal_strategy = Anneal::kLinear, .base_momentum = {0.7, 0.8},
              .max_momentum = 0.9,
          .div_factor = 10, .final_div_factor = 100}),
      of<OneCycleLR>("one_cycle_three", false, OneCycleLROptions{.max_lr = 1.5, .total_steps = 60,
          .cycle_momentum = false,
          .three_phase = true}),
      of<CyclicLR>("cyclic", true, CyclicLROptions{.base_lr = 0.1, .max_lr = 1.0, .step_size_up = 7}),
      of<CyclicLR>("cyclic_2", true, CyclicLROptions{.base_lr = {0.1, 0.2}, .max_lr = {1.0, 0.5},
          .step_size_up = 5,
          .step_size_down = 8, .mode = CyclicMode::kTriangular2, .base_momentum = {0.6, 0.7},
              .max_momentum = 0.95}),
      of<CyclicLR>("cyclic_exp", false, CyclicLROptions{.base_lr = 0.1, .max_lr = 1.0, .step_size_up = 6,
          .mode = CyclicMode::kExpRange, .gamma = 0.97, .cycle_momentum = false}),
      of<CyclicLR>("cyclic_custom", true, CyclicLROptions{.base_lr = 0.1, .max_lr = 1.0, .step_size_up = 6,
          .scale_fn = [](double x) { return 1 / (1 + x); }, .scale_mode = CyclicScale::kIterations}),
      of<SWALR>("swa", false, SWALROptions{.swa_lr = 0.05}),
      of<SWALR>("swa_linear", true, SWALROptions{.swa_lr = {0.05, 0.9}, .anneal_epochs = 20,
          .anneal_strategy = Anneal::kLinear}),
      of<SWALR>("swa_at_once", false, SWALROptions{.swa_lr = 0.05, .anneal_epochs = 0}),
      {"after_warm_up", false, [](Optimizer& o, Owned& s) {
         own<LinearLR>(s, o, LinearLROptions{.start_factor = 0.125, .total_iters = 6});
         own<CosineAnnealingLR>(s, o, CosineAnnealingLROptions{.t_max = 30, .eta_min = 0.01});
         return std::make_shared<SequentialLR>(o, pointers(s), std::vector<int64_t>{6});
       }},
      {"three", false, [](Optimizer& o, Owned& s) {
         own<ConstantLR>(s, o, ConstantLROptions{.factor = 0.25, .total_iters = 3});
         own<ExponentialLR>(s, o, ExponentialLROptions{.gamma = 0.5});
         own<StepLR>(s, o, StepLROptions{.step_size = 4, .gamma = 0.5});
         own<PolynomialLR>(s, o, PolynomialLROptions{.total_iters = 8, .power = 2});
         return std::make_shared<SequentialLR>(o, pointers(s), std::vector<int64_t>{4, 9, 20});
       }},
      {"restarts_later", false, [](Optimizer& o, Owned& s) {
         own<LinearLR>(s, o, LinearLROptions{.start_factor = 0.5, .total_iters = 4});
         own<CosineAnnealingWarmRestarts>(s, o, CosineAnnealingWarmRestartsOptions{.t_0 = 5, .t_mult = 2});
         return std::make_shared<SequentialLR>(o, pointers(s), std::vector<int64_t>{5});
       }},
      {"others_later", false, [](Optimizer& o, Owned& s) {
         own<LambdaLR>(s, o, rational);  // swapped below: the order of construction does not matter
         own<MultiStepLR>(s, o, MultiStepLROptions{.milestones = {2, 3}, .gamma = 0.5});
         own<MultiplicativeLR>(s, o, [](int64_t) { return 0.75; });
         own<SWALR>(s, o, SWALROptions{.swa_lr = 0.25, .anneal_epochs = 5});
         std::swap(s[0], s[1]);
         return std::make_shared<SequentialLR>(o, pointers(s), std::vector<int64_t>{6, 12, 18});
       }},
      {"multiplicative_later", true, [](Optimizer& o, Owned& s) {
         own<StepLR>(s, o, StepLROptions{.step_size = 2, .gamma = 0.5});
         own<MultiplicativeLR>(s, o, [](int64_t epoch) { return 1 / (2 + 0.25 * double(epoch)); });
         own<ConstantLR>(s, o, ConstantLROptions{.factor = 0.5, .total_iters = 3});
         return std::make_shared<SequentialLR>(o, pointers(s), std::vector<int64_t>{5, 9});
       }},
      {"chained", true, [](Optimizer& o, Owned& s) {
         own<ConstantLR>(s, o, ConstantLROptions{.factor = 0.1});
         own<ExponentialLR>(s, o, ExponentialLROptions{.gamma = 0.9});
         return std::make_shared<ChainedScheduler>(o, pointers(s));
       }},
      {"chained_warm_up", false, [](Optimizer& o, Owned& s) {
         own<LinearLR>(s, o, LinearLROptions{.start_factor = 0.25, .total_iters = 8});
         own<CosineAnnealingLR>(s, o, CosineAnnealingLROptions{.t_max = 50});
         own<MultiStepLR>(s, o, MultiStepLROptions{.milestones = {20}, .gamma = 0.5});
         return std::make_shared<ChainedScheduler>(o, pointers(s));
       }},
  };
  return all;
}

// An optimizer of two parameter groups, as in optimizers.py.
struct Training {
  Training() { opt.add_param_group({empty({1})}, {.lr = 0.3, .momentum = 0.5}); }
  SGD opt{{empty({1})}, {.lr = 0.8, .momentum = 0.5}};
};

const io::SafetensorsFile& file() {
  static const io::SafetensorsFile all = golden::load("schedules");
  return all;
}

void expect_rate(double given, double expected, bool exact, const std::string& what) {
  if (exact)
    EXPECT_EQ(given, expected) << what;
  else
    EXPECT_NEAR(given, expected, 1e-12 * std::max(std::abs(expected), 1e-3)) << what;
}

// Expects the rates of the case `name` at the epochs first ... last - 1, calling step(t) after each.
template <class Step>
void follow(const std::string& name, bool exact, const Optimizer& opt, size_t first, size_t last, Step step) {
  const std::vector<double> rates = file().at(name).to_vector<double>();
  const bool momentum = file().contains(name + "/momentum");
  const std::vector<double> momenta =
      momentum ? file().at(name + "/momentum").to_vector<double>() : std::vector<double>();
  for (size_t t = first; t < last; ++t) {
    const std::string what = name + " epoch " + std::to_string(t);
    for (size_t g = 0; g < 2; ++g)
      expect_rate(opt.lr(g), rates[2 * t + g], exact, what + " group " + std::to_string(g));
    if (momentum) expect_rate(opt.momentum(0), momenta[t], exact, what + " momentum");
    step(t);
  }
}

class Schedules : public testing::TestWithParam<size_t> {
 protected:
  const Case& c = cases()[GetParam()];
};

TEST_P(Schedules, AgreeWithPyTorch) {
  Training training;
  Owned owned;
  const auto schedule = c.make(training.opt, owned);
  follow(c.name, c.exact, training.opt, 0, 60, [&](size_t) { schedule->step(); });
}

TEST_P(Schedules, GoOnFromTheirState) {
  for (size_t at : {0, 5, 19, 40}) {  // the epoch of the state dict
    Training first, second;
    Owned owned, again;
    const auto schedule = c.make(first.opt, owned);
    for (size_t t = 0; t < at; ++t) schedule->step();
    const auto resumed = c.make(second.opt, again);
    second.opt.load_state_dict(first.opt.state_dict());
    resumed->load_state_dict(schedule->state_dict());
    EXPECT_EQ(resumed->last_epoch(), int64_t(at));
    follow(c.name, c.exact, second.opt, at, 60, [&](size_t) { resumed->step(); });
  }
}

INSTANTIATE_TEST_SUITE_P(PyTorch, Schedules, testing::Range(size_t(0), cases().size()),
                         [](const auto& info) { return std::string(cases()[info.param].name); });

TEST(Plateau, AgreesWithPyTorch) {
  const std::vector<double> metrics = file().at("plateau_metrics").to_vector<double>();
  const std::vector<std::pair<const char*, ReduceLROnPlateauOptions>> all = {
      {"plateau", {.patience = 2}},
      {"plateau_max",
       {.mode = MetricMode::kMax,
        .factor = 0.5,
        .patience = 3,
        .threshold = 0.05,
        .threshold_mode = ThresholdMode::kAbs,
        .cooldown = 2}},
      {"plateau_min_abs",
       {.factor = 0.7,
        .patience = 1,
        .threshold = 0.01,
        .threshold_mode = ThresholdMode::kAbs,
        .cooldown = 4,
        .min_lr = {0.2, 0.01}}},
      {"plateau_max_rel",
       {.mode = MetricMode::kMax,
        .factor = 0.9,
        .patience = 0,
        .threshold = 0.1,
        .min_lr = 0.05,
        .eps = 1e-3}},
  };
  for (const auto& [name, options] : all)
    for (size_t at : {0, 4, 21}) {  // 21: in a cool-down
      Training first, second;
      ReduceLROnPlateau schedule(first.opt, options), resumed(second.opt, options);
      follow(name, true, first.opt, 0, at, [&](size_t t) { schedule.step(metrics[t]); });
      resumed.load_state_dict(schedule.state_dict());
      follow(name, true, second.opt, at, 60, [&](size_t t) { resumed.step(metrics[t]); });
      EXPECT_EQ(resumed.last_epoch(), 60);
    }
}

}  // namespace
}  // namespace gradus
