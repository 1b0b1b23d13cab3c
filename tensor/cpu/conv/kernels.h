// The interface between the convolution algorithms and the tables in conv.cc that select one.
#pragma once

#include <memory>

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

namespace onednn {
struct Plan;
}

// A convolution y = conv(x, w) + bias of channels-last images, or one of its gradients. The forward reads x, w and
// bias and writes y. The input gradient writes x from w and y, the weight gradient writes w and bias from x and y:
// then these members are the gradients dx, dw, db and dy. `bias` may be undefined.
struct ConvProblem {
  const Tensor &x, &w, &bias, &y;
  const raw::ConvGeometry& geometry;
  mutable std::shared_ptr<const onednn::Plan> plan = nullptr;  // set by the test whether oneDNN applies
};

// One algorithm for one direction. The profiler shows its name.
struct ConvKernel {
  const char* name;
  bool (*applies)(const ConvProblem&);  // supported, and faster than the later entries of the table
  void (*run)(const ConvProblem&);
};

// One algorithm for all directions. Unsupported directions are empty.
struct ConvKernels {
  ConvKernel forward = {}, input_grad = {}, weight_grad = {};
};

}  // namespace gradus
