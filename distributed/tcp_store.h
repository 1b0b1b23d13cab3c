// TcpStore: the client of a StoreServer, and TcpMembership: a rank's standing connection to it.
#pragma once

#include <memory>
#include <string>

#include "gradus/distributed/membership.h"
#include "gradus/distributed/store.h"

namespace gradus::dist {

struct StoreAddress {
  std::string host;
  int port = 0;
  int further_ports = 0;  // the server may be at one of the following ports when another process holds `port`
  std::string job_id = "none";
  std::string token;
  int attempt = 0;  // which attempt of the job this rank belongs to
};

// Connects, trying again until the server is there or the time is over. Safe to use from several threads.
// Errors: ConnectionError that says what was tried and why it failed: a host name that does not resolve,
// nobody there, somebody else there, a wrong token, another job.
std::shared_ptr<Store> connect_tcp_store(const StoreAddress& address, Milliseconds timeout);

// Announces this rank, and listens for failures of others from then on. Its connection closes when the
// process ends. Errors: as connect_tcp_store; ConnectionError when the rank is announced already or outside
// of the world.
std::shared_ptr<Membership> join_tcp(const StoreAddress& address, int rank, int world_size,
                                     Milliseconds timeout);

// A store whose waits end with the job's failure.
std::shared_ptr<Store> guarded_store(std::shared_ptr<Store> store, std::shared_ptr<Membership> membership);

}  // namespace gradus::dist
