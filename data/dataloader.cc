// Implementation of DataLoader: worker threads read batches in order into a ring buffer, which the iterator
// consumes. The order of an epoch is divided into global batches (the batches of all ranks together;
// BatchSchedule); rank r of n reads samples r, r + n, ... of each. Without workers, the iterating thread
// reads. Random numbers are Philox streams keyed by (seed, epoch, position), so that batches do not depend on
// workers or timing.
//
// Threads: one thread uses a DataLoader and its iterators; workers call Dataset, collate and batch_transform
// concurrently. A worker's exception is rethrown by the iterator in place of the batch.
#include "gradus/data/dataloader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "gradus/data/batch_schedule.h"
#include "gradus/data/internal/device_copies.h"
#include "gradus/data/sample_reading.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/environment.h"
#include "gradus/tensor/runtime/fork.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::data {
namespace {

// Returns "3, 1, 4, ... (64 samples)".
std::string abbreviate(const std::vector<int64_t>& indices) {
  constexpr size_t kMaxShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(indices.size(), kMaxShown); ++i) text += concat(i ? ", " : "", indices[i]);
  return indices.size() > kMaxShown ? concat(text, ", ... (", indices.size(), " samples)") : text;
}

}  // namespace

LoaderTimeoutError::LoaderTimeoutError(const std::string& dataset, std::chrono::milliseconds limit,
                                       std::vector<int64_t> indices)
    : Error("DataLoader", "dataloader timeout: no batch of ", dataset, " came within ", limit.count(),
            " ms; samples ", abbreviate(indices), " are being read"),
      dataset(dataset),
      indices(std::move(indices)) {}

namespace internal {

// State that a loader shares with its iterators. Only the iterating thread changes it. `copies` is null if
// batches stay on the device on which the data set makes them.
struct LoaderPlan {
  DatasetRef dataset;
  DataLoaderOptions options;
  std::shared_ptr<const Sampler> sampler;
  uint64_t seed = 0;
  std::optional<DeviceCopies> copies;
  LoaderState current;  // state of the current pass, or else of the last one
  LoaderState next;     // state from which begin() starts
  int64_t skipped = 0;  // number of skipped samples in the current pass

  // `samples`: received by all ranks in this epoch; `shown`: received by all ranks in all epochs.
  LoaderState state_at(uint64_t epoch, int64_t samples, int64_t shown) const {
    return {epoch, samples, seed, dataset->size(), shown};
  }
};

// One pass over the data set. Workers read batches in order into a ring buffer of slots, whose size limits
// how far they run ahead of the consumer. Workers share ownership of the pass, since a blocked worker may
// outlive the loader.
class Pass {
 public:
  Pass(std::shared_ptr<LoaderPlan> plan, const LoaderState& from)
      : plan_(std::move(plan)),
        epoch_(from.epoch),
        order_(plan_->sampler->order(epoch_)),
        schedule_(plan_->options, from, static_cast<int64_t>(order_.size())) {
    for (int64_t index : order_)
      if (index < 0 || index >= plan_->dataset->size())
        throw IndexError("DataLoader", "the sampler gave index ", index, ", outside ", plan_->dataset->name(),
                         " of ", plan_->dataset->size(), " samples");
  }

  int64_t batches() const { return schedule_.batches(); }
  void make_ring(int64_t slots) { slots_.resize(static_cast<size_t>(slots)); }

  // Returns whether all batches have been delivered. If so, moves the loader to the start of its next epoch.
  bool finish() {
    if (delivered_ < schedule_.batches()) return false;
    if (plan_->current == state()) plan_->current = plan_->next;
    return true;
  }

  // Returns the next batch in order, or throws the exception of reading it.
  Batch take() {
    Batch batch = plan_->copies ? take_from_device() : take_on_host();
    ++delivered_;
    plan_->current = state();
    plan_->next.shown = plan_->current.shown;
    plan_->skipped += batch.skipped;
    return batch;
  }

