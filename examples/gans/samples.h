// Images that a generator makes, and where they are written.
#pragma once

#include <filesystem>

#include "gradus/examples/gans/networks.h"

namespace gradus::examples {

// Returns `count` latents that depend on the seed alone, and the labels 0, 1, ..., 0, 1, ... for
// networks with classes.
// Shapes: z [count,latent], labels [count] or undefined.
struct Latents {
  Tensor z;
  Tensor labels = {};
};
Latents latents(int64_t count, uint64_t seed, const NetworkOptions& o);

// Generates images in evaluation mode, in batches, with these weights if there are any, where the network is.
// Shapes: -> [count,C,S,S] in [-1,1], on the CPU.
Tensor generate(Networks& net, const Latents& from, const nn::StateDict& weights = {});
// Returns images of [-1,1] as bytes.
Tensor to_bytes(const Tensor& images);

// Grids of the same 64 latents, as the training goes on.
class Grids {
 public:
  // `folder` is made when the first grid is written.
  Grids(std::filesystem::path folder, const NetworkOptions& o, uint64_t seed);
  // Writes FOLDER/MODEL_IMAGES.png, and MODEL_IMAGES_ema.png of the averaged weights. Prints what cannot be
  // written: the training goes on. Returns the averaged weights' grid.
  Tensor write(Networks& net, const nn::StateDict& averaged, int64_t images) const;

 private:
  void write(const Tensor& grid, const std::string& name) const;

  std::filesystem::path folder_;
  std::string model_;
  Latents latents_;
};

}  // namespace gradus::examples
