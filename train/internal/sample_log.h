// SampleLog: records the samples of each step, so that tests can check that each is used once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "gradus/data/dataloader.h"

namespace gradus::training::internal {

// A text file that rank 0 writes. Every run of a training appends to the file:
//   from EPOCH SAMPLES              a run begins at this position; earlier lines of later positions are void
//   EPOCH SAMPLES INDEX INDEX ...   a step of all ranks ends at this position, and uses these samples
// The line of a step is written before the step changes a weight.
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
