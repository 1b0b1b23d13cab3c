#include "gradus/distributed/group/internal/join_job.h"
#include "gradus/distributed/store/memory_store.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <thread>

#include "gradus/distributed/base/rank_error.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/internal/core_share.h"
#include "gradus/distributed/health/roster.h"
#include "gradus/distributed/store/file_store.h"
#include "gradus/distributed/store/port_note.h"
#include "gradus/distributed/store/private_folder.h"
#include "gradus/distributed/store/socket.h"
#include "gradus/distributed/store/store_server.h"
#include "gradus/distributed/store/tcp_store.h"
#include "gradus/distributed/store/torchrun_store.h"
#include "gradus/distributed/store/user_token.h"
#include "gradus/distributed/transport/gloo_transport.h"
#include "gradus/distributed/transport/hybrid_transport.h"
#include "gradus/distributed/transport/ring_transport.h"
#include "gradus/tensor/runtime/environment.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kOp = "init_process_group";
constexpr int kFurtherPorts = 15;
// Ranks that know each other by a port alone exchange nothing for this long. If a second process comes as the
// same rank in this time, two jobs have met.
constexpr Milliseconds kSettle{500};
// How often a wait for ranks looks whether one has left.
constexpr Milliseconds kLookAgain{200};

// Note [Whose store it is]
// Ranks of different jobs must not meet. A launcher of Gradus hosts the store and tells its address to its
// own ranks. torchrun hosts a store of its own. There rank 0 opens the job's store at a port that the system
// picks, under a random name. Rank 0 passes port and name through torchrun's store, which only ranks of that
// torchrun know. Under a scheduler, the job's name tells its store from others, so the store may be at any
// of a few ports.
// All other ranks know the store by a port alone. They use exactly that port or fail. If two processes come
// as one rank while ranks still meet, or shortly after, nothing tells which job the other ranks belong to, so
// both jobs end. Ranks that come after rank 0 has ended learn of this from a note at the port.

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// A rank's place in the job, and how the rank finds the others.
struct Place {
  int rank = -1, size = -1;
  int local_rank = -1, local_size = -1;  // -1: not said
  StoreAddress store;                    // no host: agreed on through `meeting`
  bool hosted_by_launcher = false;
  bool by_torchrun = false;  // `store` is torchrun's own, which says where the job's store is
  std::shared_ptr<Store> meeting;
  std::optional<PortNote> note;  // if ranks know each other by a port alone
  std::string file;              // of the store `meeting`
  std::string token_file;        // where the token is from; "": the token was given

  // Returns the store's host; "" for this host.
  std::string remote_host() const { return is_loopback(store.host) ? "" : store.host; }
  bool is_known_by_port_alone() const {
    return !meeting && !hosted_by_launcher && !by_torchrun && !store.further_ports && store.job_id == "none";
  }
};

// Errors: MismatchError if two jobs have met at the port just now.
void check_note(const std::optional<PortNote>& note) {
  const std::string text = note ? note->text() : "";
  if (!text.empty())
    throw MismatchError(kOp, -1, text, "; this port serves again ", PortNote::kLife.count() / 1000,
                        " s after that");
}

// ---- what the options and the environment say

int to_number(const std::string& text, const char* what, int low, int high) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < low || number > high)
    throw ValueError(kOp, what, " must be a number from ", low, " to ", high, ", given '", text, "'");
  return number;
}

// Reads "host:port" or "[::1]:port".
void set_address(StoreAddress& address, const std::string& text, const char* what) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0)
    throw ValueError(kOp, what, " must be host:port, given '", text, "'");
  address.host = text.substr(0, colon);
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']')
    address.host = address.host.substr(1, address.host.size() - 2);
  address.port = to_number(text.substr(colon + 1), concat(what, "'s port").c_str(), 1, 65535);
}

