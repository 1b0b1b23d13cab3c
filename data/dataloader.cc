#include "gradus/data/dataloader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "gradus/tensor/context.h"
#include "gradus/tensor/job.h"
#include "gradus/tensor/random.h"

namespace gradus::data {
namespace internal {

// One epoch's order, from a position on, in global batches. Note [Shares]
// Global batch k holds the next world_size * batch_size samples of the order, and rank r gets its positions
// r, r + world_size, ...: which samples a step sees does not depend on the number of ranks. The rest of the
// epoch makes a smaller one, if every rank can have a sample of it.
struct Schedule {
  Schedule(const DataLoaderOptions& o, int64_t start, int64_t size)
      : start(start), size(size), ranks(o.world_size), global(o.batch_size * o.world_size) {
    const int64_t left = size - start, rest = left % global;
    batches = left / global;
    end = start + batches * global;
    if (rest == 0 || o.drop_last) return;
    int64_t last = rest;  // samples of the smaller one, repeated ones included
    if (o.uneven == Uneven::kDrop) {
      last = rest / ranks * ranks;
    } else if (o.uneven == Uneven::kPad) {
      last = (rest + ranks - 1) / ranks * ranks;
    } else if (rest < ranks) {
      end = size;
      if (batches > 0) return;  // the batch before takes them
      last = ranks;             // there is none: ranks without a sample get one again
    }
    if (last == 0) return;
    end = start + batches * global + last;
    ++batches;
  }
  int64_t batch_begin(int64_t k) const { return start + k * global; }
  int64_t batch_end(int64_t k) const { return k + 1 < batches ? start + (k + 1) * global : end; }
  // Where the epoch is when k batches are done.
  int64_t position(int64_t k) const { return k < batches ? batch_begin(k) : size; }

  int64_t start, size;  // positions in the order
  int64_t ranks, global;
  int64_t batches = 0;
  int64_t end = 0;  // of the last batch; beyond size: positions that come from the order's begin again
};

// What a loader and its iterators share.
struct LoaderPlan {
  DatasetRef dataset;
  DataLoaderOptions options;
  std::shared_ptr<const Sampler> sampler;
  uint64_t seed = 0;
  LoaderState now;   // of the pass under way, or the last one
  LoaderState next;  // what begin() starts with

  LoaderState state_at(uint64_t epoch, int64_t samples) const {
    return {epoch, samples, seed, dataset->size()};
  }
};

namespace {

// Random ops that read a sample get numbers of (seed, epoch), whoever reads it and when.
std::shared_ptr<Generator> epoch_generator(uint64_t seed, uint64_t epoch) {
  constexpr uint64_t kAugmentStream = uint64_t{3} << 62;
  const auto bits = philox(seed, kAugmentStream, epoch);
  return std::make_shared<Generator>((uint64_t(bits[0]) << 32) | bits[1]);
}

std::string first_of(const std::vector<int64_t>& indices) {
  return indices.empty() ? "none"
                         : concat(indices[0], " to ", indices.back(), " (", indices.size(), " samples)");
}

}  // namespace

// One pass over the data set. Batches are numbered; workers take the numbers in order and may run ahead of
// the consumer by the size of a ring of slots. Workers share it: one that is stuck may outlive the pass.
class Pass {
 public:
  Pass(std::shared_ptr<LoaderPlan> plan, const LoaderState& from)
      : plan_(std::move(plan)),
        epoch_(from.epoch),
        order_(plan_->sampler->order(epoch_)),
        schedule_(plan_->options, from.samples, static_cast<int64_t>(order_.size())) {
    for (int64_t index : order_) {
      if (index < 0 || index >= plan_->dataset->size())
        throw IndexError("DataLoader", "the sampler gave index ", index, ", outside ", plan_->dataset->name(),
                         " of ", plan_->dataset->size(), " samples");
    }
  }

  int64_t batches() const { return schedule_.batches; }
  void make_ring(int64_t slots) { slots_.resize(static_cast<size_t>(slots)); }

  // Says whether all batches were taken; then the loader stands before its next epoch.
  bool finish() {
    if (next_ < schedule_.batches) return false;
    if (plan_->now == state()) plan_->now = plan_->next;
    return true;
  }

