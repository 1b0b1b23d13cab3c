#include "gradus/distributed/world.h"

#include "gradus/distributed/group_state.h"
#include "gradus/tensor/context.h"

namespace gradus::dist::internal {
World::~World() = default;

World* World::current() {
  if (const Ref<Job>& job = Context::current().job) return static_cast<World*>(job.get());
  return process_world().get();
}

Ref<World> World::process_world() { return Ref<World>(static_cast<World*>(Job::of_process().get())); }

Ref<World> World::exchange_process_world(Ref<World> world) {
  return Ref<World>(static_cast<World*>(exchange_process_job(Ref<Job>(world.get())).get()));
}

}  // namespace gradus::dist::internal
