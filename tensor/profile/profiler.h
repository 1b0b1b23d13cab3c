// Profiler: where the time of a training goes. It records every kernel, forward and backward, with its shapes
// and the module for which it works. It also records calls of modules, rules of a backward, batches,
// collectives, and ranges that the program names.
//
//   Profiler profiler;
//   {
//     auto scope = profiler.record();
//     for (int i = 0; i < 5; ++i) {
//       auto range = profile_range("step");
//       step();
//     }
//   }
//   std::cout << profiler.table({.by = Profiler::kOpAndShape, .limit = 20});
//   profiler.write_trace("trace.json");  // for ui.perfetto.dev and chrome://tracing
//
// A kernel on a GPU has the time that the GPU took. The host's time of its launch is counted apart.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/observer.h"

namespace gradus {

namespace internal {
class ProfileSession;
}

struct ProfilerOptions {
  // Call step() at the end of each step. The first `skip` steps are not recorded, the next `steps` steps are,
  // and no more. 0 steps: all that follow.
  int64_t skip = 0;
  int64_t steps = 0;
};

// The sum of all events that have one name.
struct ProfileRow {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;           // in all calls
  double backward_seconds = 0;  // the part of `seconds` within rules of a backward
  int64_t bytes = 0;            // moved: each operand and result of a kernel once; what a collective sends
  int64_t flops = 0;            // of matrix products and convolutions
  int64_t untimed = 0;          // calls of a GPU's kernel whose time is not known: they failed, or still run
};

struct ProfileTableOptions;

class Profiler {
 public:
  enum By {
    kOp,          // kernels, collectives and the data loader, by name
    kOpAndShape,  // the same, by name, dtypes, shapes, and the kernel where an op has several
    kModule,      // the same, by the module for which they work, backward included
    kRange,       // profile_range, "backward" and "optimizer step", with all that runs in them
  };

  // Errors: ValueError for negative numbers.
  explicit Profiler(ProfilerOptions options = {});
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  class Scope;
  // Records what this thread does until the scope ends. It also records other threads that work for it: those
  // that start within the scope (loader workers, ranks), queues of other devices, and asynchronous
  // collectives. Several scopes add up. Where scopes of several profilers are nested the innermost records.
  // Errors: StateError when a scope of this profiler is open.
  [[nodiscard]] Scope record();

  // Marks the end of a step, for ProfilerOptions.
  void step();

  // Returns the rows, the longest time first. Ranges that are still open do not count. Time in a kernel
  // within a kernel counts for the inner one. Rows of threads other than the recording one have the thread's
  // name in brackets, rows of kernels on a GPU its name: "matmul [cuda:0]". rows, table and write_trace wait
  // until the kernels have run that were launched on GPUs.
  std::vector<ProfileRow> rows(By by = kOp) const;
  // Returns the rows as text. Below them it says how much time was recorded in all, how much of it this
  // thread spent outside of kernels (on graphs, checks and allocation) and on launches for GPUs, how long
  // their kernels took, and when tensors held most memory.
  std::string table(const ProfileTableOptions& options) const;
  std::string table() const;

  double seconds() const;      // recorded, in all scopes
  int64_t steps() const;       // steps recorded, if the program calls step()
  int64_t peak_bytes() const;  // the most bytes that tensors held on one device while recording

  // Writes trace events as JSON: one process for each rank, one line for each thread and for each stream of a
  // GPU, and the memory that tensors hold over time. Times come from the host's monotonic clock, so traces
  // of several ranks can be merged.
  // Errors: FileError naming the file.
  void write_trace(const std::filesystem::path& path) const;

  // Removes all records, and sets the count of steps to 0.
  void clear();

 private:
  Ref<internal::ProfileSession> session_;
};

struct ProfileTableOptions {
  Profiler::By by = Profiler::kOp;
  int64_t limit = 30;  // rows
};

// The lifetime of a recording. It must end on the thread that opened it. Moving a scope passes on the duty to
// end the recording.
class [[nodiscard]] Profiler::Scope {
 public:
  ~Scope();
  Scope(Scope&&) noexcept;
  Scope& operator=(Scope&&) = delete;

 private:
  friend class Profiler;
  explicit Scope(Ref<internal::ProfileSession> session);
  Ref<internal::ProfileSession> session_;
  Ref<Observer> outer_;
};

// Records what this thread does during the lifetime of the result, under `name`, where a
// profiler is recording.
[[nodiscard]] inline RunningRange profile_range(std::string_view name) {
  return observed({.kind = RangeKind::kUser, .name = name});
}

}  // namespace gradus
