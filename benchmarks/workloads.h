// Registry of benchmark workloads. Implementations of a workload in Gradus, LibTorch and oneDNN have the same
// name. They are registered during static initialization by ops/<family>_gradus.cc, ops/<family>_libtorch.cc and
// ops/<family>_onednn.cc. Gradus' 16-bit workloads are also compared with the same workloads in f32
// (Side::kGradusF32).
//
//   static const AddWorkloads added(Side::kGradus, "pointwise", {
//       {"add, 32M", [] { const Tensor a = randn({k32M}), b = randn({k32M});
//                         return streaming([=] { add(a, b); }, 2 * a.nbytes(), a.nbytes()); }},
//   });
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gradus::bench {

struct Workload {
  std::string unit;           // "ms" or "ns", per repetition
  int repetitions = 1;        // repetitions per sample, enough for the resolution of the clock
  std::function<void()> run;  // runs one sample: `repetitions` repetitions
  double flops = 0;           // per repetition; 0: not reported
  double reads = 0,
         writes = 0;  // bytes from and to memory per repetition, for memory-bound work; 0: not reported
};

// Returns a workload of one repetition per sample, for work that takes milliseconds.
inline Workload work(std::function<void()> f, double flops = 0) { return {"ms", 1, std::move(f), flops}; }
// Returns a memory-bound workload that accesses each element once.
inline Workload streaming(std::function<void()> f, double reads, double writes) {
  return {"ms", 1, std::move(f), 0, reads, writes};
}
// Returns a workload with many repetitions per sample, for work that takes about a microsecond or less.
inline Workload tiny(std::function<void()> f) {
  return {"ns", 20000, [f = std::move(f)] {
            for (int i = 0; i < 20000; ++i) f();
          }};
}

enum class Side { kGradus, kLibTorch, kOneDNN, kGradusF32 };

// A factory of a workload. Only one workload exists at a time, which limits memory. Several entries of a side with
// the same name are variants (layouts, for example), of which the fastest counts.
struct Entry {
  std::string name;
  std::function<Workload()> make;
};

class AddWorkloads {
 public:
  AddWorkloads(Side side, const std::string& family, std::vector<Entry> entries);
};

// Returns pairs of family and entry, sorted by family, then in the order of the family's file.
std::vector<std::pair<std::string, Entry>> workloads(Side side);

// Set the number of threads and the random seed of a side.
void set_up_gradus(int threads);
void set_up_libtorch(int threads);

// Number of f32 elements in 128 MiB, which exceeds the last-level cache of most processors.
inline constexpr long k32M = 1L << 25;

}  // namespace gradus::bench
