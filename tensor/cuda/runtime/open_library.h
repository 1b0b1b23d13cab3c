// Opens NVIDIA's libraries (cuBLASLt, cuDNN) with dlopen when first needed: programs start without them.
#pragma once

namespace gradus::cuda {

// A library and texts for the error if it is missing.
struct Library {
  const char* file;     // "libcublasLt.so.13"
  const char* need;     // "matrix products on CUDA devices need cuBLASLt"
  const char* package;  // the Python package that contains the library: "nvidia-cublas"
};

// Returns dlopen's handle. Searches the loader's paths, then $CUDA_HOME/lib64 (/usr/local/cuda/lib64).
// Errors: DeviceError naming `op`, with how to install the library.
void* open_library(const char* op, const Library& library);
// Returns the address of a function of a library that open_library() returned.
// Errors: DeviceError naming `op` if there is none.
void* find_function(const char* op, const Library& library, void* opened, const char* name);

}  // namespace gradus::cuda
