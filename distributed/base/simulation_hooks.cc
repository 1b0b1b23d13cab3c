// The parts of a simulation that other code always needs, whether a simulation runs or not.
#include "gradus/distributed/base/simulation_hooks.h"

#include "gradus/tensor/runtime/context.h"

namespace gradus::dist {

TimePoint now() {
  const internal::Simulation* simulation = internal::Simulation::current();
  return simulation ? simulation->now() : std::chrono::steady_clock::now();
}

namespace internal {

constinit thread_local Simulation* Simulation::current_ = nullptr;

std::thread start_thread(std::function<void()> body) {
  auto in_context = [body = std::move(body), context = Context::current().snapshot()]() mutable {
    ContextScope scope(context);
    body();
  };
  if (Simulation* simulation = Simulation::current()) return simulation->start_thread(std::move(in_context));
  return std::thread(std::move(in_context));
}

void join_thread(std::thread& thread) {
  if (Simulation* simulation = Simulation::current()) return simulation->join(thread);
  thread.join();
}

}  // namespace internal
}  // namespace gradus::dist
