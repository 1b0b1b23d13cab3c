// Implementation of DataLoader. The order of an epoch is divided into global batches (the batches of all ranks
// together; BatchSchedule); rank r of n reads samples r, r + n, ... of each. Random numbers are Philox streams
// keyed by (seed, epoch, position), so that batches do not depend on workers or timing.
//
// Threads: one thread uses a DataLoader and its iterators; workers (ReadAhead) call Dataset, collate and
// batch_transform concurrently.
#include "gradus/data/dataloader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include "gradus/data/batch_schedule.h"
#include "gradus/data/internal/device_copies.h"
#include "gradus/data/read_ahead.h"
#include "gradus/data/sample_reading.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/environment.h"
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

// State that a loader shares with its iterators.
struct LoaderPlan {
  DatasetRef dataset;
  DataLoaderOptions options;  // complete: rank and world_size are set
  std::shared_ptr<const Sampler> sampler;
  uint64_t seed = 0;
  std::optional<DeviceCopies> copies;
  std::shared_ptr<LoaderPosition> position = std::make_shared<LoaderPosition>();

  // `samples`: received by all ranks in this epoch; `shown`: received by all ranks in all epochs.
  LoaderState state_at(uint64_t epoch, int64_t samples, int64_t shown) const {
    return {epoch, samples, seed, dataset->size(), shown};
  }
};

namespace {

// Joins one field of parts of a batch with `size` samples. Returns false if the fields differ in more than the number of
// samples, or are not on the CPU, or have other strides than empty() and empty_channels_last() give.
bool join(const std::vector<Batch>& parts, Tensor Batch::*field, int64_t size, Tensor& out) {
  const Tensor& first = parts[0].*field;
  const auto is_like_first = [&](const Tensor& x) {
    if (x.defined() != first.defined()) return false;
    if (!x.defined()) return true;
    if (x.device() != kCPU || x.dtype() != first.dtype() || x.dim() != first.dim() || x.dim() == 0)
      return false;
    for (int d = 1; d < x.dim(); ++d)
      if (x.shape()[d] != first.shape()[d] || x.strides()[d] != first.strides()[d]) return false;
    return x.strides()[0] == first.strides()[0];
  };
  for (const Batch& part : parts)
    if (!is_like_first(part.*field) || ((part.*field).defined() && (part.*field).size(0) != part.size()))
      return false;
  if (!first.defined()) return true;
  Shape shape = first.shape();
  shape[0] = size;
  out = empty(shape, {.dtype = first.dtype()});
  if (out.strides() != first.strides() && out.dim() == 4)
    out = empty_channels_last(shape, {.dtype = first.dtype()});
  if (out.strides() != first.strides()) return false;
  char* to = static_cast<char*>(out.raw_ptr());
  for (const Batch& part : parts) {
    const Tensor& x = part.*field;
    if (x.numel() > 0) std::memcpy(to, x.raw_ptr(), size_t(x.nbytes()));
    to += x.nbytes();
  }
  return true;
}

// Reads this rank's shares of the global batches of an epoch.
class EpochReader : public BatchReader {
 public:
  // Errors: IndexError for the sampler's indices.
  EpochReader(std::shared_ptr<const LoaderPlan> plan, const LoaderState& from)
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

  std::optional<Read> read(Context& context, int64_t number) override {
    if (number >= batches()) return std::nullopt;
    Batch batch = read_samples(context, number);
    const DataLoaderOptions& options = plan_->options;
    if (options.batch_transform) {
      context.generator = batch_generator(plan_->seed, epoch_, schedule_.begin(number) + options.rank);
      batch = options.batch_transform(std::move(batch));
    }
    return Read{std::move(batch), plan_->state_at(epoch_, schedule_.position_after(number + 1),
                                                  schedule_.shown_after(number + 1))};
  }

  std::vector<int64_t> indices(int64_t number, const LoaderState&) const override {
    return number < batches() ? local_share(number).indices : std::vector<int64_t>();
  }

 private:
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

