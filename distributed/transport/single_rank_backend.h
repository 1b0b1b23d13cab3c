// The backend of a group of one rank. Every collective is a copy or nothing.
#pragma once

#include "gradus/distributed/transport/backend.h"

namespace gradus::dist::internal {

std::unique_ptr<Backend> make_single_rank_backend();

}  // namespace gradus::dist::internal
