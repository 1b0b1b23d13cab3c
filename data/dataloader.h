// DataLoader: batches of a data set in the sampler's order, read in advance by worker threads, as
// torch.utils.data.DataLoader.
//
//   data::DataLoader loader(train, {.batch_size = 64, .shuffle = true, .num_workers = 2});
//   for (int epoch = 0; epoch < 14; ++epoch)
//     for (const data::Batch& b : loader) step(b.input, b.target);
//
// The batches depend only on the seed and the epoch, not on the number of workers. Each iteration over the
// loader is the next epoch, without calls of set_epoch. One thread uses a loader, with one Iterator at a
// time; workers call Dataset, collate and batch_transform concurrently.
//
// In a job of several ranks, the loader shards by rank. An epoch has one order, which does not depend on the
// number of ranks. The k-th batches of all ranks together are the k-th global batch of that order. Sample i
// of a global batch goes to rank i % ranks. All ranks have the same number of batches.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "gradus/data/batch_iterator.h"
#include "gradus/data/dataset.h"
#include "gradus/data/sampler.h"

namespace gradus::data {

// How to divide the samples of an epoch if they do not give equal batches on all ranks.
enum class Uneven {
  // Every sample is used once, and the ranks' last batches differ by at most one sample. If fewer samples
  // than ranks remain, they are added to the previous batch; without a previous batch, the first samples are
  // repeated until each rank has one.
  kBalance,
  // The first samples of the epoch are repeated until the last batches are equal, as in PyTorch.
  kPad,
  // Samples that cannot be divided equally are dropped.
  kDrop,
};

struct DataLoaderOptions {
  int64_t batch_size = 1;  // per rank
  // Batch size of all ranks together; replaces batch_size, so that the steps do not depend on the number of
  // ranks. Must be a multiple of the number of ranks; with kBalance, which then balances all batches, at
  // least the number of ranks.
  int64_t global_batch_size = 0;
  // Schedule of global batch sizes; replaces global_batch_size. Keys are numbers of samples that all ranks
  // have received before, in all epochs: {{0, 64}, {60'000, 32}}.
  std::map<int64_t, int64_t> global_batch_sizes = {};
  bool shuffle = false;
  int num_workers = 0;     // number of reading threads; 0 reads in the calling thread
  bool drop_last = false;  // drop the last global batch of an epoch if it is not full
  Uneven uneven = Uneven::kBalance;
  int prefetch_factor = 2;  // number of batches that are read in advance per worker
  // The workers read the samples of one batch together, so that it is ready sooner, and then the next one. The batches
  // and errors are the same. Needs two workers; prefetch_factor batches are read in advance. Dataset::get_batch must
  // give each sample as it gives the sample alone.
  bool divide = false;
  // Seed of shuffling and of random ops. Default: the current generator's seed (manual_seed).
  std::optional<uint64_t> seed = {};
  std::shared_ptr<const Sampler> sampler = {};  // replaces `shuffle`
  // This loader's shard of every epoch: see shard(). Default: the sampler's share if it has one, otherwise
  // that of this rank's replica (Job::replica, gradus/tensor/runtime/job.h) at construction. world_size = 1
  // gives every rank all samples.
  // Errors: StateError for the default in a process that was started as a rank but has not joined a job.
  int rank = -1;
  int world_size = -1;
  // Makes a batch from samples; replaces Dataset::get_batch.
  std::function<Batch(const std::vector<Sample>& samples, std::span<const int64_t> indices)> collate = {};
  // Transforms each batch in the worker that has read it (MixUp, CutMix). Random ops in it draw from a
  // separate generator per batch.
  std::function<Batch(Batch)> batch_transform = {};
  // Device of the batches. Default: the device on which the data set makes them. The next batch, if already
  // read, is copied while the loop uses the current one. The current stream waits for the copy, the host does
  // not: docs/guide/data.md.
  // Errors: the constructor throws DeviceError if the device does not exist.
  std::optional<Device> device = {};
  // Maximal time to wait for the workers' next batch before LoaderTimeoutError. 0: no limit; required without
  // workers.
  std::chrono::milliseconds timeout{0};
};

// A loader's position, for checkpoints. The position is the same on all ranks, and can be restored with any
// number of ranks. set_state requires that seed and dataset_size match.
struct LoaderState {
  uint64_t epoch = 0;
  // Number of samples that all ranks together have received in this epoch, including the current batch. With
  // the last batch, the size of the epoch.
  int64_t samples = 0;
  uint64_t seed = 0;
  int64_t dataset_size = 0;
  // Number of samples that all ranks together have received in all epochs, without dropped and with repeated
  // samples.
  int64_t shown = 0;

