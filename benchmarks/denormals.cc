// Benchmark of kernels on denormal numbers: times each kernel alternately on normal operands and on the same
// operands times 1e-38. Prints medians, and the ratio denormal / normal.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/statistics.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

struct Case {
  std::string name;
  std::function<void()> run;
};

// Returns the cases for a dtype, with operands of magnitude `scale`.
std::vector<Case> cases(DType dtype, double scale) {
  const auto values = [=](const Shape& shape) { return to(randn(shape) * scale, dtype); };
  const auto image = [=](const Shape& shape) { return channels_last(values(shape)); };
  std::vector<Case> all;
  const auto add = [&](std::string name, std::function<void()> run) {
    all.push_back({to_string(dtype) + ' ' + name, std::move(run)});
  };
  const auto add_norm = [&](const std::string& name, const autograd::UnaryFunction& norm, const Tensor& x) {
    add(name, [=] { norm(x); });
    add(name + ", gradient", [=, dy = x * 0.5] { autograd::grad(norm, x, dy); });
  };

  add("matmul 512x512x512", [a = values({512, 512}), b = values({512, 512})] { matmul(a, b); });
  add("matmul 8 of 128x64x128", [a = values({8, 128, 64}), b = values({8, 64, 128})] { matmul(a, b); });
  const auto add_conv = [&](const std::string& name, const Shape& x_shape, const Shape& w_shape,
                            const Conv2dFuncOptions& options) {
    const Tensor x = image(x_shape), w = values(w_shape), dy = image(conv2d(x, w, {}, options).shape());
    add("conv " + name, [=] { conv2d(x, w, {}, options); });
    add("conv " + name + ", input gradient", [=] { conv2d_input_grad(dy, w, x_shape, options); });
    add("conv " + name + ", weight gradient", [=] { conv2d_weight_grad(dy, x, w_shape, false, options); });
  };
  add_conv("3x3 of 64", {4, 64, 28, 28}, {64, 64, 3, 3}, {.padding = 1});
  add_conv("1x1 of 256", {4, 256, 14, 14}, {256, 256, 1, 1}, {});
  add_conv("3x3 of 64, stride 2", {4, 64, 28, 28}, {64, 64, 3, 3}, {.stride = 2, .padding = 1});
  add_conv("7x7 of 3, stride 2", {4, 3, 112, 112}, {64, 3, 7, 7}, {.stride = 2, .padding = 3});
  const Tensor channels = image({8, 64, 28, 28}), rows = values({1024, 384});
  add_norm(
      "batch_norm", [](const Tensor& x) { return batch_norm(x, {}, {}, {}, {}, {.training = true}); },
      channels);
  add_norm(
      "group_norm", [](const Tensor& x) { return group_norm(x, 8); }, channels);
  add_norm(
      "layer_norm", [](const Tensor& x) { return layer_norm(x, {384}); }, rows);

  struct Step {
    Step(std::vector<Tensor> p, const Tensor& g) : sgd(p, {.lr = 0.1, .momentum = 0.9}), adam(p, {}) {
      for (Tensor& x : p) x.set_grad(g);
    }
    optim::SGD sgd;
    optim::AdamW adam;
  };
  const auto step = std::make_shared<Step>(std::vector<Tensor>{values({1 << 20})}, values({1 << 20}));
  add("SGD step of 1M", [=] { step->sgd.step(); });
  add("AdamW step of 1M", [=] { step->adam.step(); });
  return all;
}

int run(int argc, char** argv) {
  int threads = usable_cores(), rounds = 7;
  bool flush = false;
  CLI::App app("Times kernels on normal and on denormal numbers.");
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_flag("--flush", flush, "with set_flush_denormal(true)");
  CLI11_PARSE(app, argc, argv);
  set_num_threads(threads);
  set_flush_denormal(flush);

  std::printf("%-42s %10s %10s %6s\n", "", "normal", "denormal", "ratio");
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    manual_seed(1);
    const std::vector<Case> normal = cases(dtype, 1.0);
    manual_seed(1);
    const std::vector<Case> denormal = cases(dtype, 1e-38);
    for (size_t i = 0; i < normal.size(); ++i) {
      std::vector<double> times[2];
      for (int round = 0; round <= rounds; ++round)  // round 0 is a warm-up
        for (const auto* side : {&normal, &denormal}) {
          const double seconds = seconds_of([&] {
            for (int repeat = 0; repeat < 5; ++repeat) (*side)[i].run();
          });
          if (round > 0) times[side == &denormal].push_back(seconds / 5);
        }
      const double a = median(times[0]), b = median(times[1]);
      std::printf("%-42s %7.3f ms %7.3f ms %6.2f\n", normal[i].name.c_str(), a * 1e3, b * 1e3, b / a);
    }
  }
  return 0;
}

}  // namespace
}  // namespace gradus::bench

int main(int argc, char** argv) {
  try {
    return gradus::bench::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
