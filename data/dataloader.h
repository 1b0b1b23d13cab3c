// DataLoader: batches of a data set, read ahead by worker threads, in the sampler's order.
//
//   data::DataLoader loader(train, {.batch_size = 64, .shuffle = true, .num_workers = 2});
//   for (int epoch = 0; epoch < 14; ++epoch)
//     for (const data::Batch& b : loader) step(b.input, b.target);
//
// The batches depend on the seed and the epoch alone, never on the number of workers. Each pass over the
// loader is the next epoch; set_epoch is not needed for that.
//
// In a job of several ranks, each rank gets its share. An epoch has one order, which does not depend on the
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

#include "gradus/data/dataset.h"
#include "gradus/data/sampler.h"

namespace gradus::data {

// What to do when the samples of an epoch do not make equal batches for all ranks.
enum class Uneven {
  // Every sample comes once, and the ranks' last batches differ by at most one sample. When fewer samples
  // than ranks are left over, they join the batch before. When there is no batch before, the first samples
  // come again until each rank has one.
  kBalance,
  // The first samples of the epoch come again until the last batches are equal (PyTorch's way).
  kPad,
  // The samples that cannot be shared out equally are left out.
  kDrop,
};

struct DataLoaderOptions {
  int64_t batch_size = 1;  // per rank
  // Batch size of all ranks together, instead of batch_size: any number of ranks then takes the same steps.
  // It must be a multiple of the number of ranks. With kBalance, which then balances all batches, it only has
  // to be at least the number of ranks.
  int64_t global_batch_size = 0;
  // Global batch sizes that change in a training, instead of one, by the samples that all ranks together have
  // got before, in all epochs: {{0, 64}, {60'000, 32}}. Workers read ahead across a change.
  std::map<int64_t, int64_t> global_batch_sizes = {};
  bool shuffle = false;
  int num_workers = 0;     // threads that read ahead; 0 reads in the calling thread
  bool drop_last = false;  // leave out the last batch of an epoch when it is smaller
  Uneven uneven = Uneven::kBalance;
  int prefetch_factor = 2;  // batches that each worker may be ahead
  // Of shuffling and of random ops. By default the current generator's seed (manual_seed).
  std::optional<uint64_t> seed = {};
  std::shared_ptr<const Sampler> sampler = {};  // instead of `shuffle`
  // This loader's share of every epoch: see shard(). By default the sampler's share if it has one, else
  // that of this rank's replica when the loader is made (Job::replica, gradus/tensor/runtime/job.h).
  // world_size = 1 gives every rank all samples.
  // Errors: StateError for the job's share in a process that was started as a rank and has joined no job.
  int rank = -1;
  int world_size = -1;
  // Makes a batch of samples, instead of Dataset::get_batch.
  std::function<Batch(const std::vector<Sample>& samples, std::span<const int64_t> indices)> collate = {};
  // Transforms each batch, in the worker that has read it: MixUp or CutMix, for example. Its random ops draw
  // from a generator of the batch's own.
  std::function<Batch(Batch)> batch_transform = {};
  // Where the loop gets its batches. By default where the data set makes them. The next batch, if workers
  // have read it, is copied while the loop has the present one. The current stream waits for the copy, the
  // host does not: docs/data.md.
  // Errors: DeviceError where there is no such device, when the loader is made.
  std::optional<Device> device = {};
  // Longest wait for the workers' next batch, then LoaderTimeoutError. 0: no limit.
  std::chrono::milliseconds timeout{0};
};

// A loader's position, as numbers for a checkpoint. It is the same on all ranks, and fits any number of
// ranks. The fields seed and dataset_size say what it belongs to; a loader with other values refuses it.
struct LoaderState {
  uint64_t epoch = 0;
  // The number of samples that all ranks together have got in this epoch, including the batch in hand. Once
  // the last batch is in hand, it is the size of the epoch.
  int64_t samples = 0;
  uint64_t seed = 0;
  int64_t dataset_size = 0;
  // The number of samples that all ranks together have got in all epochs. Those that were left out do not
  // count, those that came again do.
  int64_t shown = 0;

  static void each(auto& s, auto&& f) {
    f("epoch", s.epoch), f("samples", s.samples), f("seed", s.seed), f("dataset_size", s.dataset_size);
    f("shown", s.shown);
  }
  bool operator==(const LoaderState&) const = default;
};

// A worker did not bring a batch in time. The pass is over. Its workers end when they can. Until then they
// use the data set, so the data set must live.
struct LoaderTimeoutError : Error {
  LoaderTimeoutError(const std::string& dataset, std::chrono::milliseconds limit,
                     std::vector<int64_t> indices);
  std::string dataset;
  std::vector<int64_t> indices;  // of the samples that are being read
};

namespace internal {
class Prefetcher;
struct LoaderPlan;
}  // namespace internal

class DataLoader {
 public:
  class Iterator;

  // Errors: ValueError for an option outside its domain. ValueError when the ranks of a job would not
  // share one order: their n-th loaders must be alike, unless they give rank or world_size, or a
  // sampler with a share.
  explicit DataLoader(DatasetArg dataset, DataLoaderOptions options = {});
  // Movable; a copy would share its place in the order.
  DataLoader(DataLoader&&) = default;
  DataLoader& operator=(DataLoader&&) = default;

  // Batches in an epoch; where their sizes change, in one that begins now.
  int64_t size() const;
  // Samples that all ranks together get in the next full batch.
  int64_t global_batch_size() const;
  const Dataset& dataset() const;
  const DataLoaderOptions& options() const;

  // Starts the next epoch, or continues from the state given to set_state. Workers run in a copy of
  // the caller's Context.
  // Errors: those of reading the first batch. While iterating, a worker's exception is thrown in place of its
  // batch and ends the epoch.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  // Returns the epoch that is under way. When none is, returns the next one.
  uint64_t epoch() const { return state().epoch; }
  // Makes `epoch` the next one. LoaderState::shown stays.
  void set_epoch(uint64_t epoch);

  // Returns the position of the iteration. A state that is saved with a batch in hand resumes with the next
  // batch. A state that is saved with the last batch in hand resumes with an empty pass, so that whatever a
  // program does after an epoch happens once.
  LoaderState state() const;
  // Returns how many samples of this pass, or of the last one, could not be read and were replaced by others
  // (OnError::kSkip). Counts the batches that this rank has got so far.
  int64_t skipped() const;
  // Makes the next begin() continue from `state`.
  // Errors: ValueError when it belongs to another data set or seed, or has numbers that no loader reaches.
  void set_state(const LoaderState& state);

 private:
  std::shared_ptr<internal::LoaderPlan> plan_;
};

// An input iterator. Its batch is valid until the iterator moves on. Destroying the iterator stops the
// workers: they finish the batch that they are reading, and read no more.
class DataLoader::Iterator {
 public:
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using reference = const Batch&;
  using pointer = const Batch*;
  using iterator_category = std::input_iterator_tag;

  Iterator(Iterator&&) noexcept;
  Iterator& operator=(Iterator&&) noexcept;
  ~Iterator();

  const Batch& operator*() const { return batch_; }
  const Batch* operator->() const { return &batch_; }
  Iterator& operator++();
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return !prefetcher_; }

 private:
  friend class DataLoader;
  explicit Iterator(std::unique_ptr<internal::Prefetcher> prefetcher);

  std::unique_ptr<internal::Prefetcher> prefetcher_;
  Batch batch_;
};

}  // namespace gradus::data
