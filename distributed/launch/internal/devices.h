// Counts the devices of this machine that ranks can run on.
#pragma once

namespace gradus::dist::internal {

// Returns how many NVIDIA GPUs programs started here may use: those of CUDA_VISIBLE_DEVICES if it
// is set, else all.
int gpu_count();

}  // namespace gradus::dist::internal
