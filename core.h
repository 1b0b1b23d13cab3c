// Umbrella header for training a network in one process: tensors, differentiable ops, gradient recording
// (GradManager), modules, optimizers. gradus/gradus.h adds data loading, files, distributed training, models,
// the profiler and gradient checks.
#pragma once

#include "gradus/autograd/captured_step.h"
#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/anomaly.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/autograd/indexing.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optim.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/flush_denormal.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tensor/tensor.h"
