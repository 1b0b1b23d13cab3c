// All differentiable ops.
#pragma once

#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/conv.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/dropout.h"
#include "gradus/autograd/ops/elementwise.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/autograd/ops/join.h"
#include "gradus/autograd/ops/loss.h"
#include "gradus/autograd/ops/matmul.h"
#include "gradus/autograd/ops/norm.h"
#include "gradus/autograd/ops/pool.h"
#include "gradus/autograd/ops/random.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/softmax.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/ops/creation.h"
