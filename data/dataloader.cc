#include "gradus/data/dataloader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "gradus/tensor/context.h"
#include "gradus/tensor/random.h"

namespace gradus::data {
namespace internal {

// What a loader and its iterators share.
struct LoaderPlan {
  DatasetRef dataset;
  DataLoaderOptions options;
  std::shared_ptr<const Sampler> sampler;
  uint64_t seed = 0;
  LoaderState now;   // of the pass under way, or the last one
  LoaderState next;  // what begin() starts with

  int64_t batches(int64_t samples) const {
    return samples / options.batch_size + (!options.drop_last && samples % options.batch_size != 0);
  }
  LoaderState state_at(uint64_t epoch, int64_t batches) const {
    return {epoch, batches, seed, options.batch_size, dataset->size()};
  }
};

namespace {

// Random ops that read a sample get numbers of (seed, epoch), whoever reads it and when.
std::shared_ptr<Generator> epoch_generator(uint64_t seed, uint64_t epoch) {
  constexpr uint64_t kAugmentStream = uint64_t{3} << 62;
  const auto bits = philox(seed, kAugmentStream, epoch);
  return std::make_shared<Generator>((uint64_t(bits[0]) << 32) | bits[1]);
}

}  // namespace

// One pass over the data set. Batches are numbered; workers take the numbers in order and may run ahead of
// the consumer by the size of a ring of slots.
class Prefetcher {
 public:
  Prefetcher(std::shared_ptr<LoaderPlan> plan, uint64_t epoch, int64_t first)
      : plan_(std::move(plan)), epoch_(epoch), next_(first), taken_(first) {
    const DataLoaderOptions& options = plan_->options;
    order_ = shard(plan_->sampler->order(epoch), options.rank, options.world_size);
    for (int64_t index : order_) {
      if (index < 0 || index >= plan_->dataset->size())
        throw IndexError("DataLoader", "the sampler gave index ", index, ", outside ", plan_->dataset->name(),
                         " of ", plan_->dataset->size(), " samples");
    }
    end_ = plan_->batches(static_cast<int64_t>(order_.size()));
    const int64_t workers = std::min<int64_t>(options.num_workers, end_ - first);
    if (workers <= 0) return;
    slots_.resize(static_cast<size_t>(workers * options.prefetch_factor));
    try {
      for (int64_t i = 0; i < workers; ++i)
        workers_.emplace_back([this, context = Context::current().snapshot()]() mutable {
          context.threads = 1;  // the cores belong to the training loop
          ContextScope scope(context);
          work(context);
        });
    } catch (...) {
      stop();
      throw;
    }
  }

  ~Prefetcher() { stop(); }

  // Says whether all batches were taken; then the loader stands before its next epoch.
  bool finish() {
    if (next_ < end_) return false;
    if (plan_->now == plan_->state_at(epoch_, next_)) plan_->now = plan_->next;
    return true;
  }

  // Returns the next batch in order, or throws what reading it threw.
  Batch take() {
    Batch batch = workers_.empty() ? read_here() : take_from_ring();
    plan_->now = plan_->state_at(epoch_, next_);
    return batch;
  }

 private:
  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };

  // Reads batch `number`; `context` is the calling thread's.
  Batch read(Context& context, int64_t number) const {
    context.generator = epoch_generator(plan_->seed, epoch_);
    const int64_t size = plan_->options.batch_size,
                  rest = static_cast<int64_t>(order_.size()) - number * size;
    const std::span<const int64_t> indices(order_.data() + number * size,
                                           static_cast<size_t>(std::min(size, rest)));
    const Dataset& dataset = *plan_->dataset;
    try {
      return dataset.get_batch(indices);
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
    batch_ready_.wait(lock, [&] { return slot.ready; });
    Slot taken = std::exchange(slot, Slot{});
    ++next_;
    lock.unlock();
    slot_free_.notify_one();
    if (taken.error) std::rethrow_exception(taken.error);
    return std::move(taken.batch);
  }

  void work(Context& context) {
    std::unique_lock lock(mutex_);
    while (true) {
      slot_free_.wait(lock, [&] {
        return stopping_ || taken_ >= end_ || taken_ < next_ + static_cast<int64_t>(slots_.size());
      });
      if (stopping_ || taken_ >= end_) return;
      const int64_t number = taken_++;
      if (taken_ >= end_) slot_free_.notify_all();  // nothing is left for those who wait
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

  Slot& slot_of(int64_t number) { return slots_[static_cast<size_t>(number) % slots_.size()]; }

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    slot_free_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  std::shared_ptr<LoaderPlan> plan_;
  uint64_t epoch_;
  std::vector<int64_t> order_;
  int64_t next_;   // the batch that the consumer gets next
  int64_t taken_;  // the batch that a worker takes next
  int64_t end_ = 0;

  std::mutex mutex_;
  std::condition_variable batch_ready_, slot_free_;
  std::vector<Slot> slots_;
  bool stopping_ = false;
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
  require(options.world_size >= 1, "world_size", "at least 1", options.world_size);
  require(options.rank >= 0 && options.rank < options.world_size, "rank", "0 to world_size - 1",
          options.rank);
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
  const auto& o = plan_->options;
  return plan_->batches((plan_->sampler->size() - o.rank + o.world_size - 1) / o.world_size);
}

const Dataset& DataLoader::dataset() const { return *plan_->dataset; }
const DataLoaderOptions& DataLoader::options() const { return plan_->options; }

DataLoader::Iterator DataLoader::begin() {
  const LoaderState start = plan_->next;
  auto prefetcher = std::make_unique<internal::Prefetcher>(plan_, start.epoch, start.batches);
  plan_->now = start;
  plan_->next = plan_->state_at(start.epoch + 1, 0);
  return Iterator(std::move(prefetcher));
}

void DataLoader::set_epoch(uint64_t epoch) { plan_->now = plan_->next = plan_->state_at(epoch, 0); }

LoaderState DataLoader::state() const { return plan_->now; }

void DataLoader::set_state(const LoaderState& state) {
  const LoaderState own = plan_->state_at(state.epoch, state.batches);
  if (state != own)
    throw ValueError("DataLoader", "the state belongs to another loader: seed ", state.seed, ", batch_size ",
                     state.batch_size, ", ", state.dataset_size, " samples; this one has seed ", own.seed,
                     ", batch_size ", own.batch_size, ", ", own.dataset_size, " samples");
  if (state.batches < 0 || state.batches > size())
    throw ValueError("DataLoader", "the state has ", state.batches, " batches, expected 0 to ", size());
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
