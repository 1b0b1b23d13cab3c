// Registry of benchmark workloads. A workload has the same name for Gradus and for its peers. The files of a
// family register its workloads while the program starts: ops/<family>_gradus.cc, ops/<family>_libtorch.cc, and
// ops/<family>_onednn.cc for comparisons with oneDNN itself. Gradus' 16-bit workloads are also compared with the
// same workloads in f32 (Side::kGradusF32).
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
  std::string unit;           // "ms" or "ns", of one repetition
  int repetitions = 1;        // per sample: enough for the clock
  std::function<void()> run;  // one sample: `repetitions` times the work
  double flops = 0;           // of one repetition, where they mean something
  double reads = 0,
         writes = 0;  // bytes from and to memory, of one repetition, where that is what takes the time
};

// Work that takes milliseconds.
inline Workload work(std::function<void()> f, double flops = 0) { return {"ms", 1, std::move(f), flops}; }
// Work that passes through memory once.
inline Workload streaming(std::function<void()> f, double reads, double writes) {
  return {"ms", 1, std::move(f), 0, reads, writes};
}
// Work that takes less than a microsecond or so.
inline Workload tiny(std::function<void()> f) {
  return {"ns", 20000, [f = std::move(f)] {
            for (int i = 0; i < 20000; ++i) f();
          }};
}

enum class Side { kGradus, kLibTorch, kOneDNN, kGradusF32 };

// Workloads are built one at a time, so that memory is that of the one at hand. A name that a side adds
// several times stands for several ways (layouts, say): the fastest one counts.
struct Entry {
  std::string name;
  std::function<Workload()> make;
};

class AddWorkloads {
 public:
  AddWorkloads(Side side, const std::string& family, std::vector<Entry> entries);
};

// Families by name, each with its entries in the order of its file.
std::vector<std::pair<std::string, Entry>> workloads(Side side);

// Set the number of threads and the seed of a side.
void set_up_gradus(int threads);
void set_up_libtorch(int threads);

// Four times the last-level cache of most processors, in f32 elements: 128 MiB.
inline constexpr long k32M = 1L << 25;

}  // namespace gradus::bench