  // Reads batch `number` without transforming it.
  // Errors: SampleError, which wraps an exception of the data set or collate.
  Batch read_samples(Context& context, int64_t number) const {
    const RunningRange running = observed({.kind = RangeKind::kData, .name = "read batch"});
    context.generator = epoch_generator(plan_->seed, epoch_);
    const Batch share = local_share(number);
    const std::vector<int64_t>& indices = share.indices;
    const Dataset& dataset = *plan_->dataset;
    try {
      const auto& collate = plan_->options.collate;
      std::optional<Batch> divided = read_divided(context, indices);
      Batch batch = divided   ? *std::move(divided)
                    : collate ? read_batch(dataset, indices, collate)
                              : dataset.get_batch(indices);
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

  // Reads consecutive parts of a batch at once. Returns nullopt after an error, for replacements, and for parts that
  // cannot be joined: one call for the whole batch then decides the result.
  std::optional<Batch> read_divided(Context& context, std::span<const int64_t> indices) const {
    const auto& collate = plan_->options.collate;
    const int64_t size = int64_t(indices.size());
    const int64_t count = std::min<int64_t>(plan_->options.num_workers, size);
    if (!plan_->options.divide || !can_divide_ || count < 2) return std::nullopt;
    std::vector<Batch> parts(static_cast<size_t>(count));
    std::vector<Sample> samples(collate ? size_t(size) : 0);
    std::atomic<bool> is_complete = true;
    const auto read_part = [&](int64_t k) {
      const int64_t begin = k * size / count, end = (k + 1) * size / count;
      const auto part = indices.subspan(size_t(begin), size_t(end - begin));
      const auto keep = [&](const std::vector<Sample>& read, std::span<const int64_t>) {
        std::copy(read.begin(), read.end(), samples.begin() + begin);
        return Batch{};
      };
      Batch& batch = parts[size_t(k)];
      batch = collate ? read_batch(*plan_->dataset, part, keep) : plan_->dataset->get_batch(part);
      if (batch.skipped > 0) is_complete = false;
      batch.indices.assign(part.begin(), part.end());
    };
    std::vector<Context> contexts;
    for (int64_t k = 0; k < count; ++k) {
      contexts.push_back(context.snapshot());
      contexts.back().generator = epoch_generator(plan_->seed, epoch_);  // equal draws in each part
      contexts.back().threads = 1;
    }
    const auto run = [&](int64_t k) {
      const ContextScope scope(contexts[size_t(k)]);
      try {
        read_part(k);
      } catch (...) {
        is_complete = false;
      }
    };
    {
      std::vector<std::jthread>
          threads;  // not parallel_for, which takes one thread on busy CPUs: reads may wait for a disk
      for (int64_t k = 1; k < count; ++k)
        threads.emplace_back([&run, k] {
          name_thread("data loader");
          run(k);
        });
      run(0);
    }
    if (!is_complete) return std::nullopt;
    Batch batch;
    if (collate) {
      context.generator->next();  // which the parts have drawn
      batch = collate(samples, indices);
    } else if (!join(parts, &Batch::input, size, batch.input) ||
               !join(parts, &Batch::target, size, batch.target)) {
      can_divide_ = false;
      return std::nullopt;
    }
    batch.indices.assign(indices.begin(), indices.end());
    return batch;
  }

  const std::shared_ptr<const LoaderPlan> plan_;
  const uint64_t epoch_;
  const std::vector<int64_t> order_;
  const BatchSchedule schedule_;
  mutable std::atomic<bool> can_divide_ = true;  // false: parts of a batch could not be joined
};

}  // namespace
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
  require(!options.divide || options.num_workers >= 2, "num_workers", "at least 2 with divide",
          options.num_workers);
  require(options.prefetch_factor >= 1, "prefetch_factor", "at least 1", options.prefetch_factor);
  require(options.timeout.count() >= 0 && options.timeout <= internal::kMaxTimeout, "timeout",
          "0 ms to a year", options.timeout.count());
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
      std::move(dataset), std::move(options), std::move(sampler), seed, std::move(copies)});
  set_epoch(0);
}

int64_t DataLoader::size() const {
  const LoaderState from = {.shown = plan_->position->current.shown};
  return internal::BatchSchedule(plan_->options, from, plan_->sampler->size()).batches();
}

int64_t DataLoader::global_batch_size() const {
  return internal::global_batch_size(plan_->options, plan_->position->current.shown);
}

const Dataset& DataLoader::dataset() const { return *plan_->dataset; }
const DataLoaderOptions& DataLoader::options() const { return plan_->options; }

DataLoader::Iterator DataLoader::begin() {
  const DataLoaderOptions& o = plan_->options;
  auto reader = std::make_shared<internal::EpochReader>(plan_, plan_->position->next);
  const int64_t threads = std::min<int64_t>(o.divide ? 1 : o.num_workers, reader->batches());
  plan_->position->begin_pass();
  return Iterator(std::make_unique<internal::ReadAhead>(
      std::move(reader), plan_->position,
      internal::ReadAheadOptions{"DataLoader", plan_->dataset->name(), threads, threads * o.prefetch_factor,
                                 o.timeout, plan_->copies}));
}

void DataLoader::set_epoch(uint64_t epoch) {
  plan_->position->move_to(plan_->state_at(epoch, 0, plan_->position->current.shown));
}

LoaderState DataLoader::state() const { return plan_->position->current; }

int64_t DataLoader::skipped() const { return plan_->position->skipped; }

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
  plan_->position->move_to(state);
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