void read_env(const InitOptions& options, Place& place) {
  const auto environment = read_environment();
  if (!environment) {
    // Rank and size are given as options, the master by environment variables.
    const char* address = std::getenv("MASTER_ADDR");
    const char* port = std::getenv("MASTER_PORT");
    if (place.rank < 0 || place.size < 1 || !address)
      throw ValueError(kOp, "env://: the environment variable ",
                       place.rank < 0 || place.size < 1 ? "RANK" : "MASTER_ADDR",
                       " is not set: start the program by gradus-run, dist::launcher or a scheduler, or give "
                       "init_method");
    place.store.host = address;
    place.store.port = port ? to_number(port, "MASTER_PORT", 1, 65535) : 29500;
    return;
  }
  if (place.rank < 0) place.rank = environment->rank;
  if (place.size < 0) place.size = environment->world_size;
  place.local_rank = environment->local_rank;
  place.local_size = environment->local_world_size;
  place.store.job_id = environment->job_id;
  if (options.token.empty()) place.store.token = environment->token;
  place.store.attempt = environment->restart_count;
  if (!environment->store.empty()) {
    place.hosted_by_launcher = true;
    set_address(place.store, environment->store, "GRADUS_STORE");
    return;
  }
  place.store.host = environment->master_addr;
  place.store.port = environment->master_port;
  place.by_torchrun = environment->torchrun_store;
  if (!environment->port_is_given && environment->job_id != "none") place.store.further_ports = kFurtherPorts;
  // All ranks are on one host, so no other host needs to reach the store.
  if (place.local_size == place.size) place.store.host = "127.0.0.1";
  if (place.store.host.empty())
    throw ValueError(kOp, "env://: the environment variable MASTER_ADDR is not set, and ",
                     environment->source, " does not say that all ranks are on one host");
}

// Reads "host:port?rank=0&world_size=2".
void read_tcp(std::string text, Place& place) {
  if (const size_t query = text.find('?'); query != std::string::npos) {
    std::string left = text.substr(query + 1);
    text.resize(query);
    while (!left.empty()) {
      const size_t end = std::min(left.find('&'), left.size());
      const std::string item = left.substr(0, end);
      left.erase(0, end + 1);
      if (item.starts_with("rank="))
        place.rank = to_number(item.substr(5), "init_method's rank", 0, 1 << 20);
      else if (item.starts_with("world_size="))
        place.size = to_number(item.substr(11), "init_method's world_size", 1, 1 << 20);
      else
        throw ValueError(kOp, "init_method: unknown '", item, "', expected rank= or world_size=");
    }
  }
  set_address(place.store, text, "init_method tcp://");
}

Place find_place(const InitOptions& options, const Deadline& deadline) {
  Place place{.rank = options.rank, .size = options.world_size};
  const char* token = std::getenv("GRADUS_TOKEN");
  place.store.token = !options.token.empty() ? options.token : token ? token : "";
  const std::string& method = options.init_method;
  if (options.store) {
    if (method != InitOptions().init_method)
      throw ValueError(kOp, "store and init_method exclude each other");
    place.meeting = prefix_store("gradus.init", options.store);
  } else if (method == "env://") {
    read_env(options, place);
  } else if (method.starts_with("tcp://")) {
    read_tcp(method.substr(6), place);
  } else if (method.starts_with("file://")) {
    place.file = method.substr(7);
    if (!place.file.starts_with('/'))
      throw ValueError(kOp, "init_method file:// needs an absolute path (file:///path), given '", method,
                       "'");
    place.meeting = open_file_store(place.file, deadline.left());
  } else {
    throw ValueError(kOp, "init_method must be env://, tcp://host:port or file:///path, given '", method,
                     "'");
  }
  if (place.size < 1 || place.rank < 0 || place.rank >= place.size)
    throw ValueError(
        kOp, "rank and world_size must be given, by options or init_method, with 0 <= rank < world_size; ",
        "given rank ", place.rank, " and world_size ", place.size);
  return place;
}

// ---- addresses of this host

std::string text_of(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  return getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0 ? host : "";
}

