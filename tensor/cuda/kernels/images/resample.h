// Launch of separable resampling (interpolation, all padding but constant, and their gradients), for the slot of
// tensor/ops/images/resample.h. Arrays are in device memory; `op` is named in a CudaError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gradus::cuda {

// The sparse matrix [out, in] of an axis in CSR format: y[i] = sum of weight[k] * x[from[k]] for k in [start[i],
// start[i + 1]); `from` has positions in [0, in). A null `start` is the identity.
struct ResampledAxis {
  int64_t in, out;
  const int64_t *start, *from;
  const double* weight;
};
// x is dense [images, d.in, h.in, w.in, channels], y [images, d.out, h.out, w.out, channels]; not empty.
struct ResampledImages {
  int64_t images, channels;
  ResampledAxis d, h, w;
};

// T is float or double.
template <class T>
void resample(const char* op, T* y, const T* x, const ResampledImages& s, cudaStream_t stream);

}  // namespace gradus::cuda
