// The choice of a GPU's convolution algorithms by measured time, for callers that do not depend on a backend. The
// choices are cached in a folder: one file for each GPU model and library version.
#pragma once

#include <filesystem>

#include "gradus/tensor/base/device.h"

namespace gradus::raw {

// A CUDA backend sets the functions; without one they are null.
struct ConvBenchmark {
  // Sets whether the first call of a convolution times several algorithms, and chooses the fastest.
  void (*enable)(bool on) = nullptr;
  // Adds the choices in the folder's file for the device, if there is one.
  // Errors: FileError for a malformed file, and for one of another GPU model or library version; DeviceError if
  // the library or the device is missing.
  void (*load)(const std::filesystem::path& folder, Device device) = nullptr;
  // Replaces the file by one with this process's choices. Creates the folder. Does nothing without choices.
  // Errors: FileError.
  void (*save)(const std::filesystem::path& folder, Device device) = nullptr;
};
inline constinit ConvBenchmark conv_benchmark;

}  // namespace gradus::raw
