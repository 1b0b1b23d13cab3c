// Summary of a network: its layers, FLOPs and memory. It is computed on the meta device, without data.
#pragma once

#include <string>
#include <vector>

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct SummaryOptions {
  DType dtype = get_default_dtype();  // of the input
};

// One call of a layer.
struct LayerCall {
  std::string path;  // "layer3.1.conv2"; "" for the network itself
  std::string type;  // "Conv2d"
  int depth = 0;
  Shape output;
  int64_t parameters = 0;  // elements, including those of the layers below
  int64_t flops = 0;       // FLOPs of the forward, including those of the layers below
};

// FLOPs are those of matrix products and convolutions, two for each multiply-add. Bytes are what tensors
// take from the allocator. The scratch memory and reordered weights that kernels allocate for themselves
// are not included.
struct Summary {
  std::vector<LayerCall> calls;  // in the order in which they began
  int64_t parameters = 0, parameter_bytes = 0, buffer_bytes = 0;
  int64_t forward_flops = 0;
  int64_t training_flops = 0;  // forward and backward
  // Parameters, buffers, input and activations of a forward without recording.
  int64_t inference_peak_bytes = 0;
  // Notes on modules without a parent that the network calls. They are not counted, trained or saved with it.
  std::vector<std::string> apart;
  int64_t training_peak_bytes = 0;  // the same of a recorded forward and its backward, gradients included
};

// Runs `net` on an input of shape `input` on the meta device, which allocates and computes nothing. The
// network itself is not changed. It may have been built on the meta device (Context::device = kMeta), and
// then takes no memory either.
// Errors: what the network throws for such an input; DeviceError when the network reads elements, which do
// not exist on the meta device.
Summary summary(Layer& net, const Shape& input, SummaryOptions options = {});

// Returns autograd::explain(loss), which says which parameters the loss reaches, with their names in `net`.
std::string explain(const Tensor& loss, const Module& net);

// Returns a table of the calls, then the totals.
std::string to_string(const Summary& s);
std::ostream& operator<<(std::ostream& out, const Summary& s);

}  // namespace gradus::nn
