// Everything of optim.
#pragma once

#include "gradus/optim/adadelta.h"
#include "gradus/optim/adam.h"
#include "gradus/optim/clip_grad.h"
#include "gradus/optim/lr_schedule.h"
#include "gradus/optim/optimizer_dict.h"
#include "gradus/optim/optimizer_wrapper.h"
#include "gradus/optim/sgd.h"
