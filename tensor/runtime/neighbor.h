// Parallel loops on two cores, while another program keeps one of the cores busy. Then a loop on two threads
// takes as long as on one thread that has a core to itself, and longer where one thread waits for the other
// at the end of each loop.
#pragma once

namespace gradus::internal {

// Returns whether the calling thread should compute both halves of a loop itself, in order. It should when
// the two threads of its team waited for a core for more than 35% of the time, both added. The answer costs
// about 20 ns before a loop, and a measurement every 20 ms.
//
// Returns false unless `threads` is 2 and usable_cores() at most 2, where the system does not say how long
// threads wait (/proc/thread-self/schedstat), and under GRADUS_NO_OPENMP.
//
// While the answer is true, OpenMP's threads wait asleep (Note [Waiting asleep]), which serves the loops of
// oneDNN. After 0.25 to 2 s both threads are tried again.
bool has_busy_neighbor(int threads);

}  // namespace gradus::internal
