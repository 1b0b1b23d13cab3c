// IterableDataset: samples that are read in order and whose number is unknown (logs, archives, generators), as
// torch.utils.data.IterableDataset. IterableLoader makes batches of them.
//
//   class Lines : public data::IterableDataset {
//     struct Stream : data::SampleStream {
//       std::ifstream file{"numbers.txt"};
//       std::optional<data::Sample> next() override {
//         std::string line;
//         if (!std::getline(file, line)) return std::nullopt;
//         return data::Sample{scalar(std::stof(line))};
//       }
//     };
//     std::unique_ptr<data::SampleStream> open(uint64_t) const override { return std::make_unique<Stream>(); }
//   };
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gradus/data/dataset.h"

namespace gradus::data {

// The samples of one epoch. One thread uses a stream.
class SampleStream {
 public:
  virtual ~SampleStream() = default;
  // Returns the next sample; nullopt at the end. Each sample has a separate random generator, which depends on
  // seed, epoch and the sample's position alone.
  virtual std::optional<Sample> next() = 0;
  // Passes over the next sample, which belongs to another rank or was read before the state was saved. Returns
  // false at the end. Override skip() if that is cheaper than next(), and leaves the stream as next() does.
  virtual bool skip() { return next().has_value(); }
};

class IterableDataset {
 public:
  virtual ~IterableDataset() = default;
  virtual std::string name() const { return "iterable data set"; }  // in errors
  // Opens the samples of an epoch, of all ranks together. Calls with the same epoch must give the same samples
  // in the same order, on each rank and in a run that resumes. Random numbers are the same on all ranks.
  virtual std::unique_ptr<SampleStream> open(uint64_t epoch) const = 0;
};

}  // namespace gradus::data
