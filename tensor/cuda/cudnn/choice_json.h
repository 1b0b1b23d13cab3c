// Choices of engines (conv_choice.h) as JSON: a line for each convolution.
//
//   {"format": "gradus convolution plans", "version": 1, "cudnn": 91900, "devices": [
//   {"name": "NVIDIA H100 80GB HBM3", "compute_capability": [9, 0], "convolutions": [
//   {"pass": "forward", "dtype": "f32", "tf32": false, "x": [32, 64, 56, 56], "w": [64, 64, 3, 3],
//    "stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "alignments": [16, 16, 16, 0],
//    "engine": 70, "knobs": [[2, 4], [18, 0]]}]}]}
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "gradus/tensor/cuda/cudnn/conv_choice.h"

namespace gradus::cuda {

// A file that has more is refused. kMostChoices with kMostKnobs each take less.
inline constexpr size_t kMostBytesOfChoices = 16 << 20;
inline constexpr size_t kMostKnobs = 32;  // engines of cuDNN 9.19 have some 10

// `version` is the library's: its engines and knobs are those of no other.
std::string to_json(const ConvChoices& choices, int64_t version);

// Reads what to_json wrote. `path` is the name in errors.
// Errors: FileError for anything else, and for another version.
ConvChoices from_json(const char* op, const std::filesystem::path& path, const std::string& text,
                      int64_t version);

// Returns the choices that from_json takes. It would refuse a file with any of the others, such as one of
// more than kMostKnobs.
ConvChoices storable(const ConvChoices& choices, int64_t version);

}  // namespace gradus::cuda
