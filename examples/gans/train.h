// Trains a GAN: what --model, --data and the other options say.
#pragma once

#include "gradus/examples/gans/args.h"

namespace gradus::examples {

void train_gan(const Args& a);

}  // namespace gradus::examples
