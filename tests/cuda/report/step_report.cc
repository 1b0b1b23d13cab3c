// What a training step of each example's network asks of a GPU, found without one: its calls, counted on the
// emulated device; the bytes that must move, the FLOPs, and from them how long the step takes at least.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iterator>
#include <string>
#include <vector>

#include "gradus/tensor/cuda/host_calls.h"
#include "gradus/tests/cuda/report/work.h"
#include "gradus/tests/cuda/training/steps.h"

namespace report {
namespace {

using gradus::Device;
using gradus::Example;
using gradus::Step;
using gradus::cuda::HostCalls;

constexpr const Gpu* kGpus[] = {&kH100, &kA100};

// Of the host, for one of many launches; tests/cuda/recorded/h100/kernels_on_device.txt, "launches of add". A
// call of a library counts as much, and so does an A100's host, for want of records.
constexpr double kMicrosecondsOfALaunch = 3.7;

// What a program reached on a GPU: docs/cuda.md.
struct Measured {
  const char* name;
  const Gpu* gpu;
  bool bf16;
  double images_per_second;
};
constexpr Measured kMeasured[] = {{"MNIST's network", &kH100, false, 100'000}};

// How long a step takes at least: one kernel after the other, while the host launches the next ones.
struct Estimate {
  double kernels_ms, calls_ms;
  double images_per_second(int64_t batch) const {
    return static_cast<double>(batch) / std::max(kernels_ms, calls_ms) * 1e3;
  }
};

struct Row {
  const Example& e;
  bool bf16;
  HostCalls calls;
  std::vector<Work> work;

  Estimate on(const Gpu& gpu) const {
    const int64_t launches = calls.launches + calls.library_calls + calls.copies_on_device;
    return {1e3 * roofline_seconds(work, gpu), 1e-3 * kMicrosecondsOfALaunch * static_cast<double>(launches)};
  }
};

// From the third step on nothing is new. Neither the batch nor the width changes the calls.
HostCalls calls_of(const Example& e, bool bf16) {
  const Step step = e.make({Device::parse("cuda:0"), 2, e.size, bf16, 8});
  step(), step();
  gradus::cuda::HostCallScope calls;
  step();
  return calls.total();
}

std::vector<Work> work_of(const Example& e, bool bf16) {
  const Step step = e.make({Device::parse("meta"), e.batch, e.size, bf16});
  step();  // the optimizer makes its state
  WorkScope counting;
  step();
  return counting.work();
}

void print_titles() {
  std::printf("\n%-41s %20s %37s", "a training step", "", "calls");
  for (const Gpu* gpu : kGpus) std::printf(" %28s", (std::string(gpu->name) + ", estimate").c_str());
  std::printf(" %9s\n%-41s %9s %10s %9s %5s %6s %6s %7s", "", "network, images", "GFLOP", "MB", "kernels",
              "libs", "waits", "allocs", "copies");
  for (size_t i = 0; i < std::size(kGpus); ++i)
    std::printf(" %10s %8s %8s", "kernels ms", "calls ms", "images/s");
  std::printf(" %9s\n", "counted s");
}

void print(const Row& row, double seconds) {
  const Example& e = row.e;
  const HostCalls& c = row.calls;
  const std::string images = gradus::concat(e.batch, " x ", e.channels, " x ", e.size, " x ", e.size);
  double bytes = 0, flops = 0;
  for (const Work& w : row.work) bytes += static_cast<double>(w.bytes), flops += static_cast<double>(w.flops);
  std::printf("%-16s %-19s %-4s %9.1f %10.1f %9lld %5lld %6lld %6lld %7lld", e.name.c_str(), images.c_str(),
              row.bf16 ? "bf16" : "f32", flops / 1e9, bytes / 1e6, static_cast<long long>(c.launches),
              static_cast<long long>(c.library_calls), static_cast<long long>(c.waits),
              static_cast<long long>(c.allocations),
              static_cast<long long>(c.copies_to_device + c.copies_to_host));
  for (const Gpu* gpu : kGpus) {
    const Estimate least = row.on(*gpu);
    std::printf(" %10.3f %8.3f %8.0f", least.kernels_ms, least.calls_ms, least.images_per_second(e.batch));
  }
  std::printf(" %9.1f\n", seconds);
  for (const Measured& m : kMeasured)
    if (m.name == e.name && m.bf16 == row.bf16)
      std::printf("  measured on an %s: some %.0f images/s; the estimate is %.1f times as many\n",
                  m.gpu->name, m.images_per_second,
                  row.on(*m.gpu).images_per_second(e.batch) / m.images_per_second);
}

void run() {
  print_titles();
  for (const Example& e : gradus::examples())
    for (const bool bf16 : {false, true}) {
      const auto begin = std::chrono::steady_clock::now();
      const Row row{e, bf16, calls_of(e, bf16), work_of(e, bf16)};
      print(row, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  std::printf(
      "Estimates are no measurements. A step takes the longer of the two, or more:\n"
      "  kernels: one after the other, each as long as its bytes take, which move once, or its FLOPs\n"
      "  calls: of the host, meanwhile, %.1f us each; counted with 2 images and networks of width 8\n",
      kMicrosecondsOfALaunch);
  for (const Gpu* gpu : kGpus)
    std::printf("  %s: %.2f TB/s; TFLOP/s: %.4g in f32, %.4g in tf32, %.4g in bf16\n", gpu->name,
                gpu->bytes_per_second / 1e12, gpu->flops_per_second[kF32] / 1e12,
                gpu->flops_per_second[kTF32] / 1e12, gpu->flops_per_second[kBF16] / 1e12);
}

}  // namespace
}  // namespace report

int main() {
  try {
    report::run();
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "step_report: %s\n", e.what());
    return 2;
  }
}
