// Ranks that wait for each other, in collectives and for messages, and can never go on.
#pragma once

#include <vector>

#include "gradus/distributed/base/membership.h"

namespace gradus::dist {

// Note [Deadlocks]
// A rank is stuck (RankStatus::stuck) when each of its threads that could bring a call is in one that some
// member has not come to, or waits for a thread that is. It goes on when all members have come to one of
// these calls. So a rank that is not stuck frees the stuck ones that wait for nobody else, these free others,
// and those that nobody frees wait for each other for ever. A member has come to a call when it has come to
// that number in the call's group, also when it has left it again and what it sent is under way. To receive
// from a rank is a call that this rank alone must come to, which it does by sending; the number is that of
// all messages between the two.
//
// What ranks say holds at one moment when each was stuck before that moment and says after it that it has not
// moved. Then this is no guess, however slow ranks and networks are. A rank is not stuck while one of its
// threads computes, sleeps or reads a file. Nor is it while one sends, receives from any rank, or waits for a
// key, for a connection or for a limited time: whether these ever end is not looked at.

// Returns those of the ranks that can never go on, by their places among the statuses.
std::vector<int> find_deadlock(const std::vector<RankStatus>& statuses);

}  // namespace gradus::dist
