// The functions of cuDNN that Gradus calls: its backend API, which plans and runs graphs of operations. No
// program is linked with the library: it is opened when a convolution first needs it (cudnn_library.cc).
#pragma once

#include <cudnn_graph.h>

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

struct Cudnn {
#define GRADUS_MEMBER(name) decltype(&::name) name;
  GRADUS_CUDNN_FUNCTIONS(GRADUS_MEMBER)
#undef GRADUS_MEMBER
};

// Errors: DeviceError naming `op` that says how to install the library, where it is not there.
const Cudnn& cudnn(const char* op);

}  // namespace gradus::cuda
