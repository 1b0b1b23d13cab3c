// preload: a data set in memory, of which the ranks of a host have one copy.
//
//   data::ImageFolder files(path, {.transform = Compose({Resize(256), CenterCrop(224), ToTensor()})});
//   data::TensorDataset train = data::preload(files, {.num_workers = 4});
#pragma once

#include <cstdint>
#include <string>

#include "gradus/data/dataset.h"

namespace gradus::data {

struct PreloadOptions {
  int num_workers = 0;  // threads that read; 0: the calling thread
  uint64_t seed = 0;    // of random ops in the data set, which run once per sample
  // Distinguishes this data set from others of the same name, size, first and last sample, which are taken for the
  // same one.
  std::string key = {};
};

// Returns all samples of `dataset`, which are stored as they are: give it the transforms that are the same in each
// epoch, and the random ones to DataLoaderOptions::batch_transform. The first rank of a host that calls preload
// reads them, in the order of their indices; the others wait (Job::share). Each rank reads the first and the last
// sample, to recognize the data set. Random numbers of a sample depend on (seed, index). The memory is freed with the
// last TensorDataset that uses it, and must not be written.
// Shapes: samples [...] -> inputs [N,...]; the same for targets.
// Errors: ValueError for an empty data set or one whose size overflows; SampleError, also for a sample of another
// shape or dtype than the first one; those of DataLoader and Job::share.
TensorDataset preload(DatasetArg dataset, const PreloadOptions& options = {});

}  // namespace gradus::data
