// The training of the gpt program, run by every rank: data parallel, in a pipeline, or both.
#pragma once

#include "gradus/examples/text/args.h"

namespace gradus::examples {

void train_gpt(const TextArgs& a);

}  // namespace gradus::examples
