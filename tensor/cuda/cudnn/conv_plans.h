// Plans of convolutions on CUDA devices: chosen by cuDNN's heuristic or measured once, and stored as JSON.
//
//   cuda::set_cudnn_benchmark(true);
//   if (std::filesystem::exists("plans.json")) cuda::load_plans("plans.json");
//   train();
//   cuda::save_plans("plans.json");       // the next run computes by the same engines, and measures nothing
#pragma once

#include <cstdint>
#include <filesystem>

namespace gradus::cuda {

// Whether a convolution that has no plan yet runs several plans, and keeps the fastest. The host waits for
// that. Off at first: the library's heuristic chooses.
void set_cudnn_benchmark(bool on);
bool uses_cudnn_benchmark();

// Writes which engines were chosen to a file of JSON, which is replaced as a whole. Returns for how many
// convolutions. At most 8192 choices are kept. One that load_plans would refuse, such as an engine with more
// than 32 knobs, is left out: it is made again, and load_plans takes the file.
// Errors: FileError; DeviceError without the library.
int64_t save_plans(const std::filesystem::path& path);

// Takes choices from a file that save_plans wrote. They replace those that were made for the same
// convolutions. Those for devices that are not here are passed over. A choice that the library refuses, or
// that may not run, is made again when it is needed. Returns for how many convolutions there are choices.
// Errors: FileError, which takes nothing: no such file, another format, another version of cuDNN, or choices
// for other devices alone; DeviceError without the library or a device.
int64_t load_plans(const std::filesystem::path& path);

// Forgets all plans and choices: they are made again when they are needed.
void clear_plans();

}  // namespace gradus::cuda
