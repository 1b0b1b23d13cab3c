// Numbers that say how good generated images are: of a checkpoint, or of any program's images.
#pragma once

namespace gradus::examples {

// Runs `gan evaluate`: prints the numbers of --metrics. Returns the program's exit status.
int run_evaluate(int argc, char** argv);

}  // namespace gradus::examples
