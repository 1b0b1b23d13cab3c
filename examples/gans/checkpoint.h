// A trained GAN, out of a checkpoint of the gan program.
#pragma once

#include <memory>
#include <string>

#include "gradus/examples/gans/networks.h"

namespace gradus::examples {

struct LoadedGan {
  NetworkOptions options;
  std::unique_ptr<Networks> net;  // in the size that it had grown to
  nn::StateDict averaged;         // the generator's average
};

// Errors: FileError for a file that is none, or of another program; ValueError for options that
// no model takes.
LoadedGan load_gan(const std::string& file);

}  // namespace gradus::examples
