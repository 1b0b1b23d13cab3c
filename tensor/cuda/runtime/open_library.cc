// Opens shared libraries with dlopen, and collects the loader's messages for the error if all paths fail.
#include "gradus/tensor/cuda/runtime/open_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "gradus/tensor/base/error.h"

namespace gradus::cuda {

void* open_library(const char* op, const Library& library) {
  const char* const home = std::getenv("CUDA_HOME");
  const std::string file = library.file;
  std::string reasons;
  for (const std::string& path : {file, std::string(home ? home : "/usr/local/cuda") + "/lib64/" + file}) {
    if (void* const opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return opened;
    reasons += std::string("\n  ") + dlerror();
  }
  throw DeviceError(op, library.need, ", and ", file,
                    " cannot be opened. It is part of NVIDIA's CUDA toolkit, and of the Python package ",
                    library.package,
                    "; `tools/cuda-toolkit.sh` fetches it. CUDA_HOME names the toolkit's folder.", reasons);
}

void* find_function(const char* op, const Library& library, void* opened, const char* name) {
  void* const found = dlsym(opened, name);
  if (!found) throw DeviceError(op, library.file, " has no function ", name, ": another version is needed");
  return found;
}

}  // namespace gradus::cuda
