// OpenMP thread teams through libgomp's ABI instead of directives, so that any compiler uses the thread pool of
// oneDNN, which links libgomp. Clang's directives use a second pool (libomp), which would compete for cores.
#pragma once

extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_thread_num();
int omp_get_num_threads();
int omp_in_parallel();
}

namespace gradus::internal {

// Calls f() on each thread of a team, including the calling thread, and waits for all. The team has `threads`
// threads, or fewer if libgomp cannot create them; omp_get_thread_num() numbers them. f must not throw.
template <class F> void run_on_team(int threads, F f) {
  GOMP_parallel([](void* data) { (*static_cast<F*>(data))(); }, &f, unsigned(threads), 0);
}

}  // namespace gradus::internal
