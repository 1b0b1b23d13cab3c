// Addresses of this host.
#pragma once

#include <string>

#include "gradus/distributed/base/deadline.h"

namespace gradus::dist::internal {

bool is_loopback(const std::string& host);
// Returns the address of this host that a peer sees, or "". Sends no packet.
std::string address_toward(const std::string& host, int port, const Deadline& deadline);
// Returns the address of the first interface that is up and no loopback, or "".
std::string own_address();

}  // namespace gradus::dist::internal
