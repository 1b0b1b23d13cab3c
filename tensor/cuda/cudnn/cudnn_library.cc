// cudnn(): opens cuDNN, not a part of the CUDA toolkit, with dlopen, and looks up all its functions once.
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/cuda/cudnn/cudnn_functions.h"
#include "gradus/tensor/cuda/runtime/open_library.h"

namespace gradus::cuda {

const Cudnn& cudnn(const char* op) {
  // Initialized once, by one thread. If this throws, the next call tries again.
  static const Cudnn functions = [&] {
    // cuDNN itself opens cuBLASLt by this name, and then finds the library that is already open.
    open_library(op, {"libcublasLt.so.13", "convolutions on CUDA devices need cuBLASLt", "nvidia-cublas"});
    // The same for NVRTC, by which attention is compiled. Without it cuDNN has no plan for attention.
    try {
      open_library(op, {"libnvrtc.so.13", "", ""});
    } catch (const DeviceError&) {
    }
    constexpr Library library{"libcudnn.so.9", "convolutions on CUDA devices need cuDNN",
                              "nvidia-cudnn-cu13"};
    void* const opened = open_library(op, library);
#define GRADUS_FUNCTION(name) reinterpret_cast<decltype(&::name)>(find_function(op, library, opened, #name)),
    return Cudnn{GRADUS_CUDNN_FUNCTIONS(GRADUS_FUNCTION)};
#undef GRADUS_FUNCTION
  }();
  return functions;
}

}  // namespace gradus::cuda
