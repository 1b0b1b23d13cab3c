// DataLoader: batches of a data set, read ahead by worker threads, in the sampler's order.
//
//   data::DataLoader loader(train, {.batch_size = 64, .shuffle = true, .num_workers = 2});
//   for (int epoch = 0; epoch < 14; ++epoch)
//     for (const data::Batch& b : loader) step(b.input, b.target);
//
// The batches depend on the seed and the epoch alone, never on the number of workers. Each pass over the
// loader is the next epoch; set_epoch exists, and is not needed.
//
// In a job of several ranks each gets its share: the k-th batches of all ranks together are the k-th global
// batch of the epoch's one order, which does not depend on the number of ranks; its sample i goes to rank
// i % size. All ranks have the same number of batches.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "gradus/data/dataset.h"
#include "gradus/data/sampler.h"

namespace gradus::data {

// What to do when the samples of an epoch do not make equal batches for all ranks.
enum class Uneven {
  // Every sample comes once; ranks' last batches differ by one sample at most. Fewer samples than ranks join
  // the batch before; where there is none (no more are left at all), some come again, as with kPad.
  kBalance,
  // The first samples of the epoch come again until the last batches are equal (PyTorch's way).
  kPad,
  // The samples that cannot be shared out equally are left out.
  kDrop,
};

struct DataLoaderOptions {
  int64_t batch_size = 1;  // per rank
  // Instead: of all ranks together, so that any number of ranks takes the same steps. A multiple of that
  // number, or at least that number with kBalance, which then balances all batches.
  int64_t global_batch_size = 0;
  bool shuffle = false;
  int num_workers = 0;     // threads that read ahead; 0 reads in the calling thread
  bool drop_last = false;  // leave out the last batch of an epoch when it is smaller
  Uneven uneven = Uneven::kBalance;
  int prefetch_factor = 2;            // batches that each worker may be ahead
  std::optional<uint64_t> seed = {};  // of the shuffling; by default the current generator's (manual_seed)
  std::shared_ptr<const Sampler> sampler = {};  // instead of `shuffle`
  // Whose share of every epoch: see shard(). By default the job's when the loader is made
  // (gradus/tensor/runtime/job.h), or the sampler's if it has one. world_size = 1 gives every
  // rank all samples.
  // Errors: StateError for the job's share in a process that is started as a rank and has joined no job.
  int rank = -1;
  int world_size = -1;
  // Makes a batch of samples, instead of Dataset::get_batch.
  std::function<Batch(const std::vector<Sample>& samples, std::span<const int64_t> indices)> collate = {};
  // What becomes of each batch, in the worker that has read it: MixUp or CutMix, say. Its random ops draw
  // from a generator of the batch's own.
  std::function<Batch(Batch)> batch_transform = {};
  // Of waiting for the workers' next batch (LoaderTimeoutError); 0: none.
  std::chrono::milliseconds timeout{0};
};

// Where a loader stands, as numbers for a checkpoint: the same on all ranks, and good for any number of them.
// The other fields say what it belongs to: a loader that would give other samples refuses it.
struct LoaderState {
  uint64_t epoch = 0;
  // Given in this epoch to all ranks together, the batch in hand included; all, once the last one is.
  int64_t samples = 0;
  uint64_t seed = 0;
  int64_t dataset_size = 0;

  static void each(auto& s, auto&& f) {
    f("epoch", s.epoch), f("samples", s.samples), f("seed", s.seed), f("dataset_size", s.dataset_size);
  }
  bool operator==(const LoaderState&) const = default;
};

// A worker did not bring a batch in time. The pass is over. Its workers end when they can, and use the data
// set, which must live, until then.
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

  // Errors: ValueError for an option out of its domain, and when the loaders of a job's ranks would not share
  // one order: their n-th loaders must be alike, unless they say rank or world_size.
  explicit DataLoader(DatasetRef dataset, DataLoaderOptions options = {});
  // Movable; a copy would share its place in the order.
  DataLoader(DataLoader&&) = default;
  DataLoader& operator=(DataLoader&&) = default;

  // Batches in an epoch.
  int64_t size() const;
  const Dataset& dataset() const;
  const DataLoaderOptions& options() const;

  // Starts the next epoch, or goes on where set_state pointed. Workers run in a copy of the caller's Context.
  // Errors: what reading the first batch throws. While iterating, an exception of a worker arrives in place
  // of its batch and ends the epoch.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  // The epoch that is under way, or comes next when none is.
  uint64_t epoch() const { return state().epoch; }
  // Makes `epoch` the next one.
  void set_epoch(uint64_t epoch);

  // Says where the iteration stands. Saved while batch k is in hand, it resumes with batch k + 1; saved with
  // the last batch in hand, the resumed pass is empty, so that what follows an epoch happens once.
  LoaderState state() const;
  // Samples of this pass, or the last one, that could not be read and for which others stood in
  // (OnError::kSkip): of this rank's batches that were given so far.
  int64_t skipped() const;
  // Makes the next begin() go on from `state`.
  // Errors: ValueError when it belongs to another data set
  // or seed.
  void set_state(const LoaderState& state);

 private:
  std::shared_ptr<internal::LoaderPlan> plan_;
};

// An input iterator; its batch is valid until it moves on. Destroying it stops the workers: they finish the
// batch they are reading, and no more.
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
