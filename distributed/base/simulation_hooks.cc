// Clock and threads for code that also runs in a simulation: a deterministic test in which ranks are threads
// that a scheduler runs one at a time, in virtual time. Else, the standard library's clock and threads.
#include "gradus/distributed/base/simulation_hooks.h"

#include "gradus/tensor/runtime/context.h"

namespace gradus::dist {

TimePoint now() {
  const internal::Simulation* simulation = internal::Simulation::current();
  return simulation ? simulation->now() : std::chrono::steady_clock::now();
}

namespace internal {

// The simulation that runs this thread; null outside of simulations. The simulation sets it in its own threads.
constinit thread_local Simulation* Simulation::current_ = nullptr;

std::thread start_thread(std::function<void()> body) {
  auto in_context = [body = std::move(body), context = Context::current().snapshot()]() mutable {
    ContextScope scope(context);
    body();
  };
  if (Simulation* simulation = Simulation::current()) return simulation->start_thread(std::move(in_context));
  return std::thread(std::move(in_context));
}

// In a simulation, `thread` must be a thread of start_thread, and the simulation runs other threads meanwhile.
void join_thread(std::thread& thread) {
  if (Simulation* simulation = Simulation::current()) return simulation->join(thread);
  thread.join();
}

}  // namespace internal
}  // namespace gradus::dist
