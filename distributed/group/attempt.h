// attempt: runs something on every rank that may fail on some of them, for example reading a file. Then all
// ranks throw the same error, at the same time.
//
//   std::vector<std::string> sums = dist::attempt("load", [&] { return checksum_of(read(path)); });
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/group/group.h"

namespace gradus::dist {

// Calls f, and returns what it returned on every rank, in the group's order. `op` is for errors. Collective;
// f must not communicate. The group can be used afterward.
// Errors: what f throws on the first rank on which it throws. Other ranks get the same error if it is one of
// tensor/base/error.h, else a PeerError.
std::vector<std::string> attempt(std::string_view op, const std::function<std::string()>& f,
                                 const Group& group = {});

}  // namespace gradus::dist
