// MessageBackend: collectives as messages between pairs, for ranks that need not share memory: rings for long
// data, trees and direct messages for short.
#pragma once

#include "gradus/distributed/transport/backend.h"
#include "gradus/distributed/transport/transport.h"

namespace gradus::dist::internal {

std::unique_ptr<Backend> make_message_backend(std::shared_ptr<Transport> transport, std::vector<int> members,
                                              int index, uint32_t group_id);

}  // namespace gradus::dist::internal
