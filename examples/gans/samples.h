// Latent vectors from a seed, the images that a generator makes of them, and PNG files with grids of images.
#pragma once

#include <filesystem>

#include "gradus/examples/gans/style_networks.h"

namespace gradus::examples {

// Returns `count` latents that depend only on the seed, and the labels 0, 1, ..., 0, 1, ... for
// networks with classes.
Latents latents(int64_t count, uint64_t seed, const NetworkOptions& o);

// Generates images in evaluation mode, in batches, on the device of the network; with `weights` unless empty.
// Shapes: -> [count,C,S,S] in [-1,1], on the CPU.
Tensor generate(Networks& net, const Latents& from, const nn::StateDict& weights = {});
// Returns the styles of the latents, likewise.
// Shapes: -> [count,layers,style], on the CPU.
Tensor styles(StyleNetworks& net, const Latents& from, const nn::StateDict& weights = {});
// Returns images with values in [-1,1] as u8 with values 0 ... 255.
Tensor to_bytes(const Tensor& images);

// Writes grids of the images of the same 64 latents in the course of a training.
class Grids {
 public:
  // The first write creates `folder`.
  Grids(std::filesystem::path folder, const NetworkOptions& o, uint64_t seed);
  // Writes FOLDER/MODEL_IMAGES.png, and MODEL_IMAGES_ema.png with the averaged weights. Prints errors of
  // writing, and does not throw them. Returns the averaged weights' images, u8[64,C,S,S].
  Tensor write(Networks& net, const nn::StateDict& averaged, int64_t images) const;

 private:
  void write(const Tensor& grid, const std::string& name) const;

  std::filesystem::path folder_;
  std::string model_;
  Latents latents_;
};

}  // namespace gradus::examples
