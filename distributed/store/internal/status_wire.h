// Encodes a rank's status (RankStatus: what the rank's program does, and for which ranks it waits) as bytes
// for heartbeats and answers of the store's server.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gradus/distributed/health/rank_status.h"

namespace gradus::dist::internal {

// Returns activity, call, posted calls, stuck, arrived and waits of a status in at most kMaxStatusBytes
// (store_protocol.h). The other members are not encoded.
// Longer texts are cut. If calls and waits do not fit, waits are left out, and `stuck` is encoded as 0 (no).
std::string encode_status(const RankStatus& status);
// Returns nullopt for malformed bytes. Leaves out ranks outside of [0, world_size).
std::optional<RankStatus> decode_status(std::string_view bytes, int world_size);

}  // namespace gradus::dist::internal
