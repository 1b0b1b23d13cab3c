// attempt: runs a function on every rank that may fail on some ranks, such as reading a file. After a failure
// on any rank, all ranks throw the same error.
//
//   std::vector<std::string> sums = dist::attempt("load", [&] { return checksum_of(read(path)); });
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/group/group.h"

namespace gradus::dist {

// Calls f once on each rank and returns all ranks' results, in the group's order. Collective; blocks for all
// ranks' f, which must not communicate. `op` names the caller in errors. A failure of f does not end the job.
// Errors: the exception of f on the first rank, in the group's order, on which f throws. Other ranks get the
// same exception if it is a ShapeError, DTypeError, DeviceError, IndexError, ValueError, StateError or
// FileError, else a PeerError with its text.
std::vector<std::string> attempt(std::string_view op, const std::function<std::string()>& f,
                                 const Group& group = {});

}  // namespace gradus::dist
