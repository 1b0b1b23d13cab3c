// What this machine has to put ranks on.
#pragma once

namespace gradus::dist::internal {

// NVIDIA GPUs that programs started here may use: those of CUDA_VISIBLE_DEVICES where it is set, else all.
int gpu_count();

}  // namespace gradus::dist::internal
