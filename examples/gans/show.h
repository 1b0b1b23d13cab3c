// Commands of the program `gan` that load a checkpoint and write images of its generator, as a picture or as
// .safetensors.
#pragma once

namespace gradus::examples {

// In both, argv[0] is the command. Errors are printed. Return the exit status.
// `gan sample`: a grid of images of random latents.
int run_sample(int argc, char** argv);
// `gan interpolate`: rows of images, each from one random latent to the next.
int run_interpolate(int argc, char** argv);

}  // namespace gradus::examples
