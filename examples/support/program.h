// The frame of a training program: its ranks, its errors, its exit status.
#pragma once

#include <functional>
#include <string>

#include "gradus/examples/support/run_options.h"

namespace gradus::examples {

// Somebody asked to stop: where to go on, if there is a checkpoint.
struct Interrupted {
  std::string checkpoint;
};

// Calls `train` on every rank, and returns the program's exit status: 0; 130 when it was interrupted; 1 after
// an exception, which becomes one line. Outputs that cannot be written are noticed before the training.
int run_program(const std::string& name, const RunOptions& options, const std::function<void()>& train);

}  // namespace gradus::examples
