// has_cpu_contention: detects other busy processes on machines with two cores. While another process occupies
// one core, a parallel loop on two threads is no faster than on one, because one thread waits for the other.
#pragma once

namespace gradus::internal {

// Returns whether the calling thread should compute both halves of a loop itself, in order: if the scheduler's
// run-queue wait of the two threads of its OpenMP team (/proc/thread-self/schedstat) adds up to more than 35% of
// the elapsed time. Costs about 20 ns per call, and a measurement every 20 ms.
//
// Always false unless `threads` is 2 and usable_cores() at most 2, if the system has no schedstat, and under
// GRADUS_NO_OPENMP.
//
// Side effect: while the result is true, idle OpenMP threads sleep instead of spinning (Note [Waiting asleep] in
// neighbor.cc), which helps the loops of oneDNN. After 0.25 to 2 s both threads are tried again.
bool has_cpu_contention(int threads);

}  // namespace gradus::internal
