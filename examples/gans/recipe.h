// Recipe: default options, factory of the networks, and training step of one kind of GAN. dcgan.cc, lsgan.cc and
// so on define one recipe each.
#pragma once

#include <string>
#include <vector>

#include "gradus/examples/gans/networks.h"

namespace gradus::examples {

class Trainer;

// A step as recipes see it. It reads and logs tensors alone, so that a CapturedStep can replay it.
struct GanStep {
  training::Step* training = nullptr;                  // null in a captured step
  bool trains_gen = true;                              // whether the generator steps, too
  bool penalizes_disc = false, penalizes_gen = false;  // whether lazy penalties are due
  Tensor real, real_labels;                            // images in the current size; labels or undefined
  Latents fake;                                        // of the images that the discriminator sees
  Latents gen_fake;   // of the generator's step, unless Recipe::reuses_images
  Latents path;       // of the path length penalty, if it is due: half a batch
  Tensor path_noise;  // [N,C,S,S], likewise
  Tensor alpha;       // of the gradient penalty; undefined unless Recipe::has_penalty
  Tensor times;       // in (0,1); undefined unless Recipe::is_flow
  Tensor dropped;     // of a flow with classes: the labels that count as no class
  std::vector<std::pair<std::string, Tensor>> logged = {};  // of a captured step

  // Calls f with each input tensor, also undefined ones.
  static void each(auto& o, auto&& f) {
    f(o.real), f(o.real_labels), f(o.path_noise), f(o.alpha), f(o.times), f(o.dropped);
    for (auto* from : {&o.fake, &o.gen_fake, &o.path}) Latents::each(*from, f);
  }
  // As training::Step::log. A captured step stores the value in `logged`.
  Tensor log(const std::string& name, const Tensor& value);
};

struct Recipe {
  const char* name;
  NetworkOptions networks;    // by default
  optim::AdamOptions adam;    // of both networks
  int64_t batch = 128;        // images of a step, of all ranks
  int64_t disc_steps = 1;     // of the discriminator, for each of the generator
  bool grows = false;         // progressive growing (gan::Growth)
  int64_t first_size = 4;     // of growing
  bool takes_labels = false;  // supports --conditional
  // The discriminator is a Wasserstein critic: its scores have no targets, so gan::Watch does not warn that it has won.
  bool is_critic = false;
  bool reuses_images = false;  // the generator steps on the images that the discriminator has seen
  bool has_penalty = false;    // on the gradient of scores between real and generated images
  double mixing = 0;           // share of images with mixed styles
  // Lazy penalties: every so many steps, in optimizer steps of their own. 0: none.
  int64_t disc_penalty_every = 0, gen_penalty_every = 0;
  // Weight of R1, (gamma / 2) |gradient|^2, for images of `size` and `batch` of them; null: no such penalty.
  double (*gamma)(int64_t size, int64_t batch) = nullptr;
  // There is no discriminator; the generator is the velocity of flow matching, and a latent has an image's size.
  bool is_flow = false;
  bool ema_first = false;  // the average takes the generator's weights from before the step
  std::unique_ptr<Networks> (*make)(const NetworkOptions&);
  // Makes one step of the discriminator, and when it is due one of the generator, on the step's images.
  void (*step)(GanStep&, Trainer&);
};

extern const Recipe kDcgan, kLsgan, kWganGp, kPggan, kStyleGan1, kStyleGan2, kSngan, kR3gan, kFlow;

std::vector<std::string> recipe_names();
// Errors: ValueError listing the existing names if there is no such recipe.
const Recipe& recipe(const std::string& name);

}  // namespace gradus::examples
