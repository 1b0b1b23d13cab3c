// Implementation of IterableLoader: a StreamReader makes this rank's shares of the global batches of a stream, in
// the calling thread or in one thread that reads ahead (ReadAhead). Random numbers of a sample depend on (seed,
// epoch, position), so samples do not depend on the thread or on the number of ranks.
#include "gradus/data/iterable_loader.h"

#include <algorithm>

#include "gradus/data/internal/device_copies.h"
#include "gradus/data/read_ahead.h"
#include "gradus/data/sample_reading.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/environment.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::data {
namespace internal {

// State that a loader shares with its iterators.
struct StreamPlan {
  std::shared_ptr<const IterableDataset> dataset;
  IterableLoaderOptions options;  // complete: global_batch_size, rank and world_size are set
  uint64_t seed = 0;
  std::optional<DeviceCopies> copies;
  std::shared_ptr<LoaderPosition> position = std::make_shared<LoaderPosition>();

  LoaderState state_at(uint64_t epoch, int64_t samples, int64_t shown) const {
    return {epoch, samples, seed, -1, shown};
  }
};

namespace {

class StreamReader : public BatchReader {
 public:
  StreamReader(std::shared_ptr<const StreamPlan> plan, const LoaderState& from)
      : plan_(std::move(plan)), state_(from), first_(from.samples) {}

  // Errors: see IterableLoader::begin.
  std::optional<Read> read(Context& context, int64_t) override {
    const RunningRange running = observed({.kind = RangeKind::kData, .name = "read batch"});
    context.generator = epoch_generator(plan_->seed, state_.epoch);
    const IterableLoaderOptions& o = plan_->options;
    const int64_t begin = state_.samples;
    int64_t end = begin + o.global_batch_size;
    Batch share;
    {
      SampleGenerator generator;
      if (!stream_) open(generator, begin);
      // If fewer samples than ranks follow the batch, it takes them: reads world_size samples more to know that.
      read_to(generator, end + o.world_size);
      if (is_cancelled()) return std::nullopt;
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
    return Read{std::move(batch), state_};
  }

  // The first sample of the batch: the number of the others is unknown.
  std::vector<int64_t> indices(int64_t, const LoaderState& before) const override {
    return {before.samples + plan_->options.rank};
  }

 private:
  // Opens the epoch and passes over `samples` samples.
  void open(SampleGenerator& generator, int64_t samples) {
    generator.begin_sample(-1);
    stream_ = plan_->dataset->open(state_.epoch);
    if (!stream_) throw ValueError("IterableLoader", plan_->dataset->name(), ": open() returned null");
    for (position_ = 0; position_ < samples && !is_cancelled(); ++position_)
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
    while (!ended_ && position_ < end && !is_cancelled()) {
      const bool is_own = (position_ - first_) % o.world_size == o.rank;
      ended_ = is_own ? !read_sample(generator) : !skip_sample(generator);
      position_ += !ended_;
    }
  }

  const std::shared_ptr<const StreamPlan> plan_;
  LoaderState state_;    // after the batches that have been read
  const int64_t first_;  // position at which the pass starts
  std::unique_ptr<SampleStream> stream_;
  int64_t position_ = 0;  // of the stream
  bool ended_ = false;    // the stream has no sample at position_
  std::vector<Sample> samples_;
  std::vector<int64_t> positions_;  // of samples_
};

}  // namespace

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
  require(o.timeout.count() >= 0 && o.timeout <= internal::kMaxTimeout, "timeout", "0 ms to a year",
          o.timeout.count());
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
  plan_->position->move_to(plan_->state_at(0, 0, 0));
}

IterableLoader::Iterator IterableLoader::begin() {
  const IterableLoaderOptions& o = plan_->options;
  auto reader = std::make_shared<internal::StreamReader>(plan_, plan_->position->begin_pass());
  return Iterator(std::make_unique<internal::ReadAhead>(
      std::move(reader), plan_->position,
      internal::ReadAheadOptions{"IterableLoader", plan_->dataset->name(), o.prefetch > 0, o.prefetch,
                                 o.timeout, plan_->copies}));
}

LoaderState IterableLoader::state() const { return plan_->position->current; }

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
  plan_->position->move_to(state);
}

}  // namespace gradus::data
