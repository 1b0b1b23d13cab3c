// parallel_for: divides an index range among threads. The threads are libgomp's pool, which oneDNN uses too. Under
// GRADUS_NO_OPENMP they are std::thread, for ThreadSanitizer, which reports false races in libgomp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace gradus {

// Returns the number of CPU cores that this process may use: the minimum of affinity mask and cgroup CPU quota.
int usable_cores();
// Returns the number of threads of parallel_for and oneDNN for calls from this thread: the Context's setting, else
// OMP_NUM_THREADS, else usable_cores(). Joining a job without OMP_NUM_THREADS sets a share of the cores.
int num_threads();
void set_num_threads(int n);  // sets the current Context's. Errors: ValueError below 1

namespace internal {
// Calls body(context, first, last) on `threads` threads for equal shares of [begin, end); on the calling thread
// alone if `threads` is 1 or inside a parallel region. The first exception is rethrown after all shares.
void run_parallel(int64_t begin, int64_t end, int threads, void (*body)(void*, int64_t, int64_t),
                  void* context);
}  // namespace internal

// Calls f(first, last) in parallel on consecutive shares of [begin, end), and waits; rethrows the first
// exception. A range of at most `grain` elements is processed by the calling thread, a longer one in shares
// of more than grain / 2 elements. The shares depend only on the sizes and the number of threads.
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
