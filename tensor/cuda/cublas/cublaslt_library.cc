// cublaslt(): opens the cuBLASLt of the CUDA toolkit with dlopen, and looks up all its functions once.
#include "gradus/tensor/cuda/cublas/cublaslt_functions.h"
#include "gradus/tensor/cuda/runtime/open_library.h"

namespace gradus::cuda {

const CublasLt& cublaslt(const char* op) {
  // Initialized once, by one thread. If this throws, the next call tries again.
  static const CublasLt functions = [&] {
    constexpr Library library{"libcublasLt.so.13", "matrix products on CUDA devices need cuBLASLt",
                              "nvidia-cublas"};
    void* const opened = open_library(op, library);
#define GRADUS_FUNCTION(name) reinterpret_cast<decltype(&::name)>(find_function(op, library, opened, #name)),
    return CublasLt{GRADUS_CUBLASLT_FUNCTIONS(GRADUS_FUNCTION)};
#undef GRADUS_FUNCTION
  }();
  return functions;
}

}  // namespace gradus::cuda
