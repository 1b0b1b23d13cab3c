// Collectives of bytes, strings and JSON. Receivers need not know the sizes.
//
//   std::vector<std::string> names = dist::all_gather_object(hostname);
//   nlohmann::json settings = ...;
//   settings = nlohmann::json::parse(dist::broadcast_object(settings.dump(), {.src = 0}));  // JSON as text
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/group/collectives.h"

namespace gradus::dist {

// Returns rank src's object. Elsewhere the argument is ignored.
std::string broadcast_object(const std::string& object, const BroadcastOptions& options = {});
// Returns every rank's object, in the group's order.
std::vector<std::string> all_gather_object(const std::string& object, const CollectiveOptions& options = {});
// Returns every rank's object on rank dst, and an empty vector elsewhere.
std::vector<std::string> gather_object(const std::string& object, const GatherOptions& options = {});
// Returns rank src's objects[my group rank]. Elsewhere `objects` must be empty.
std::string scatter_object(const std::vector<std::string>& objects, const ScatterOptions& options = {});
void send_object(const std::string& object, const SendOptions& options);
std::string recv_object(const RecvOptions& options = {});

}  // namespace gradus::dist
