// Two threads on two cores, beside another program that keeps a core busy: a loop whose halves they compute
// then takes as long as on one thread that has a core to itself, and longer where one thread waits for the
// other at each loop's end.
#pragma once

namespace gradus::internal {

// Whether the calling thread had better compute both halves of a loop itself, in order: the two
// threads of its team have waited for a core for a third of the time. Always false unless `threads` is
// 2 and usable_cores() at most 2; where the system does not say how long threads wait
// (/proc/thread-self/schedstat); and under GRADUS_NO_OPENMP. Costs some 20 ns before a loop, and a
// look each 20 ms.
//
// While it is true OpenMP's threads wait asleep (Note [Waiting asleep]), which serves the loops of oneDNN.
// Both threads are tried again after 0.25 to 2 s.
bool has_busy_neighbor(int threads);

}  // namespace gradus::internal
