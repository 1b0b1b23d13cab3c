// A rank's status as bytes, which travel in heartbeats and in answers of the store's server.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gradus/distributed/health/rank_status.h"

namespace gradus::dist::internal {

// Returns activity, call, posted calls, stuck, arrived and waits of a status in at most kMaxStatusBytes. Texts are
// cut and waits are left out where they exceed that; then the status does not say that the rank is stuck.
std::string encode_status(const RankStatus& status);
// Returns nothing for bytes that are no status. Leaves out ranks outside of the world.
std::optional<RankStatus> decode_status(std::string_view bytes, int world_size);

}  // namespace gradus::dist::internal
