// TcpStore: the client of a StoreServer; TcpMembership: a rank's standing connection to it;
// LauncherLink: a launcher's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/membership.h"
#include "gradus/distributed/base/store.h"

namespace gradus::dist {

struct StoreAddress {
  // For clients that outlive attempts (launchers): no attempt is over for them.
  static constexpr int kAnyAttempt = -1;

  std::string host;
  int port = 0;
  int further_ports = 0;  // the server may be at one of the following ports when another process holds `port`
  std::string job_id = "none";
  std::string token;
  int attempt = 0;  // which attempt of the job this rank belongs to
  // Called between tries to connect; what it throws ends them.
  std::function<void()> between_tries = {};
};

// Connects, trying again until the server is there or the time is over. Safe to use from several threads.
// Errors: ConnectionError that says what was tried and why it failed: a host name that does not resolve,
// nobody there, somebody else there, a wrong token, another job, an attempt that is over.
std::shared_ptr<Store> connect_tcp_store(const StoreAddress& address, const Deadline& deadline);
inline std::shared_ptr<Store> connect_tcp_store(const StoreAddress& address, Milliseconds timeout) {
  return connect_tcp_store(address, Deadline::after(timeout));
}

// Announces this rank, and listens for failures of others from then on. Its connection closes when
// the process ends.
// Errors: as connect_tcp_store; ConnectionError when the rank is announced already or outside of the world.
std::shared_ptr<Membership> join_tcp(const StoreAddress& address, int rank, int world_size,
                                     const Deadline& deadline);
inline std::shared_ptr<Membership> join_tcp(const StoreAddress& address, int rank, int world_size,
                                            Milliseconds timeout) {
  return join_tcp(address, rank, world_size, Deadline::after(timeout));
}

// The standing connection of a launcher that does not host the store. It outlives attempts. When it breaks,
// the job's attempt fails with "the launcher of NAME died". Launchers tell each other the rest through keys
// that begin with "launcher/", which outlive attempts too (connect_tcp_store with kAnyAttempt).
class LauncherLink {
 public:
  virtual ~LauncherLink() = default;
  // Ends the attempt, if it is still the current one, for all its ranks, unless an earlier report did.
  virtual void report(int attempt, const Failure& failure) = 0;
  // A rank of it has ended with exit code 0.
  virtual void ended(int attempt, int rank) = 0;
  // Whether that attempt has failed, as far as is known here; also when the server is gone (kDied, rank -1).
  virtual bool failed(int attempt, Failure* failure = nullptr) const = 0;
  // The connection's end is no failure from now on.
  virtual void leave() = 0;
};
// `name` is for messages: "node 1 (host b)". address.attempt is not used.
// Errors: as connect_tcp_store.
std::unique_ptr<LauncherLink> join_tcp_as_launcher(const StoreAddress& address, const std::string& name,
                                                   Milliseconds timeout);

// A store whose waits end with the job's failure, and with a PeerError once all other ranks have left.
std::shared_ptr<Store> guarded_store(std::shared_ptr<Store> store, std::shared_ptr<Membership> membership);

}  // namespace gradus::dist
