// LBFGS: convergence, closures, state, errors. Trajectories are compared with PyTorch in tests/golden.
#include "gradus/optim/optimizers/lbfgs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/support/error.h"

namespace gradus::optim {
namespace {

// A convex loss, used as the closure: sum (x^4 / 4 + x^2 / 2 - c x) over all elements, c = 1 + the element's
// index. Sets the gradients.
struct Bowl {
  std::vector<Tensor> params;
  int evaluations = 0;

  Tensor operator()() {
    ++evaluations;
    double loss = 0;
    for (const Tensor& p : params) {
      std::vector<double> v = p.to_vector<double>();
      for (size_t i = 0; i < v.size(); ++i) {
        const double x = v[i], c = 1 + double(i);
        loss += x * x * x * x / 4 + x * x / 2 - c * x;
        v[i] = x * x * x + x - c;
      }
      p.set_grad(raw::to(raw::to(tensor(v, p.shape()), p.dtype()), p.device()));
    }
    return scalar(loss, {.dtype = DType::kF64});
  }
};

Tensor start(const Shape& shape, DType t = DType::kF64, Device device = kCPU) {
  std::vector<double> v;
  for (int64_t i = 0; i < shape.product(); ++i) v.push_back(0.3 * double(i) - 1);
  return raw::to(raw::to(tensor(v, shape), t), device);
}

std::vector<double> values(const std::vector<Tensor>& params) {
  std::vector<double> all;
  for (const Tensor& p : params)
    for (double v : p.to_vector<double>()) all.push_back(v);
  return all;
}

const LBFGSOptions kWolfe{.line_search_fn = LineSearch::kStrongWolfe};

// A step ends when the loss changes by less than 1e-9, which is about g^2 / 8 here: then g is below 1e-4.
TEST(LBFGS, FindsTheMinimumInOneStep) {
  for (DType t : {DType::kF64, DType::kF32})
    for (Device device : {kCPU, Device{DeviceType::kCPU, 1}})
      for (const LBFGSOptions& o : {kWolfe, LBFGSOptions{.lr = 0.5, .max_iter = 60}}) {
        Bowl bowl{{start({2, 3}, t, device), start({0}, t, device), start({}, t, device)}};
        LBFGS opt(bowl.params, o);
        opt.step([&] { return bowl(); });
        bowl();
        for (const Tensor& p : bowl.params)
          for (double g : p.grad().to_vector<double>()) EXPECT_NEAR(g, 0, t == DType::kF64 ? 1e-4 : 1e-3);
      }
}

TEST(LBFGS, OfF32AndF64ParametersComputesInF64) {
  Bowl bowl{{start({3}, DType::kF32), start({2})}};
  LBFGS opt(bowl.params, kWolfe);
  opt.step([&] { return bowl(); });
  for (const auto& [name, t] : opt.state_dict().tensors) EXPECT_EQ(t.dtype(), DType::kF64) << name;
  bowl();
  for (double g : bowl.params[1].grad().to_vector<double>()) EXPECT_NEAR(g, 0, 1e-4);
}

TEST(LBFGS, ParameterWithoutAGradientStays) {
  Bowl bowl{{start({3})}};
  const Tensor other = start({4});
  LBFGS opt({bowl.params[0], other}, kWolfe);
  opt.step([&] { return bowl(); });
  EXPECT_EQ(values({other}), values({start({4})}));
}

TEST(LBFGS, StopsWhereTheGradientIsSmall) {
  Bowl bowl{{start({3})}};
  LBFGS opt(bowl.params, {.tolerance_grad = 1e9});
  EXPECT_EQ(opt.step([&] { return bowl(); }).item<double>(), Bowl{{start({3})}}().item<double>());
  EXPECT_EQ(bowl.evaluations, 1);
  EXPECT_EQ(values(bowl.params), values({start({3})}));
}

// A run that a new optimizer resumes from the state after each number of steps equals the uninterrupted run:
// parameters, and calls of the closure in each step.
TEST(LBFGS, ContinuesExactlyFromItsState) {
  for (LineSearch search : {LineSearch::kNone, LineSearch::kStrongWolfe}) {
    const LBFGSOptions o{.lr = 0.4, .max_iter = 3, .history_size = 4, .line_search_fn = search};
    const int kSteps = 5;
    for (int stop = 1; stop < kSteps; ++stop) {
      Bowl a{{start({2, 2}), start({3})}};
      LBFGS opt(a.params, o);
      for (int i = 0; i < stop; ++i) opt.step([&] { return a(); });
      Bowl b{{raw::clone(a.params[0]), raw::clone(a.params[1])}};
      LBFGS resumed(b.params, {.lr = 1});
      resumed.load_state_dict(opt.state_dict());
      for (int i = stop; i < kSteps; ++i) {
        a.evaluations = b.evaluations = 0;
        resumed.step([&] { return b(); });  // must not change the state of opt
        opt.step([&] { return a(); });
        EXPECT_EQ(values(b.params), values(a.params)) << "step " << i << " after " << stop;
        EXPECT_EQ(b.evaluations, a.evaluations) << "step " << i << " after " << stop;
      }
      const State x = opt.state_dict(), y = resumed.state_dict();  // with n_iter and func_evals
      EXPECT_EQ(y.numbers, x.numbers);
      ASSERT_EQ(y.tensors.size(), x.tensors.size());
      for (size_t i = 0; i < x.tensors.size(); ++i) {
        EXPECT_EQ(y.tensors[i].first, x.tensors[i].first);
        EXPECT_EQ(y.tensors[i].second.to_vector<double>(), x.tensors[i].second.to_vector<double>());
      }
    }
  }
}

TEST(LBFGS, AStateThatDoesNotFitChangesNothing) {
  Bowl bowl{{start({3})}}, larger{{start({4})}};
  LBFGS opt(bowl.params, kWolfe), other(larger.params, kWolfe);
  for (LBFGS* o : {&opt, &other}) o->step([&] { return o == &opt ? bowl() : larger(); });
  const State good = opt.state_dict();
  EXPECT_ERROR(ValueError, opt.load_state_dict(other.state_dict()),
               "lbfgs.d: expected the shape of f64[3] cpu, got f64[4] cpu");
  State broken = good;
  broken.tensors.pop_back();
  EXPECT_ERROR(ValueError, opt.load_state_dict(broken), "missing: lbfgs.old_stps");
  broken = good;
  for (auto& [name, v] : broken.numbers)
    if (name == "lbfgs.history") v = -1;
  EXPECT_ERROR(ValueError, opt.load_state_dict(broken), "lbfgs.history: expected a whole number");
  broken = good;
  for (auto& [name, v] : broken.numbers)
    if (name == "lbfgs.history") v = 1e15;
  EXPECT_ERROR(ValueError, opt.load_state_dict(broken), "missing: lbfgs.old_dirs");
  broken = good;
  for (auto& [name, v] : broken.numbers)
    if (name == "group.0.line_search_fn") v = 7;
  EXPECT_ERROR(ValueError, opt.load_state_dict(broken), "line_search_fn");
  const State kept = opt.state_dict();
  ASSERT_EQ(kept.numbers, good.numbers);
  for (size_t i = 0; i < good.tensors.size(); ++i)
    EXPECT_EQ(kept.tensors[i].second.to_vector<double>(), good.tensors[i].second.to_vector<double>());
}

TEST(LBFGS, AClosureThatThrowsLeavesEverythingAsItWas) {
  for (LineSearch search : {LineSearch::kNone, LineSearch::kStrongWolfe})
    for (int at : {1, 2, 3, 4}) {
      Bowl bowl{{start({3})}};
      LBFGS opt(bowl.params, {.lr = 0.1, .max_iter = 8, .line_search_fn = search});
      opt.step([&] { return bowl(); });
      const std::vector<double> before = values(bowl.params);
      const State state = opt.state_dict();
      bowl.evaluations = 0;
      EXPECT_ERROR(std::runtime_error, opt.step([&] {
        if (bowl.evaluations + 1 == at) throw std::runtime_error("lost");
        return bowl();
      }),
                   "lost");
      EXPECT_EQ(values(bowl.params), before);
      EXPECT_EQ(opt.state_dict().numbers, state.numbers);
    }
}

TEST(LBFGS, ALowerRateMakesAShorterStep) {
  Bowl a{{start({3})}}, b{{start({3})}};
  LBFGS fast(a.params, {.lr = 0.4, .max_iter = 2}), slow(b.params, {.lr = 0.4, .max_iter = 2});
  slow.set_lr(0.04);
  fast.step([&] { return a(); });
  slow.step([&] { return b(); });
  const double from = values({start({3})})[0];
  EXPECT_LT(std::abs(values(b.params)[0] - from), std::abs(values(a.params)[0] - from));
}

TEST(LBFGS, SaysWhatItRefuses) {
  const Tensor p = start({3});
  EXPECT_ERROR(DTypeError, LBFGS({start({3}, DType::kBF16)}), "[LBFGS] expected f32 or f64");
  EXPECT_ERROR(DeviceError, LBFGS({p, start({3}, DType::kF64, Device{DeviceType::kCPU, 1})}), "cpu:1");
  EXPECT_ERROR(ValueError, LBFGS({p}, {.lr = -1}), "lr");
  EXPECT_ERROR(ValueError, LBFGS({p}, {.max_iter = 0}), "max_iter");
  EXPECT_ERROR(ValueError, LBFGS({p}, {.max_iter = INT64_MAX}), "max_iter");
  EXPECT_ERROR(ValueError, LBFGS({p}, {.max_eval = -1}), "max_eval");
  EXPECT_ERROR(ValueError, LBFGS({p}, {.tolerance_grad = NAN}), "tolerance_grad");
  EXPECT_ERROR(ValueError, LBFGS({p}, {.history_size = 0}), "history_size");
  LBFGS opt({p}, kWolfe);
  EXPECT_ERROR(ValueError, opt.step(nullptr), "closure");
  EXPECT_ERROR(ShapeError, opt.step([] { return zeros({2}); }), "the loss must have one element");
  p.set_grad(start({3}));
  EXPECT_ERROR(StateError, static_cast<Optimizer&>(opt).step(), "needs a closure");
  opt.add_param_group({start({2})}, kWolfe);
  EXPECT_ERROR(ValueError, opt.step([] { return zeros({}); }), "one group");
}

}  // namespace
}  // namespace gradus::optim
