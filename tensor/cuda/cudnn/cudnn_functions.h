// The functions of cuDNN that Gradus calls: cuDNN's backend API, which plans and runs graphs of operations.
// Programs do not link with cuDNN: the first convolution on a GPU opens the library with dlopen.
//
//   cudnnHandle_t handle;
//   const cudnnStatus_t status = cudnn("conv2d").cudnnCreate(&handle);
#pragma once

#include <cudnn_graph.h>

// Expands F(name) for each function.
#define GRADUS_CUDNN_FUNCTIONS(F)  \
  F(cudnnGetVersion)               \
  F(cudnnCreate)                   \
  F(cudnnDestroy)                  \
  F(cudnnSetStream)                \
  F(cudnnGetErrorString)           \
  F(cudnnGetLastErrorString)       \
  F(cudnnBackendCreateDescriptor)  \
  F(cudnnBackendDestroyDescriptor) \
  F(cudnnBackendSetAttribute)      \
  F(cudnnBackendGetAttribute)      \
  F(cudnnBackendFinalize)          \
  F(cudnnBackendExecute)

namespace gradus::cuda {

// Pointers to the functions, with cuDNN's names and signatures.
struct Cudnn {
#define GRADUS_MEMBER(name) decltype(&::name) name;
  GRADUS_CUDNN_FUNCTIONS(GRADUS_MEMBER)
#undef GRADUS_MEMBER
};

// Returns the functions, loaded until the process ends. The first call opens the library. Thread-safe.
// Errors: DeviceError if cuDNN, cuBLASLt or a function is missing, with the name `op` of the calling op and how to
// install the library. A later call tries again.
const Cudnn& cudnn(const char* op);

}  // namespace gradus::cuda
