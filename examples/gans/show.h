// Commands of the program `gan` that load a checkpoint and write images of its generator, as a picture or as
// .safetensors.
#pragma once

namespace gradus::examples {

// argv[0] is the command. Errors are printed. Return the exit status.
// `gan sample`: a grid of images of random latents.
int run_sample(int argc, char** argv);
// `gan interpolate`: rows of images, each from one random latent to the next, or of StyleGANs from one style.
int run_interpolate(int argc, char** argv);
// `gan mix`: a table of images of StyleGANs with mixed styles.
int run_mix(int argc, char** argv);

}  // namespace gradus::examples
