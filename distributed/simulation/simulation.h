// Simulation: ranks as threads, under a scheduler that a seed drives. One thread runs at a time. At every
// point where ranks meet (a wait, a notification, a message, a store operation), the seed decides which
// thread goes on. It also decides how long a message takes, which message is lost, and which rank is killed.
// Time is virtual. The same seed replays the same run.
//
//   for (uint64_t seed = 0; seed < 10'000; ++seed)
//     SimulationReport report = simulate(4, {.seed = seed, .kill = 0.1}, [] { ...collectives... });
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "gradus/distributed/base/deadline.h"

namespace gradus::dist {

struct SimulationOptions {
  uint64_t seed = 0;
  double kill = 0;  // chance that one rank is killed, at a random point
  double drop = 0;  // chance that a message is lost, and all later ones from that sender to that receiver
  bool messages_only = false;  // as in RunRanksOptions
  int hosts = 1;
  Milliseconds max_delay{50};     // of a message, virtual
  Milliseconds timeout{10'000};   // of the ranks' calls, virtual
  Milliseconds give_up{600'000};  // virtual; a run that lasts longer counts as hung
};

// How a run ended.
struct SimulationReport {
  uint64_t seed = 0;
  std::vector<std::exception_ptr> errors;  // per rank; null: its function returned
  int killed = -1;                         // the rank that was killed, or -1
  bool dropped = false;                    // a message was lost
  bool hung = false;                       // every rank waited forever; `trace` says for what
  uint64_t trace_hash = 0;                 // equal for equal runs
  std::vector<std::string> trace;          // the last decisions, oldest first
};

// Runs `body` on `world_size` ranks (threads with a `local` group as their world).
SimulationReport simulate(int world_size, const SimulationOptions& options,
                          const std::function<void()>& body);

}  // namespace gradus::dist
