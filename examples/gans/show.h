// Pictures of a trained generator's images.
#pragma once

namespace gradus::examples {

// Runs `gan sample`: writes a grid of images, or a safetensors file of them. Returns the
// program's exit status.
int run_sample(int argc, char** argv);
// Runs `gan interpolate`: writes walks from one latent to the next as a strip. Returns the
// program's exit status.
int run_interpolate(int argc, char** argv);

}  // namespace gradus::examples
