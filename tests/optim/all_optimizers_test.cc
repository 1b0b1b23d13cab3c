// Properties that every optimizer has: training continues exactly from a saved state; results do not depend
// on threads, device or layout; 16-bit parameters; refused options. Each EveryOptimizer test runs for each
// row of all_optimizers() and optimizers_by_ops() (tests/optim/optimizers.h). Comparisons with PyTorch's trajectories are in
// tests/golden.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/optim/optim.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/optim/optimizers.h"
#include "gradus/tests/support/error.h"

namespace gradus::optim {
namespace {

using Params = std::vector<Tensor>;

// An arbitrary gradient of an element of value p in step t.
double gradient(double p, int t) { return 0.5 * p + std::sin(3 * p + t); }

// Returns a tensor whose row-major element i is sin(i).
Tensor filled(const Shape& shape, const TensorOptions& options) {
  std::vector<double> v;
  for (int64_t i = 0; i < shape.product(); ++i) v.push_back(std::sin(double(i)));
  return raw::to(raw::to(tensor(v, shape), options.dtype), options.device);
}

// Sets the gradients of all parameters to gradient(p, t) and steps once.
void step(Optimizer& opt, int t) {
  for (const Tensor& p : opt.parameters()) {
    std::vector<double> g = p.to_vector<double>();
    for (double& v : g) v = gradient(v, t);
    p.set_grad(raw::to(raw::to(tensor(g, p.shape()), p.dtype()), p.device()));
  }
  opt.step();
}

// Returns the elements of all parameters.
std::vector<double> values(const Optimizer& opt) {
  std::vector<double> all;
  for (const Tensor& p : opt.parameters())
    for (double v : p.to_vector<double>()) all.push_back(v);
  return all;
}

const OptimizerCase& case_of(size_t i) {
  const size_t kernels = all_optimizers().size();
  return i < kernels ? all_optimizers()[i] : optimizers_by_ops()[i - kernels];
}

class EveryOptimizer : public testing::TestWithParam<size_t> {
 protected:
  std::unique_ptr<Optimizer> make(const Params& p) const { return case_of(GetParam()).make(p); }
  // Returns the elements of parameters with these shapes, dtype and device after `steps` steps.
  std::vector<double> train(const TensorOptions& options, int steps, std::vector<Shape> shapes) const {
    Params params;
    for (const Shape& s : shapes) params.push_back(filled(s, options));
    const auto opt = make(params);
    for (int t = 0; t < steps; ++t) step(*opt, t);
    return values(*opt);
  }
};

const TensorOptions kDouble{DType::kF64, kCPU};

TEST_P(EveryOptimizer, SaysWhoseParametersItWants) {
  EXPECT_ERROR(ValueError, make({}), "expected at least one parameter", "made with it as their parent");
}

TEST_P(EveryOptimizer, ContinuesExactlyFromItsState) {
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    const auto a = make({filled({3}, {dtype, kCPU}), filled({2, 2}, {dtype, kCPU})});
    for (int t = 0; t < 4; ++t) step(*a, t);
    Params copies;
    for (const Tensor& p : a->parameters()) copies.push_back(raw::clone(p));
    const auto b = make(copies);
    b->load_state_dict(a->state_dict());
    for (int t = 4; t < 8; ++t) step(*a, t), step(*b, t);
    EXPECT_EQ(values(*b), values(*a));
    // A further step of `a` does not change `b`, so load_state_dict has copied the state.
    const std::vector<double> before = values(*b);
    step(*a, 8);
    EXPECT_EQ(values(*b), before);
  }
}

TEST_P(EveryOptimizer, IsTheSameOnAnyNumberOfThreads) {
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const auto on = [&](int threads) {
      set_num_threads(threads);
      // CPU kernels process all parameters as one range, with more than 2^13 elements for each thread.
      return train({dtype, kCPU}, 3, {{1}, {0}, {70000}, {3}, {16385}, {2, 5}});
    };
    const std::vector<double> one = on(1), two = on(2), three = on(3);
    EXPECT_TRUE(one == two) << name_of(dtype);
    EXPECT_TRUE(one == three) << name_of(dtype);
  }
}

