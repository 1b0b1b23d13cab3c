// NVIDIA's libraries are large, so no program is linked with them: each is opened when it is first needed.
#pragma once

namespace gradus::cuda {

struct Library {
  const char* file;     // "libcublasLt.so.13"
  const char* need;     // "matrix products on CUDA devices need cuBLASLt"
  const char* package;  // of Python's, which has it
};

// Opens a library: where the loader looks, and then below CUDA_HOME, as the build does.
// Errors: DeviceError naming `op` that says how to install it.
void* open_library(const char* op, const Library& library);
// Returns the address of a function.
// Errors: DeviceError where there is none.
void* find_function(const char* op, const Library& library, void* opened, const char* name);

}  // namespace gradus::cuda
