// Implementation of IterableLoader: a StreamReader makes this rank's shares of the global batches of a stream, in
// the calling thread or in one thread that reads ahead. Random numbers of a sample depend on (seed, epoch,
// position), so batches do not depend on the thread or on the number of ranks.
#include "gradus/data/iterable_loader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>

#include "gradus/data/internal/device_copies.h"
#include "gradus/data/sample_reading.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/environment.h"
#include "gradus/tensor/runtime/fork.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::data {
namespace internal {

// State that a loader shares with its iterators. Only the iterating thread changes `current` and `next`.
struct StreamPlan {
  std::shared_ptr<const IterableDataset> dataset;
  IterableLoaderOptions options;  // complete: global_batch_size, rank and world_size are set
  uint64_t seed = 0;
  std::optional<DeviceCopies> copies;
  LoaderState current = {};  // of the current pass, or else of the last one
  LoaderState next = {};     // from which begin() starts

  LoaderState state_at(uint64_t epoch, int64_t samples, int64_t shown) const {
    return {epoch, samples, seed, -1, shown};
  }
};

namespace {

struct ReadBatch {
  Batch batch;
  LoaderState after;  // the loader's state once the batch is delivered
};

// Reads the batches of a pass in order.
class StreamReader {
 public:
  StreamReader(std::shared_ptr<StreamPlan> plan, const LoaderState& from)
      : plan_(std::move(plan)), state_(from), first_(from.samples) {}

  // Returns the next batch; nullopt at the end. `context` is the calling thread's Context.
  // Errors: see IterableLoader::begin.
  std::optional<ReadBatch> read(Context& context) {
    const RunningRange running = observed({.kind = RangeKind::kData, .name = "read batch"});
    context.generator = epoch_generator(plan_->seed, state_.epoch);
    const IterableLoaderOptions& o = plan_->options;
    const int64_t begin = state_.samples;
    int64_t end = begin + o.global_batch_size;
    Batch share;
    {
      SampleGenerator generator;
      if (!stream_) open(generator, begin);
      // Fewer samples than ranks after the batch belong to the batch, so the next `world_size` ones are read too.
      read_to(generator, end + o.world_size);
      if (ended_ && !o.drop_last) end = position_;
      if (end > position_ || end == begin) return std::nullopt;
      if (end - begin <= o.rank) {  // no sample for this rank: repeat one
        open(generator, begin + o.rank % (end - begin));
        if (!read_sample(generator))
          throw SampleError(plan_->dataset->name(), position_, "is missing when it is read again");
        position_ = end;
        share.padding = 1;
      }
    }
    share.global_size = std::max<int64_t>(end - begin, o.world_size);
    const auto count = std::lower_bound(positions_.begin(), positions_.end(), end) - positions_.begin();
    std::vector<Sample> samples(samples_.begin() + count, samples_.end());
    std::swap(samples, samples_);
    samples.resize(size_t(count));
    share.indices.assign(positions_.begin(), positions_.begin() + count);
    positions_.erase(positions_.begin(), positions_.begin() + count);

    Batch batch = o.collate ? o.collate(samples, share.indices)
                            : collate(samples, share.indices, plan_->dataset->name());
    batch.indices = std::move(share.indices);
    batch.global_size = share.global_size;
    batch.padding = share.padding;
    if (o.batch_transform) {
      context.generator = batch_generator(plan_->seed, state_.epoch, begin + o.rank);
      batch = o.batch_transform(std::move(batch));
    }
    state_ = plan_->state_at(state_.epoch, end, state_.shown + share.global_size);
    return ReadBatch{plan_->copies ? plan_->copies->pin(std::move(batch)) : std::move(batch), state_};
  }

 private:
  // Opens the epoch and passes over `samples` samples.
  void open(SampleGenerator& generator, int64_t samples) {
    generator.begin_sample(-1);
    stream_ = plan_->dataset->open(state_.epoch);
    if (!stream_) throw ValueError("IterableLoader", plan_->dataset->name(), ": open() returned null");
    for (position_ = 0; position_ < samples; ++position_)
      if (!skip_sample(generator))
        throw ValueError("IterableLoader", plan_->dataset->name(), " ended after ", position_,
                         " samples of epoch ", state_.epoch, ", of which ", samples,
                         " have been read before: open() must give the same samples each time");
  }

