// How a kernel for convolution looks to the tables in conv.cc.
#pragma once

#include <memory>

#include "gradus/tensor/ops/images/conv.h"

namespace gradus {

namespace onednn {
struct Plan;
}

// A convolution of channels-last images, or one gradient of it. x is the image, w the weight and y the
// result, or their gradients: a direction computes one of them from the other two. The bias, or its gradient,
// may be undefined.
struct ConvProblem {
  const Tensor &x, &w, &bias, &y;
  const raw::ConvGeometry& geometry;
  mutable std::shared_ptr<const onednn::Plan> plan = nullptr;  // set where oneDNN applies
};

struct ConvKernel {
  const char* name;
  bool (*applies)(const ConvProblem&);  // serves the problem, and is faster than those after it in the table
  void (*run)(const ConvProblem&);
};

// One method, for all directions that it has.
struct ConvKernels {
  ConvKernel forward = {}, input_grad = {}, weight_grad = {};
};

}  // namespace gradus