// cpu:1 runs kernels on a worker thread.
TEST_P(EveryOptimizer, WorksOnAnAsynchronousDevice) {
  EXPECT_EQ(train({DType::kF64, Device{DeviceType::kCPU, 1}}, 5, {{3}, {0}}), train(kDouble, 5, {{3}, {0}}));
}

TEST_P(EveryOptimizer, StepsParametersInOtherLayouts) {
  const Tensor dense = filled({2, 3, 4, 5}, kDouble),
               last = empty_channels_last(dense.shape(), {.dtype = DType::kF64});
  raw::copy_(last, dense);
  const auto a = make({dense}), b = make({last});
  for (int t = 0; t < 3; ++t) step(*a, t), step(*b, t);
  EXPECT_EQ(values(*a), values(*b));
}

// A step of a 16-bit parameter equals a step of its f32 copy whose result is rounded.
TEST_P(EveryOptimizer, RoundsSixteenBitParametersOnceAStep) {
  for (DType dtype : {DType::kBF16, DType::kF16}) {
    const Tensor narrow = filled({600}, {dtype, kCPU}), wide = raw::to(narrow, DType::kF32);
    const auto a = make({narrow}), b = make({wide});
    for (int t = 0; t < 6; ++t) {
      std::vector<float> g;
      for (float v : narrow.to_vector<float>()) g.push_back(float(gradient(v, t)));
      narrow.set_grad(raw::to(tensor(g, {600}), dtype));
      wide.set_grad(raw::to(narrow.grad(), DType::kF32));
      a->step(), b->step();
      EXPECT_EQ(narrow.to_vector<float>(), raw::to(wide, dtype).to_vector<float>())
          << name_of(dtype) << ' ' << t;
      raw::copy_(wide, narrow);
    }
  }
}

TEST_P(EveryOptimizer, SkipsAParameterWithoutGradient) {
  const Tensor with = filled({3}, kDouble), without = filled({4}, kDouble);
  const auto opt = make({without, with});
  const std::vector<double> before = without.to_vector<double>();
  with.set_grad(filled({3}, kDouble));
  opt->step();
  EXPECT_EQ(without.to_vector<double>(), before);
  EXPECT_NE(with.to_vector<double>(), filled({3}, kDouble).to_vector<double>());
  for (const auto& [name, t] : opt->state_dict().tensors) EXPECT_FALSE(name.starts_with("state.0.")) << name;
}

// A NaN in a gradient makes its element NaN. It reaches other elements only in optimizers that use the norm
// of the whole gradient (by_norms: LAMB, LARS).
TEST_P(EveryOptimizer, ShowsAGradientThatIsNaN) {
  const Tensor p = filled({2}, kDouble);
  const auto opt = make({p});
  p.set_grad(tensor(std::vector<double>{std::nan(""), 1}, {2}));
  opt->step();
  EXPECT_TRUE(std::isnan(p.to_vector<double>()[0]));
  const bool is_next_nan = std::isnan(p.to_vector<double>()[1]);
  EXPECT_TRUE(case_of(GetParam()).by_norms || !is_next_nan);
}

// The state of parameter 0 has names such as "state.0.exp_avg"; substr(8) is the part after "state.0.".
TEST_P(EveryOptimizer, HasPyTorchsNamesOfState) {
  const auto opt = make({filled({2}, kDouble)});
  step(*opt, 0);
  std::vector<std::string> names;
  for (const auto& [name, t] : opt->state_dict().tensors) names.push_back(name.substr(8));
  for (const auto& [name, v] : opt->state_dict().numbers)
    if (name.starts_with("state.")) names.push_back(name.substr(8));
  EXPECT_EQ(names, case_of(GetParam()).state);
}

TEST_P(EveryOptimizer, RefusesOptionsOutsideOfTheirDomain) {
  case_of(GetParam()).expect_options_refused({filled({1}, kDouble)});
}

