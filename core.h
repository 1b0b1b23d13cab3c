// What trains a network: tensors, differentiable ops, recordings, modules, optimizers. gradus/gradus.h adds data, files,
// several processes, the profiler, gradient checks.
#pragma once

#include "gradus/autograd/autocast.h"
#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/indexing.h"
#include "gradus/autograd/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optim.h"
#include "gradus/tensor/context.h"
#include "gradus/tensor/parallel.h"
#include "gradus/tensor/random.h"
#include "gradus/tensor/tensor.h"