  bool skip_sample(SampleGenerator& generator) {
    generator.begin_sample(position_);
    return with_sample_error(*plan_->dataset, position_, [&] { return stream_->skip(); });
  }

  // Appends the sample at position_. Returns false at the end.
  bool read_sample(SampleGenerator& generator) {
    generator.begin_sample(position_);
    return with_sample_error(*plan_->dataset, position_, [&] {
      std::optional<Sample> sample = stream_->next();
      if (!sample) return false;
      if (!sample->input.defined()) throw ValueError(plan_->dataset->name(), "the sample has no input");
      samples_.push_back(std::move(*sample));
      positions_.push_back(position_);
      return true;
    });
  }

  // Reads this rank's samples up to position `end`, or to the end of the stream.
  void read_to(SampleGenerator& generator, int64_t end) {
    const IterableLoaderOptions& o = plan_->options;
    while (!ended_ && position_ < end) {
      const bool is_own = (position_ - first_) % o.world_size == o.rank;
      ended_ = is_own ? !read_sample(generator) : !skip_sample(generator);
      position_ += !ended_;
    }
  }

  const std::shared_ptr<StreamPlan> plan_;
  LoaderState state_;    // after the batches that have been read
  const int64_t first_;  // position at which the pass starts
  std::unique_ptr<SampleStream> stream_;
  int64_t position_ = 0;  // of the stream
  bool ended_ = false;    // the stream has no sample at position_
  std::vector<Sample> samples_;
  std::vector<int64_t> positions_;  // of samples_
};

}  // namespace

// One pass over the data set. The reading thread shares ownership, since a blocked stream may outlive the loader.
class StreamPass {
 public:
  StreamPass(const std::shared_ptr<StreamPlan>& plan, const LoaderState& from)
      : plan_(plan), reader_(plan, from), state_(from) {}

  // Returns the next batch; nullopt at the end, after which the loader is at the start of its next epoch.
  std::optional<Batch> take() {
    std::optional<ReadBatch> read = plan_->copies ? take_from_device() : take_on_host();
    if (!read) {
      if (plan_->current == state_) plan_->current = plan_->next;
      return std::nullopt;
    }
    plan_->current = state_ = read->after;
    plan_->next.shown = state_.shown;
    return std::move(read->batch);
  }

  // The main loop of the reading thread.
  void run(Context& context) {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || queue_.size() < size_t(plan_->options.prefetch); });
      if (stopping_) break;
      lock.unlock();
      Result result;
      try {
        result.read = reader_.read(context);
      } catch (...) {
        result.error = std::current_exception();
      }
      const bool is_last = !result.read;
      lock.lock();
      queue_.push_back(std::move(result));
      changed_.notify_all();
      if (is_last) break;
    }
    running_ = false;
    changed_.notify_all();
  }

  // Stops the thread. Waits for the batch being read, for at most the loader's timeout. Returns false if the thread
  // is blocked and must not be joined.
  bool stop() {
    const std::chrono::milliseconds limit = plan_->options.timeout;
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    return limit.count() == 0 || (!timed_out_ && changed_.wait_for(lock, limit, [&] { return !running_; }));
  }

 private:
  struct Result {
    std::optional<ReadBatch> read;  // none: the end, or an error
    std::exception_ptr error;
  };

  std::optional<ReadBatch> take_from_device() {
    if (!copying_) copy_next();
    if (!copying_) return std::nullopt;
    auto [queued, after] = *std::exchange(copying_, {});
    if (next_is_read()) copy_next();
    return ReadBatch{plan_->copies->receive(std::move(queued)), after};
  }
  void copy_next() {
    if (std::optional<ReadBatch> read = take_on_host())
      copying_.emplace(plan_->copies->queue(std::move(read->batch)), read->after);
  }
  bool next_is_read() {
    const std::lock_guard lock(mutex_);
    return !queue_.empty() && queue_.front().read;
  }

  std::optional<ReadBatch> take_on_host() {
    const std::chrono::milliseconds limit = plan_->options.timeout;
    if (plan_->options.prefetch == 0) {
      Context context = Context::current().snapshot();
      ContextScope scope(context);
      return reader_.read(context);
    }
    const RunningRange running = observed({.kind = RangeKind::kData, .name = "wait for batch"});
    std::unique_lock lock(mutex_);
    const auto is_ready = [&] { return !queue_.empty(); };
    if (limit.count() == 0) {
      changed_.wait(lock, is_ready);
    } else if (!changed_.wait_for(lock, limit, is_ready)) {
      timed_out_ = true;
      throw LoaderTimeoutError(plan_->dataset->name(), limit, {state_.samples + plan_->options.rank});
    }
    Result& front = queue_.front();
    if (front.error) std::rethrow_exception(front.error);
    if (!front.read) return std::nullopt;
    std::optional<ReadBatch> read = std::move(front.read);
    queue_.pop_front();
    changed_.notify_all();
    return read;
  }

  const std::shared_ptr<StreamPlan> plan_;
  StreamReader reader_;  // used by the reading thread if there is one
  LoaderState state_;    // after the batches that have been delivered
  std::optional<std::pair<DeviceCopies::Queued, LoaderState>> copying_;  // the next batch

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Result> queue_;
  bool stopping_ = false, timed_out_ = false;
  bool running_ = true;  // the thread; unused without one
};

