// ParallelStreams: an IterableDataset of several others, each of which a thread reads in advance, as MegEngine's
// DataLoader(parallel_stream=True).
//
//   data::ParallelStreams shards({std::make_shared<Lines>("a.txt"), std::make_shared<Lines>("b.txt")});
//   data::IterableLoader loader(shards, {.batch_size = 64});
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gradus/data/iterable_dataset.h"

namespace gradus::data {

struct ParallelStreamsOptions {
  int64_t prefetch = 64;  // samples that each thread reads in advance
};

// Takes one sample from each part in turn; parts that have ended are skipped. Samples and random numbers do not depend on
// the threads. Each rank reads all samples: the loader drops those of other ranks, and when it resumes those before the
// saved state. There is a thread for each part, and the parts are read at the same time.
class ParallelStreams : public IterableDataset {
 public:
  // Errors: ValueError for no parts, a null part, and a prefetch outside of [1, 2^20].
  explicit ParallelStreams(std::vector<std::shared_ptr<const IterableDataset>> parts,
                           const ParallelStreamsOptions& options = {});

  std::string name() const override;
  // Opens the epoch of all parts, in their threads. An exception of a part arrives in place of its sample. The threads
  // end with the stream, after the reads in progress.
  std::unique_ptr<SampleStream> open(uint64_t epoch) const override;

 private:
  std::vector<std::shared_ptr<const IterableDataset>> parts_;
  ParallelStreamsOptions options_;
};

}  // namespace gradus::data
