#include "gradus/data/dataloader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "gradus/data/batch_schedule.h"
#include "gradus/data/internal/device_copies.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/environment.h"
#include "gradus/tensor/runtime/fork.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::data {
namespace {

// "3, 1, 4, ... (64 samples)".
std::string some_of(const std::vector<int64_t>& indices) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < std::min(indices.size(), kShown); ++i) text += concat(i ? ", " : "", indices[i]);
  return indices.size() > kShown ? concat(text, ", ... (", indices.size(), " samples)") : text;
}

}  // namespace

LoaderTimeoutError::LoaderTimeoutError(const std::string& dataset, std::chrono::milliseconds limit,
                                       std::vector<int64_t> indices)
    : Error("DataLoader", "dataloader timeout: no batch of ", dataset, " came within ", limit.count(),
            " ms; samples ", some_of(indices), " are being read"),
      dataset(dataset),
      indices(std::move(indices)) {}

namespace internal {

// What a loader and its iterators share.
struct LoaderPlan {
  DatasetRef dataset;
  DataLoaderOptions options;
  std::shared_ptr<const Sampler> sampler;
  uint64_t seed = 0;
  std::optional<DeviceCopies> copies;
  LoaderState now;      // of the pass under way, or of the last one
  LoaderState next;     // what begin() starts with
  int64_t skipped = 0;  // samples of the pass so far

  LoaderState state_at(uint64_t epoch, int64_t samples, int64_t shown) const {
    return {epoch, samples, seed, dataset->size(), shown};
  }
};

namespace {

uint64_t first_64_bits(const std::array<uint32_t, 4>& words) { return (uint64_t(words[0]) << 32) | words[1]; }

// Random ops that read a sample draw numbers that depend on (seed, epoch), not on the worker or the time.
std::shared_ptr<RandomGenerator> epoch_generator(uint64_t seed, uint64_t epoch) {
  constexpr uint64_t kAugmentStream = uint64_t{3} << 62;
  return std::make_shared<RandomGenerator>(first_64_bits(philox(seed, kAugmentStream, epoch)));
}

// Random ops of a batch transform draw numbers that depend on (seed, epoch, position of the batch's first
// sample in the order).
std::shared_ptr<RandomGenerator> batch_generator(uint64_t seed, uint64_t epoch, int64_t place) {
  constexpr uint64_t kBatchStream = (uint64_t{3} << 62) + 1;
  const uint64_t epoch_key = first_64_bits(philox(seed, kBatchStream, epoch));
  return std::make_shared<RandomGenerator>(first_64_bits(philox(epoch_key, 0, static_cast<uint64_t>(place))));
}

}  // namespace

// One pass over the data set. Batches are numbered. Workers take the numbers in order and may run ahead of
// the consumer by the size of a ring of slots. The workers share ownership of the pass, because a stuck
// worker may outlive it.
class Pass {
 public:
  Pass(std::shared_ptr<LoaderPlan> plan, const LoaderState& from)
      : plan_(std::move(plan)),
        epoch_(from.epoch),
        order_(plan_->sampler->order(epoch_)),
        schedule_(plan_->options, from, static_cast<int64_t>(order_.size())) {
    for (int64_t index : order_) {
      if (index < 0 || index >= plan_->dataset->size())
        throw IndexError("DataLoader", "the sampler gave index ", index, ", outside ", plan_->dataset->name(),
                         " of ", plan_->dataset->size(), " samples");
    }
  }

  int64_t batches() const { return schedule_.batches(); }
  void make_ring(int64_t slots) { slots_.resize(static_cast<size_t>(slots)); }

  // Says whether all batches were taken. If so, moves the loader to the start of its next epoch.
  bool finish() {
    if (given_ < schedule_.batches()) return false;
    if (plan_->now == state()) plan_->now = plan_->next;
    return true;
  }

