// Benchmark of scaled_dot_product_attention, forward and backward: times it alternately with the same
// attention composed of matmul and softmax (attention_with_weights). Prints medians, and the ratio composed /
// fused. With --serve it is Gradus' side of pytorch_attention.py.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "benchmarks/statistics.h"
#include "gradus/core.h"

namespace gradus::bench {
namespace {

struct Case {
  int64_t heads, tokens;
  bool causal = false;
  double dropout = 0;
};

// Forward and backward of one case with heads of 64 features.
class Step {
 public:
  Step(const Case& c, DType dtype) : options_{.causal = c.causal, .dropout = c.dropout} {
    for (Tensor* t : {&q_, &k_, &v_, &dy_}) *t = to(randn({1, c.heads, c.tokens, 64}), dtype);
    gm_.attach({q_, k_, v_});
  }
  void run(bool fused) {
    auto recording = gm_.record();
    gm_.backward(fused ? scaled_dot_product_attention(q_, k_, v_, options_)
                       : attention_with_weights(q_, k_, v_, options_).output,
                 dy_);
    for (const Tensor& t : {q_, k_, v_}) t.set_grad({});
  }

 private:
  Tensor q_, k_, v_, dy_;
  AttentionOptions options_;
  GradManager gm_;
};

double cpu_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

void compare(int rounds, bool cpu_time, DType dtype) {
  const auto now = cpu_time ? &cpu_seconds : &seconds_now;
  std::printf("%-36s %11s %11s %6s\n", "", "fused", "composed", "ratio");
  for (const Case& c :
       {Case{48, 64}, Case{48, 64, true}, Case{48, 256}, Case{48, 256, true}, Case{48, 256, true, 0.1},
        Case{8, 1024}, Case{8, 1024, true}, Case{8, 1024, true, 0.1}, Case{1, 2048, true}}) {
    Step step(c, dtype);
    std::vector<double> times[2];
    for (int round = 0; round <= rounds; ++round)  // round 0 is a warm-up
      for (const bool fused : {true, false}) {
        const double start = now();
        step.run(fused);
        if (round > 0) times[fused].push_back(now() - start);
      }
    const double a = median(times[1]), b = median(times[0]);
    const std::string name = concat(c.heads, " heads, ", c.tokens, " tokens", c.causal ? ", causal" : "",
                                    c.dropout > 0 ? ", dropout" : "");
    std::printf("%-36s %8.2f ms %8.2f ms %6.2f\n", name.c_str(), a * 1e3, b * 1e3, b / a);
    std::fflush(stdout);
  }
}

// Reads heads, tokens, whether causal, and steps from the input; prints the CPU time and the time of a step
// in ms.
void serve() {
  Case c;
  int steps;
  while (std::cin >> c.heads >> c.tokens >> c.causal >> steps) {
    Step step(c, DType::kF32);
    step.run(true);
    const double start = seconds_now(), cpu_start = cpu_seconds();
    for (int i = 0; i < steps; ++i) step.run(true);
    std::cout << (cpu_seconds() - cpu_start) / steps * 1e3 << ' ' << (seconds_now() - start) / steps * 1e3
              << std::endl;
  }
}

int run(int argc, char** argv) {
  int threads = usable_cores(), rounds = 11;
  bool cpu_time = false, bf16 = false, serves = false;
  CLI::App app("Times attention in turn with the attention composed of matmul and softmax.");
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--rounds", rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_flag("--cpu-time", cpu_time, "CPU time of all threads instead of elapsed time, for a busy machine");
  app.add_flag("--bf16", bf16, "operands in bf16");
  app.add_flag("--serve", serves, "read cases from the input");
  CLI11_PARSE(app, argc, argv);
  set_num_threads(threads);
  if (serves)
    serve();
  else
    compare(rounds, cpu_time, bf16 ? DType::kBF16 : DType::kF32);
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
