// Recipe: construction, options and step of one model. Each model has its own file.
#pragma once

#include <string>
#include <vector>

#include "gradus/examples/gans/networks.h"

namespace gradus::examples {

class Trainer;

struct Recipe {
  const char* name;
  NetworkOptions networks;  // by default
  optim::AdamOptions adam;  // of both networks
  int64_t batch = 128;      // images of a step, of all ranks
  int64_t disc_steps = 1;   // of the discriminator, for each of the generator
  bool grows = false;
  bool takes_labels = false;
  bool is_critic = false;  // unbounded scores
  std::unique_ptr<Networks> (*make)(const NetworkOptions&);
  // Trains both networks on the step's images.
  void (*step)(training::Step&, Trainer&);
};

extern const Recipe kDcgan, kLsgan, kWganGp, kPggan;

std::vector<std::string> recipe_names();
// Errors: ValueError with the names.
const Recipe& recipe(const std::string& name);

}  // namespace gradus::examples
