// Launches of upfirdn2d (upsampling with zeros, FIR filtering, downsampling) and of the gradient of its filter, for
// the slots of tensor/ops/images/upfirdn.h. Arrays are dense and in device memory: x [images, h.in, w.in, channels],
// y and dy [images, h.out, w.out, channels], filter and its gradient [h.kernel, w.kernel]. `op` is named in a
// CudaError. T is float or double.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gradus::cuda {

// One axis of UpfirdnGeometry. Tap i of output p is at position p * down + i - padding of the upsampled axis, whose
// position u * up is input u, and 0 elsewhere. in * up + out * down + kernel + |padding| < 2^31.
struct UpfirdnAxis {
  int32_t in, out, kernel, up, down, padding;
};
// Sizes are positive. flipped: tap (i, j) has filter[i, j], else filter[h.kernel - 1 - i, w.kernel - 1 - j].
struct Upfirdn {
  int64_t images, channels;
  UpfirdnAxis h, w;
  int64_t flipped;  // 0 or 1
};

// y[n, p, q, c] = sum over taps (i, j) of the filter's element times input (n, h, w, c) at the tap.
template <class T>
void upfirdn2d(const char* op, T* y, const T* x, const T* filter, const Upfirdn& s, cudaStream_t stream);

// dfilter of tap (i, j) = sum over n, p, q, c of dy[n, p, q, c] times input (n, h, w, c) at the tap, in f64.
// `workspace` has upfirdn2d_filter_grad_workspace() bytes, aligned to 8.
template <class T>
void upfirdn2d_filter_grad(const char* op, T* dfilter, const T* dy, const T* x, const Upfirdn& s,
                           void* workspace, cudaStream_t stream);
int64_t upfirdn2d_filter_grad_workspace(const Upfirdn& s);

}  // namespace gradus::cuda
