// The command line of the gan program.
#pragma once

#include "gradus/examples/gans/trainer.h"

namespace gradus::examples {

constexpr int64_t kImages = 600'000;  // images to train on, without --images, --iterations and --epochs

// RunOptions: the options of all training programs. parse() has the help text of each option.
struct Args : training::RunOptions {
  std::string model = "dcgan", data;
  // 0: those of the data and the recipe; disc_width: `width`
  int64_t size = 0, width = 0, disc_width = 0, latent = 0, batch = 0, disc_steps = 0;
  double lr = 0, beta1 = -1, gamma = -1, ema_images = 10'000;  // beta1, gamma below 0: the recipe's
  std::string dataset;           // the kind of images that `data` must have; "": any
  std::string images_per_scale;  // "4:20k:64,8:40k,16:60k:32:1e-3"; "": equal shares
  int64_t fade = 0;              // images of a fade; 0: half of the shortest phase
  std::string ddp = "separate", augment = "none", on_error = "fail", on_nan = "stop";
  bool find_unused_parameters = false, syncbn = false, joined_forward = false, conditional = false;
  int64_t sample_every = 0;
  std::string samples, init, init_gen, init_disc, export_file;
  std::string metrics, classifier;
  int64_t metrics_every = 0, metrics_samples = 2000;
};

// Parses the options of a training. Prints errors and exits.
Args parse(int argc, char** argv);

// Returns the networks' options for images [channels, size, size]: the command line's, else the recipe's.
// Errors: ValueError for --conditional if the images have no labels or the model takes none.
NetworkOptions network_options(const Args& a, int64_t size, int64_t channels, int64_t classes);
// Errors: ValueError for --capture with a model that grows, or with --on-nan skip.
void check_capture(const Args& a);
// Returns the phases of progressive growing up to this size; nullopt for models that do not grow.
// Errors: ValueError unless --images-per-scale is a list of SIZE:IMAGES[:BATCH[:RATE]] with increasing sizes.
std::optional<gan::Growth> growth(const Args& a, int64_t size);

}  // namespace gradus::examples
