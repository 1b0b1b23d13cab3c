// Which cuDNN engine (algorithm) computes each convolution on a GPU: chosen by cuDNN's heuristic or by
// timing. The choices can be saved to a file and loaded. Functions are thread-safe.
//
//   cuda::set_cudnn_benchmark(true);
//   if (std::filesystem::exists("plans.txt")) cuda::load_plans("plans.txt");
//   train();
//   cuda::save_plans("plans.txt");       // the next run uses the same engines and times nothing
#pragma once

#include <cstdint>
#include <filesystem>

#include "gradus/tensor/base/device.h"

namespace gradus::cuda {

// Whether the first call of a convolution without a choice times several plans (at most 8) and uses the
// fastest; the host waits for these runs. Off by default, and within a stream capture: the heuristic's first
// plan is used. training::run turns it on (tensor/ops/images/conv_benchmark.h).
void set_cudnn_benchmark(bool on);
bool uses_cudnn_benchmark();

// Writes the choices for the device's GPU model to a file (plan_file.h), atomically. Returns their number.
// Errors: FileError; DeviceError if cuDNN or the device is missing.
int64_t save_plans(const std::filesystem::path& path, Device device = "cuda:0");
// Reads a file of save_plans. Its choices replace those for the same convolutions. If cuDNN refuses a choice,
// or its engine may not run (docs/cuda.md), its convolution makes a new choice.
// Returns the number of convolutions.
// Errors: FileError if the file is missing, malformed, or for another GPU model or version of cuDNN, and
// DeviceError if cuDNN or the device is missing; then nothing is changed.
int64_t load_plans(const std::filesystem::path& path, Device device = "cuda:0");
// Drops the plans and choices of all devices. New ones are made when convolutions run.
void clear_plans();

}  // namespace gradus::cuda
