// A program of collectives, messages and store operations that a seed makes up. It is the same for all
// ranks, except that one rank may leave in the middle, throw, or make another call. It checks every
// value that it gets.
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

  // Returns what is wrong with its run under a simulation, or "": every rank must have got right values to
  // the end, or the error that fits what happened.
  std::string judge(const SimulationReport& report) const;

 private:
  enum class Misdeed { kNone, kLeaves, kThrows, kCallsMore };

  const uint64_t seed_;
  Misdeed misdeed_ = Misdeed::kNone;
  int steps_, misdeed_rank_ = -1, misdeed_step_ = -1;
  std::vector<std::atomic<bool>> came_to_end_;  // per rank: it has called the last barrier
};

// What a seed stands for: how many ranks, where they are, what goes wrong.
struct Scenario {
  int world_size = 2;
  SimulationOptions options;
};
Scenario make_scenario(uint64_t seed);

// Runs the seed's program in its scenario. Returns what is wrong, "" when all is well.
std::string try_seed(uint64_t seed, SimulationReport* report = nullptr);

std::string describe(const SimulationReport& report);

}  // namespace gradus::dist
