// Everything of optim.
#pragma once

#include "gradus/optim/adadelta.h"
#include "gradus/optim/adam.h"
#include "gradus/optim/clip_grad.h"
#include "gradus/optim/lr_schedule.h"
#include "gradus/optim/sgd.h"
