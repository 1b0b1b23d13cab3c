// GlooTransport: messages between ranks of different hosts, over gloo's TCP pairs.
#pragma once

#include <string>

#include "gradus/distributed/base/store.h"
#include "gradus/distributed/transport/transport.h"

namespace gradus::dist::internal {

struct GlooSetup {
  int rank = 0, size = 1;
  std::shared_ptr<Store> store;  // exchanges addresses; its waits end when the job fails
  std::shared_ptr<Membership> membership;
  std::string address;  // of this host, as others reach it; "": loopback
};
// Connects all pairs of ranks. Collective over the job.
// Errors: ConnectionError, PeerError, TimeoutError, within the watch's time.
std::shared_ptr<Transport> make_gloo_transport(const GlooSetup& setup, const Watch& watch);

}  // namespace gradus::dist::internal
