// simulate: deterministic simulation testing of distributed programs. Ranks are threads that run one at a time. At
// every synchronization point (a wait, a notification, a message, a store operation), a seeded scheduler chooses
// the thread that runs next. The seed also determines the delay of messages, which message is lost, and which rank
// is killed. Time is virtual. The same seed replays the same run.
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
  double kill = 0;  // probability that one rank is killed, at a random point
  double drop = 0;  // probability that a message is lost, with all later ones of the same sender and receiver
  bool messages_only = false;  // see RunRanksOptions
  int hosts = 1;
  Milliseconds max_delay{50};     // maximal delay of a message, virtual time
  Milliseconds timeout{10'000};   // timeout of the ranks' calls, virtual time
  Milliseconds give_up{600'000};  // a run that takes longer counts as hung, virtual time
};

// How a run ended.
struct SimulationReport {
  uint64_t seed = 0;
  std::vector<std::exception_ptr> errors;  // per rank; null: `body` returned
  int killed = -1;                         // the killed rank; -1: none
  bool dropped = false;                    // a message was lost
  bool hung = false;                       // deadlock or timeout; `trace` has what each thread waits for
  uint64_t trace_hash = 0;                 // hash of all events; equal for equal runs
  std::vector<std::string> trace;          // the last events, oldest first
};

// Runs `body` on `world_size` ranks, which are threads with an in-process world group.
SimulationReport simulate(int world_size, const SimulationOptions& options,
                          const std::function<void()>& body);

}  // namespace gradus::dist
