// 20 steps of Adafactor and Muon against PyTorch (matrix_optimizers.py): parameters and states in f64, with
// Muon's orthogonalization in f64; Muon's own bf16 orthogonalization in f32.
#include <functional>
#include <memory>

#include "gradus/optim/optim.h"
#include "gradus/tests/golden/golden.h"

namespace gradus {
namespace {

using namespace optim;

using Params = std::vector<Tensor>;

struct Case {
  const char* name;
  std::function<std::unique_ptr<Optimizer>(const Params&)> make;
  std::vector<Shape> shapes;
  double tolerance = 1e-10;
  DType dtype = DType::kF64;
};

const std::vector<Shape> kShapes = {{3, 4}, {5}, {2, 4, 3}, {}};
const std::vector<Shape> kMatrices = {{4, 6}, {6, 4}, {5, 5}, {1, 3}};

// The first half of the parameters is the first group, the second has half the rate.
template <class O, class Options>
Case of(const char* name, Options options, const std::vector<Shape>& shapes) {
  const auto make = [options](const Params& p) {
    const auto half = p.begin() + int64_t(p.size() / 2);
    std::unique_ptr<Optimizer> opt = std::make_unique<O>(Params(p.begin(), half), options);
    opt->add_param_group(Params(half, p.end()), {{"lr", options.lr / 2}});
    return opt;
  };
  return {name, make, shapes};
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> cases = {
        of<Adafactor>("adafactor", AdafactorOptions{}, kShapes),
        of<Adafactor>(
            "adafactor_options",
            AdafactorOptions{
                .lr = 0.05, .beta2_decay = -0.6, .eps = {1e-6, 0.01}, .d = 1.5, .weight_decay = 0.1},
            kShapes),
        of<Adafactor>("adafactor_clipped", AdafactorOptions{.lr = 0.3, .eps = {1.5, 2}}, kShapes),
        of<Adafactor>("adafactor_maximize", AdafactorOptions{.lr = 0.01, .maximize = true}, kShapes),
        of<Muon>("muon", MuonOptions{.lr = 0.02}, kMatrices),
        of<Muon>("muon_options",
                 MuonOptions{.lr = 0.05,
                             .weight_decay = 0.3,
                             .momentum = 0.8,
                             .nesterov = false,
                             .ns_coefficients = {3, -3.2, 1.2},
                             .eps = 3,
                             .ns_steps = 3},
                 kMatrices),
        of<Muon>("muon_rms", MuonOptions{.lr = 0.02, .adjust_lr_fn = AdjustLR::kMatchRMSAdamW}, kMatrices),
        of<Muon>("muon_spectral", MuonOptions{.lr = 0.02, .adjust_lr_fn = AdjustLR::kSpectralUnclamped},
                 kMatrices),
        of<Muon>("bf16_muon", MuonOptions{.lr = 0.02}, kMatrices),
    };
    cases.back().tolerance = 0.02;
    cases.back().dtype = DType::kF32;
    return cases;
  }();
  return all;
}

class MatrixOptimizers : public testing::TestWithParam<size_t> {};

TEST_P(MatrixOptimizers, AgreeWithPyTorch) {
  static const io::SafetensorsFile file = golden::load("matrix_optimizers");
  const Case& c = cases()[GetParam()];
  const std::string name = c.name;
  const std::vector<int64_t> steps = file.at("steps").to_vector<int64_t>();
  Params params;
  for (size_t k = 0; k < c.shapes.size(); ++k)
    params.push_back(
        raw::to(tensor(golden::formula(c.shapes[k].product(), k + 1, 2.0), c.shapes[k]), c.dtype));
  const auto opt = c.make(params);
  size_t row = 0;
  for (int64_t step = 1; step <= steps.back(); ++step) {
    for (const Tensor& p : params) {
      std::vector<double> g = p.to_vector<double>();
      for (double& v : g) v = 0.5 * v + std::sin(3 * v + 0.1 * double(step));
      p.set_grad(raw::to(tensor(g, p.shape()), c.dtype));
    }
    opt->step();
    if (step != steps[row]) continue;
    for (size_t k = 0; k < params.size(); ++k) {
      const std::vector<double> all = file.at(concat(name, "/p", k)).to_vector<double>();
      const auto first = all.begin() + int64_t(row) * params[k].numel();
      golden::expect_near(params[k],
                          tensor(std::vector<double>(first, first + params[k].numel()), params[k].shape()),
                          c.tolerance, concat(name, " p", k, " step ", step));
    }
    ++row;
  }
  EXPECT_EQ(row, steps.size());
  size_t states = 0;
  for (const auto& [key, value] : opt->state_dict().tensors) {  // "state.0.row_var"
    golden::expect_near(value, file.at(concat(name, '/', key.substr(8), key[6])), c.tolerance, name + key);
    ++states;
  }
  EXPECT_EQ(states, name.starts_with("adafactor") ? 6u : 4u);
}

INSTANTIATE_TEST_SUITE_P(PyTorch, MatrixOptimizers, testing::Range(size_t(0), cases().size()),
                         [](const auto& info) { return std::string(cases()[info.param].name); });

}  // namespace
}  // namespace gradus