  // The main loop of a worker thread.
  void run_worker(Context& context) {
    std::unique_lock lock(mutex_);
    while (true) {
      slot_free_.wait(lock, [&] {
        return stopping_ || next_to_read_ >= schedule_.batches() ||
               next_to_read_ < next_to_take_ + static_cast<int64_t>(slots_.size());
      });
      if (stopping_ || next_to_read_ >= schedule_.batches()) return;
      const int64_t number = next_to_read_++;
      ++reading_;
      if (next_to_read_ >= schedule_.batches()) slot_free_.notify_all();  // ends the waiting workers
      lock.unlock();
      Slot result;
      try {
        result.batch = make(context, number);
      } catch (...) {
        result.error = std::current_exception();
      }
      result.ready = true;
      lock.lock();
      if (--reading_ == 0) last_read_.notify_all();
      slot_of(number) = std::move(result);
      if (number == next_to_take_) batch_ready_.notify_one();
    }
  }

  // Stops the workers. Waits for batches being read, for at most the loader's timeout. Returns false if a
  // worker is still blocked and must not be joined.
  bool stop() {
    const std::chrono::milliseconds limit = plan_->options.timeout;
    std::unique_lock lock(mutex_);
    stopping_ = true;
    slot_free_.notify_all();
    if (limit.count() == 0 || reading_ == 0) return true;
    return !timed_out_ && last_read_.wait_for(lock, limit, [&] { return reading_ == 0; });
  }

 private:
  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };

  LoaderState state() const {
    return plan_->state_at(epoch_, schedule_.position_after(delivered_), schedule_.shown_after(delivered_));
  }

  // Returns indices, padding and global_size of this rank's share of global batch `number`.
  Batch local_share(int64_t number) const {
    const DataLoaderOptions& options = plan_->options;
    Batch batch;
    const int64_t begin = schedule_.begin(number), end = schedule_.end(number);
    for (int64_t i = begin + options.rank; i < end; i += options.world_size) {
      batch.indices.push_back(order_[static_cast<size_t>(schedule_.index_of(i))]);
      batch.padding += schedule_.is_repeated(i);
    }
    batch.global_size = end - begin;
    return batch;
  }

  // Returns Batch::padding: the number of samples that are repeated or replacements.
  static int64_t padding_of(const Batch& batch, const Batch& share) {
    const auto skipped = batch.indices.end() - batch.skipped;
    int64_t padding = batch.skipped;
    for (auto index = share.indices.end() - share.padding; index != share.indices.end(); ++index)
      padding += std::find(skipped, batch.indices.end(), *index) == batch.indices.end();
    return padding;
  }

  // Reads and transforms batch `number`. `context` is the calling thread's Context.
  Batch make(Context& context, int64_t number) const {
    Batch batch = read(context, number);
    const DataLoaderOptions& options = plan_->options;
    if (options.batch_transform) {
      context.generator = batch_generator(plan_->seed, epoch_, schedule_.begin(number) + options.rank);
      batch = options.batch_transform(std::move(batch));
    }
    return plan_->copies ? plan_->copies->pin(std::move(batch)) : batch;
  }

  // Reads batch `number` without transforming it.
  // Errors: SampleError, which wraps an exception of the data set or collate.
  Batch read(Context& context, int64_t number) const {
    const RunningRange running = observed({.kind = RangeKind::kData, .name = "read batch"});
    context.generator = epoch_generator(plan_->seed, epoch_);
    const Batch share = local_share(number);
    const std::vector<int64_t>& indices = share.indices;
    const Dataset& dataset = *plan_->dataset;
    try {
      const auto& collate = plan_->options.collate;
      Batch batch = collate ? read_batch(dataset, indices, collate) : dataset.get_batch(indices);
      if (batch.skipped == 0) batch.indices = share.indices;
      batch.global_size = share.global_size;
      batch.padding = padding_of(batch, share);
      return batch;
    } catch (const SampleError&) {
      throw;
    } catch (const std::exception& e) {
      // A user-defined get_batch does not report which sample failed: name the first, count the others.
      const std::string range =
          indices.size() == 1 ? "" : concat("(or one of ", indices.size() - 1, " read with it) ");
      std::throw_with_nested(SampleError(dataset.name(), indices[0], range + e.what()));
    }
  }

  // Returns the next batch on the device. Starts the copy of the batch after it if that has been read.
  Batch take_from_device() {
    const DeviceCopies& copies = *plan_->copies;
    DeviceCopies::Queued queued = next_copy_ ? *std::exchange(next_copy_, {}) : copies.queue(take_on_host());
    if (next_is_read()) next_copy_ = copies.queue(take_on_host());
    return copies.receive(std::move(queued));
  }

  Batch take_on_host() { return slots_.empty() ? read_here() : take_from_ring(); }

