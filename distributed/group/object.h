// Collectives of bytes, strings and JSON, whose sizes need not be known.
//
//   std::vector<std::string> names = dist::all_gather_object(hostname);
//   nlohmann::json settings = ...; dist::broadcast_object(settings.dump(), {.src = 0});    // JSON travels as
//   its text
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/group/collectives.h"

namespace gradus::dist {

// Returns rank src's object. Elsewhere the argument is ignored.
std::string broadcast_object(const std::string& object, const BroadcastOptions& options = {});
// Returns every rank's object, in the group's order.
std::vector<std::string> all_gather_object(const std::string& object, const CollectiveOptions& options = {});
// The same on rank dst; elsewhere empty.
std::vector<std::string> gather_object(const std::string& object, const GatherOptions& options = {});
// Returns objects[group rank] of rank src; elsewhere `objects` must be empty.
std::string scatter_object(const std::vector<std::string>& objects, const ScatterOptions& options = {});
void send_object(const std::string& object, const SendOptions& options);
std::string recv_object(const RecvOptions& options = {});

}  // namespace gradus::dist
