// Recipe: default options, factory of the networks, and training step of one kind of GAN. dcgan.cc, lsgan.cc,
// wgan_gp.cc and pggan.cc define one recipe each.
#pragma once

#include <string>
#include <vector>

#include "gradus/examples/gans/networks.h"

namespace gradus::examples {

class Trainer;

struct Recipe {
  const char* name;
  NetworkOptions networks;    // by default
  optim::AdamOptions adam;    // of both networks
  int64_t batch = 128;        // images of a step, of all ranks
  int64_t disc_steps = 1;     // of the discriminator, for each of the generator
  bool grows = false;         // progressive growing (gan::Growth)
  bool takes_labels = false;  // supports --conditional
  // Wasserstein: real and fake images have no target scores, so there is no warning (gan::Watch) that the
  // discriminator has won.
  bool is_critic = false;
  std::unique_ptr<Networks> (*make)(const NetworkOptions&);
  // Makes one step of the discriminator, and when it is due one of the generator, on the step's images.
  void (*step)(training::Step&, Trainer&);
};

extern const Recipe kDcgan, kLsgan, kWganGp, kPggan;

std::vector<std::string> recipe_names();
// Errors: ValueError listing the existing names if there is no such recipe.
const Recipe& recipe(const std::string& name);

}  // namespace gradus::examples
