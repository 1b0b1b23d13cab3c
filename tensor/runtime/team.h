// Teams of threads, by the entry points of libgomp instead of OpenMP's directives: whichever compiler builds
// this, the teams are oneDNN's. Clang would compile directives for a second runtime, whose threads fight for
// the same cores.
#pragma once

extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_thread_num();
int omp_get_num_threads();
int omp_in_parallel();
}

namespace gradus::internal {

// Calls f() on each thread of a team, and waits for all. The team has `threads` threads or, where libgomp has
// no more, fewer. f does not throw.
template <class F> void run_on_team(int threads, F f) {
  GOMP_parallel([](void* data) { (*static_cast<F*>(data))(); }, &f, unsigned(threads), 0);
}

}  // namespace gradus::internal
