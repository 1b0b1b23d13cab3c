// Profiler: where the time of a training goes. It records every kernel, forward and backward, with its
// shapes and the module that it works for; calls of modules; rules of a backward; batches; collectives; and
// ranges of one's own.
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
  // With step() at the end of each step: the first `skip` steps are not recorded, the `steps` after them are,
  // and no more. 0 steps: all that follow.
  int64_t skip = 0;
  int64_t steps = 0;
};

// What has one name in a profile.
struct ProfileRow {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;           // in all calls
  double backward_seconds = 0;  // of these, within rules of a backward
  int64_t bytes = 0;            // moved: each operand and result of a kernel once; what a collective sends
  int64_t flops = 0;            // of matrix products and convolutions
};

struct ProfileTableOptions;

class Profiler {
 public:
  enum By {
    kOp,          // kernels, collectives and the data loader, by name
    kOpAndShape,  // the same, by name, dtypes and shapes
    kModule,      // the same, by the module that they work for, backward included
    kRange,       // ranges: those of profile_range, "backward" and "optimizer step", with all that is in them
  };

  // Errors: ValueError for negative numbers.
  explicit Profiler(ProfilerOptions options = {});
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  class Scope;
  // Records what this thread does until the scope ends, and what other threads do for it: those that start
  // within the scope (loader workers, ranks), queues of other devices, asynchronous collectives. Scopes add
  // up. Of nested scopes of several profilers the innermost records.
  // Errors: StateError when this profiler records already.
  [[nodiscard]] Scope record();

  // The end of a step: counts them for ProfilerOptions.
  void step();

  // Longest first. Ranges that are still open do not count. Time in a kernel within a kernel counts for the
  // inner one. Work of threads other than the one that records has the thread's name in brackets.
  std::vector<ProfileRow> rows(By by = kOp) const;
  // The rows as text, and below them: what was recorded in all, how much of it was spent outside of kernels
  // (by this thread, for graphs, checks and allocation), and when tensors held most.
  std::string table(const ProfileTableOptions& options) const;
  std::string table() const;

  double seconds() const;      // of the scopes
  int64_t steps() const;       // recorded, when step() was called
  int64_t peak_bytes() const;  // most bytes that tensors held at one time on one device while recording

  // Writes trace events in JSON: one process per rank, one line per thread, and what tensors hold over time.
  // Times are those of the host's monotonic clock, so that traces of several ranks can be put together.
  // Errors: FileError naming the file.
  void write_trace(const std::filesystem::path& path) const;

  // Forgets what was recorded, and the count of steps.
  void clear();

 private:
  Ref<internal::ProfileSession> session_;
};

struct ProfileTableOptions {
  Profiler::By by = Profiler::kOp;
  int64_t limit = 30;  // rows
};

// Ends on the thread that opened it. Movable: the one that it is moved to ends it.
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

// Names what this thread does for the lifetime of the result, when a profiler records it.
[[nodiscard]] inline RunningRange profile_range(std::string_view name) {
  return observed({.kind = RangeKind::kUser, .name = name});
}

}  // namespace gradus
