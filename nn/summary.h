// summary: the layer calls, FLOPs and peak memory of a network, computed on the meta device without data.
#pragma once

#include <string>
#include <vector>

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct SummaryOptions {
  DType dtype = get_default_dtype();  // dtype of the input
};

// One call of a Layer. Other modules, such as nn::LSTM, have no entry of their own.
struct LayerCall {
  std::string path;  // "layer3.1.conv2"; "" for the network itself
  std::string type;  // "Conv2d"
  int depth = 0;
  Shape output;
  int64_t parameters = 0;  // number of parameter elements, including modules below
  int64_t flops = 0;       // FLOPs of the forward, including modules below
};

// FLOPs are those of matrix products and convolutions, 2 per multiply-add. Bytes are those that tensors
// allocate, without workspaces and reordered weights of kernels.
struct Summary {
  std::vector<LayerCall> calls;  // in the order in which the calls began
  int64_t parameters = 0, parameter_bytes = 0, buffer_bytes = 0;
  int64_t forward_flops = 0;
  int64_t training_flops = 0;  // forward and backward
  // Peak of parameters, buffers, input and activations in a forward without recording.
  int64_t inference_peak_bytes = 0;
  // Messages about modules without a parent that the network calls, which are not part of its parameters.
  std::vector<std::string> unregistered;
  int64_t training_peak_bytes = 0;  // peak of a recorded forward and its backward, including gradients
};

// Runs `net` on an input of shape `input` on the meta device, which neither allocates nor computes. Does not
// change the network, which may have been constructed on the meta device (Context::device = kMeta) and then
// takes no memory.
// Errors: errors of the network for this input; DeviceError when the network reads elements of a meta tensor.
Summary summary(Layer& net, const Shape& input, SummaryOptions options = {});

// Returns autograd::explain(loss) with the names of the parameters in `net`. Errors: as autograd::explain.
std::string explain(const Tensor& loss, const Module& net);

// Returns a table of the calls, followed by the totals.
std::string to_string(const Summary& s);
std::ostream& operator<<(std::ostream& out, const Summary& s);

}  // namespace gradus::nn
