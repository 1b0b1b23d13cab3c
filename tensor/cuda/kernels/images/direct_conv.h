// Launches of direct convolution (cross-correlation) and its gradients: the fallback where cuDNN has no plan.
// Images are dense [images, d, h, w, channels]; a 2-D image has d of size 1. None is empty. Each result is
// one sum in a fixed order: deterministic. Views are device memory; `op` is named in a CudaError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/kernels/strided_index.h"

namespace gradus::cuda {

// One axis; `taps` is the size of a filter. Output o reads inputs o * stride - padding + tap * dilation.
struct ConvAxis {
  int64_t in, out, taps, stride, padding, dilation;
};

struct DirectConv {
  int64_t images, in_channels, out_channels, groups;
  ConvAxis d, h, w;
};

// The views of a call have one dtype: f64, f32, f16 or bf16. 16-bit products are summed in f32, and rounded
// once. `taps` below are those of the three axes, [d.taps, h.taps, w.taps].

// y = conv(x, filters) + bias. Filters: [taps, in_channels / groups, out_channels]; bias: [out_channels], no
// bias if bias.data is null.
void direct_conv(const char* op, const View& y, const View& x, const View& filters, const View& bias,
                 const DirectConv& c, cudaStream_t stream);
// dx from dy. Filters: [taps, out_channels / groups, in_channels].
void direct_conv_input_grad(const char* op, const View& dx, const View& dy, const View& filters,
                            const DirectConv& c, cudaStream_t stream);
// dw, [out_channels, in_channels / groups, taps], from dy and x.
void direct_conv_weight_grad(const char* op, const View& dw, const View& dy, const View& x,
                             const DirectConv& c, cudaStream_t stream);

}  // namespace gradus::cuda
