// Collectives and messages of byte strings, in place of pickled objects in torch.distributed. Receivers need
// not know the sizes. All calls block. src and dst are ranks in the job. Errors: those of collectives.h;
// ValueError with async_op.
//
//   std::vector<std::string> names = dist::all_gather_object(hostname);
//   nlohmann::json settings = ...;
//   settings = nlohmann::json::parse(dist::broadcast_object(settings.dump(), {.src = 0}));  // JSON as text
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/group/collectives.h"

namespace gradus::dist {

// Returns rank src's object. On other ranks the argument is ignored.
std::string broadcast_object(const std::string& object, const BroadcastOptions& options = {});
// Returns every rank's object, in the group's order.
std::vector<std::string> all_gather_object(const std::string& object, const CollectiveOptions& options = {});
// Returns every rank's object on rank dst, in the group's order, and an empty vector on other ranks.
std::vector<std::string> gather_object(const std::string& object, const GatherOptions& options = {});
// Returns rank src's objects[own group rank]. `objects` has one entry per rank of the group on rank src, and
// is empty on other ranks. Errors: also ValueError otherwise.
std::string scatter_object(const std::vector<std::string>& objects, const ScatterOptions& options = {});
// As send and recv: matched by peer and tag; recv_object by default from any rank.
void send_object(const std::string& object, const SendOptions& options);
std::string recv_object(const RecvOptions& options = {});

}  // namespace gradus::dist
