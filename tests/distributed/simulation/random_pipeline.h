// Random pipeline trainings. A seed determines schedule, ranks, replicas, micro-batches and faults.
#pragma once

#include <cstdint>
#include <string>

#include "gradus/distributed/simulation/simulation.h"

namespace gradus::dist {

struct PipelineReport {
  // What is wrong; "": each rank has the right gradients, or the error that fits what happened.
  std::string wrong;
  bool trained = false;  // all ranks came to the end
  SimulationReport run;
};

// Trains three steps in f64 under a simulation, in which messages are late or lost, and ranks are killed,
// throw or return early. Compares losses and gradients of the ranks that come to the end with those of
// the undivided model: within 1e-12 * max(1, |expected|).
PipelineReport try_pipeline(uint64_t seed);

}  // namespace gradus::dist
