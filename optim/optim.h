// Includes all public headers of optim: optimizers, schedules, clipping, loss scaling, weight averages.
#pragma once

#include "gradus/optim/averaged_model.h"
#include "gradus/optim/clip_grad.h"
#include "gradus/optim/grad_scaler.h"
#include "gradus/optim/optimizer_dict.h"
#include "gradus/optim/optimizer_wrapper.h"
#include "gradus/optim/optimizers/adafactor.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/optim/optimizers/lars.h"
#include "gradus/optim/optimizers/lbfgs.h"
#include "gradus/optim/optimizers/muon.h"
#include "gradus/optim/optimizers/rmsprop.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/optim/schedules/cyclic_lr.h"
#include "gradus/optim/schedules/joined_lr.h"
#include "gradus/optim/schedules/lr_schedule.h"
