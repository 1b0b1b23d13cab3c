// What trains GANs beside layers and networks: losses and penalties.
#pragma once

#include "gradus/train/gan/losses.h"
#include "gradus/train/gan/penalties.h"