  // Returns the next batch in order, or throws what reading it threw.
  Batch take() {
    Batch batch = plan_->copies ? take_from_device() : take_as_read();
    ++given_;
    plan_->now = state();
    plan_->next.shown = plan_->now.shown;
    plan_->skipped += batch.skipped;
    return batch;
  }

  // Runs in a worker.
  void work(Context& context) {
    std::unique_lock lock(mutex_);
    while (true) {
      slot_free_.wait(lock, [&] {
        return stopping_ || taken_ >= schedule_.batches() ||
               taken_ < next_ + static_cast<int64_t>(slots_.size());
      });
      if (stopping_ || taken_ >= schedule_.batches()) return;
      const int64_t number = taken_++;
      ++reading_;
      if (taken_ >= schedule_.batches()) slot_free_.notify_all();  // no batch is left for waiting workers
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
      if (number == next_) batch_ready_.notify_one();
    }
  }

  // Stops the workers. Returns false when one is stuck, and then nobody may wait for it.
  bool stop() {
    const std::chrono::milliseconds limit = plan_->options.timeout;
    std::unique_lock lock(mutex_);
    stopping_ = true;
    slot_free_.notify_all();
    if (limit.count() == 0 || reading_ == 0) return true;
    return !is_stuck_ && last_read_.wait_for(lock, limit, [&] { return reading_ == 0; });
  }

 private:
  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };

  LoaderState state() const {
    return plan_->state_at(epoch_, schedule_.position_after(given_), schedule_.shown_after(given_));
  }

