// parallel_for: splits an index range over the Context's threads (OpenMP, the pool that oneDNN uses;
// std::thread under GRADUS_NO_OPENMP, for ThreadSanitizer, which does not understand libgomp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace gradus {

// CPU cores this process may use (its affinity mask, and its cgroup's CPU quota).
int usable_cores();
// Threads that parallel_for and oneDNN use on the calling thread: the Context's, else OMP_NUM_THREADS, else
// usable_cores(). A rank that joins a job without OMP_NUM_THREADS has its part of the host's cores.
int num_threads();
void set_num_threads(int n);  // of the current Context. Errors: ValueError below 1

namespace internal {
// Calls body(context, begin, end) on `threads` threads with equal shares of [begin, end); inline when threads
// is 1 or when called from inside a parallel region. Exceptions of a share reach the caller.
void run_parallel(int64_t begin, int64_t end, int threads, void (*body)(void*, int64_t, int64_t),
                  void* context);
}  // namespace internal

// Calls f(first, last) on consecutive shares of [begin, end). A range of at most `grain` elements stays on
// the calling thread, and a longer one is cut into shares of more than half of that. They depend on sizes and
// thread count alone.
template <class F>
void parallel_for(int64_t begin, int64_t end, int64_t grain, F&& f) {
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
