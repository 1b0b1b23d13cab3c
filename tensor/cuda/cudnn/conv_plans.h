// Plans of convolutions on CUDA devices: chosen by cuDNN's heuristic or measured once, and stored in a file.
//
//   cuda::set_cudnn_benchmark(true);
//   if (std::filesystem::exists("plans.txt")) cuda::load_plans("plans.txt");
//   train();
//   cuda::save_plans("plans.txt");       // the next run uses the same engines and measures nothing
#pragma once

#include <cstdint>
#include <filesystem>

#include "gradus/tensor/base/device.h"

namespace gradus::cuda {

// Whether a convolution without a plan runs several plans and keeps the fastest. The host waits for these
// runs. Off by default: the library's heuristic chooses.
void set_cudnn_benchmark(bool on);
bool uses_cudnn_benchmark();

// Writes the choices for the GPU model of a device to a file (plan_file.h), which is replaced atomically.
// Returns the number of convolutions.
// Errors: FileError; DeviceError without the library or the device.
int64_t save_plans(const std::filesystem::path& path, Device device = "cuda:0");

// Reads a file of save_plans. Its choices replace those for the same convolutions. A choice that the library
// refuses, or that may not run, is made again when its convolution runs. Returns the number of convolutions.
// Errors: FileError, and nothing is changed: the file is missing, malformed, or for another GPU model or
// version of cuDNN; DeviceError without the library or the device.
int64_t load_plans(const std::filesystem::path& path, Device device = "cuda:0");

// Drops all plans and choices. They are made again when their convolutions run.
void clear_plans();

}  // namespace gradus::cuda
