// Finds ranks that wait for each other, in collectives and for messages, and can never continue.
#pragma once

#include <vector>

#include "gradus/distributed/health/membership.h"

namespace gradus::dist {

// Note [Deadlocks]
// A rank is stuck (RankStatus::stuck) when none of its threads can make another call. Each of these threads
// is in a call at which some member has not arrived, or waits for such a thread. A stuck rank continues when all
// members have arrived at one of its calls. So a rank that is not stuck frees the stuck ranks that wait for
// nobody else. These free others in turn. The ranks that are never freed wait for each other forever.
// A member has arrived at a call when it has reached the call's number in the call's series. This also holds
// after the member has left the call, while its data is still under way. A receive counts as a call at which
// the sender alone must arrive, and it arrives by sending. Its number counts all messages between the two ranks.
//
// A deadlock is certain when one moment exists at which all these ranks were stuck: each rank reported it
// before that moment, and reports after it that it has not moved since. This is no guess, however slow ranks
// and networks are. A rank is not stuck while one of its threads computes, sleeps or reads a file. Nor is it
// stuck while a thread sends, receives from any rank, or waits for a key, for a connection or for a limited
// time. Whether such a wait ever ends is not checked.

// Returns the ranks that can never continue, as indices of `statuses`.
std::vector<int> find_deadlock(const std::vector<RankStatus>& statuses);

}  // namespace gradus::dist
