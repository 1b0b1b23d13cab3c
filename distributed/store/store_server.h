// StoreServer: hosts a job's store on a TCP port, and knows which ranks are alive: each keeps a connection to
// it. One thread; it answers what is valid, refuses the rest, and outlives any client.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/error.h"

namespace gradus::dist {

struct StoreServerOptions {
  std::string host = "127.0.0.1";  // address to listen on; "0.0.0.0" for several hosts, which needs a token
  int port = 0;                    // 0: any free one
  int further_ports = 0;           // how many following ports to try when it is taken
  std::string job_id = "none";     // clients must give the same
  std::string token;  // the job's secret: clients prove that they know it (HMAC-SHA256 of a challenge)
  // Where ranks know it by its port alone: called when two processes come as the same rank while ranks are
  // meeting, or shortly after. Then two jobs may have met, and the attempt fails with what it is given.
  std::function<void(const Failure&)> two_jobs_met = {};
};

class StoreServer {
 public:
  // Starts to listen.
  // Errors: ConnectionError for a taken port or a bad address; ValueError for no token off loopback.
  explicit StoreServer(const StoreServerOptions& options);
  ~StoreServer();  // ends all connections

  int port() const;
  // Ends the job's current attempt for all its ranks: they get this failure. For the launcher, which knows
  // better than a broken connection why a rank ended (the server gives it half a second to say so before it
  // reports a broken connection).
  void report(const Failure& failure);
  // For the launcher: the rank's process has ended with exit code 0. The others learn at once that a rank has
  // ended before it joined the job.
  void ended(int rank);
  // What a rank or a launcher reported first, if anything.
  bool failed(Failure* failure = nullptr) const;
  // "; somebody came with another token" and the like, for who waits for ranks that do not come; else "".
  std::string refusals() const;
  // Launchers of other nodes that are connected and have not left.
  int launchers() const;
  // Forgets keys, failure and ranks: the next attempt begins. Connections of the earlier attempt are
  // refused from now on.
  void begin_attempt(int attempt);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradus::dist
