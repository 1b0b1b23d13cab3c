// GlooMesh: gloo's connections from this rank to all others.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <map>
#include <memory>
#include <string>

#include "gradus/distributed/gloo_transport.h"

namespace gradus::dist::internal {

// What gloo says, without the place in its source.
std::string gloo_text(const std::exception& error);

class GlooMesh {
 public:
  // Connects with every other rank. Errors: as make_gloo_transport.
  GlooMesh(const GlooSetup& setup, const Watch& watch);
  ~GlooMesh() { close(); }

  gloo::transport::Context& context() const { return *context_; }
  // Closes all connections: from now on gloo neither reads nor writes memory of ours. From any thread.
  void close();

  // What the other side must say first: nobody else knows it.
  const std::string& my_secret(int peer) const { return my_secrets_.at(peer); }
  const std::string& secret_of(int peer) const { return secrets_.at(peer); }

 private:
  void connect_all(const std::map<int, std::vector<char>>& addresses, const Watch& watch);

  const int rank_, size_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::map<int, std::string> my_secrets_, secrets_;  // by peer
};

}  // namespace gradus::dist::internal
