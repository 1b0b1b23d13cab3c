// parallel_for: divides an index range among the Context's threads. The threads are OpenMP's,
// which oneDNN uses too. Under GRADUS_NO_OPENMP they are std::thread, for ThreadSanitizer, which
// does not understand libgomp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace gradus {

// Returns the number of CPU cores this process may use (its affinity mask, and its cgroup's CPU quota).
int usable_cores();
// Returns the number of threads that parallel_for and oneDNN use on the calling thread: the Context's, else
// OMP_NUM_THREADS, else usable_cores(). A rank that joins a job without OMP_NUM_THREADS gets its share of
// the host's cores.
int num_threads();
void set_num_threads(int n);  // sets the current Context's. Errors: ValueError below 1

namespace internal {
// Calls body(context, begin, end) on `threads` threads with equal shares of [begin, end). Runs on the
// calling thread alone when threads is 1, or inside a parallel region. An exception of a share is
// rethrown to the caller.
void run_parallel(int64_t begin, int64_t end, int threads, void (*body)(void*, int64_t, int64_t),
                  void* context);
}  // namespace internal

// Calls f(first, last) on consecutive shares of [begin, end). A range of at most `grain` elements stays on
// the calling thread. A longer one is cut into shares of more than grain / 2. The shares depend on the sizes
// and the number of threads alone.
template <class F> void parallel_for(int64_t begin, int64_t end, int64_t grain, F&& f) {
  const int64_t n = end - begin;
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int threads =
      n <= grain ? 1 : static_cast<int>(std::min<int64_t>(num_threads(), (n - 1) / grain + 1));
  if (threads <= 1) {
    f(begin, end);
    return;
  }
  using G = std::remove_reference_t<F>;
  internal::run_parallel(
      begin, end, threads, [](void* g, int64_t b, int64_t e) { (*static_cast<G*>(g))(b, e); },
      const_cast<void*>(static_cast<const void*>(&f)));
}

}  // namespace gradus