  static void each(auto& s, auto&& f) {
    f("epoch", s.epoch), f("samples", s.samples), f("seed", s.seed), f("dataset_size", s.dataset_size);
    f("shown", s.shown);
  }
  bool operator==(const LoaderState&) const = default;
};

// A batch was not read within DataLoaderOptions::timeout. The iteration ends. The data set must outlive the
// workers, which end after the reads in progress.
struct LoaderTimeoutError : Error {
  LoaderTimeoutError(const std::string& dataset, std::chrono::milliseconds limit,
                     std::vector<int64_t> indices);
  std::string dataset;
  std::vector<int64_t> indices;  // indices of the samples of the late batch
};

namespace internal {
struct LoaderPlan;
}  // namespace internal

class DataLoader {
 public:
  using Iterator = BatchIterator;

  // Errors: ValueError for an invalid option. ValueError if the ranks of a job would not use the same order:
  // the n-th loaders of all ranks must have equal options, unless rank, world_size, or a sampler with a share
  // is set.
  // `dataset` is borrowed if it is an lvalue, which must outlive the loader; a moved data set is owned.
  explicit DataLoader(DatasetArg dataset, DataLoaderOptions options = {});
  // Movable, not copyable: a copy would share the position.
  DataLoader(DataLoader&&) = default;
  DataLoader& operator=(DataLoader&&) = default;

  // Number of batches in an epoch; with changing batch sizes, in an epoch that begins now.
  int64_t size() const;
  // Number of samples of all ranks together in the next full batch.
  int64_t global_batch_size() const;
  const Dataset& dataset() const;
  const DataLoaderOptions& options() const;

  // Starts the next epoch, or continues from the state passed to set_state. Workers run in a copy of the
  // caller's Context.
  // Errors: those of reading the first batch. The iterator throws a worker's exception in place of its batch,
  // which ends the epoch.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  // Returns the current epoch, or the next one between epochs.
  uint64_t epoch() const { return state().epoch; }
  // Sets the next epoch. LoaderState::shown does not change.
  void set_epoch(uint64_t epoch);

  // Returns the position of the iteration. A state saved during a batch resumes with the next batch. A state
  // saved during the last batch resumes with an empty epoch, so that code that runs after an epoch runs
  // exactly once.
  LoaderState state() const;
  // Returns the number of unreadable samples that were replaced (OnError::kSkip) in this rank's batches of
  // the current, or else the last, epoch.
  int64_t skipped() const;
  // Makes the next begin() continue from `state`.
  // Errors: ValueError for a state of another data set or seed, or with impossible numbers.
  void set_state(const LoaderState& state);

 private:
  std::shared_ptr<internal::LoaderPlan> plan_;
};

// Endless: an infinite sequence of the batches of a DataLoader, epoch after epoch, for loops that count
// steps.
//   data::Endless batches(loader);
//   for (int step = 0; step < steps; ++step) train(batches.next());
// The position is that of the loader: a loader.state() saved while one batch is in use resumes with the batch
// after it. Not thread-safe.
class Endless {
 public:
  // The loader must outlive the Endless. No other code may iterate over the loader meanwhile.
  explicit Endless(DataLoader& loader) : loader_(&loader) {}

  // Returns the next batch. Starts the next epoch after the last batch of an epoch. The reference is valid
  // until the next call.
  // Errors: those of DataLoader::Iterator, which end the epoch, so that a later call starts the next epoch;
  // ValueError if the loader has no batches.
  const Batch& next();

 private:
  DataLoader* loader_;
  std::optional<DataLoader::Iterator> iterator_;  // in the current epoch; empty before the first batch
};

}  // namespace gradus::data
