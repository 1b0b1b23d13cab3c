// What trains GANs beside layers and networks: averages of weights, losses, penalties.
#pragma once

#include "gradus/train/gan/ema.h"
#include "gradus/train/gan/losses.h"
#include "gradus/train/gan/penalties.h"
