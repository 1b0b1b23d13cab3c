// Measures a training step of the MNIST network: its time, the time of its convolutions and matrix products, and
// its memory.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/mnist_step.h"
#include "benchmarks/statistics.h"

namespace gradus::bench {
namespace {

int run(int argc, char** argv) {
  std::string model = "mnist_cnn", json_file;
  int64_t batch = 64, steps = 60;
  int threads = usable_cores();
  CLI::App app("Times a training step.");
  app.add_option("--model", model, "what to train")
      ->check(CLI::IsMember({"mnist_cnn"}))
      ->capture_default_str();
  app.add_option("--batch", batch)->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--steps", steps, "timed steps")->check(CLI::Range(1, 1000000))->capture_default_str();
  app.add_option("--threads", threads)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--json", json_file, "write the figures to this file");
  CLI11_PARSE(app, argc, argv);

  set_num_threads(threads);
  manual_seed(1);
  MnistStep step(batch);
  auto kernels = std::make_unique<MnistKernels>(batch);
  for (int i = 0; i < 5; ++i) step.run(), kernels->run();
  std::vector<double> step_ms, kernel_ms, ratio;
  for (int64_t i = 0; i < steps; ++i) {  // alternating, so that both have the same conditions
    step_ms.push_back(1e3 * seconds_of([&] { step.run(); }));
    kernel_ms.push_back(1e3 * seconds_of([&] { kernels->run(); }));
    ratio.push_back(step_ms.back() / kernel_ms.back());
  }

  kernels.reset();  // frees its tensors before the measurement of memory
  const int64_t needed = step.needed_bytes();
  reset_peak_memory();
  step.run();
  const int64_t peak = memory_stats().peak_bytes;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);

  std::printf("%s, batch %lld, %d threads, %lld steps\n", model.c_str(), static_cast<long long>(batch),
              threads, static_cast<long long>(steps));
  std::printf("  training step            %8.3f ms   (10%% %.3f, 90%% %.3f)   %.0f samples/s\n",
              median(step_ms), quantile(step_ms, .1), quantile(step_ms, .9),
              1e3 * static_cast<double>(batch) / median(step_ms));
  std::printf("  its kernels alone        %8.3f ms\n", median(kernel_ms));
  std::printf("  ratio                    %8.3f\n", median(ratio));
  std::printf("  allocator peak %.2f MiB, needed %.2f MiB: ratio %.3f; resident peak %.0f MiB\n",
              static_cast<double>(peak) / (1 << 20), static_cast<double>(needed) / (1 << 20),
              static_cast<double>(peak) / static_cast<double>(needed),
              static_cast<double>(usage.ru_maxrss) / 1024);
  if (!json_file.empty()) {
    std::ofstream out(json_file);
    out << nlohmann::json{{"model", model},
                          {"batch", batch},
                          {"threads", threads},
                          {"steps", steps},
                          {"step_ms", median(step_ms)},
                          {"kernels_ms", median(kernel_ms)},
                          {"ratio", median(ratio)},
                          {"samples_per_second", 1e3 * static_cast<double>(batch) / median(step_ms)},
                          {"allocator_peak_bytes", peak},
                          {"needed_bytes", needed},
                          {"peak_rss_mib", usage.ru_maxrss / 1024}}
               .dump(2)
        << "\n";
    if (!out.flush()) throw FileError("train_step", "cannot write ", json_file);
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
