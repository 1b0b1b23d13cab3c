// Compares all elements of a ResNet's training step with PyTorch's, from a file of weights, and prints the
// largest differences. Exits with 0 if all are within their tolerances, 1 if not, 2 on an error. "f32" behind
// the arguments skips f64.
//
//   tools/export_weights.py resnet50 --random -o net.safetensors
//   tests/golden/resnet/make_golden.py --step resnet50 --weights net.safetensors --output step.safetensors
//   bazel run //tests/golden/resnet:compare_step -- resnet50 $PWD/net.safetensors $PWD/step.safetensors
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>

#include "gradus/io/safetensors.h"
#include "gradus/tests/golden/resnet/training_step.h"

namespace gradus::golden {
namespace {

// The largest of some relative errors, and the name of its tensor.
struct Worst {
  double value = 0;
  std::string name = "-";
  void see(double v, const std::string& n) {
    if (!std::isnan(value) && !(v <= value)) value = v, name = n;  // NaN stays
  }
  bool report(const char* what, double allowed) const {
    const bool holds = value <= allowed;
    std::printf("%-46s %10.3g  (%g allowed)  %s%s\n", what, value, allowed, name.c_str(),
                holds ? "" : "  TOO LARGE");
    return holds;
  }
};

// Largest difference of two elements, divided by the largest |expected|.
double relative(const Tensor& given, const Tensor& expected) {
  const std::vector<double> g = given.to_vector<double>(), e = expected.to_vector<double>();
  if (g.size() != e.size()) return INFINITY;
  double difference = 0, largest = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    if (!std::isfinite(g[i])) return NAN;
    difference = std::max(difference, std::abs(g[i] - e[i]));
    largest = std::max(largest, std::abs(e[i]));
  }
  return difference == 0 ? 0 : difference / largest;
}

class Comparison {
 public:
  explicit Comparison(const io::SafetensorsFile& step) : torch_(step) {}

  void check_f64(const TrainingStep& s) {
    std::puts("f64, largest difference of elements by the tensor's largest:");
    note(relative(s.loss, torch_.at("f64/loss")), 1e-9, "loss");
    note(relative(s.logits, torch_.at("f64/logits")), 1e-9, "logits");
    note_all("gradients", s.grads, "f64/grad/", 1e-9);
    note_all("updated parameters", s.params, "f64/param/", 1e-9);
    note_all("buffers", s.buffers, "f64/buffer/", 1e-9);
  }

  void check_f32(const TrainingStep& s) {
    std::puts("f32 against PyTorch's f64, the same; and gradients' distances by those of PyTorch's f32:");
    note(relative(s.loss, torch_.at("f64/loss")), 1e-4, "loss");
    note(relative(s.logits, torch_.at("f64/logits")), 1e-4, "logits");
    note_all("buffers", s.buffers, "f64/buffer/", 1e-4);
    std::printf("  logits' distance by that of PyTorch's f32: %.2f\n",
                distance(s.logits, torch_.at("f64/logits")) /
                    distance(torch_.at("f32/logits"), torch_.at("f64/logits")));
    Worst own, theirs;
    std::vector<double> ratios;
    for (const auto& [name, g] : s.grads) {
      const Tensor exact = torch_.at("f64/grad/" + name);
      const double d = distance(g, exact), t = distance(torch_.at("f32/grad/" + name), exact),
                   n = norm_of(exact);
      if (d == 0) continue;  // as where a weight of 0 lets no gradient through
      own.see(d / n, name), theirs.see(t / n, name), ratios.push_back(d / t);
    }
    own.report("  gradients' distance by their norm", 2 * theirs.value);
    std::sort(ratios.begin(), ratios.end());
    if (ratios.empty()) return;
    std::printf("  the same by PyTorch's distance: median %.2f, largest %.3g\n", ratios[ratios.size() / 2],
                ratios.back());
  }

  bool good() const { return good_; }

 private:
  void note(double value, double allowed, const char* what) {
    Worst w;
    w.see(value, "");
    good_ &= w.report(("  " + std::string(what)).c_str(), allowed);
  }
  void note_all(const char* what, const nn::StateDict& given, const std::string& prefix, double allowed) {
    Worst w;
    for (const auto& [name, t] : given) w.see(relative(t, torch_.at(prefix + name)), name);
    good_ &= w.report(("  " + std::to_string(given.size()) + " " + what).c_str(), allowed);
  }

  const io::SafetensorsFile& torch_;
  bool good_ = true;
};

int compare(const std::string& network, const char* weights, const char* step, bool only_f32) {
  const nn::StateDict state = io::load_safetensors(weights).tensors;
  const io::SafetensorsFile torch = io::load_safetensors(step);
  const int64_t size = std::stoll(torch.metadata.at("size"));
  Comparison comparison(torch);
  if (!only_f32) comparison.check_f64(training_step(network, state, size, DType::kF64));
  comparison.check_f32(training_step(network, state, size, DType::kF32));
  std::puts(comparison.good() ? "agrees" : "DIFFERS");
  return comparison.good() ? 0 : 1;
}

}  // namespace
}  // namespace gradus::golden

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "usage: %s NETWORK WEIGHTS STEP [f32]\n", argv[0]);
    return 2;
  }
  try {
    return gradus::golden::compare(argv[1], argv[2], argv[3], argc == 5);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