INSTANTIATE_TEST_SUITE_P(All, EveryOptimizer,
                         testing::Range<size_t>(0, all_optimizers().size() + optimizers_by_ops().size()),
                         [](const auto& info) { return case_of(info.param).name; });

// The state of an optimizer with a learning rate schedule has both the current and the initial learning rate.
TEST(OptimizerState, HasTheRateThatSchedulesStartFrom) {
  SGD a({filled({1}, kDouble)}, {.lr = 0.5}), b({filled({1}, kDouble)}, {.lr = 0.1});
  ConstantLR schedule(a, {.factor = 0.5});
  b.load_state_dict(a.state_dict());
  EXPECT_EQ(b.lr(), 0.25);
  EXPECT_EQ(b.initial_lr(0), 0.5);
}

// Momentum that is turned on after the first step adds momentum_buffer to the state at once.
TEST(OptimizerState, IsCompleteWhenOptionsCallForMore) {
  SGD opt({filled({1}, kDouble)}, {.lr = 0.5});
  step(opt, 0);
  opt.set_momentum(0, 0.9);
  const State state = opt.state_dict();
  ASSERT_EQ(state.tensors.size(), 1u);
  EXPECT_TRUE(state.tensors[0].second.defined());
  opt.load_state_dict(state);
}

const MuonOptions kMuon{.lr = 0.1, .weight_decay = 0.2, .nesterov = false};

// Muon takes no parameters of other than two dims, so it has no row in the table.
TEST(Muon, ContinuesExactlyFromItsState) {
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    Muon a({filled({3, 4}, {dtype, kCPU}), filled({5, 2}, {dtype, kCPU}), filled({0, 2}, {dtype, kCPU})},
           kMuon);
    for (int t = 0; t < 4; ++t) step(a, t);
    Params copies;
    for (const Tensor& p : a.parameters()) copies.push_back(raw::clone(p));
    Muon b(copies);
    b.load_state_dict(a.state_dict());
    for (int t = 4; t < 8; ++t) step(a, t), step(b, t);
    EXPECT_EQ(values(b), values(a));
    EXPECT_FALSE(b.options().nesterov);
  }
}

TEST(Muon, IsTheSameOnAnyNumberOfThreadsAndInAnyLayout) {
  const auto train = [](int threads, bool transposed) {
    set_num_threads(threads);
    const Tensor p = raw::to(filled({70, 90}, kDouble), DType::kF32);
    const Tensor q = transposed ? view_as_strided(empty({90, 70}), {70, 90}, {1, 70}, 0) : raw::clone(p);
    raw::copy_(q, p);
    Muon opt({q}, kMuon);
    for (int t = 0; t < 3; ++t) step(opt, t);
    return values(opt);
  };
  const std::vector<double> one = train(1, false);
  EXPECT_TRUE(train(2, false) == one);
  EXPECT_TRUE(train(1, true) == one);
}

TEST(Muon, TakesMatricesAlone) {
  EXPECT_ERROR(ValueError, Muon({filled({3}, kDouble)}), "[Muon]", "2 dims", "f64[3]");
  Muon opt({filled({3, 3}, kDouble)});
  Optimizer& base = opt;
  EXPECT_ERROR(ValueError, base.add_param_group({filled({2, 2, 2}, kDouble)}), "2 dims");
  EXPECT_ERROR(ValueError, opt.make_capturable(), "[Muon]", "no kernels");
  const double nan = std::nan("");
  for (const MuonOptions& o : {MuonOptions{.lr = -1},
                               {.weight_decay = -1},
                               {.momentum = -0.1},
                               {.eps = -1},
                               {.ns_coefficients = {1, nan, 1}},
                               {.ns_steps = 100},
                               {.ns_steps = -1},
                               {.adjust_lr_fn = AdjustLR(3)}})
    EXPECT_THROW(opt.set_options(0, o), ValueError);
}