  // Returns whether the next batch has been read without an error. Errors are thrown when the batch is taken.
  bool next_is_read() {
    const std::lock_guard lock(mutex_);
    if (slots_.empty() || next_to_take_ >= schedule_.batches()) return false;
    const Slot& slot = slot_of(next_to_take_);
    return slot.ready && !slot.error;
  }

  // Reads the next batch in the calling thread, with a copy of its Context.
  Batch read_here() {
    Context context = Context::current().snapshot();
    ContextScope scope(context);
    return make(context, next_to_take_++);
  }

  Batch take_from_ring() {
    const RunningRange running = observed({.kind = RangeKind::kData, .name = "wait for batch"});
    std::unique_lock lock(mutex_);
    Slot& slot = slot_of(next_to_take_);
    const auto is_ready = [&] { return slot.ready; };
    const std::chrono::milliseconds limit = plan_->options.timeout;
    if (limit.count() == 0) {
      batch_ready_.wait(lock, is_ready);
    } else if (!batch_ready_.wait_for(lock, limit, is_ready)) {
      timed_out_ = true;
      std::vector<int64_t> indices = local_share(next_to_take_).indices;
      throw LoaderTimeoutError(plan_->dataset->name(), limit, std::move(indices));
    }
    Slot taken = std::exchange(slot, Slot{});
    ++next_to_take_;
    lock.unlock();
    slot_free_.notify_one();
    if (taken.error) std::rethrow_exception(taken.error);
    return std::move(taken.batch);
  }

  Slot& slot_of(int64_t number) { return slots_[static_cast<size_t>(number) % slots_.size()]; }

  const std::shared_ptr<LoaderPlan> plan_;
  const uint64_t epoch_;
  const std::vector<int64_t> order_;
  const BatchSchedule schedule_;
  int64_t delivered_ = 0;                          // number of batches that the loop has received
  std::optional<DeviceCopies::Queued> next_copy_;  // enqueued copy of the next batch
  int64_t next_to_take_ = 0;  // next batch to take from the ring, or to read without workers
  int64_t next_to_read_ = 0;  // next batch for a worker to read

  std::mutex mutex_;
  std::condition_variable batch_ready_, slot_free_, last_read_;
  std::vector<Slot> slots_;
  int64_t reading_ = 0;  // number of workers that are reading a batch
  bool stopping_ = false;
  bool timed_out_ = false;  // LoaderTimeoutError was thrown
};