  // Returns the next batch in order, or throws what reading it threw.
  Batch take() {
    Batch batch = slots_.empty() ? read_here() : take_from_ring();
    plan_->now = state();
    return batch;
  }

  // Runs in a worker.
  void work(Context& context) {
    std::unique_lock lock(mutex_);
    while (true) {
      slot_free_.wait(lock, [&] {
        return stopping_ || taken_ >= schedule_.batches ||
               taken_ < next_ + static_cast<int64_t>(slots_.size());
      });
      if (stopping_ || taken_ >= schedule_.batches) return;
      const int64_t number = taken_++;
      if (taken_ >= schedule_.batches) slot_free_.notify_all();  // nothing is left for those who wait
      lock.unlock();
      Slot result;
      try {
        result.batch = read(context, number);
      } catch (...) {
        result.error = std::current_exception();
      }
      result.ready = true;
      lock.lock();
      slot_of(number) = std::move(result);
      if (number == next_) batch_ready_.notify_one();
    }
  }

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    slot_free_.notify_all();
  }
  // A worker did not come back in time: nobody must wait for it.
  bool is_stuck() const { return is_stuck_; }

 private:
  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };

  LoaderState state() const { return plan_->state_at(epoch_, schedule_.position(next_)); }

  // This rank's share of batch `number`.
  Batch share_of(int64_t number) const {
    const DataLoaderOptions& options = plan_->options;
    Batch batch;
    const int64_t begin = schedule_.batch_begin(number), end = schedule_.batch_end(number);
    for (int64_t i = begin + options.rank; i < end; i += options.world_size) {
      batch.indices.push_back(order_[static_cast<size_t>(i % schedule_.size)]);
      batch.padding += i >= schedule_.size;
    }
    batch.global_size = std::min(end, schedule_.size) - begin;
    return batch;
  }

  // Reads batch `number`; `context` is the calling thread's.
  Batch read(Context& context, int64_t number) const {
    context.generator = epoch_generator(plan_->seed, epoch_);
    const Batch share = share_of(number);
    const std::vector<int64_t>& indices = share.indices;
    const Dataset& dataset = *plan_->dataset;
    try {
      Batch batch = plan_->options.collate ? plan_->options.collate(get_samples(dataset, indices), indices)
                                           : dataset.get_batch(indices);
      batch.indices = share.indices;
      batch.global_size = share.global_size;
      batch.padding = share.padding;
      return batch;
    } catch (const SampleError&) {
      throw;
    } catch (const std::exception& e) {
      // A get_batch of the user's that does not say which sample it was: name the range.
      const std::string range =
          indices.size() == 1 ? "" : concat("(or one of ", indices.size() - 1, " read with it) ");
      std::throw_with_nested(SampleError(dataset.name(), indices[0], range + e.what()));
    }
  }

  Batch read_here() {
    Context context = Context::current().snapshot();
    ContextScope scope(context);
    return read(context, next_++);
  }

