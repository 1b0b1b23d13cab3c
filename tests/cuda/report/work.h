// The work that ops ask of a CUDA device: bytes that must move, FLOPs, and an estimate of its time.
// Nothing is computed: on the meta device a step of any size takes a millisecond.
//
//   WorkScope counting;
//   step();                                     // on meta
//   roofline_seconds(counting.work(), kH100)
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gradus/tensor/base/ref.h"
#include "gradus/tensor/runtime/context.h"

namespace report {

// What multiplies: the plain units, or tensor cores with operands of 10 or of 7 bits of mantissa.
enum Units { kF32, kTF32, kBF16, kUnits };

// Of one kernel, or one call of a library.
struct Work {
  std::string op;
  int64_t bytes = 0;  // read and written, each once
  int64_t flops = 0;  // of products and convolutions, two for each multiply-add
  Units units = kF32;

  auto operator<=>(const Work&) const = default;
};

class WorkCounter;

// Counts what this thread's ops do in f32 and bf16, while it lives. Of ops on the meta device it counts what
// the CUDA backend's kernels would do.
class WorkScope {
 public:
  WorkScope();
  ~WorkScope();
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

  const std::vector<Work>& work() const;

 private:
  gradus::Ref<WorkCounter> counter_;
  gradus::Context context_;
  gradus::ContextScope scope_;
};

struct Gpu {
  const char* name;
  double bytes_per_second;
  std::array<double, kUnits> flops_per_second;
};

// The most that the cards can do, without sparsity.
// Sources: NVIDIA H100 Tensor Core GPU Datasheet, NVIDIA A100 80GB Tensor Core GPU Datasheet, columns SXM.
inline constexpr Gpu kH100{"H100", 3.35e12, {67e12, 494.5e12, 989e12}};
inline constexpr Gpu kA100{"A100", 2.039e12, {19.5e12, 156e12, 312e12}};

// An estimate: each kernel takes as long as its bytes or its FLOPs take at these rates.
double roofline_seconds(const std::vector<Work>& work, const Gpu& gpu);

}  // namespace report
