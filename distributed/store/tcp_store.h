// Clients of a StoreServer, which hosts a job's key-value store. TcpStore: store requests. TcpMembership: a
// rank's permanent connection, by which the server knows that the rank is alive. LauncherLink: a launcher's.
#pragma once

#include <memory>
#include <string>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/store.h"
#include "gradus/distributed/health/membership.h"

namespace gradus::dist {

struct StoreAddress {
  // For clients that outlive attempts, such as launchers: the server accepts them in every attempt.
  static constexpr int kAnyAttempt = -1;

  std::string host;
  int port = 0;
  std::string job_id = "none";
  std::string token;  // the ranks' secret; the launchers' for a launcher or a client that outlives attempts
  int attempt = 0;    // which attempt of the job this rank belongs to
};

// Connects; retries until the server answers or the deadline passes. The store is thread-safe.
// Errors: ConnectionError with the address and the reason: the host name does not resolve, nobody listens,
// another program listens, the token is wrong, the store is another job's, or the attempt is over.
std::shared_ptr<Store> connect_tcp_store(const StoreAddress& address, const Deadline& deadline);
inline std::shared_ptr<Store> connect_tcp_store(const StoreAddress& address, Milliseconds timeout) {
  return connect_tcp_store(address, Deadline::after(timeout));
}

// Announces this rank, and receives other ranks' failures from then on. Closes at process exit.
// Errors: as for connect_tcp_store; ConnectionError if the rank is announced already or outside of the world.
std::shared_ptr<Membership> join_tcp(const StoreAddress& address, int rank, int world_size,
                                     const Deadline& deadline);
inline std::shared_ptr<Membership> join_tcp(const StoreAddress& address, int rank, int world_size,
                                            Milliseconds timeout) {
  return join_tcp(address, rank, world_size, Deadline::after(timeout));
}

// The connection of a launcher that does not host the store. The connection outlives attempts. When it
// breaks, the job's attempt fails with "the launcher of NAME died", or "is out of reach". Launchers also
// communicate through keys that begin with "launcher/", which outlive attempts (connect_tcp_store with
// kAnyAttempt), and ranks cannot read or write. Any thread may call; no function waits for an answer.
class LauncherLink {
 public:
  virtual ~LauncherLink() = default;
  // Ends the attempt for all its ranks, if it is still the current one and has not failed yet.
  virtual void report(int attempt, const Failure& failure) = 0;
  // Reports that a rank of the attempt has ended with exit code 0.
  virtual void rank_exited(int attempt, int rank) = 0;
  // Returns whether the attempt is known to have failed, and if so sets `failure`, unless null. A lost server
  // is a failure (kDied, rank -1).
  virtual bool failed(int attempt, Failure* failure = nullptr) const = 0;
  // Signs off: from now on the end of the connection is no failure.
  virtual void leave() = 0;
};
// `name` is for messages: "node 1 (host b)". address.attempt is not used.
// Errors: as for connect_tcp_store.
std::unique_ptr<LauncherLink> join_tcp_as_launcher(const StoreAddress& address, const std::string& name,
                                                   Milliseconds timeout);

// Returns a store whose calls throw the job's failure, and whose waits throw a PeerError once all other ranks
// have left. Its default timeout begins as that of `store`. Thread-safe if `store` is.
std::shared_ptr<Store> guarded_store(std::shared_ptr<Store> store, std::shared_ptr<Membership> membership);

}  // namespace gradus::dist
