// NodeRendezvous: coordinates the launchers of a job, one per machine (node), as the rendezvous of torchrun does.
// The first node's launcher hosts the job's TCP store. Through the store the launchers announce their numbers of
// ranks, and the first launcher assigns the first rank of each node. At the end of an attempt each launcher
// publishes whether its ranks succeeded, and the first launcher decides for all nodes whether the job restarts.
// With one node, the store serves only the ranks.
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
  const char* op = "launcher";       // name in errors
  int min_nodes = 1, max_nodes = 1;  // as --nnodes=MIN:MAX of torchrun
  // Identify this node by its number, or (as MegEngine) by its first rank and the job's number of ranks. With
  // neither, nodes are numbered in order of arrival, and the first node is the one that can listen at `host`.
  int node_rank = -1;
  int first_rank = -1, world_size = 0;
  // The address at which the first node's launcher hosts the store. With several nodes `port` is required. With
  // one node the store has a free port, and a `port` other than 0 becomes the ranks' MASTER_PORT.
  std::string host = "127.0.0.1";
  int port = 0;
  std::string local_addr;  // first node: its address as seen by the other nodes, for MASTER_ADDR; "": host
  // job_id: launchers of another job are refused. token: the launchers' secret; with several nodes, "" stands for
  // the token of this user (user_token.h).
  std::string job_id = "none", token;
  Milliseconds join_timeout{600'000};
  Milliseconds join_window{30'000};  // maximal wait for further nodes once min_nodes have arrived
  int max_restarts = 0;              // all nodes use the first node's value
  // Maximal time that ranks may run after the ranks of another node have ended with exit code 0; 0: no limit.
  Milliseconds exit_timeout{600'000};

  bool multi_node() const { return max_nodes > 1; }
};

// The agreed numbers of this node and of the job, from which the launcher sets the environment of its ranks.
struct NodePlacement {
  int node = 0, nodes = 1;             // this node's number in [0, nodes)
  int first_rank = 0, world_size = 1;  // the lowest rank of this node; number of ranks of all nodes
  std::string master_addr;             // MASTER_ADDR
  int master_port = 0;                 // MASTER_PORT; a free port for each attempt, unless the user named it
  std::string store;                   // "host:port"
  std::string token;                   // the ranks' secret for the store
  int max_restarts = 0;
};

// What all nodes do after an attempt.
enum class Verdict {
  kDone,     // all ranks have ended with exit code 0
  kRestart,  // the attempt has failed and restarts are left: all nodes begin the next attempt
  kFailed    // the job has failed
};

// An attempt is one run of all ranks. Order of calls: the constructor; then for each attempt begin_attempt, any of
// report, rank_exited and failed while the ranks run, and end_attempt. Not thread-safe.
class NodeRendezvous {
 public:
  // Waits for the other nodes. `nproc` is the number of ranks of this node. Functions of this class that wait for
  // other nodes call `check` repeatedly; an exception of `check` ends the wait and is passed on.
  // Errors: ValueError for nodes that contradict each other; ConnectionError for a port that is taken, a first
  // node that cannot be reached, or a job that has begun without this node; TimeoutError naming the missing nodes.
  NodeRendezvous(const RendezvousOptions& options, int nproc, std::function<void()> check);
  ~NodeRendezvous();

  const NodePlacement& placement() const { return placement_; }
  // Begins an attempt (0, 1, ...). Nodes other than the first wait for the first node's MASTER_PORT.
  // Errors: ConnectionError if the first node's launcher is gone; TimeoutError after join_timeout.
  void begin_attempt(int attempt);
  // Fails the attempt: all ranks of all nodes receive `failure`, and failed() soon returns true on all nodes.
  // Does nothing if the attempt has failed already. Does not wait.
  void report(const Failure& failure);
  // Tells the store that a rank (numbered in the whole job) of this node has ended with exit code 0.
  void rank_exited(int rank);
  // Returns whether the attempt has failed on any node, and if so sets `failure` to the failure that was reported
  // first. Does not wait.
  bool failed(Failure* failure = nullptr) const;
  // Ends the attempt after all ranks of this node have ended; `ok`: all of them with exit code 0. Waits for the
  // other nodes and returns the verdict, which is the same on all nodes unless a launcher is gone. With `ok`,
  // `results` are the results of this node's ranks in rank order, or empty. With kDone, `results` becomes the
  // results of all ranks.
  // Errors: DistributedError if the store fails in an attempt that has not failed.
  Verdict end_attempt(bool ok, std::vector<std::string>* results);

 private:
  struct Node;
  std::string key(const std::string& name) const;
  std::string wait_for(const std::string& key, Milliseconds limit);
  void check_free(int port) const;
  [[noreturn]] void throw_gone() const;
  bool is_first();
  void join_nodes(int nproc);
  void start_server(const SocketAddress& address);
  std::shared_ptr<Store> connect_with_retries(const StoreAddress& address);
  void register_node(int nproc);
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
  int index_ = 0;                        // the number under which this node has announced itself
  bool has_results_ = false;
};

// Returns a TCP port of `host` that is free at the time of the call.
// Errors: ConnectionError from `op` if no port can be listened on.
int free_port(const char* op, const std::string& host);

}  // namespace gradus::dist::internal
