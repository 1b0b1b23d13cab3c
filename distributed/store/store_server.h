// StoreServer: hosts a job's key-value store on a TCP port. Each rank keeps a connection open, so the server
// knows which ranks are alive. The server has one thread, which answers valid requests and refuses the rest.
// Any thread may call. An attempt is one run of all ranks of the job; a restart is a new attempt.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/store/internal/store_service.h"

namespace gradus::dist {

struct StoreServerOptions {
  std::string host = "127.0.0.1";  // where to listen; "0.0.0.0" for several hosts (needs a token)
  int port = 0;                    // 0: any free one
  std::string job_id = "none";     // clients with another id are refused
  std::string token;  // the job's secret: clients prove that they know it (HMAC-SHA256 of a challenge)
  // The secret of launchers on other nodes, which ranks do not have. Clients that join as a launcher, or that
  // outlive attempts, prove that they know the secret. "": such clients are refused.
  std::string launcher_token;
  // Ranks know the server by its port alone. If two processes join as the same rank while ranks join, or
  // shortly after, two jobs may have met, and the attempt fails.
  bool known_by_port_alone = false;
};

class StoreServer {
 public:
  // Starts to listen.
  // Errors: ConnectionError for a taken port, a bad address or no descriptors left; ValueError for a port
  // beyond 65535, and without a token, unless `host` is a loopback address.
  explicit StoreServer(const StoreServerOptions& options);
  ~StoreServer();  // ends all connections
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const { return port_; }
  // Fails the current attempt: all its ranks receive `failure`. For the launcher, which knows why a rank
  // ended. The server waits half a second for this call before it reports a rank's broken connection itself.
  void report(const Failure& failure);
  // Records that the rank's process has ended with exit code 0. For the launcher. If the rank had not joined
  // the job, the other ranks are notified at once.
  void rank_exited(int rank);
  // Returns whether the attempt has failed, and if so sets `failure`, unless null, to the one reported first.
  bool failed(Failure* failure = nullptr) const;
  // Returns why clients were refused (token, job id), as the end of the error of a wait for ranks, or "".
  std::string refusals() const;
  // Returns how many launchers of other nodes are connected and have not left.
  int launchers() const;
  // Begins the next attempt: removes keys (except the launchers'), failure and ranks, and closes the
  // connections of the earlier attempt, which are refused from then on.
  void begin_attempt(int attempt);

 private:
  using Id = internal::StoreService::Id;
  void run();
  int time_to_wait();
  void accept_some();
  void refuse_one();
  void serve(Id id, uint32_t events);
  void read(Id id, uint32_t events);
  bool receive(Id id, ssize_t n);
  void drain_and_end(Id id, int error);
  void flush();
  void write(Id id);
  void end(Id id, int error);
  bool watch(int operation, const internal::FileDescriptor& socket, Id id, uint32_t events);
  void wake();
  void clear_wake();

  internal::FileDescriptor listener_, wake_, epoll_;
  internal::FileDescriptor reserve_descriptor_;  // closed to refuse a client when no descriptors are left
  const int port_;
  mutable std::mutex mutex_;  // guards service_, sockets_ and receive_buffer_
  internal::StoreService service_;
  std::map<Id, internal::FileDescriptor> sockets_;
  char receive_buffer_[64 << 10];
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace gradus::dist