// A pass with its reading thread.
class StreamPrefetcher {
 public:
  StreamPrefetcher(const std::shared_ptr<StreamPlan>& plan, const LoaderState& from)
      : pass_(std::make_shared<StreamPass>(plan, from)) {
    if (plan->options.prefetch == 0) return;
    thread_ = std::thread([pass = pass_, context = Context::current().snapshot()]() mutable {
      name_thread("data loader");
      context.threads = 1;  // the cores belong to the training loop
      ContextScope scope(context);
      pass->run(context);
    });
  }
  // In a fork()ed child the thread does not exist: its std::thread object is abandoned.
  ~StreamPrefetcher() {
    if (!thread_.joinable()) return;
    if (process_ != gradus::internal::fork_count()) {
      gradus::internal::abandon(std::move(thread_));
    } else {
      pass_->stop() ? thread_.join() : thread_.detach();
    }
  }

  std::optional<Batch> take() {
    if (thread_.joinable() && process_ != gradus::internal::fork_count())
      throw StateError(
          "IterableLoader",
          "this process was made by fork(), and the loader's thread is its parent's: begin another "
          "pass here");
    return pass_->take();
  }

 private:
  const int process_ = gradus::internal::fork_count();
  const std::shared_ptr<StreamPass> pass_;
  std::thread thread_;
};

}  // namespace internal

namespace {

void require(bool ok, const char* option, const std::string& expected, int64_t got) {
  if (!ok) throw ValueError("IterableLoader", option, " must be ", expected, ", got ", got);
}

// Completes rank, world_size and global_batch_size. Returns whether the shard is the job's.
// Errors: ValueError.
bool complete(IterableLoaderOptions& o, Job& job) {
  constexpr int64_t kMaxBatch = int64_t{1} << 40;
  const bool by_job = o.rank == -1 && o.world_size == -1;
  if (by_job) {
    check_joined("IterableLoader");
    const Replica replica = job.freeze_replica();
    o.rank = replica.index;
    o.world_size = replica.count;
  }
  if (o.world_size == 1 && o.rank == -1) o.rank = 0;
  require(o.world_size >= 1, "world_size", "at least 1", o.world_size);
  require(o.rank >= 0 && o.rank < o.world_size, "rank", "0 to world_size - 1", o.rank);
  require(o.batch_size >= 1 && o.batch_size <= kMaxBatch / o.world_size, "batch_size",
          "at least 1, at most 2^40", o.batch_size);
  if (o.global_batch_size == 0) {
    o.global_batch_size = o.batch_size * o.world_size;
  } else {
    require(o.batch_size == 1, "batch_size", "left out when global_batch_size is given", o.batch_size);
    require(o.global_batch_size > 0 && o.global_batch_size <= kMaxBatch &&
                o.global_batch_size % o.world_size == 0,
            "global_batch_size", concat("a multiple of the number of ranks, ", o.world_size),
            o.global_batch_size);
  }
  require(o.prefetch >= 0 && o.prefetch <= 1024, "prefetch", "0 to 1024", o.prefetch);
  require(o.timeout.count() >= 0, "timeout", "at least 0 ms", o.timeout.count());
  require(o.timeout.count() == 0 || o.prefetch > 0, "timeout", "0 without prefetch", o.timeout.count());
  return by_job;
}

// Errors: ValueError.
void check_same_on_ranks(Job& job, const IterableLoaderOptions& o, const std::string& name, uint64_t seed) {
  const std::string text =
      concat(name, ", global batches of ", o.global_batch_size, ", drop_last ", o.drop_last, ", seed ", seed);
  const std::string first = job.value_of_first_caller("IterableLoader", text);
  if (first != text)
    throw ValueError("IterableLoader",
                     "the ranks' loaders share one stream, so they must be alike, but this one "
                     "of rank ",
                     job.rank, " has ", text, ", and that of another rank has ", first,
                     "; give the same options and .seed, or .world_size = 1 for samples of one's own");
}

}  // namespace

