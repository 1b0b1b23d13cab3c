// Images of a generator, and grids of them in files.
#pragma once

#include <filesystem>

#include "gradus/examples/gans/networks.h"

namespace gradus::examples {

// Returns `count` latents that depend only on the seed, and the labels 0, 1, ..., 0, 1, ... for
// networks with classes.
// Shapes: z [count,latent], labels [count] or undefined.
struct Latents {
  Tensor z;
  Tensor labels = {};
};
Latents latents(int64_t count, uint64_t seed, const NetworkOptions& o);

// Generates images in evaluation mode, in batches, on the device of the network; with `weights` unless empty.
// Shapes: -> [count,C,S,S] in [-1,1], on the CPU.
Tensor generate(Networks& net, const Latents& from, const nn::StateDict& weights = {});
// Returns images of [-1,1] as bytes.
Tensor to_bytes(const Tensor& images);

// Grids of the same 64 latents at several times of a training.
class Grids {
 public:
  // The first write makes `folder`.
  Grids(std::filesystem::path folder, const NetworkOptions& o, uint64_t seed);
  // Writes FOLDER/MODEL_IMAGES.png, and MODEL_IMAGES_ema.png with the averaged weights. Prints errors of
  // writing, and does not throw them. Returns the grid with the averaged weights.
  Tensor write(Networks& net, const nn::StateDict& averaged, int64_t images) const;

 private:
  void write(const Tensor& grid, const std::string& name) const;

  std::filesystem::path folder_;
  std::string model_;
  Latents latents_;
};

}  // namespace gradus::examples
