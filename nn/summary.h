// Summary of a network: what it has, computes and holds, found on the meta device, without data.
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
  int64_t parameters = 0;  // elements, those of the layers below included
  int64_t flops = 0;       // of the forward, those of the layers below included
};

// FLOPs are those of matrix products and convolutions, two for each multiply-add. Bytes are what tensors take
// from the allocator; scratch memory and reordered weights, which kernels take for themselves, come on top.
struct Summary {
  std::vector<LayerCall> calls;  // in the order in which they began
  int64_t parameters = 0, parameter_bytes = 0, buffer_bytes = 0;
  int64_t forward_flops = 0;
  int64_t training_flops = 0;  // forward and backward
  // Parameters, buffers, input and activations of a forward without recording.
  int64_t inference_peak_bytes = 0;
  // Modules without a parent that the network calls: not counted, trained or saved with it.
  std::vector<std::string> apart;
  int64_t training_peak_bytes = 0;  // the same of a recorded forward and its backward, gradients included
};

// Runs `net` on an input of shape `input` on the meta device: nothing is allocated and nothing computed. The
// network itself is not changed, and may have been built on the meta device (Context::device = kMeta), so
// that it has no memory either.
// Errors: what the network throws for such an input; DeviceError when it reads elements, of which
// there are none.
Summary summary(Layer& net, const Shape& input, SummaryOptions options = {});

// autograd::explain(loss): which parameters a loss reaches, by the names that they have in `net`.
std::string explain(const Tensor& loss, const Module& net);

// A table of the calls, then the totals.
std::string to_string(const Summary& s);
std::ostream& operator<<(std::ostream& out, const Summary& s);

}  // namespace gradus::nn
