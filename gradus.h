// All of Gradus: tensors, differentiable ops, recordings, modules, optimizers, data, files, several processes.
#pragma once

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/indexing.h"
#include "gradus/autograd/ops.h"
#include "gradus/data/data.h"
#include "gradus/distributed/distributed.h"
#include "gradus/io/checkpoint.h"
#include "gradus/io/safetensors.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optim.h"
#include "gradus/tensor/context.h"
#include "gradus/tensor/parallel.h"
#include "gradus/tensor/random.h"
#include "gradus/tensor/tensor.h"
