#include "gradus/distributed/world.h"

#include "gradus/distributed/group_state.h"
#include "gradus/tensor/context.h"

namespace gradus::dist::internal {
namespace {

// The rank that this process is. Never destroyed: the process's last words need it. A world stays alive while
// a call may use it: it is left by the thread that uses it.
std::mutex& mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
Ref<World>& slot() {
  static auto& world = *new Ref<World>;
  return world;
}

}  // namespace

World::~World() = default;

World* World::current() {
  if (const auto& world = Context::current().world) return static_cast<World*>(world.get());
  std::lock_guard lock(mutex());
  return slot().get();
}

Ref<World> World::process_world() {
  std::lock_guard lock(mutex());
  return slot();
}

Ref<World> World::exchange_process_world(Ref<World> world) {
  std::lock_guard lock(mutex());
  std::swap(slot(), world);
  return world;
}

}  // namespace gradus::dist::internal
