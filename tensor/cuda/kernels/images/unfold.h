// Launches of unfold (im2col) and fold (col2im), for the slots of tensor/ops/images/unfold.h. Arrays are row-major
// and in device memory: images [channels, h.image, w.image], with the channels of all images of a batch, and columns
// [channels, h.kernel, w.kernel, h.blocks, w.blocks]. `op` is named in a CudaError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gradus::cuda {

// One axis of UnfoldWindows. Tap i of window p is at pixel p * stride - padding + i * dilation. Each number is
// positive, or 0 for padding; image + 2 padding + kernel * dilation + stride < 2^31.
struct UnfoldAxis {
  int32_t image, blocks, kernel, stride, padding, dilation;
};
struct Unfolding {
  int64_t channels;  // positive
  UnfoldAxis h, w;
};

// columns[c, i, j, p, q] = images[c, h of tap i of window p, w of tap j of window q], 0 outside of the image. T is
// float or double.
template <class T>
void unfold(const char* op, T* columns, const T* images, const Unfolding& s, cudaStream_t stream);
// images[c, h, w] = sum of the columns that unfold() copies from this pixel.
template <class T>
void fold(const char* op, T* images, const T* columns, const Unfolding& s, cudaStream_t stream);

}  // namespace gradus::cuda
