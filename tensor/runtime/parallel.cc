// Implementation of parallel_for on libgomp teams (its thread pool), or on std::thread for ThreadSanitizer.
// The range is divided statically into one contiguous share per thread; the calling thread computes one share
// and waits for the others. Nested loops are serial. The caller gets the first exception of a share:
// after all shares, or at once where CPU contention makes the loop serial.
#include "gradus/tensor/runtime/parallel.h"

#include <sched.h>

#include <cstdlib>
#include <exception>
#include <mutex>
#ifdef GRADUS_NO_OPENMP
#include <thread>
#include <vector>
#endif

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/flush_denormal.h"
#include "gradus/tensor/runtime/fork.h"
#include "gradus/tensor/runtime/internal/cgroup.h"
#include "gradus/tensor/runtime/neighbor.h"
#include "gradus/tensor/runtime/team.h"

namespace gradus {

int usable_cores() {
  static const int cores = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    const int by_mask = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return std::clamp(std::min(by_mask, internal::cgroup_cores()), 1, 1024);
  }();
  return cores;
}

// Returns OMP_NUM_THREADS or usable_cores(), as OpenMP itself does, so that all libraries of a process agree.
static int default_threads() {
  static const int threads = [] {
    const char* text = std::getenv("OMP_NUM_THREADS");
    const long n = text ? std::strtol(text, nullptr, 10) : 0;  // the first of a list: the outermost level
    return n > 0 ? int(std::min(n, 1024L)) : usable_cores();
  }();
  return threads;
}

int num_threads() {
  if (internal::openmp_team_is_in_parent()) return 1;
  const int n = Context::current().threads;
  return n > 0 ? n : default_threads();
}

void set_num_threads(int n) {
  if (n < 1) throw ValueError("set_num_threads", "expected at least 1, got ", n);
  Context::current().threads = n;
}

namespace internal {
namespace {

// Stores the first exception of several threads. rethrow() is called after they have ended.
class FirstException {
 public:
  void capture() {
    std::lock_guard lock(mutex_);
    if (!first_) first_ = std::current_exception();
  }
  void rethrow() {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

}  // namespace

static thread_local bool in_share = false;  // whether this thread runs a share of a loop outside of OpenMP

struct InShare {
  InShare() { in_share = true; }
  ~InShare() { in_share = false; }
};

#ifdef GRADUS_NO_OPENMP

void run_parallel(int64_t begin, int64_t end, int threads, void (*body)(void*, int64_t, int64_t),
                  void* context) {
  if (in_share) return body(context, begin, end);
  FirstException error;
  const int64_t n = end - begin;
  auto share = [&](int t) {
    const InShare in;
    try {
      body(context, begin + n * t / threads, begin + n * (t + 1) / threads);
    } catch (...) {
      error.capture();
    }
  };
  std::vector<std::thread> workers;
  for (int t = 1; t < threads; ++t) workers.emplace_back(share, t);
  share(0);
  for (auto& w : workers) w.join();
  error.rethrow();
}

#else

// Note [Denormals in a team]
// Whether denormals are flushed is a setting of each thread's control register. A share of a loop uses the
// setting of the loop's caller. Between loops of parallel_for the other threads of the team flush denormals,
// because they also run oneDNN's loops, for which flushing is always wanted.
void run_parallel(int64_t begin, int64_t end, int threads, void (*body)(void*, int64_t, int64_t),
                  void* context) {
  if (omp_in_parallel() || in_share || openmp_team_is_in_parent()) return body(context, begin, end);
  record_openmp_team();
  const int64_t n = end - begin;
  if (has_cpu_contention(threads)) {  // computes the same shares one after another
    const InShare in;
    for (int t = 0; t < threads; ++t) body(context, begin + n * t / threads, begin + n * (t + 1) / threads);
    return;
  }
  FirstException error;
  const unsigned denormals = denormal_mode();
  const FlushDenormals between_loops;  // see Note [Denormals in a team]; new threads of the team inherit it
  run_on_team(threads, [&] {
    const int t = omp_get_thread_num(), count = omp_get_num_threads();
    set_denormal_mode(denormals);
    try {
      body(context, begin + n * t / count, begin + n * (t + 1) / count);
    } catch (...) {
      error.capture();
    }
    set_flush_denormal(true);
  });
  error.rethrow();
}

#endif

}  // namespace internal
}  // namespace gradus
