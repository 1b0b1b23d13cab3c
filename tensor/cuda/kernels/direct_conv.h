// Convolutions by their definition, of dense images with channels innermost: for what the library has no plan
// for. Each element of a result is one sum in a fixed order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/kernels/strided_index.h"

namespace gradus::cuda {

// One axis of a convolution: sizes of the input and the output, and where the taps of a filter lie.
struct ConvAxis {
  int64_t in, out, taps, stride, padding, dilation;
};

struct DirectConv {
  int64_t images, in_channels, out_channels, groups;
  ConvAxis d, h, w;
};

// All are f64, f32, f16 or bf16. 16-bit products are summed in f32, and rounded once.

// Filters lie as [taps, in_channels / groups, out_channels]. `bias`, [out_channels], may be null.
void direct_conv(const char* op, const View& y, const View& x, const View& filters, const View& bias,
                 const DirectConv& c, cudaStream_t stream);
// Filters lie as [taps, out_channels / groups, in_channels].
void direct_conv_input_grad(const char* op, const View& dx, const View& dy, const View& filters,
                            const DirectConv& c, cudaStream_t stream);
// The gradient lies as [out_channels, in_channels / groups, taps].
void direct_conv_weight_grad(const char* op, const View& dw, const View& dy, const View& x,
                             const DirectConv& c, cudaStream_t stream);

}  // namespace gradus::cuda
