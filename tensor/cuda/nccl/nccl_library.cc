// nccl(): opens NCCL, not a part of the CUDA toolkit, with dlopen, and looks up all its functions once.
#include "gradus/tensor/cuda/nccl/nccl_functions.h"
#include "gradus/tensor/cuda/runtime/open_library.h"

namespace gradus::cuda {

const Nccl& nccl(const char* op) {
  // Initialized once, by one thread. If this throws, the next call tries again.
  static const Nccl functions = [&] {
    constexpr Library library{"libnccl.so.2", "collectives between CUDA devices need NCCL",
                              "nvidia-nccl-cu13"};
    void* const opened = open_library(op, library);
#define GRADUS_FUNCTION(name) reinterpret_cast<decltype(&::name)>(find_function(op, library, opened, #name)),
    return Nccl{GRADUS_NCCL_FUNCTIONS(GRADUS_FUNCTION)};
#undef GRADUS_FUNCTION
  }();
  return functions;
}

}  // namespace gradus::cuda
