// LBFGS step by step against PyTorch's (lbfgs.py), in f64: parameters and losses within 1e-9, numbers of
// evaluations and iterations exactly.
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/optim/optim.h"
#include "gradus/tests/golden/golden.h"

namespace gradus {
namespace {

using namespace optim;

// Both parameters as one vector.
Tensor line_of(const Tensor& a, const Tensor& b) { return cat({reshape(a, {-1}), b}, 0); }

Tensor bowl(const Tensor& a, const Tensor& b) {
  const Tensor x = line_of(a, b);
  return sum(square(x) * 0.5 - cos(x * 3 + 0.1) * (1.0 / 3)) + square(sum(x)) * 0.05;
}

// The chained Rosenbrock function.
Tensor valley(const Tensor& a, const Tensor& b) {
  const Tensor x = line_of(a, b);
  const int64_t n = x.size(0) - 1;
  const Tensor here = narrow(x, 0, 0, n), next = narrow(x, 0, 1, n);
  return sum(square(next - square(here)) * 10 + square(1 - here));
}

struct Case {
  const char* name;
  Tensor (*loss)(const Tensor&, const Tensor&);
  LBFGSOptions options;
};

constexpr LineSearch kWolfe = LineSearch::kStrongWolfe;

const Case kCases[] = {
    {"fixed", bowl, {.lr = 0.3, .max_iter = 4}},
    {"fixed_default", bowl, {.lr = 0.4}},
    {"fixed_history", bowl, {.lr = 0.3, .max_iter = 3, .history_size = 2}},
    {"fixed_maximize", bowl, {.lr = 0.3, .max_iter = 4, .maximize = true}},
    {"wolfe", bowl, {.max_iter = 3, .line_search_fn = kWolfe}},
    {"wolfe_default", bowl, {.line_search_fn = kWolfe}},
    {"wolfe_valley", valley, {.max_iter = 5, .line_search_fn = kWolfe}},
    {"wolfe_history", valley, {.max_iter = 4, .history_size = 3, .line_search_fn = kWolfe}},
    {"wolfe_few", valley, {.max_iter = 4, .max_eval = 3, .line_search_fn = kWolfe}},
    {"wolfe_far", valley, {.lr = 20, .max_iter = 4, .max_eval = 30, .line_search_fn = kWolfe}},
    {"wolfe_short", valley, {.lr = 1e-4, .max_iter = 4, .max_eval = 30, .line_search_fn = kWolfe}},
    {"wolfe_maximize", valley, {.max_iter = 4, .line_search_fn = kWolfe, .maximize = true}},
    {"wolfe_tolerances", bowl, {.tolerance_grad = 1e-2, .tolerance_change = 1e-3, .line_search_fn = kWolfe}},
};

class LbfgsTrajectory : public testing::TestWithParam<Case> {};

TEST_P(LbfgsTrajectory, AgreesWithPyTorch) {
  static const io::SafetensorsFile file = golden::load("lbfgs");
  const Case& c = GetParam();
  const auto expected = [&](const char* what) {
    return file.at(concat(c.name, '/', what)).to_vector<double>();
  };
  const std::vector<double> losses = expected("losses"), p0 = expected("p0"), p1 = expected("p1"),
                            evaluations = expected("evaluations"), iterations = expected("iterations");
  const Tensor a = tensor(golden::formula(6, 1, 1.5), {2, 3}), b = tensor(golden::formula(4, 2, 1.5), {4});
  GradManager gm;
  gm.attach({a, b});
  LBFGS opt({a, b}, c.options);
  const auto closure = [&] {
    opt.clear_grad();
    auto recording = gm.record();
    Tensor loss = c.options.maximize ? -c.loss(a, b) : c.loss(a, b);
    gm.backward(loss);
    return loss;
  };
  const auto near = [&](double given, double want, const char* what, size_t step) {
    ASSERT_NEAR(given, want, 1e-9 * std::max(1.0, std::abs(want))) << what << " after step " << step;
  };
  for (size_t step = 0; step < losses.size(); ++step) {
    near(opt.step(closure).item<double>(), losses[step], "loss", step);
    const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
    for (size_t i = 0; i < x.size(); ++i) near(x[i], p0[step * x.size() + i], "p0", step);
    for (size_t i = 0; i < y.size(); ++i) near(y[i], p1[step * y.size() + i], "p1", step);
    for (const auto& [name, value] : opt.state_dict().numbers) {
      if (name == "lbfgs.func_evals") {
        EXPECT_EQ(value, evaluations[step]) << "evaluations after step " << step;
      } else if (name == "lbfgs.n_iter") {
        EXPECT_EQ(value, iterations[step]) << "iterations after step " << step;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, LbfgsTrajectory, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace gradus
