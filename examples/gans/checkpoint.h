// A trained GAN from a checkpoint of the gan program.
#pragma once

#include <memory>
#include <string>

#include "gradus/examples/gans/networks.h"

namespace gradus::examples {

struct LoadedGan {
  NetworkOptions options;
  std::unique_ptr<Networks> net;  // at the growth stage (scale) of the checkpoint
  nn::StateDict averaged;         // exponential average of the generator's weights
};

// Errors: FileError for a file that is not a checkpoint of the program; ValueError for invalid options.
LoadedGan load_gan(const std::string& file);

}  // namespace gradus::examples
