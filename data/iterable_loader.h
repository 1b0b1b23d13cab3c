// IterableLoader: batches of an IterableDataset, read in advance by a thread.
//
//   data::IterableLoader loader(lines, {.batch_size = 64});
//   for (int epoch = 0; epoch < 14; ++epoch)
//     for (const data::Batch& b : loader) step(b.input, b.target);
//
// Ranks share a pass as those of a DataLoader share an epoch: sample i of a global batch goes to rank i % ranks.
// Each rank passes over the samples of the other ranks (SampleStream::skip), so that all ranks find the same end,
// and have the same number of batches. The last batches of the ranks differ by at most one sample. If fewer
// samples than ranks remain, they are added to the previous batch; without a previous batch, they are repeated
// until each rank has one (Batch::padding).
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/data/batch_iterator.h"
#include "gradus/data/dataloader.h"
#include "gradus/data/iterable_dataset.h"

namespace gradus::data {

struct IterableLoaderOptions {
  int64_t batch_size = 1;         // per rank; the last batch may have one more
  int64_t global_batch_size = 0;  // of all ranks together, a multiple of their number; replaces batch_size
  bool drop_last = false;         // drop the last global batch if it is not full
  int prefetch = 2;               // batches that a thread reads in advance; 0 reads in the calling thread
  // Of random ops in the streams and in batch_transform. Default: the current generator's seed (manual_seed).
  std::optional<uint64_t> seed = {};
  // This loader's shard, as DataLoaderOptions. A data set that opens other samples on each rank needs world_size
  // = 1: then the ranks may have different numbers of batches, see DistributedDataParallel::join, and each rank
  // resumes from its own state.
  int rank = -1;
  int world_size = -1;
  // As DataLoaderOptions. `indices` are positions in the stream.
  std::function<Batch(const std::vector<Sample>& samples, std::span<const int64_t> indices)> collate = {};
  std::function<Batch(Batch)> batch_transform = {};
  std::optional<Device> device = {};
  std::chrono::milliseconds timeout{0};  // of the wait for a batch; 0: no limit, required without prefetch
};

namespace internal {
struct StreamPlan;
}  // namespace internal

class IterableLoader {
 public:
  using Iterator = BatchIterator;

  // `dataset` is borrowed if it is an lvalue, which must outlive the loader; a moved data set is owned.
  // Errors: ValueError for an invalid option, for a null data set, and if the n-th loaders of the ranks differ
  // (as DataLoader); DeviceError if the device does not exist.
  explicit IterableLoader(const IterableDataset& dataset, IterableLoaderOptions options = {})
      : IterableLoader(std::shared_ptr<const IterableDataset>(std::shared_ptr<void>(), &dataset),
                       std::move(options)) {}
  explicit IterableLoader(std::shared_ptr<const IterableDataset> dataset, IterableLoaderOptions options = {});
  template <class D>
    requires(!std::is_lvalue_reference_v<D> && std::derived_from<std::remove_cvref_t<D>, IterableDataset>)
  explicit IterableLoader(D&& dataset, IterableLoaderOptions options = {})
      : IterableLoader(std::shared_ptr<const IterableDataset>(
                           std::make_shared<std::remove_cvref_t<D>>(std::move(dataset))),
                       std::move(options)) {}

  // Movable, not copyable: a copy would share the position.
  IterableLoader(IterableLoader&&) = default;
  IterableLoader& operator=(IterableLoader&&) = default;

  // Starts the next epoch, or continues from the state passed to set_state. The reading thread runs in a copy of
  // the caller's Context.
  // Errors: those of reading the first batch: exceptions of the data set, as SampleError if a sample was read;
  // LoaderTimeoutError; ValueError if the data set has fewer samples than the state. The iterator throws them in
  // place of the batch, which ends the epoch.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  // Returns the current epoch, or the next one between epochs.
  uint64_t epoch() const { return state().epoch; }
  // Returns the position, for checkpoints: as DataLoader::state, with dataset_size = -1. It is the same on all
  // ranks, and any number of ranks resumes from it.
  LoaderState state() const;
  // Makes the next begin() continue from `state`; it opens the epoch and passes over state.samples samples.
  // Errors: ValueError for a state of another kind or seed, or with impossible numbers.
  void set_state(const LoaderState& state);

 private:
  std::shared_ptr<internal::StreamPlan> plan_;
};

}  // namespace gradus::data
