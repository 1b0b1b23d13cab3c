// Metrics that compare the images of a checkpoint's generator, or of a safetensors file, with reference
// images (--data).
#pragma once

namespace gradus::examples {

// Runs `gan evaluate`; argv[0] is "evaluate". Prints the values of --metrics, or the error. Returns the exit
// status.
int run_evaluate(int argc, char** argv);

}  // namespace gradus::examples
