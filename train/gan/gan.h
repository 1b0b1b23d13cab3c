// Umbrella header of GAN training: averages of weights, progressive growing, latents, losses, penalties, style
// mixing, checks.
#pragma once

#include "gradus/train/gan/ema.h"
#include "gradus/train/gan/growth.h"
#include "gradus/train/gan/latents.h"
#include "gradus/train/gan/lazy_regularization.h"
#include "gradus/train/gan/losses.h"
#include "gradus/train/gan/path_length.h"
#include "gradus/train/gan/penalties.h"
#include "gradus/train/gan/style_mixing.h"
#include "gradus/train/gan/watch.h"
