// Writes images of a trained generator.
#pragma once

namespace gradus::examples {

// Runs `gan sample`: writes a grid of images, or a safetensors file of them. Returns the exit status.
int run_sample(int argc, char** argv);
// Runs `gan interpolate`: writes a strip of images of interpolated latents. Returns the exit status.
int run_interpolate(int argc, char** argv);

}  // namespace gradus::examples