  // This rank's share of batch `number`.
  Batch share_of(int64_t number) const {
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

  // Returns the batch that the user's `collate` makes of the samples.
  Batch collated(const std::vector<int64_t>& indices) const {
    std::vector<Sample> samples = get_samples(*plan_->dataset, indices);
    std::vector<int64_t> order = indices;
    const int64_t skipped = move_stand_ins_last(samples, order);
    Batch batch = plan_->options.collate(samples, order);
    batch.indices = std::move(order);
    batch.skipped = skipped;
    return batch;
  }

  // Counts the last samples of a batch that are repeated, stand in for others, or both.
  static int64_t padding_of(const Batch& batch, const Batch& share) {
    const auto skipped = batch.indices.end() - batch.skipped;
    int64_t padding = batch.skipped;
    for (auto index = share.indices.end() - share.padding; index != share.indices.end(); ++index)
      padding += std::find(skipped, batch.indices.end(), *index) == batch.indices.end();
    return padding;
  }

  // Makes batch `number`; `context` is the calling thread's.
  Batch make(Context& context, int64_t number) const {
    Batch batch = read(context, number);
    const DataLoaderOptions& options = plan_->options;
    if (options.batch_transform) {
      context.generator = batch_generator(plan_->seed, epoch_, schedule_.begin(number) + options.rank);
      batch = options.batch_transform(std::move(batch));
    }
    return plan_->copies ? plan_->copies->pin(std::move(batch)) : batch;
  }

  Batch read(Context& context, int64_t number) const {
    const RunningRange running = observed({.kind = RangeKind::kData, .name = "read batch"});
    context.generator = epoch_generator(plan_->seed, epoch_);
    const Batch share = share_of(number);
    const std::vector<int64_t>& indices = share.indices;
    const Dataset& dataset = *plan_->dataset;
    try {
      Batch batch = plan_->options.collate ? collated(indices) : dataset.get_batch(indices);
      if (batch.skipped == 0) batch.indices = share.indices;
      batch.global_size = share.global_size;
      batch.padding = padding_of(batch, share);
      return batch;
    } catch (const SampleError&) {
      throw;
    } catch (const std::exception& e) {
      // A user's get_batch did not say which sample failed: name the range.
      const std::string range =
          indices.size() == 1 ? "" : concat("(or one of ", indices.size() - 1, " read with it) ");
      std::throw_with_nested(SampleError(dataset.name(), indices[0], range + e.what()));
    }
  }

  // The copy of the batch behind it begins, if that has been read.
  Batch take_from_device() {
    const DeviceCopies& copies = *plan_->copies;
    DeviceCopies::Queued queued = ahead_ ? *std::exchange(ahead_, {}) : copies.queue(take_as_read());
    if (next_is_read()) ahead_ = copies.queue(take_as_read());
    return copies.receive(std::move(queued));
  }

  Batch take_as_read() { return slots_.empty() ? read_here() : take_from_ring(); }

  // An error is left to the batch's own turn.
  bool next_is_read() {
    const std::lock_guard lock(mutex_);
    if (slots_.empty() || next_ >= schedule_.batches()) return false;
    const Slot& slot = slot_of(next_);
    return slot.ready && !slot.error;
  }

  Batch read_here() {
    Context context = Context::current().snapshot();
    ContextScope scope(context);
    return make(context, next_++);
  }

  Batch take_from_ring() {
    const RunningRange running = observed({.kind = RangeKind::kData, .name = "wait for batch"});
    std::unique_lock lock(mutex_);
    Slot& slot = slot_of(next_);
    const auto is_ready = [&] { return slot.ready; };
    const std::chrono::milliseconds limit = plan_->options.timeout;
    if (limit.count() == 0) {
      batch_ready_.wait(lock, is_ready);
    } else if (!batch_ready_.wait_for(lock, limit, is_ready)) {
      is_stuck_ = true;
      std::vector<int64_t> indices = share_of(next_).indices;
      throw LoaderTimeoutError(plan_->dataset->name(), limit, std::move(indices));
    }
    Slot taken = std::exchange(slot, Slot{});
    ++next_;
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
  int64_t given_ = 0;  // batches that the loop has got
  std::optional<DeviceCopies::Queued> ahead_;
  int64_t next_ = 0;   // batch that is taken from the ring, or read, next
  int64_t taken_ = 0;  // batch that a worker takes next

  std::mutex mutex_;
  std::condition_variable batch_ready_, slot_free_, last_read_;
  std::vector<Slot> slots_;
  int64_t reading_ = 0;  // workers that are reading a batch
  bool stopping_ = false;
  bool is_stuck_ = false;  // a batch did not come in time
};

// A pass with its workers.
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
          pass->work(context);
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
  void stop() {
    if (process_ != gradus::internal::fork_count()) {
      for (std::thread& worker : workers_) gradus::internal::forget_thread(worker);
      return;
    }
    const bool ending = pass_->stop();
    for (std::thread& worker : workers_) ending ? worker.join() : worker.detach();
    workers_.clear();
  }

  const int process_ = gradus::internal::fork_count();
  const std::shared_ptr<Pass> pass_;
  std::vector<std::thread> workers_;
};

}  // namespace internal

namespace {

// Checks that this loader is like those of the other ranks. Ranks with different orders, or with different
// cuts of one order, would train on some samples twice and wait for each other.
void check_alike(Job& job, const Sampler& sampler, const DataLoaderOptions& o, const std::string& seed) {
  std::string sizes;
  for (const auto& [shown, size] : o.global_batch_sizes)
    sizes += concat(sizes.empty() ? ", global_batch_sizes " : ",", shown, ':', size);
  const std::string mine =
      concat(sampler.size(), " samples, batch_size ", o.batch_size, ", global_batch_size ",
             o.global_batch_size, sizes, ", uneven ", int(o.uneven), ", drop_last ", o.drop_last, seed);
  const std::string first = job.first_given("DataLoader", mine);
  if (first != mine)
    throw ValueError("DataLoader",
                     "the ranks' loaders share one order, so they must be alike, but this one of rank ",
                     job.rank, " has ", mine, ", and that of another rank has ", first,
                     "; give the same options and .seed, or .world_size = 1 for samples of one's own");
}

}  // namespace

