// Deadlock detection: finds ranks that wait for each other in collectives and receives and never continue.
#pragma once

#include <vector>

#include "gradus/distributed/health/membership.h"

namespace gradus::dist {

// Note [Deadlocks]
// A rank is stuck (RankStatus::stuck) if none of its threads can make another call: each thread is in a call
// at which some member has not arrived, or waits for such a thread. A stuck rank continues when all members
// have arrived at one of its calls. So ranks that are not stuck release the stuck ranks that wait for them
// alone, which release others in turn. The ranks that are never released wait for each other forever. A
// member has arrived at a call when it has reached the call's number in the call's series (CallId), also
// after it has returned from the call. A receive counts as a call at which only the sender must arrive, by
// sending; its number counts all messages from the sender to the receiver.
//
// A deadlock is certain if there is one moment at which all these ranks were stuck: each rank reported it
// before that moment, and reported after that moment that it had not moved in between. The result does not
// depend on the speed of ranks or networks. A rank is not stuck while one of its threads computes, sleeps,
// reads a file, sends, receives from any rank, or waits for a key, a connection or a time limit, even if
// such a wait never ends.

// Returns the ranks that can never continue, as indices of `statuses`, of which ranks that are not stuck may
// be missing. The caller must then make sure that all reported at one moment, as described above.
std::vector<int> find_deadlock(const std::vector<RankStatus>& statuses);

}  // namespace gradus::dist