TEST(Adafactor, HasARowAndAColumnOfStatePerMatrix) {
  Adafactor opt({filled({2, 3, 4}, kDouble)});
  step(opt, 0);
  const State state = opt.state_dict();
  ASSERT_EQ(state.tensors.size(), 2u);
  EXPECT_EQ(state.tensors[0].first, "state.0.row_var");
  EXPECT_EQ(to_string(state.tensors[0].second.shape()), "[2,3,1]");
  EXPECT_EQ(state.tensors[1].first, "state.0.col_var");
  EXPECT_EQ(to_string(state.tensors[1].second.shape()), "[2,1,4]");
  Adafactor other({filled({2, 4, 3}, kDouble)});
  step(other, 0);
  EXPECT_ERROR(ValueError, other.load_state_dict(state), "row_var", "[2,3,1]");
}

TEST(SparseAdam, TakesSparseGradientsAlone) {
  SparseAdam opt({filled({3, 2}, kDouble)});
  EXPECT_ERROR(ValueError, step(opt, 0), "[SparseAdam]", "sparse", "f64[3,2]");
  EXPECT_EQ(values(opt), filled({3, 2}, kDouble).to_vector<double>());
  EXPECT_TRUE(opt.state_dict().tensors.empty());
  for (const SparseAdamOptions& o :
       {SparseAdamOptions{.lr = -1}, {.betas = {1, 0.9}}, {.betas = {0.9, -0.1}}, {.eps = 0}})
    EXPECT_THROW(opt.set_options(0, o), ValueError);
}

TEST(SparseAdam, ContinuesExactlyFromItsState) {
  const auto sparse_step = [](Optimizer& opt, int64_t t) {
    const Tensor table = opt.parameters()[0];
    GradManager gm;
    gm.attach(table);
    auto recording = gm.record();
    gm.backward(sum(sin(embedding(tensor({t % 5, (t + 2) % 5}), table, {.sparse = true}))));
    opt.step().clear_grad();
  };
  SparseAdam a({filled({5, 2}, kDouble)}, {.lr = 0.1});
  for (int t = 0; t < 4; ++t) sparse_step(a, t);
  SparseAdam b({raw::clone(a.parameters()[0])});
  b.load_state_dict(a.state_dict());
  for (int t = 4; t < 8; ++t) sparse_step(a, t), sparse_step(b, t);
  EXPECT_EQ(values(b), values(a));
}

// A constant gradient has variance 0; rounding must not make square_avg - grad_avg^2 negative under the root.
TEST(RMSprop, OfAConstantGradientStaysFiniteWhenCentered) {
  const Tensor p = raw::to(filled({1000}, kDouble), DType::kF32);
  RMSprop opt({p}, {.alpha = 0.5, .centered = true});
  const Tensor g = raw::clone(p);
  for (int t = 0; t < 100; ++t) {
    p.set_grad(g);
    opt.step();
  }
  for (float v : p.to_vector<float>()) ASSERT_TRUE(std::isfinite(v));
}

// The trust ratio of LARS and LAMB is 1 if the parameter (value 0) or the gradient (value 1) has norm 0.
TEST(LayerwiseRates, OfAZeroParameterOrGradientAreOne) {
  for (double value : {0.0, 1.0}) {
    const Tensor p = tensor(std::vector<double>{value, 0}, {2}), q = raw::clone(p);
    const double g = 1 - value;
    LARS lars({p}, {.lr = 0.5});
    p.set_grad(tensor(std::vector<double>{g, 0}, {2}));
    lars.step();
    EXPECT_DOUBLE_EQ(p.to_vector<double>()[0], value - 0.5 * g);
    LAMB lamb({q}, {.lr = 0.5, .eps = 0.5});
    q.set_grad(tensor(std::vector<double>{g, 0}, {2}));
    lamb.step();
    EXPECT_DOUBLE_EQ(q.to_vector<double>()[0], value - 0.5 * g / 1.5);
  }
}

}  // namespace
}  // namespace gradus::optim
