// The training of the gan program, run by every rank.
#pragma once

#include "gradus/examples/gans/args.h"

namespace gradus::examples {

void train_gan(const Args& a);

}  // namespace gradus::examples