DataLoader::DataLoader(DatasetArg dataset, DataLoaderOptions options) {
  const auto require = [&](bool ok, const char* option, const char* expected, int64_t given) {
    if (!ok) throw ValueError("DataLoader", option, " must be ", expected, ", given ", given);
  };
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
  std::optional<Share> share = options.sampler ? options.sampler->share() : std::nullopt;
  const bool by_job = !share && options.rank == -1 && options.world_size == -1;
  if (by_job) check_joined("DataLoader");
  if (!share) {
    const Replica replica = by_job ? job->share_by_replica() : job->replica();
    share = Share{replica.index, replica.count};
  }
  if (options.world_size == 1 && options.rank == -1) options.rank = 0;
  if (options.rank == -1) options.rank = share->rank;
  if (options.world_size == -1) options.world_size = share->world_size;
  require(options.world_size >= 1, "world_size", "at least 1", options.world_size);
  require(options.rank >= 0 && options.rank < options.world_size, "rank", "0 to world_size - 1",
          options.rank);
  const auto check_global = [&](const char* option, int64_t size) {
    const int64_t ranks = options.world_size;
    require(options.batch_size == 1, "batch_size", concat("left out when ", option, " is given").c_str(),
            options.batch_size);
    require(size >= ranks, option, concat("at least the number of ranks, ", ranks).c_str(), size);
    require(options.uneven == Uneven::kBalance || size % ranks == 0, option,
            concat("a multiple of the number of ranks, ", ranks, ", without Uneven::kBalance").c_str(), size);
  };
  if (options.global_batch_size != 0) {
    check_global("global_batch_size", options.global_batch_size);
    options.batch_size = (options.global_batch_size - 1) / options.world_size + 1;
  }
  if (const auto& sizes = options.global_batch_sizes; !sizes.empty()) {
    require(options.global_batch_size == 0, "global_batch_size", "left out when global_batch_sizes is given",
            options.global_batch_size);
    require(sizes.begin()->first == 0, "the first of global_batch_sizes", "that from 0 samples on",
            sizes.begin()->first);
    for (const auto& [shown, size] : sizes) check_global("global_batch_sizes", size);
  }
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
    check_alike(*job, *sampler, options, options.shuffle ? concat(", seed ", seed) : "");
  plan_ = std::make_shared<internal::LoaderPlan>(internal::LoaderPlan{
      std::move(dataset), std::move(options), std::move(sampler), seed, std::move(copies), {}, {}});
  set_epoch(0);
}

int64_t DataLoader::size() const {
  const LoaderState from = {.shown = plan_->now.shown};
  return internal::BatchSchedule(plan_->options, from, plan_->sampler->size()).batches();
}

int64_t DataLoader::global_batch_size() const {
  return internal::global_batch_size(plan_->options, plan_->now.shown);
}

const Dataset& DataLoader::dataset() const { return *plan_->dataset; }
const DataLoaderOptions& DataLoader::options() const { return plan_->options; }

DataLoader::Iterator DataLoader::begin() {
  const LoaderState start = plan_->next;
  auto prefetcher = std::make_unique<internal::Prefetcher>(plan_, start);
  plan_->now = start;
  plan_->next = plan_->state_at(start.epoch + 1, 0, start.shown);
  plan_->skipped = 0;
  return Iterator(std::move(prefetcher));
}

void DataLoader::set_epoch(uint64_t epoch) {
  plan_->now = plan_->next = plan_->state_at(epoch, 0, plan_->now.shown);
}

LoaderState DataLoader::state() const { return plan_->now; }

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
  plan_->now = plan_->next = state;
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
  // An exception ends the pass: the workers have ended when it reaches the caller.
  std::unique_ptr<internal::Prefetcher> prefetcher = std::move(prefetcher_);
  if (!prefetcher || prefetcher->finish()) return *this;
  batch_ = prefetcher->take();
  prefetcher_ = std::move(prefetcher);
  return *this;
}

}  // namespace gradus::data
