// Metrics of the images of a checkpoint's generator, or of a safetensors file of images.
#pragma once

namespace gradus::examples {

// Runs `gan evaluate`: prints the values of --metrics. Returns the exit status.
int run_evaluate(int argc, char** argv);

}  // namespace gradus::examples
