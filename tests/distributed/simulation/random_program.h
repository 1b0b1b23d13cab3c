// A random program of collectives, messages and store operations that a seed determines. All ranks run the
// same operations, except that one rank may return early, throw, or make an additional call. The program
// checks all values that it receives.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "gradus/distributed/simulation/simulation.h"

namespace gradus::dist {

class RandomProgram {
 public:
  RandomProgram(uint64_t seed, int world_size);

  // To be run by every rank.
  // Errors: std::logic_error for a wrong value; else those of the calls.
  void run();

  // Returns what is wrong with its run under a simulation, or "": every rank must have had right values to
  // the end, or the error that fits the faults.
  std::string judge(const SimulationReport& report) const;

 private:
  enum class Misdeed { kNone, kLeaves, kThrows, kCallsMore };

  const uint64_t seed_;
  Misdeed misdeed_ = Misdeed::kNone;
  int steps_, misdeed_rank_ = -1, misdeed_step_ = -1;
  std::vector<std::atomic<bool>> came_to_end_;  // per rank: it has called the last barrier
};

// The ranks, hosts and faults that a seed determines.
struct Scenario {
  int world_size = 2;
  SimulationOptions options;
};
Scenario make_scenario(uint64_t seed);

// Runs the seed's program in its scenario. Returns what is wrong, "" when all is well.
std::string try_seed(uint64_t seed, SimulationReport* report = nullptr);

std::string describe(const SimulationReport& report);

}  // namespace gradus::dist