// Returns the address of this host that a peer sees, or "". Sends no packet.
std::string address_toward(const std::string& host, int port, const Deadline& deadline) {
  std::string why;
  for (const SocketAddress& peer : resolve(host, port, deadline, &why)) {
    const Socket socket(::socket(peer.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket && ::connect(socket.fd(), peer.get(), peer.length) == 0) {
      const SocketAddress own = local_address(socket);
      return text_of(own.get(), own.length);
    }
  }
  return "";
}

// Returns an address of this host that others may reach: of the first interface that is up and no loopback.
std::string own_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* at = all; at && found.empty(); at = at->ifa_next)
    if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && (at->ifa_flags & IFF_UP) &&
        !(at->ifa_flags & IFF_LOOPBACK))
      found = text_of(at->ifa_addr, sizeof(sockaddr_in));
  freeifaddrs(all);
  return found;
}

// ---- finding each other

std::string list_ranks(const std::vector<int>& ranks) {
  return concat(ranks.size() == 1 ? "rank " : "ranks ", to_text(ranks));
}

// Throws for ranks that did not come. The first rank that runs out of time tells the others the reason.
[[noreturn]] void throw_failure_of(const std::vector<int>& missing, Membership* membership,
                                   Failure::Kind kind, const std::string& text) {
  const Failure failure{kind, missing[0], concat(list_ranks(missing), ' ', text)};
  throw_failure(kOp, membership ? membership->report(failure) : failure);
}

// Each rank's host, and the cores that it may use there.
struct Hosts {
  std::vector<std::string> ids, cores;
};

// Returns the hosts of all ranks. Without a membership, ranks that have left are not noticed.
Hosts exchange_hosts(const Place& place, Store& store, Membership* membership, const Deadline& deadline,
                     const std::string& where, const StoreServer* server = nullptr) {
  const auto key = [](int rank) { return concat("init/host/", rank); };
  store.set(key(place.rank), concat(host_id(), ' ', own_cores()));
  std::vector<std::string> keys;
  for (int rank = 0; rank < place.size; ++rank) keys.push_back(key(rank));
  for (;;) {
    const bool late = deadline.passed();
    std::vector<int> gone, missing;
    for (int rank = 0; rank < place.size; ++rank)
      if (membership && membership->has_left(rank)) gone.push_back(rank);
    const auto came = [&](int rank) { return store.check({key(rank)}); };
    std::erase_if(gone, came);
    if (!gone.empty())
      throw_failure_of(gone, membership, Failure::Kind::kLeft,
                       "exited with code 0 before init_process_group");
    try {
      Hosts hosts;
      for (const std::string& text :
           store.multi_get(keys, late ? Milliseconds(0) : std::min(deadline.left(), kLookAgain))) {
        const size_t end = std::min(text.find(' '), text.size());
        hosts.ids.push_back(text.substr(0, end));
        hosts.cores.push_back(text.substr(std::min(end + 1, text.size())));
      }
      return hosts;
    } catch (const TimeoutError&) {
    } catch (const PeerError&) {      // all others have left
    } catch (const MismatchError&) {  // two jobs have met
    }
    if (membership) membership->check(kOp);
    if (!late) continue;
    for (int rank = 0; rank < place.size; ++rank)
      if (!came(rank)) missing.push_back(rank);
    if (!missing.empty())
      throw_failure_of(missing, membership, Failure::Kind::kTimeout,
                       concat("of ", place.size, " did not come within ", deadline.timeout().count(), " ms (",
                              where, ')', server ? server->refusals() : ""));
  }
}

