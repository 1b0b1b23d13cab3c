// What trains GANs beside layers and networks: averages of weights, growth, latents, losses, penalties,
// what goes wrong.
#pragma once

#include "gradus/train/gan/ema.h"
#include "gradus/train/gan/growth.h"
#include "gradus/train/gan/latents.h"
#include "gradus/train/gan/losses.h"
#include "gradus/train/gan/penalties.h"
#include "gradus/train/gan/watch.h"
