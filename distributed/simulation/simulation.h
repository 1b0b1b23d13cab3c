// simulate: deterministic simulation testing of distributed programs. Ranks are threads that run one at a
// time. At every synchronization point (a wait, a notification, a message, a store operation), a seeded
// scheduler chooses the thread that runs next. The seed also determines the delay of messages, which message
// is lost, and which rank is killed. Time is virtual. The same seed replays the same run.
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
  bool messages_only = false;  // as in RunRanksOptions (group/run_ranks.h)
  int hosts = 1;               // likewise
  // All in virtual time.
  Milliseconds max_delay{50};     // of a message
  Milliseconds timeout{10'000};   // default timeout of the ranks' calls
  Milliseconds give_up{600'000};  // a run that takes longer is ended as hung
};

struct SimulationReport {
  uint64_t seed = 0;
  // Per rank: what body() threw; null: body() returned. Killed rank or hung run: internal::RankKilled.
  std::vector<std::exception_ptr> errors;
  int killed = -1;                 // the killed rank; -1: none
  bool dropped = false;            // a message was lost
  bool hung = false;               // deadlock, or give_up passed; `trace` then ends with each thread's wait
  uint64_t trace_hash = 0;         // hash of all events; equal for equal runs
  std::vector<std::string> trace;  // the last events, oldest first
};

// Runs body() on `world_size` ranks (see run_ranks) and returns when all have ended. Exceptions of body() do
// not leave simulate. Aborts the process if a thread blocks for 120 s of real time outside of the hooks of
// base/simulation_hooks.h, such as in std::condition_variable.
// Errors: those of run_ranks for world_size and hosts.
SimulationReport simulate(int world_size, const SimulationOptions& options,
                          const std::function<void()>& body);

}  // namespace gradus::dist
