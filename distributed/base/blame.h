// Which rank holds a call up, and how to say so: by what ranks say of themselves.
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/membership.h"

namespace gradus::dist {

// A rank that has shown no life for so long is taken to be stopped. Heartbeats come every half second.
inline constexpr Milliseconds kSilent{2000};

// "rank 3", "ranks 1, 2".
std::string list_ranks(const std::vector<int>& ranks);

struct Blamed {
  int rank = -1;          // the first one
  std::string text = {};  // empty: nobody is to blame
};
// Who holds up the call `call` of the rank at the place `me`; `text` names the call. `limit`: " within 5000
// ms"; empty where it cannot end.
Blamed blame_for(const std::vector<RankStatus>& statuses, int me, const std::string& call,
                 const std::string& text, const std::string& limit);

// What all ranks hear when the ones at these places wait for each other for ever.
Failure deadlock_failure(const std::vector<RankStatus>& statuses, const std::vector<int>& ranks);

}  // namespace gradus::dist
