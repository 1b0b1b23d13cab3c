// What turns a loop into a program: the whole training's checkpoint, and metrics over all ranks.
#pragma once

#include "gradus/train/metrics.h"
#include "gradus/train/training_state.h"
