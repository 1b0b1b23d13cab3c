// GlooMesh: gloo's connections from this rank to all others, two to each.
//
// Note [Two connections]
// gloo sends data when the receiver has said that it may come. That word would wait in the connection
// behind whatever the receiver itself is sending, and two ranks that send each other much would take turns.
// So payloads of the two directions have a connection each, and everything short goes against the payloads
// of a connection.
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

// What gloo says, without the place in its source.
std::string gloo_text(const std::exception& error);

// A place of this host where others connect, with a thread; this mesh's alone. Note [gloo's device]
class BorrowedDevice {
 public:
  // Errors: ConnectionError for an address that is not this host's.
  explicit BorrowedDevice(const std::string& address);
  ~BorrowedDevice();
  BorrowedDevice(const BorrowedDevice&) = delete;
  BorrowedDevice& operator=(const BorrowedDevice&) = delete;

  gloo::transport::Device* operator->() const { return device_.get(); }

 private:
  const std::string address_;
  const int forks_;
  const std::shared_ptr<gloo::transport::Device> device_;
};

class GlooMesh {
 public:
  // Connects with every other rank.
  // Errors: as make_gloo_transport.
  GlooMesh(const GlooSetup& setup, const Watch& watch);
  ~GlooMesh() { close(); }

  // Where this rank's payloads for the peer go, and short messages come from it; and the other way round.
  gloo::transport::Context& outgoing(int peer) const { return *contexts_[rank_ < peer ? 0 : 1]; }
  gloo::transport::Context& incoming(int peer) const { return *contexts_[rank_ < peer ? 1 : 0]; }
  // Closes all connections: from now on gloo neither reads nor writes memory of ours. From any thread.
  void close();

  // What the other side must say first: nobody else knows it.
  const std::string& my_secret(int peer) const { return my_secrets_.at(peer); }
  const std::string& secret_of(int peer) const { return secrets_.at(peer); }

 private:
  using Address = std::vector<char>;
  void connect_all(const std::map<int, std::array<Address, 2>>& addresses, const Watch& watch);

  const int rank_, size_;
  const BorrowedDevice device_;
  std::array<std::shared_ptr<gloo::transport::Context>, 2> contexts_;
  std::map<int, std::string> my_secrets_, secrets_;  // by peer
};

}  // namespace gradus::dist::internal
