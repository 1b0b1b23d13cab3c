// GlooMesh: gloo's connections from this rank to all other ranks, two to each.
//
// Note [Two connections]
// gloo sends data only after the receiver has told the sender to send. On a shared connection, this message
// would wait behind the data that the receiver itself is sending. Two ranks that send each other much would
// take turns. So the payloads of each direction have a connection of their own, and short messages go in
// the opposite direction.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gradus/distributed/transport/gloo_transport.h"

namespace gradus::dist::internal {

// Returns gloo's error text, without the place in gloo's source.
std::string gloo_text(const std::exception& error);

class GlooMesh {
 public:
  // Connects with every other rank.
  // Errors: as make_gloo_transport.
  GlooMesh(const GlooSetup& setup, const Watch& watch);
  ~GlooMesh() { close(); }

  // outgoing: this rank's payloads go to the peer, and the peer's short messages come in. incoming: the
  // other way round.
  gloo::transport::Context& outgoing(int peer) const { return *contexts_[rank_ < peer ? 0 : 1]; }
  gloo::transport::Context& incoming(int peer) const { return *contexts_[rank_ < peer ? 1 : 0]; }
  // Closes all connections. From now on gloo neither reads nor writes our memory. Any thread may call it.
  void close();

  // The secrets that the two sides send first. No other rank knows them.
  const std::string& my_secret(int peer) const { return my_secrets_.at(peer); }
  const std::string& secret_of(int peer) const { return secrets_.at(peer); }

 private:
  using Address = std::vector<char>;
  void connect_all(const std::map<int, std::array<Address, 2>>& addresses, const Watch& watch);

  const int rank_, size_;
  // An address of this host where others connect, and a thread. Note [gloo's device] in gloo_mesh.cc.
  const std::shared_ptr<gloo::transport::Device> device_;
  std::array<std::shared_ptr<gloo::transport::Context>, 2> contexts_;
  std::map<int, std::string> my_secrets_, secrets_;  // by peer
};

}  // namespace gradus::dist::internal