IterableLoader::IterableLoader(std::shared_ptr<const IterableDataset> dataset,
                               IterableLoaderOptions options) {
  if (!dataset) throw ValueError("IterableLoader", "a null data set was given");
  const Ref<Job> job = Job::current();
  const bool by_job = complete(options, *job);
  std::optional<internal::DeviceCopies> copies;
  if (options.device) copies.emplace(*options.device);
  const uint64_t seed = options.seed.value_or(Context::current().generator->seed());
  if (by_job && job->size > 1) check_same_on_ranks(*job, options, dataset->name(), seed);
  plan_ = std::make_shared<internal::StreamPlan>(
      internal::StreamPlan{std::move(dataset), std::move(options), seed, std::move(copies)});
  plan_->current = plan_->next = plan_->state_at(0, 0, 0);
}

IterableLoader::Iterator IterableLoader::begin() {
  const LoaderState start = plan_->next;
  auto prefetcher = std::make_unique<internal::StreamPrefetcher>(plan_, start);
  plan_->current = start;
  plan_->next = plan_->state_at(start.epoch + 1, 0, start.shown);
  return Iterator(std::move(prefetcher));
}

LoaderState IterableLoader::state() const { return plan_->current; }

void IterableLoader::set_state(const LoaderState& state) {
  constexpr int64_t kMax = int64_t{1} << 62;
  if (state.seed != plan_->seed || state.dataset_size != -1)
    throw ValueError("IterableLoader", "the state belongs to another loader: seed ", state.seed, ", ",
                     state.dataset_size, " samples; this one has seed ", plan_->seed,
                     ", and -1 for an unknown number of samples");
  for (const int64_t number : {state.samples, state.shown})
    if (number < 0 || number > kMax)
      throw ValueError("IterableLoader", "the state has ", state.samples, " samples of the epoch and ",
                       state.shown, " of all epochs, expected 0 to ", kMax);
  plan_->current = plan_->next = state;
}

IterableLoader::Iterator::Iterator(std::unique_ptr<internal::StreamPrefetcher> prefetcher)
    : prefetcher_(std::move(prefetcher)) {
  ++*this;
}
IterableLoader::Iterator::Iterator(Iterator&&) noexcept = default;
IterableLoader::Iterator& IterableLoader::Iterator::operator=(Iterator&&) noexcept = default;
IterableLoader::Iterator::~Iterator() = default;

IterableLoader::Iterator& IterableLoader::Iterator::operator++() {
  batch_ = Batch{};
  // If take() throws, destroying `prefetcher` joins the thread before the exception reaches the caller.
  std::unique_ptr<internal::StreamPrefetcher> prefetcher = std::move(prefetcher_);
  std::optional<Batch> batch = prefetcher ? prefetcher->take() : std::nullopt;
  if (!batch) return *this;
  batch_ = std::move(*batch);
  prefetcher_ = std::move(prefetcher);
  return *this;
}

}  // namespace gradus::data
