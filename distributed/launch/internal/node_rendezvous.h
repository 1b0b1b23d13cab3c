// NodeRendezvous: lets the launchers of a job's machines (nodes) agree on ranks, on the first failure, and
// on what comes after it. The first node's launcher hosts the job's store. With one machine there is
// nothing to agree on.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/store/socket.h"
#include "gradus/distributed/store/store_server.h"
#include "gradus/distributed/store/tcp_store.h"

namespace gradus::dist::internal {

struct RendezvousOptions {
  const char* op = "launcher";  // for errors
  int min_nodes = 1, max_nodes = 1;
  // How this node says which one it is: by its number, or by its first rank and the job's number of ranks
  // (MegEngine's way). With neither, nodes are numbered in order of arrival, and the one that can listen at
  // `host` is the first.
  int node_rank = -1;
  int first_rank = -1, world_size = 0;
  // Where the first node's launcher hosts the store. Several nodes need the port too.
  std::string host = "127.0.0.1";
  int port = 0;
  std::string local_addr;  // on the first node: its address as the others reach it; "": host
  std::string job_id = "none", token;
  Milliseconds join_timeout{600'000};
  Milliseconds last_call{30'000};  // how long to wait for more than min_nodes
  int max_restarts = 0;            // the first node's value counts
  // How long ranks may go on after others have ended in order; 0: forever.
  Milliseconds exit_timeout{600'000};

  bool several() const { return max_nodes > 1; }
};

// This node's place in the job.
struct NodePlacement {
  int node = 0, nodes = 1;
  int first_rank = 0, world_size = 1;
  std::string master_addr;  // of workers
  int master_port = 0;      // of workers; another one for every attempt
  std::string store;        // "host:port"
  std::string token;        // the ranks' secret
  int max_restarts = 0;
};

enum class Verdict { kDone, kRestart, kOver };

class NodeRendezvous {
 public:
  // Finds the other nodes. Every wait of this class calls `check` now and then, which may throw to end the wait.
  // Errors: ValueError; ConnectionError for a taken port, or an unreachable first node; TimeoutError naming
  // the nodes that did not come.
  NodeRendezvous(const RendezvousOptions& options, int nproc, std::function<void()> check);
  ~NodeRendezvous();

  const NodePlacement& placement() const { return placement_; }
  // Begins an attempt on all nodes, with another MASTER_PORT for the ranks.
  void begin_attempt(int attempt);
  // Ends the attempt for all ranks of all nodes, unless it has failed already.
  void report(const Failure& failure);
  // Notes that a rank of this node has ended with exit code 0.
  void ended(int rank);
  // Returns whether the attempt has failed, and sets `failure` to the first failure.
  bool failed(Failure* failure = nullptr) const;
  // Notes that this node's ranks have ended: with `ok` in order and with these results. Returns what all
  // nodes do next. With kDone, `results` becomes the results of all ranks.
  Verdict end_attempt(bool ok, std::vector<std::string>* results);

 private:
  struct Node;
  std::string key(const std::string& name) const;
  std::string wait_for(const std::string& key, Milliseconds limit);
  void check_free(int port) const;
  [[noreturn]] void throw_gone() const;
  bool is_first();
  void meet(int nproc);
  void host(const SocketAddress& address);
  std::shared_ptr<Store> connect_patiently(const StoreAddress& address);
  void announce(int nproc);
  std::string make_plan();
  [[noreturn]] void throw_missing(const std::vector<Node>& nodes, int ranks) const;
  std::string refusals() const;
  Verdict decide(bool restart);
  std::optional<Deadline> exit_deadline() const;
  void report_straggler(int node);
  void read_plan(const std::string& bytes);
  Verdict wait_for_verdict();
  void put_results(const std::vector<std::string>& results);
  std::vector<std::string> get_results();

  RendezvousOptions options_;
  const std::function<void()> check_;
  NodePlacement placement_;
  int attempt_ = 0;
  std::unique_ptr<StoreServer> server_;  // on the first node
  std::unique_ptr<LauncherLink> link_;   // on the others
  std::shared_ptr<Store> store_;         // with several nodes
  int index_ = 0;                        // that this node has announced
  bool has_results_ = false;
};

// Returns a port of `host` that was free just now.
int free_port(const char* op, const std::string& host);

}  // namespace gradus::dist::internal