// Throws because rank 0's port is taken. If another job's rank 0 has the port, it must hear of this: Note
// [Whose store it is].
[[noreturn]] void throw_taken(const Place& place, const ConnectionError& taken) {
  constexpr Milliseconds kLook{2'000};
  std::string who;
  try {
    join_tcp(place.store, 0, place.size, kLook)->report(two_jobs(0));
    who = "another job's rank 0 has it";
  } catch (const ConnectionError& error) {
    who = internal::text_of(error);
  }
  throw ConnectionError(kOp, 0, internal::text_of(taken), "; each job needs a port of its own (", who, ')');
}

std::shared_ptr<StoreServer> host_store(Place& place, const std::string& host) {
  const std::string own = host == "::1" ? "::1" : "127.0.0.1";
  const bool has_own_port = place.store.port > 0 && place.store.further_ports == 0;
  std::function<void(const Failure&)> two_jobs_met;
  if (place.note) two_jobs_met = [note = *place.note](const Failure& failure) { note.leave(failure.text); };
  const StoreServerOptions options{.host = is_loopback(host) ? own : "0.0.0.0",
                                   .port = place.store.port,
                                   .further_ports = place.store.further_ports,
                                   .job_id = place.store.job_id,
                                   .token = place.store.token,
                                   .two_jobs_met = two_jobs_met};
  place.store.host = own;
  std::shared_ptr<StoreServer> server;
  try {
    server = std::make_shared<StoreServer>(options);
  } catch (const ConnectionError& error) {
    if (has_own_port) throw_taken(place, error);
    throw;
  }
  if (place.store.attempt > 0) server->begin_attempt(place.store.attempt);
  place.store.port = server->port();
  place.store.further_ports = 0;
  return server;
}

std::string random_token() { return random_digits(kOp, 32); }

// Returns what rank 0 has written to `meeting` about the store that it hosts.
std::string find_store(Store& meeting, const Deadline& deadline, const std::string& where) {
  try {
    return meeting.get("init/store", deadline.left());
  } catch (const TimeoutError&) {
    throw TimeoutError(kOp, 0, "rank 0 came and did not open the job's store within ",
                       deadline.timeout().count(), " ms (", where, ')');
  }
}

// Connects to the job's store. Tries until rank 0 has opened it.
std::shared_ptr<Store> connect(const Place& place, const Deadline& deadline) {
  try {
    return connect_tcp_store(place.store, deadline);
  } catch (const ConnectionError& error) {
    using Reason = ConnectionError::Reason;
    const std::string text = internal::text_of(error);
    if (error.reason() == Reason::kTokenMismatch && !place.token_file.empty())
      throw ConnectionError(Reason::kTokenMismatch, kOp, -1, text, " (the one here is that of ",
                            place.token_file, ')');
    if (place.hosted_by_launcher || error.reason() != Reason::kUnreachable) throw;
    throw ConnectionError(kOp, 0,
                          "rank 0, which opens the job's store, has not come or is out of reach: ", text);
  }
}

// Agrees on the job's store through another store that all ranks see. Returns the server on rank 0.
std::shared_ptr<StoreServer> meet(Place& place, const Deadline& deadline) {
  const std::string where = place.file.empty() ? "in the given store" : "by file " + place.file;
  Store& meeting = *place.meeting;
  if (meeting.add(concat("init/comes/", place.rank), 1) != 1)
    throw StateError(kOp, "rank ", place.rank, " has come before ", where,
                     place.file.empty()
                         ? ": it was used for an earlier job"
                         : ", which must not exist before: it is of an earlier job, remove it");
  const std::vector<std::string> hosts = exchange_hosts(place, meeting, nullptr, deadline, where).ids;
  const bool one_host = std::ranges::count(hosts, hosts[0]) == place.size;
  std::shared_ptr<StoreServer> server;
  if (place.rank == 0) {
    if (place.store.token.empty()) place.store.token = random_token();  // known to all that see `meeting`
    const std::string address = one_host ? "127.0.0.1" : own_address();
    if (address.empty()) throw ConnectionError(kOp, 0, "rank 0 has no address that other hosts could reach");
    server = host_store(place, address);
    meeting.set("init/store", concat(place.store.port, ' ', place.store.token, ' ', address));
  } else {
    const std::string text = find_store(meeting, deadline, where);
    const size_t first = text.find(' '), second = text.find(' ', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      throw StoreError(kOp, -1, "malformed address of the store ", where);
    place.store.port = to_number(text.substr(0, first), "the store's port", 1, 65535);
    place.store.token = text.substr(first + 1, second - first - 1);
    place.store.host = text.substr(second + 1);
  }
  return server;
}

// Agrees on the job's store through torchrun's store. Returns the server on rank 0.
std::shared_ptr<StoreServer> meet_by_torchrun(Place& place, const Deadline& deadline) {
  static std::atomic<int> joins{0};  // a process may join one job after another
  const std::string key = concat("gradus/", place.store.attempt, '/', joins++);
  TorchrunStore torchrun(kOp, place.store.host, place.store.port, deadline);
  if (place.rank == 0) {
    place.store.port = 0;
    place.store.job_id = random_token();
    auto server = host_store(place, place.store.host);
    torchrun.set(key, concat(place.store.port, ' ', place.store.job_id));
    return server;
  }
  const std::string text = torchrun.get(key);
  const size_t space = std::min(text.find(' '), text.size());
  place.store.port = to_number(text.substr(0, space), "the store's port", 1, 65535);
  place.store.job_id = text.substr(std::min(space + 1, text.size()));
  return {};
}

const StoreServer* server_of(const World& world) {
  return static_cast<const StoreServer*>(world.hosted.get());
}

// ---- the world

void set_hosts(World& world, const Place& place, const Hosts& of) {
  std::vector<std::string> hosts;
  for (const std::string& id : of.ids) {
    const auto it = std::ranges::find(hosts, id);
    world.host_of.push_back(int(it - hosts.begin()));
    if (it == hosts.end()) hosts.push_back(id);
  }
  world.local_size = int(std::ranges::count(world.host_of, world.host_of[world.rank]));
  world.local_rank =
      int(std::count(world.host_of.begin(), world.host_of.begin() + world.rank, world.host_of[world.rank]));
  world.threads = share_of_cores(of.cores, world.host_of, world.rank, usable_cores());
  // The launcher's numbers count if it gives them: it may treat parts of a host as several nodes.
  if (place.local_rank >= 0) world.local_rank = place.local_rank;
  if (place.local_size > 0) world.local_size = place.local_size;
}

std::shared_ptr<Transport> make_transport(World& world, const std::string& address, const Watch& watch) {
  std::vector<int> neighbors;
  for (int rank = 0; rank < world.size; ++rank)
    if (world.host_of[rank] == world.host_of[world.rank]) neighbors.push_back(rank);
  std::shared_ptr<Transport> within, across;
  if (world.shared_memory && neighbors.size() > 1) {
    const auto me = std::ranges::find(neighbors, world.rank);
    const int index = int(me - neighbors.begin());
    auto segment = world.segments->open(concat("messages/", neighbors[0]), neighbors, index,
                                        ring_bytes(int(neighbors.size())), watch);
    within = make_ring_transport(std::move(segment), world.membership, neighbors, index);
  }
  if (!world.shared_memory || int(neighbors.size()) < world.size)
    across = make_gloo_transport({.rank = world.rank,
                                  .size = world.size,
                                  .store = world.store,
                                  .membership = world.membership,
                                  .address = address},
                                 watch);
  if (within && across) return make_hybrid_transport(within, across, world.host_of, world.rank);
  return within ? within : across;
}

// Sets up a job of one rank, without a server or a network.
void stay_alone(World& world) {
  world.membership = make_local_memberships(1)[0];
  world.store = make_memory_store();
  world.store->set_timeout(world.timeout);
  world.host_of = {0};
  world.threads = usable_cores();
}

// Returns the address at which ranks of other hosts reach this rank: the one from which it reaches the
// master. On the master's own host, that may be a loopback address, which other hosts cannot use.
std::string address_for_others(const World& world, const std::string& master, int port,
                               const Deadline& deadline) {
  const std::string address = address_toward(master, port, deadline);
  const bool one_host = std::ranges::count(world.host_of, world.host_of[0]) == world.size;
  return one_host || !is_loopback(address) ? address : own_address();
}

void join_others(World& world, Place& place, const Deadline& deadline) {
  const std::string master = place.store.host;  // as given; rank 0 may replace it by a loopback address
  if (place.is_known_by_port_alone()) {
    // Several hosts may share the folder of notes, and each has such a port. So the note names the host.
    const std::string remote = place.remote_host();
    place.note.emplace(remote.empty() ? host_id() : remote, place.store.port, !remote.empty());
    place.store.between_tries = [note = place.note] { check_note(note); };
    check_note(place.note);
  }
  // Without a secret, any user of this host could join as a rank. All ranks get the token here, so that a
  // missing one fails on every rank, and none waits for a store that rank 0 does not open.
  if (!place.meeting && !place.hosted_by_launcher && place.store.token.empty()) {
    const UserToken own = user_token(kOp, place.remote_host());
    place.store.token = own.token;
    place.token_file = own.file;
  }
  if (place.meeting)
    world.hosted = meet(place, deadline);
  else if (place.by_torchrun)
    world.hosted = meet_by_torchrun(place, deadline);
  else if (!place.hosted_by_launcher && place.rank == 0)
    world.hosted = host_store(place, place.store.host);
  const std::string where = concat("store at ", place.store.host, ':', place.store.port);

  const auto store = connect(place, deadline);
  const std::string size = store->compare_set("init/world_size", "", std::to_string(place.size));
  if (size != std::to_string(place.size))
    throw ValueError(kOp, "rank ", place.rank, " has world_size ", place.size, ", where another rank has ",
                     size);
  world.membership = join_tcp(place.store, place.rank, place.size, deadline);
  store->set_timeout(world.timeout);
  world.store = guarded_store(store, world.membership);
  world.segments = make_process_segments(world.store);

  const Watch watch{world.membership.get(), deadline};
  set_hosts(world, place,
            exchange_hosts(place, *world.store, world.membership.get(), deadline, where, server_of(world)));
  if (place.note) world.settled = now() + kSettle;
  Futex::set_ranks_on_host(world.local_size);
  if (!place.file.empty() && place.rank == 0) unlink(place.file.c_str());  // all ranks have read it
  world.transport = make_transport(
      world,
      address_for_others(world, master.empty() ? place.store.host : master, place.store.port, deadline),
      watch);
}

}  // namespace

Ref<World> join_job(const InitOptions& options) {
  if (options.backend != "gloo" && options.backend != "cpu:gloo")
    throw ValueError(kOp, "backend must be 'gloo', given '", options.backend,
                     options.backend == "local" ? "': ranks as threads come from dist::run_ranks" : "'");
  const Deadline deadline = Deadline::after(options.init_timeout.value_or(options.timeout));
  Place place = find_place(options, deadline);

  auto world = make_ref<World>();
  world->rank = place.rank;
  world->size = place.size;
  world->backend = "gloo";
  world->timeout = options.timeout;
  world->shared_memory = options.shared_memory;
  if (place.size == 1 && !place.hosted_by_launcher) {
    stay_alone(*world);
  } else {
    const auto report = [&] {
      if (world->membership) world->membership->report(failure_of(place.rank, std::current_exception()));
    };
    try {
      join_others(*world, place, deadline);
    } catch (const ConnectionError&) {
      report();
      check_note(place.note);  // throws the note's text, which says more
      throw;
    } catch (...) {
      report();
      throw;
    }
  }

  std::vector<int> all(place.size);
  std::iota(all.begin(), all.end(), 0);
  try {
    world->default_group = make_ref<GroupState>(GroupState::Setup{
        .world = world, .name = "world", .members = std::move(all), .timeout = options.timeout});
  } catch (...) {
    world->default_group = nullptr;
    throw;
  }
  return world;
}

void leave_job(World& world) {
  world.membership->leave();
  if (!world.hosted) return;
  // The store's server ends with this rank, so this rank waits for the others.
  const auto all_left = [&] {
    for (int rank = 0; rank < world.size; ++rank)
      if (!world.membership->has_left(rank)) return false;
    return true;
  };
  const Deadline patience = Deadline::after(world.timeout);
  Deadline goodbye = patience;
  while (!all_left() && !patience.passed() && !goodbye.passed()) {
    // After a failure the other ranks learn of it and end soon.
    if (world.membership->failed() && goodbye.time() == patience.time())
      goodbye = Deadline::after(Milliseconds(500));
    std::this_thread::sleep_for(Milliseconds(2));
  }
}

}  // namespace gradus::dist::internal
