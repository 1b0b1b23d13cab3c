// Ranks as threads of one process, for run_ranks: they share a store in memory, memberships and thread
// segments (which stand in for shared memory between processes). `hosts` simulates several hosts: ranks on
// different simulated hosts exchange messages only. run_as_rank is called once per rank, on a thread of its
// own, for all ranks at once.
#include "gradus/distributed/group/local_world.h"
#include "gradus/distributed/store/memory_store.h"

#include <algorithm>
#include <numeric>

#include "gradus/distributed/base/rank_error.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/internal/message_work.h"
#include "gradus/distributed/store/tcp_store.h"
#include "gradus/distributed/transport/stream_transport.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::dist::internal {

std::vector<Ref<World>> make_local_worlds(int world_size, const RunRanksOptions& options) {
  if (world_size < 1 || options.hosts < 1 || options.hosts > world_size)
    throw ValueError("run_ranks", "world_size must be at least 1 and hosts between 1 and that, got ",
                     world_size, " and ", options.hosts);
  const auto memberships = make_local_memberships(world_size);
  const auto store = make_memory_store();
  store->set_timeout(options.timeout);
  const auto segments = make_thread_segments();
  std::vector<int> host_of;
  for (int rank = 0; rank < world_size; ++rank)
    host_of.push_back(int(int64_t(rank) * options.hosts / world_size));

  std::vector<Ref<World>> worlds;
  for (int rank = 0; rank < world_size; ++rank) {
    auto world = make_ref<World>();
    world->rank = rank;
    world->size = world_size;
    const auto host = std::ranges::equal_range(host_of, host_of[rank]);
    world->local_size = int(host.size());
    world->local_rank = int(host_of.begin() + rank - host.begin());
    world->backend = "local";
    world->uses_device_library = options.nccl;
    world->timeout = options.timeout;
    world->host_of = host_of;
    world->shared_memory = !options.messages_only;
    world->membership = memberships[rank];
    world->store = guarded_store(store, memberships[rank]);
    world->segments = segments;
    worlds.push_back(std::move(world));
  }
  return worlds;
}

namespace {

// Makes the rank's message transport and default group. Collective over the ranks.
void connect(World& world) {
  std::vector<int> all(world.size);
  std::iota(all.begin(), all.end(), 0);
  if (world.size > 1)
    world.transport = make_stream_transport(
        world.segments->open("messages", all, world.rank, ring_bytes(world.size), world.wait_limits()),
        world.membership, all, world.rank);
  world.default_group =
      make_ref<GroupState>(GroupState::Setup{.world = Ref<World>(&world), .name = "world", .members = all});
}

// Returns a copy of the caller's Context for the rank: without recordings, with a copy of the random
// generator, and with an equal share of the threads.
Context make_context(const Ref<World>& world) {
  Context context = Context::current().snapshot();
  context.recordings.clear();
  context.module_path.clear();
  // All ranks draw the same random numbers, each from its own generator.
  context.generator = std::make_shared<RandomGenerator>(*context.generator);
  context.threads = std::max(1, num_threads() / world->size);
  context.job = world;
  return context;
}

}  // namespace

void run_as_rank(const Ref<World>& world, const std::function<void()>& body) {
  Context context = make_context(world);
  ContextScope scope(context);
  const WaitScope thread(*world->membership, Wait::program_thread());
  struct Close {
    World& world;
    ~Close() {
      world.default_group = nullptr;  // breaks the cycle of references with the world
      world.messages.clear();
      world.finish_calls();  // after a failure, posted calls can remain; the failure ends them
    }
  } close{*world};
  try {
    connect(*world);
    body();
    if (!world->membership->failed()) finish_messages(*world);
    world->finish_calls();
  } catch (const RankKilled&) {  // by a simulation: a killed rank reports nothing
    throw;
  } catch (...) {
    world->membership->report(failure_of(world->rank, std::current_exception()));
    throw;
  }
  world->membership->leave();
}

}  // namespace gradus::dist::internal
