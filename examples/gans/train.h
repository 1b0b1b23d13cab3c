// The training of the gan program, run by every rank.
#pragma once

#include "gradus/examples/gans/args.h"

namespace gradus::examples {

// Trains as `a` says, on *a.device, which must be set. Collective. Writes checkpoints, sample grids, metrics
// and, as asked, events, a summary and the exported weights.
// Errors: ValueError for a batch that the ranks cannot divide equally, and as check_capture; DeviceError for a
// model whose ops have no GPU kernels.
void train_gan(const Args& a);

}  // namespace gradus::examples
