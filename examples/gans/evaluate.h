// Metrics of generated images: of a checkpoint, or of image files.
#pragma once

namespace gradus::examples {

// Runs `gan evaluate`: prints the values of --metrics. Returns the exit status.
int run_evaluate(int argc, char** argv);

}  // namespace gradus::examples
