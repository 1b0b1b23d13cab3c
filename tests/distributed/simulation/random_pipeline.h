// A pipeline that a seed makes up: its schedule, ranks, replicas, micro-batches, and what goes wrong.
#pragma once

#include <cstdint>
#include <string>

#include "gradus/distributed/simulation/simulation.h"

namespace gradus::dist {

struct PipelineReport {
  std::string wrong;     // "": every rank has the right gradients, or the error that fits what happened
  bool trained = false;  // all ranks came to the end
  SimulationReport run;
};

// Trains a few steps under a simulation, in which messages are late or lost, and ranks are killed, throw or
// leave. Compares losses and gradients with those of the undivided model.
PipelineReport try_pipeline(uint64_t seed);

}  // namespace gradus::dist
