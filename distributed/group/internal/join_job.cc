// init_process_group's work: finds the job's TCP store by the rendezvous (environment, file or address),
// connects to it, registers this rank, exchanges host ids to number the ranks of each host, and builds the
// transport: shared-memory rings within a host, sockets between hosts. A job of one rank needs no network.
#include "gradus/distributed/group/internal/join_job.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "gradus/distributed/base/rank_error.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/internal/core_share.h"
#include "gradus/distributed/group/internal/exchange_hosts.h"
#include "gradus/distributed/group/internal/rendezvous.h"
#include "gradus/distributed/store/memory_store.h"
#include "gradus/distributed/store/socket.h"
#include "gradus/distributed/transport/connect_ranks.h"
#include "gradus/distributed/transport/stream_transport.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kOp = "init_process_group";
// Ranks that know each other by a port alone exchange nothing for this long. If a second process joins as the
// same rank in this time, two jobs have met.
constexpr Milliseconds kSettle{500};

// Connects to the job's store. Tries until rank 0 has opened it. `hosted_by_launcher`: the launcher, not rank
// 0, runs the store's server.
// Errors: ConnectionError, after the deadline or for another token.
std::shared_ptr<Store> connect(const JobStore& found, bool hosted_by_launcher, const Deadline& deadline) {
  using Reason = ConnectionError::Reason;
  try {
    return connect_tcp_store(found.address, deadline);
  } catch (const ConnectionError& error) {
    if (error.reason() == Reason::kTokenMismatch && !found.token_file.empty())
      throw ConnectionError(error.reason(), kOp, -1, text_of(error), " (the one here is that of ",
                            found.token_file, ')');
    if (hosted_by_launcher || error.reason() != Reason::kUnreachable) throw;
    throw ConnectionError(
        error.reason(), kOp, 0,
        "rank 0, which opens the job's store, has not come or is out of reach: ", text_of(error));
  }
}

// Sets, from the hosts of all ranks, the host of each rank, this rank's local rank and local size, and its
// number of threads. Hosts are numbered in the order of their first rank.
void set_hosts(World& world, const JobPosition& position, const Hosts& of) {
  std::vector<std::string> hosts;
  for (const std::string& id : of.ids) {
    const auto it = std::ranges::find(hosts, id);
    world.host_of.push_back(int(it - hosts.begin()));
    if (it == hosts.end()) hosts.push_back(id);
  }
  world.local_size = int(std::ranges::count(world.host_of, world.host_of[world.rank]));
  world.local_rank =
      int(std::count(world.host_of.begin(), world.host_of.begin() + world.rank, world.host_of[world.rank]));
  world.threads = thread_share(of.cores, world.host_of, world.rank, usable_cores());
  // The launcher's numbers count if it gives them: it may treat parts of a host as several nodes.
  if (position.local_rank >= 0) world.local_rank = position.local_rank;
  if (position.local_size > 0) world.local_size = position.local_size;
}

// Ranks that share memory exchange messages through rings. All other pairs of ranks have a connection.
std::shared_ptr<Transport> make_transport(World& world, const std::string& address,
                                          const WaitLimits& limits) {
  std::vector<int> neighbors, others;
  for (int rank = 0; rank < world.size; ++rank) {
    const bool near = world.shared_memory && world.host_of[rank] == world.host_of[world.rank];
    (near || rank == world.rank ? neighbors : others).push_back(rank);
  }
  const int index = int(std::ranges::find(neighbors, world.rank) - neighbors.begin());
  const size_t bytes = ring_bytes(int(neighbors.size()));
  auto segment = neighbors.size() > 1 ? world.segments->open(concat("messages/", neighbors[0]), neighbors,
                                                             index, bytes, limits)
                                      : std::make_shared<Segment>(bytes);
  std::map<int, FileDescriptor> sockets;
  if (!others.empty()) sockets = connect_ranks({world.rank, others, world.store, address}, limits);
  return make_stream_transport(std::move(segment), world.membership, neighbors, index, std::move(sockets));
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
  return one_host || (!address.empty() && !is_loopback(address)) ? address : non_loopback_address();
}

// Joins a job of several ranks, in the steps named at the top. All ranks call it, with the same world size.
void join_others(World& world, const Rendezvous& rendezvous, const JobPosition& position,
                 const Deadline& deadline) {
  const JobStore found = rendezvous.find_store(position, deadline);
  world.hosted_store_server = found.server;
  const auto store = connect(found, rendezvous.hosted_by_launcher, deadline);
  const std::string size = store->compare_set("init/world_size", "", std::to_string(position.size));
  if (size != std::to_string(position.size))
    throw ValueError(kOp, "rank ", position.rank, " has world_size ", position.size,
                     ", where another rank has ", size);
  world.membership = join_tcp(found.address, position.rank, position.size, deadline);
  store->set_timeout(world.timeout);
  world.store = guarded_store(store, world.membership);
  world.segments = make_process_segments(world.store);

  const std::string where = concat("store at ", found.address.host, ':', found.address.port);
  set_hosts(
      world, position,
      exchange_hosts(position, *world.store, world.membership.get(), deadline, where, found.server.get()));
  if (found.known_by_port_alone) world.collision_check_end = now() + kSettle;
  Futex::set_ranks_on_host(world.local_size);
  if (!rendezvous.file.empty() && position.rank == 0) unlink(rendezvous.file.c_str());
  world.transport = make_transport(world, address_for_others(world, found.host, found.address.port, deadline),
                                   {world.membership.get(), deadline});
}

}  // namespace

Ref<World> join_job(const InitOptions& options) {
  const bool uses_library = uses_nccl(kOp, options.backend);
  const Deadline deadline = Deadline::after(options.init_timeout.value_or(options.timeout));
  JobPosition position;
  const Rendezvous rendezvous = make_rendezvous(options, position);

  auto world = make_ref<World>();
  world->rank = position.rank;
  world->size = position.size;
  world->backend = "gloo";
  world->uses_device_library = uses_library;
  world->timeout = options.timeout;
  world->shared_memory = options.shared_memory;
  if (position.size == 1 && !rendezvous.hosted_by_launcher) {
    stay_alone(*world);
  } else {
    try {
      join_others(*world, rendezvous, position, deadline);
    } catch (...) {
      if (world->membership) world->membership->report(failure_of(position.rank, std::current_exception()));
      throw;
    }
  }

  std::vector<int> all(position.size);
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
  world.finish_closing();
  if (!world.hosted_store_server) return;
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
