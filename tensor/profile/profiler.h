// Profiler: measures kernels (forward and backward, with shapes and module), module calls, backward rules, data
// loading, collectives and user-defined ranges, similar to torch.profiler:
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
// The time of a GPU kernel is GPU time. The host time of its launch is reported separately.
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
  // Steps end with Profiler::step(). The first `skip` steps are not recorded, the next `steps` steps are (0: all).
  int64_t skip = 0;
  int64_t steps = 0;
};

// A row of a table: the sums over all events with one name.
struct ProfileRow {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;           // total of all calls
  double backward_seconds = 0;  // the part of `seconds` within backward rules
  int64_t bytes = 0;            // operands and results of a kernel, each once; bytes sent by a collective
  int64_t flops = 0;            // of matrix products, attention and convolutions
  int64_t untimed = 0;          // GPU kernel calls of unknown time: failed or not finished
};

struct ProfileTableOptions;

// Thread-safe.
class Profiler {
 public:
  // How events are grouped into rows.
  enum By {
    kOp,          // kernels, collectives and data loading, by name
    kOpAndShape,  // the same, by name, dtypes, shapes, and algorithm if an op has several
    kModule,      // the same, by module, including the backward of the module's ops
    kRange,       // profile_range, "backward" and "optimizer step", including nested events
  };

  // Errors: ValueError for negative numbers.
  explicit Profiler(ProfilerOptions options = {});
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  class Scope;
  // Records events of this thread until the scope is destroyed, and those of threads that work for it: threads
  // started within the scope with its Context (loader workers, ranks), streams of other devices, and asynchronous
  // collectives. Records of several scopes accumulate. If scopes of several profilers are nested, only the
  // innermost records.
  // Errors: StateError if a scope of this profiler is open.
  [[nodiscard]] Scope record();

  // Marks the end of a step, for ProfilerOptions.
  void step();

  // Returns the rows in descending order of time. Open ranges are not included. Time of nested kernels is
  // attributed to the innermost one. Rows of threads other than the recording one have the thread's name in
  // brackets, those of GPU kernels the device: "matmul [cuda:0]". rows, table and write_trace block until the
  // launched GPU kernels have finished.
  std::vector<ProfileRow> rows(By by = kOp) const;
  // Returns the rows as text, then the total recorded time, the recording threads' time outside of kernels
  // (graph, checks, allocation) and in GPU launches, GPU kernel time, and the peak memory with its event.
  std::string table(const ProfileTableOptions& options) const;
  std::string table() const;

  double seconds() const;      // recorded time of all scopes
  int64_t steps() const;       // recorded steps, if the program calls step()
  int64_t peak_bytes() const;  // highest memory use of tensors on one device while recording

  // Writes a trace in Chrome's JSON format: one process per rank, one track per thread and per GPU stream, and the
  // memory use over time. Times are those of the host's monotonic clock, so traces of ranks on one host can be
  // merged.
  // Errors: FileError naming the file.
  void write_trace(const std::filesystem::path& path) const;

  // Removes all records and resets the number of steps to 0.
  void clear();

 private:
  Ref<internal::ProfileSession> session_;
};

struct ProfileTableOptions {
  Profiler::By by = Profiler::kOp;
  int64_t limit = 30;  // rows
};

// Ends the recording when destroyed, which must happen on the thread that called record(). A moved-from scope does
// nothing.
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

// Records the lifetime of the result as a range `name`, if a profiler is recording this thread.
[[nodiscard]] inline RunningRange profile_range(std::string_view name) {
  return observed({.kind = RangeKind::kUser, .name = name});
}

}  // namespace gradus
