// Takes the place of cuDNN: it has no plan for any convolution, so our own kernels compute them.
#include "gradus/tensor/cuda/cudnn/cudnn.h"

namespace gradus::cuda {

bool convolve(const char*, const Convolution&, cudaStream_t) { return false; }

}  // namespace gradus::cuda
