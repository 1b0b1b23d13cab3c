// A file of choices (conv_choice.h) for one GPU model and one version of cuDNN: a line for each convolution.
//
//   gradus_conv_plans 2 cudnn 91900 device 9 0 NVIDIA H100 80GB HBM3
//   forward f32 tf32 0 relu 0 deterministic 0 x 4 32 64 56 56 w 4 64 64 3 3 stride 2 1 1 padding 2 1 1
//     dilation 2 1 1 alignments 4 16 16 16 0 engine 70 knobs 2 2 4 18 0
//
// The second and third line are one line of the file. Lists begin with their size. A knob: type and value.
#pragma once

#include <cstdint>
#include <filesystem>

#include "gradus/tensor/cuda/cudnn/conv_choice.h"

namespace gradus::cuda {

struct PlanFile {
  int64_t cudnn_version = 0;  // engines and knobs of one version are not those of another
  DeviceModel model;
  ConvChoices choices;  // at most kMaxChoices
};

// Writes a temporary file in the same folder and renames it to `path`.
// Errors: FileError.
void write_plan_file(const char* op, const std::filesystem::path& path, const PlanFile& file);

// Errors: FileError: the file is missing, malformed, or larger than kMaxChoices lines need.
PlanFile read_plan_file(const char* op, const std::filesystem::path& path);

}  // namespace gradus::cuda
