#include "gradus/distributed/simulation/simulation.h"

#include "gradus/distributed/group/local_world.h"
#include "gradus/distributed/simulation/internal/scheduler.h"

namespace gradus::dist {

SimulationReport simulate(int world_size, const SimulationOptions& options,
                          const std::function<void()>& body) {
  auto worlds = internal::make_local_worlds(
      world_size,
      {.timeout = options.timeout, .messages_only = options.messages_only, .hosts = options.hosts});
  std::vector<std::shared_ptr<Membership>> memberships;
  for (const auto& world : worlds) memberships.push_back(world->membership);
  // Reports a rank's death, as a broken connection to the store would. A rank that has left in order
  // is not reported.
  const auto tell_death = [&](int rank) {
    memberships[rank]->report(
        {Failure::Kind::kDied, rank, concat("rank ", rank, " was killed by the simulation")});
  };
  internal::Scheduler scheduler(world_size, options, tell_death);
  return scheduler.run([&](int rank) {
    // Moved here, so that the world is destroyed with the rank and not after the simulation.
    const Ref<internal::World> world = std::move(worlds[rank]);
    internal::run_as_rank(world, body);
  });
}

}  // namespace gradus::dist