  Batch take_from_ring() {
    std::unique_lock lock(mutex_);
    Slot& slot = slot_of(next_);
    const auto is_ready = [&] { return slot.ready; };
    const std::chrono::milliseconds limit = plan_->options.timeout;
    if (limit.count() == 0) {
      batch_ready_.wait(lock, is_ready);
    } else if (!batch_ready_.wait_for(lock, limit, is_ready)) {
      is_stuck_ = true;
      throw LoaderTimeoutError("DataLoader", "no batch of ", plan_->dataset->name(), " came within ",
                               limit.count(), " ms: reading samples ", first_of(share_of(next_).indices),
                               " takes longer");
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
  const Schedule schedule_;
  int64_t next_ = 0;   // the batch that the consumer gets next
  int64_t taken_ = 0;  // the batch that a worker takes next

  std::mutex mutex_;
  std::condition_variable batch_ready_, slot_free_;
  std::vector<Slot> slots_;
  bool stopping_ = false;
  bool is_stuck_ = false;
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
  Batch take() { return pass_->take(); }

 private:
  void stop() {
    pass_->stop();
    for (std::thread& worker : workers_) pass_->is_stuck() ? worker.detach() : worker.join();
    workers_.clear();
  }

  const std::shared_ptr<Pass> pass_;
  std::vector<std::thread> workers_;
};

}  // namespace internal

DataLoader::DataLoader(DatasetRef dataset, DataLoaderOptions options) {
  const auto require = [&](bool ok, const char* option, const char* expected, int64_t given) {
    if (!ok) throw ValueError("DataLoader", option, " must be ", expected, ", given ", given);
  };
  require(options.batch_size >= 1, "batch_size", "at least 1", options.batch_size);
  require(options.num_workers >= 0 && options.num_workers <= 1024, "num_workers", "0 to 1024",
          options.num_workers);
  require(options.prefetch_factor >= 1, "prefetch_factor", "at least 1", options.prefetch_factor);
  const Ref<Job> job = Job::current();
  if (options.world_size == -1) options.world_size = job->size;
  if (options.rank == -1) options.rank = options.world_size == job->size ? job->rank : 0;
  require(options.world_size >= 1, "world_size", "at least 1", options.world_size);
  require(options.rank >= 0 && options.rank < options.world_size, "rank", "0 to world_size - 1",
          options.rank);
  require(options.timeout.count() >= 0, "timeout", "at least 0 ms", options.timeout.count());
  require(options.global_batch_size >= 0 && options.global_batch_size % options.world_size == 0,
          "global_batch_size", concat("a multiple of the ", options.world_size, " ranks").c_str(),
          options.global_batch_size);
  if (options.global_batch_size > 0) {
    require(options.batch_size == 1, "batch_size", "left out when global_batch_size is given",
            options.batch_size);
    options.batch_size = options.global_batch_size / options.world_size;
  }
  if (options.sampler && options.shuffle)
    throw ValueError("DataLoader", "shuffle and sampler exclude each other: the sampler gives the order");

  const uint64_t seed = options.seed.value_or(Context::current().generator->seed());
  std::shared_ptr<const Sampler> sampler = options.sampler;
  if (!sampler && options.shuffle) sampler = std::make_shared<RandomSampler>(dataset->size(), seed);
  if (!sampler) sampler = std::make_shared<SequentialSampler>(dataset->size());
  plan_ = std::make_shared<internal::LoaderPlan>(
      internal::LoaderPlan{std::move(dataset), std::move(options), std::move(sampler), seed, {}, {}});
  set_epoch(0);
}

int64_t DataLoader::size() const {
  return internal::Schedule(plan_->options, 0, plan_->sampler->size()).batches;
}

const Dataset& DataLoader::dataset() const { return *plan_->dataset; }
const DataLoaderOptions& DataLoader::options() const { return plan_->options; }

DataLoader::Iterator DataLoader::begin() {
  const LoaderState start = plan_->next;
  auto prefetcher = std::make_unique<internal::Prefetcher>(plan_, start);
  plan_->now = start;
  plan_->next = plan_->state_at(start.epoch + 1, 0);
  return Iterator(std::move(prefetcher));
}

void DataLoader::set_epoch(uint64_t epoch) { plan_->now = plan_->next = plan_->state_at(epoch, 0); }

LoaderState DataLoader::state() const { return plan_->now; }

void DataLoader::set_state(const LoaderState& state) {
  const LoaderState own = plan_->state_at(state.epoch, state.samples);
  if (state != own)
    throw ValueError("DataLoader", "the state belongs to another loader: seed ", state.seed, ", ",
                     state.dataset_size, " samples; this one has seed ", own.seed, ", ", own.dataset_size,
                     " samples");
  if (state.samples < 0 || state.samples > plan_->sampler->size())
    throw ValueError("DataLoader", "the state is after ", state.samples, " samples, expected 0 to ",
                     plan_->sampler->size());
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
  // An exception ends the pass: the workers are gone when it reaches the caller.
  std::unique_ptr<internal::Prefetcher> prefetcher = std::move(prefetcher_);
  if (!prefetcher || prefetcher->finish()) return *this;
  batch_ = prefetcher->take();
  prefetcher_ = std::move(prefetcher);
  return *this;
}

}  // namespace gradus::data
