// SampleLog: which samples a training has used, for whoever wants to check that each counts once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "gradus/data/dataloader.h"

namespace gradus::training::internal {

// A text file, written by rank 0; every run of a training adds to it:
//   from EPOCH SAMPLES             a run begins there: what follows takes the place of lines of later
//   positions EPOCH SAMPLES INDEX INDEX ...  a step of all ranks ends at that position, and used these
// The line of a step is there before the step changes any weight.
class SampleLog {
 public:
  explicit SampleLog(std::filesystem::path file) : file_(std::move(file)) {}  // "": none

  void begin(const data::LoaderState& at) const;
  // Collective, when there is a file.
  void add(const data::LoaderState& at, const std::vector<int64_t>& indices) const;

 private:
  void write(const std::string& line) const;
  std::filesystem::path file_;
};

}  // namespace gradus::training::internal
