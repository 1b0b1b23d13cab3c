// NodeRendezvous: the launchers of a job exchange keys of the TCP store that the first node's launcher hosts.
// Waits poll the store. Keys (A: attempt, I: announced number of a node, N: assigned number, R: rank):
//   launcher/arrivals, node/I, plan      joining; the plan assigns N and the first rank to each I
//   launcher/A/begin, ended/N, verdict   MASTER_PORT; "ok" or "failed"; the first node's Verdict
//   launcher/A/parts/R, result/R/PART    results of ranks, in parts of kPart bytes
#include "gradus/distributed/launch/internal/node_rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ranges>
#include <thread>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/store/socket.h"
#include "gradus/distributed/store/store_protocol.h"
#include "gradus/distributed/store/user_token.h"

namespace gradus::dist::internal {
namespace {

constexpr Milliseconds kPoll{50};
constexpr Milliseconds kConnect{60'000};
constexpr Milliseconds kOthersEnd{15'000};  // after a failure, for the other launchers to end their ranks
constexpr size_t kPart = 32 << 20;          // results travel in parts below the store's limit
// Keys with this prefix outlive attempts.
constexpr const char* kKeys = "launcher/";

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string host_and_port(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? concat(host, ':', port) : concat('[', host, "]:", port);
}

std::string node_key(int index) { return concat(kKeys, "node/", index); }

// Listens at the host's first possible address. Returns null and sets `why` and `taken` on failure.
FileDescriptor listen_on(const std::string& host, int port, std::string* why, bool* taken) {
  for (const SocketAddress& address : resolve(host, port, Deadline::after(kConnect), why))
    if (FileDescriptor socket = listen_at(address, why, taken)) return socket;
  return {};
}

}  // namespace

int free_port(const char* op, const std::string& host) {
  std::string why;
  bool taken = false;
  if (const FileDescriptor socket = listen_on(host, 0, &why, &taken)) return local_address(socket).port();
  throw ConnectionError(op, -1, "no port of ", host, " can be listened on: ", why);
}

// The announcement of a node.
struct NodeRendezvous::Node {
  int index = 0, nproc = 0, first_rank = -1;
  std::string host;

  std::string to_bytes() const {
    WireWriter w;
    w.put(index, nproc, first_rank, host);
    return w.release();
  }
  static Node from_bytes(std::string_view bytes) {
    WireReader r(bytes);
    Node n;
    r.get(n.index, n.nproc, n.first_rank, n.host);
    return n;
  }
};

NodeRendezvous::NodeRendezvous(const RendezvousOptions& options, int nproc, std::function<void()> check)
    : options_(options), check_(std::move(check)) {
  placement_.max_restarts = options.max_restarts;
  if (options.multi_node()) {
    join_nodes(nproc);
  } else {
    server_ =
        std::make_unique<StoreServer>(StoreServerOptions{.job_id = options.job_id, .token = options.token});
    placement_.world_size = nproc;
    placement_.master_addr = options.host;
    if (options.port) check_free(options.port);
    placement_.store = concat("127.0.0.1:", server_->port());
    placement_.token = options.token;
  }
}

NodeRendezvous::~NodeRendezvous() {
  if (link_) link_->leave();
}

void NodeRendezvous::begin_attempt(int attempt) {
  attempt_ = attempt;
  if (server_) {
    if (attempt > 0) server_->begin_attempt(attempt);
    placement_.master_port = !options_.multi_node() && options_.port
                                 ? options_.port
                                 : free_port(options_.op, placement_.master_addr);
    if (store_) store_->set(key("begin"), std::to_string(placement_.master_port));
  } else {
    placement_.master_port = std::stoi(wait_for(key("begin"), options_.join_timeout));
  }
}

void NodeRendezvous::report(const Failure& failure) {
  if (server_) server_->report(failure);
  if (link_) link_->report(attempt_, failure);
}

void NodeRendezvous::rank_exited(int rank) {
  if (server_) server_->rank_exited(rank);
  if (link_) link_->rank_exited(attempt_, rank);
}

bool NodeRendezvous::failed(Failure* failure) const {
  return server_ ? server_->failed(failure) : link_->failed(attempt_, failure);
}

Verdict NodeRendezvous::end_attempt(bool ok, std::vector<std::string>* results) {
  const bool restart = attempt_ < placement_.max_restarts;
  if (!store_) return ok ? Verdict::kDone : restart ? Verdict::kRestart : Verdict::kFailed;
  try {
    if (ok) put_results(*results);
    store_->set(key(concat("ended/", placement_.node)), ok ? "ok" : "failed");
    const Verdict verdict = server_ ? decide(restart) : wait_for_verdict();
    if (verdict == Verdict::kDone) {
      *results = get_results();
      // This launcher hosts the store: waits until the others have left.
      const Deadline patience = Deadline::after(kOthersEnd);
      while (server_ && server_->launchers() > 0 && !patience.passed()) std::this_thread::sleep_for(kPoll);
    }
    return verdict;
  } catch (const DistributedError&) {
    if (!failed(nullptr)) throw;
    return Verdict::kFailed;  // the attempt failed and another launcher is gone
  }
}

// Throws unless the user's MASTER_PORT can be listened on.
void NodeRendezvous::check_free(int port) const {
  std::string why;
  bool taken = false;
  if (listen_on(options_.host, port, &why, &taken)) return;
  if (taken)
    throw ConnectionError(
        options_.op, -1, "port ", port, " of ", options_.host,
        " is taken by another process; leave the master port out, and a free one is chosen");
  throw ConnectionError(options_.op, -1, "cannot listen on ", options_.host, ':', port, ": ", why);
}

std::string NodeRendezvous::key(const std::string& name) const { return concat(kKeys, attempt_, '/', name); }

std::string NodeRendezvous::wait_for(const std::string& key, Milliseconds limit) {
  const Deadline deadline = Deadline::after(limit);
  while (!store_->check({key})) {
    check_();
    // The next attempt cannot have failed yet, so a failure means that the first launcher is gone.
    if (link_ && link_->failed(attempt_ + 1)) throw_gone();
    if (deadline.passed())
      throw TimeoutError(options_.op, -1, "another node's launcher did not answer within ", limit.count(),
                         " ms");
    std::this_thread::sleep_for(kPoll);
  }
  return store_->get(key, Milliseconds(10'000));
}

void NodeRendezvous::throw_gone() const {
  throw ConnectionError(options_.op, -1, "the launcher of the first node, at ", placement_.store,
                        ", is gone");
}

// ---- finding each other ----

bool NodeRendezvous::is_first() {
  if (options_.node_rank >= 0) return options_.node_rank == 0;
  if (options_.first_rank >= 0) return options_.first_rank == 0;
  // Nodes numbered in order of arrival: the first node is the machine that has the address `host`.
  std::string why;
  bool taken = false;
  return bool(listen_on(options_.host, 0, &why, &taken));
}

// Joins the job of several nodes: hosts or finds the store, registers this node, and sets placement_.
void NodeRendezvous::join_nodes(int nproc) {
  std::string why;
  const std::vector<SocketAddress> addresses =
      resolve(options_.host, options_.port, Deadline::after(kConnect), &why);
  if (addresses.empty())
    throw ConnectionError(options_.op, -1, "the first node's address '", options_.host,
                          "' is unknown: ", why);
  if (options_.token.empty())
    options_.token = user_token(options_.op, addresses[0].is_loopback() ? "" : options_.host).token;
  placement_.token = rank_token(options_.token);
  if (is_first()) start_server(addresses[0]);
  const StoreAddress address{.host = options_.host,
                             .port = options_.port,
                             .job_id = options_.job_id,
                             .token = options_.token,
                             .attempt = StoreAddress::kAnyAttempt};
  const std::string name = concat("node ", options_.node_rank >= 0 ? concat(options_.node_rank, ' ') : "",
                                  "(host ", host_name(), ", process ", getpid(), ")");
  store_ = connect_with_retries(address);
  if (!server_) link_ = join_tcp_as_launcher(address, name, kConnect);
  placement_.store = host_and_port(options_.host, options_.port);
  register_node(nproc);
  if (server_) store_->set(concat(kKeys, "plan"), make_plan());
  read_plan(wait_for(concat(kKeys, "plan"), options_.join_timeout));
}

// Hosts the store. If nodes are numbered in order of arrival, only one of a machine's launchers can listen.
void NodeRendezvous::start_server(const SocketAddress& address) {
  const char* all = address.storage.ss_family == AF_INET6 ? "::" : "0.0.0.0";
  try {
    server_ =
        std::make_unique<StoreServer>(StoreServerOptions{.host = address.is_loopback() ? options_.host : all,
                                                         .port = options_.port,
                                                         .job_id = options_.job_id,
                                                         .token = placement_.token,
                                                         .launcher_token = options_.token});
  } catch (const ConnectionError&) {
    if (options_.node_rank >= 0 || options_.first_rank >= 0) throw;
  }
}

std::shared_ptr<Store> NodeRendezvous::connect_with_retries(const StoreAddress& address) {
  // Tries for a short time each, so that a signal ends the wait.
  for (const Deadline deadline = Deadline::after(options_.join_timeout);;) {
    check_();
    try {
      return connect_tcp_store(address, deadline.within(Milliseconds(1'000)));
    } catch (const ConnectionError& e) {
      // Waiting does not help with a wrong token or name.
      if (e.reason() != ConnectionError::Reason::kUnreachable || deadline.passed()) throw;
    }
  }
}

// Publishes this node's number, ranks and host, and sets index_.
void NodeRendezvous::register_node(int nproc) {
  Node node{
      .index = options_.node_rank, .nproc = nproc, .first_rank = options_.first_rank, .host = host_name()};
  // The node that hosts the store is the first. The others are numbered in order of arrival.
  if (node.index < 0) node.index = server_ ? 0 : int(store_->add(concat(kKeys, "arrivals"), 1));
  // The process id makes the announcements of two launchers differ.
  const std::string local = node.to_bytes() + std::to_string(getpid());
  if (store_->compare_set(node_key(node.index), "", local) != local)
    throw ValueError(options_.op, "two launchers say that they are node ", node.index);
  index_ = node.index;
}

// ---- the first node ----

// Waits until world_size ranks or max_nodes nodes are announced, or until join_window after min_nodes nodes.
// Returns the plan as bytes for read_plan.
std::string NodeRendezvous::make_plan() {
  const Deadline deadline = Deadline::after(options_.join_timeout);
  std::optional<Deadline> join_end;
  std::vector<Node> nodes;
  for (;;) {
    nodes.clear();
    for (int i = 0; i < options_.max_nodes; ++i)
      if (store_->check({node_key(i)})) {
        nodes.push_back(Node::from_bytes(store_->get(node_key(i), kConnect)));
        nodes.back().index = i;
      }
    int ranks = 0;
    for (const Node& n : nodes) ranks += n.nproc;
    if (options_.world_size ? ranks >= options_.world_size : int(nodes.size()) == options_.max_nodes) break;
    if (!options_.world_size && int(nodes.size()) >= options_.min_nodes) {
      if (!join_end) join_end = Deadline::after(options_.join_window);
      if (join_end->passed()) break;
    }
    check_();
    if (deadline.passed()) throw_missing(nodes, ranks);
    std::this_thread::sleep_for(kPoll);
  }
  if (options_.world_size)
    std::sort(nodes.begin(), nodes.end(),
              [](const Node& a, const Node& b) { return a.first_rank < b.first_rank; });
  std::vector<std::pair<int, int>> plan;  // per node: its announced index, its first rank
  int rank = 0;
  for (const Node& n : nodes) {
    if (options_.world_size && n.first_rank != rank)
      throw ValueError(options_.op, "the machines' ranks do not follow each other: host ", n.host,
                       " begins with rank ", n.first_rank, ", but ", rank, " comes next");
    plan.emplace_back(n.index, rank);
    rank += n.nproc;
  }
  if (options_.world_size && rank != options_.world_size)
    throw ValueError(options_.op, "the machines have ", rank, " ranks together, but world_size is ",
                     options_.world_size);
  WireWriter w;
  w.put(plan, rank, options_.max_restarts, options_.local_addr.empty() ? options_.host : options_.local_addr);
  return w.release();
}

void NodeRendezvous::throw_missing(const std::vector<Node>& nodes, int ranks) const {
  const auto seconds = options_.join_timeout.count() / 1000.0;
  if (options_.world_size)
    throw TimeoutError(options_.op, -1, "only ", ranks, " of ", options_.world_size, " ranks came within ",
                       seconds, " s, on ", nodes.size(), " machines", refusals());
  std::string missing;
  for (int i = 0; i < options_.max_nodes; ++i)
    if (std::none_of(nodes.begin(), nodes.end(), [&](const Node& n) { return n.index == i; }))
      missing += concat(missing.empty() ? "" : ", ", i);
  throw TimeoutError(options_.op, -1, "only ", nodes.size(), " of ", options_.min_nodes,
                     " nodes came within ", seconds, " s; missing: node ", missing, refusals());
}
std::string NodeRendezvous::refusals() const { return server_ ? server_->refusals() : ""; }

// Waits until all nodes have ended the attempt or have failed; publishes the verdict. `restart`: allowed.
Verdict NodeRendezvous::decide(bool restart) {
  // Without a failure, ranks of other nodes may run for long. After a failure, launchers answer soon.
  std::optional<Deadline> deadline;
  // exited, all: whether a node, or every node, has ended the attempt, with this status ("": any status).
  const auto exited = [&](int node, const char* status) {
    const std::string name = key(concat("ended/", node));
    return store_->check({name}) && (!*status || store_->get(name, kConnect) == status);
  };
  const auto all = [&](const char* status) {
    return std::ranges::all_of(std::views::iota(0, placement_.nodes),
                               [&](int node) { return exited(node, status); });
  };
  const std::optional<Deadline> last_end = exit_deadline();
  while (!all("")) {
    if (failed(nullptr) && !deadline) deadline = Deadline::after(kOthersEnd);
    // A launcher that is gone was interrupted or died, so there is nothing to wait for.
    if (server_->launchers() < placement_.nodes - 1 || (deadline && deadline->passed())) break;
    if (last_end && last_end->passed()) {
      const auto missing = [&](int node) { return !exited(node, ""); };
      report_straggler(*std::ranges::find_if(std::views::iota(0, placement_.nodes), missing));
    }
    check_();
    std::this_thread::sleep_for(kPoll);
  }
  const Verdict verdict = all("ok")            ? Verdict::kDone
                          : restart && all("") ? Verdict::kRestart
                                               : Verdict::kFailed;
  store_->set(key("verdict"), std::to_string(int(verdict)));
  return verdict;
}

// Returns the time limit of other nodes once this node's ranks have ended; none after a failure.
std::optional<Deadline> NodeRendezvous::exit_deadline() const {
  if (failed(nullptr) || options_.exit_timeout == Milliseconds(0)) return {};
  return Deadline::after(options_.exit_timeout);
}
// Reports a node whose ranks go on for too long. The launchers then end these ranks.
void NodeRendezvous::report_straggler(int node) {
  if (failed(nullptr)) return;
  report({.kind = Failure::Kind::kTimeout,
          .text = concat("the ranks of node ", node, " have not ended within ", options_.exit_timeout.count(),
                         " ms after those of node ", placement_.node, " had")});
}

// ---- the others ----

void NodeRendezvous::read_plan(const std::string& bytes) {
  std::vector<std::pair<int, int>> plan;
  WireReader r(bytes);
  r.get(plan, placement_.world_size, placement_.max_restarts, placement_.master_addr);
  placement_.nodes = int(plan.size());
  const auto local = std::find_if(plan.begin(), plan.end(), [&](const auto& p) { return p.first == index_; });
  if (local == plan.end())
    throw ConnectionError(options_.op, -1, "the job has begun without this node, on ", placement_.nodes,
                          " others");
  placement_.node = int(local - plan.begin());
  placement_.first_rank = local->second;
}

Verdict NodeRendezvous::wait_for_verdict() {
  std::optional<Deadline> deadline;
  const std::optional<Deadline> last_end = exit_deadline();
  while (!store_->check({key("verdict")})) {
    check_();
    if (last_end && last_end->passed()) report_straggler(0);
    if (failed(nullptr) && !deadline) deadline = Deadline::after(2 * kOthersEnd);
    if (deadline && deadline->passed()) return Verdict::kFailed;
    std::this_thread::sleep_for(kPoll);
  }
  return Verdict(std::stoi(store_->get(key("verdict"), kConnect)));
}

// ---- results ----

void NodeRendezvous::put_results(const std::vector<std::string>& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    const size_t parts = results[i].size() / kPart + 1;
    for (size_t p = 0; p < parts; ++p)
      store_->set(key(concat("result/", placement_.first_rank + int(i), '/', p)),
                  results[i].substr(p * kPart, kPart));
    store_->set(key(concat("parts/", placement_.first_rank + int(i))), std::to_string(parts));
  }
  has_results_ = !results.empty();
}

std::vector<std::string> NodeRendezvous::get_results() {
  std::vector<std::string> results(has_results_ ? size_t(placement_.world_size) : 0);
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const int parts = std::stoi(store_->get(key(concat("parts/", rank)), kConnect));
    for (int p = 0; p < parts; ++p)
      results[rank] += store_->get(key(concat("result/", rank, '/', p)), kConnect);
  }
  return results;
}

}  // namespace gradus::dist::internal