// A pass with its worker threads.
class Prefetcher {
 public:
  Prefetcher(const std::shared_ptr<LoaderPlan>& plan, const LoaderState& from)
      : pass_(std::make_shared<Pass>(plan, from)) {
    const DataLoaderOptions& options = plan->options;
    const int64_t workers = std::min<int64_t>(options.num_workers, pass_->batches());
    if (workers <= 0) return;
    pass_->make_ring(workers * options.prefetch_factor);
    try {
      for (int64_t i = 0; i < workers; ++i)
        workers_.emplace_back([pass = pass_, context = Context::current().snapshot()]() mutable {
          name_thread("data loader");
          context.threads = 1;  // the cores belong to the training loop
          ContextScope scope(context);
          pass->run_worker(context);
        });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Prefetcher() { stop(); }

  bool finish() { return pass_->finish(); }
  Batch take() {
    if (!workers_.empty() && process_ != gradus::internal::fork_count())
      throw StateError("DataLoader",
                       "this process was made by fork(), and the loader's workers are its parent's: begin "
                       "another pass here");
    return pass_->take();
  }

 private:
  // Joins the workers, or detaches them if one is blocked. In a fork()ed child the workers do not exist:
  // their std::thread objects are abandoned.
  void stop() {
    if (process_ != gradus::internal::fork_count()) {
      for (std::thread& worker : workers_) gradus::internal::abandon(std::move(worker));
      return;
    }
    const bool can_join = pass_->stop();
    for (std::thread& worker : workers_) can_join ? worker.join() : worker.detach();
    workers_.clear();
  }

  const int process_ = gradus::internal::fork_count();
  const std::shared_ptr<Pass> pass_;
  std::vector<std::thread> workers_;
};

}  // namespace internal

namespace {

// Checks that the loaders of all ranks have the same order and batch sizes. Otherwise ranks would train on
// some samples twice and on others never, or deadlock.
void check_same_on_ranks(Job& job, const Sampler& sampler, const DataLoaderOptions& o,
                         const std::string& seed) {
  std::string sizes;
  for (const auto& [shown, size] : o.global_batch_sizes)
    sizes += concat(sizes.empty() ? ", global_batch_sizes " : ",", shown, ':', size);
  const std::string options_text =
      concat(sampler.size(), " samples, batch_size ", o.batch_size, ", global_batch_size ",
             o.global_batch_size, sizes, ", uneven ", int(o.uneven), ", drop_last ", o.drop_last, seed);
  const std::string first = job.value_of_first_caller("DataLoader", options_text);
  if (first != options_text)
    throw ValueError("DataLoader",
                     "the ranks' loaders share one order, so they must be alike, but this one of rank ",
                     job.rank, " has ", options_text, ", and that of another rank has ", first,
                     "; give the same options and .seed, or .world_size = 1 for samples of one's own");
}

void require(bool ok, std::string_view option, std::string_view expected, int64_t got) {
  if (!ok) throw ValueError("DataLoader", option, " must be ", expected, ", got ", got);
}

// Replaces a rank and world_size of -1 by the sampler's share, or else the job's. Returns whether both are
// the job's.
// Errors: ValueError for an invalid rank or world_size.
bool set_share(DataLoaderOptions& o, Job& job) {
  std::optional<Share> share = o.sampler ? o.sampler->share() : std::nullopt;
  const bool by_job = !share && o.rank == -1 && o.world_size == -1;
  if (by_job) check_joined("DataLoader");
  if (!share) {
    const Replica replica = by_job ? job.freeze_replica() : job.replica();
    share = Share{replica.index, replica.count};
  }
  if (o.world_size == 1 && o.rank == -1) o.rank = 0;
  if (o.rank == -1) o.rank = share->rank;
  if (o.world_size == -1) o.world_size = share->world_size;
  require(o.world_size >= 1, "world_size", "at least 1", o.world_size);
  require(o.rank >= 0 && o.rank < o.world_size, "rank", "0 to world_size - 1", o.rank);
  return by_job;
}

// Checks the batch sizes of all ranks together. Sets batch_size if there is a global_batch_size.
// Errors: ValueError.
void set_batch_size(DataLoaderOptions& o) {
  const auto check_global = [&](const char* option, int64_t size) {
    const int64_t ranks = o.world_size;
    require(o.batch_size == 1, "batch_size", concat("left out when ", option, " is given"), o.batch_size);
    require(size >= ranks, option, concat("at least the number of ranks, ", ranks), size);
    require(o.uneven == Uneven::kBalance || size % ranks == 0, option,
            concat("a multiple of the number of ranks, ", ranks, ", without Uneven::kBalance"), size);
  };
  if (o.global_batch_size != 0) {
    check_global("global_batch_size", o.global_batch_size);
    o.batch_size = (o.global_batch_size - 1) / o.world_size + 1;
  }
  const auto& sizes = o.global_batch_sizes;
  if (sizes.empty()) return;
  require(o.global_batch_size == 0, "global_batch_size", "left out when global_batch_sizes is given",
          o.global_batch_size);
  require(sizes.begin()->first == 0, "the first of global_batch_sizes", "that from 0 samples on",
          sizes.begin()->first);
  for (const auto& [shown, size] : sizes) check_global("global_batch_sizes", size);
}

}  // namespace

DataLoader::DataLoader(DatasetArg dataset, DataLoaderOptions options) {
  require(options.batch_size >= 1, "batch_size", "at least 1", options.batch_size);
  require(options.num_workers >= 0 && options.num_workers <= 1024, "num_workers", "0 to 1024",
          options.num_workers);
  require(options.prefetch_factor >= 1, "prefetch_factor", "at least 1", options.prefetch_factor);
  require(options.timeout.count() >= 0, "timeout", "at least 0 ms", options.timeout.count());
  require(options.timeout.count() == 0 || options.num_workers > 0, "timeout",
          "0 without workers: nobody waits for any", options.timeout.count());
  std::optional<internal::DeviceCopies> copies;
  if (options.device) copies.emplace(*options.device);
  const Ref<Job> job = Job::current();
  const bool by_job = set_share(options, *job);
  set_batch_size(options);
  if (options.sampler && options.shuffle)
    throw ValueError("DataLoader", "shuffle and sampler exclude each other: the sampler gives the order");
  const uint64_t seed = options.seed.value_or(Context::current().generator->seed());
  std::shared_ptr<const Sampler> sampler = options.sampler;
  if (!sampler && options.shuffle) sampler = std::make_shared<RandomSampler>(dataset->size(), seed);
  if (!sampler) sampler = std::make_shared<SequentialSampler>(dataset->size());
  for (const auto& [shown, size] : options.global_batch_sizes)
    if (options.drop_last && size > sampler->size())
      throw ValueError("DataLoader", "there is no full batch of ", size, " among the ", sampler->size(),
                       " samples of ", dataset->name());
  if (by_job && job->size > 1)
    check_same_on_ranks(*job, *sampler, options, options.shuffle ? concat(", seed ", seed) : "");
  plan_ = std::make_shared<internal::LoaderPlan>(internal::LoaderPlan{
      std::move(dataset), std::move(options), std::move(sampler), seed, std::move(copies), {}, {}});
  set_epoch(0);
}

int64_t DataLoader::size() const {
  const LoaderState from = {.shown = plan_->current.shown};
  return internal::BatchSchedule(plan_->options, from, plan_->sampler->size()).batches();
}

int64_t DataLoader::global_batch_size() const {
  return internal::global_batch_size(plan_->options, plan_->current.shown);
}

const Dataset& DataLoader::dataset() const { return *plan_->dataset; }
const DataLoaderOptions& DataLoader::options() const { return plan_->options; }

DataLoader::Iterator DataLoader::begin() {
  const LoaderState start = plan_->next;
  auto prefetcher = std::make_unique<internal::Prefetcher>(plan_, start);
  plan_->current = start;
  plan_->next = plan_->state_at(start.epoch + 1, 0, start.shown);
  plan_->skipped = 0;
  return Iterator(std::move(prefetcher));
}

void DataLoader::set_epoch(uint64_t epoch) {
  plan_->current = plan_->next = plan_->state_at(epoch, 0, plan_->current.shown);
}

LoaderState DataLoader::state() const { return plan_->current; }

int64_t DataLoader::skipped() const { return plan_->skipped; }

void DataLoader::set_state(const LoaderState& state) {
  const LoaderState own = plan_->state_at(state.epoch, state.samples, state.shown);
  if (state != own)
    throw ValueError("DataLoader", "the state belongs to another loader: seed ", state.seed, ", ",
                     state.dataset_size, " samples; this one has seed ", own.seed, ", ", own.dataset_size,
                     " samples");
  if (state.samples < 0 || state.samples > plan_->sampler->size())
    throw ValueError("DataLoader", "the state is after ", state.samples, " samples, expected 0 to ",
                     plan_->sampler->size());
  constexpr int64_t kMaxShown = int64_t{1} << 62;
  if (state.shown < 0 || state.shown > kMaxShown)
    throw ValueError("DataLoader", "the state has shown ", state.shown, " samples, expected 0 to ",
                     kMaxShown);
  plan_->current = plan_->next = state;
}

DataLoader::Iterator::Iterator(std::unique_ptr<internal::Prefetcher> prefetcher)
    : prefetcher_(std::move(prefetcher)) {
  ++*this;
}
DataLoader::Iterator::Iterator(Iterator&&) noexcept = default;
DataLoader::Iterator& DataLoader::Iterator::operator=(Iterator&&) noexcept = default;
DataLoader::Iterator::~Iterator() = default;

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  batch_ = Batch{};
  // If take() throws, destroying `prefetcher` joins the workers before the exception reaches the caller.
  std::unique_ptr<internal::Prefetcher> prefetcher = std::move(prefetcher_);
  if (!prefetcher || prefetcher->finish()) return *this;
  batch_ = prefetcher->take();
  prefetcher_ = std::move(prefetcher);
  return *this;
}

const Batch& Endless::next() {
  if (iterator_) ++*iterator_;
  // A loader that was resumed at the end of an epoch has one empty pass; the next pass is not empty.
  for (int passes = 0; !iterator_ || *iterator_ == std::default_sentinel; ++passes) {
    if (passes == 2)
      throw ValueError("Endless", "the loader of ", loader_->dataset().name(), " has no batches");
    iterator_.reset();  // ends the previous workers before new ones start
    iterator_ = loader_->begin();
  }
  return **iterator_;
}

}  // namespace gradus::data
