// Implementation of simulate: creates in-process worlds and runs the ranks under the Scheduler.
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
  // Reports a killed rank to the others, as a broken connection to the store would. Ignored if the rank has exited
  // normally.
  const auto report_death = [&](int rank) {
    memberships[rank]->report(
        {Failure::Kind::kDied, rank, concat("rank ", rank, " was killed by the simulation")});
  };
  internal::Scheduler scheduler(world_size, options, report_death);
  return scheduler.run([&](int rank) {
    // Moved, so that the world is destroyed in the rank's thread, during the simulation.
    const Ref<internal::World> world = std::move(worlds[rank]);
    internal::run_as_rank(world, body);
  });
}

}  // namespace gradus::dist
