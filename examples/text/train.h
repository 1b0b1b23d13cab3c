// The training of the gpt program.
#pragma once

#include "gradus/examples/text/args.h"

namespace gradus::examples {

void train_gpt(const TextArgs& a);

}  // namespace gradus::examples
