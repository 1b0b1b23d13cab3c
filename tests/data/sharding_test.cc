// How the loaders of W ranks share an epoch: rank r gets samples r, r + W, ... of each global batch. The
// ranks are loaders of one process, read one after the other. Covers uneven sizes, resuming on another number
// of ranks, and global batch sizes that change with the number of samples shown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <numeric>
#include <thread>

#include "gradus/data/dataloader.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/tests/support/error.h"

namespace gradus::data {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sample i is the number i.
class Count : public Dataset {
 public:
  explicit Count(int64_t size) : size_(size) {}
  std::string name() const override { return "Count"; }
  int64_t size() const override { return size_; }
  Sample get(int64_t i) const override {
    check_index(i);
    return {scalar(double(i), {.dtype = DType::kI64}), {}};
  }

 private:
  int64_t size_;
};

using Indices = std::vector<int64_t>;

// A batch as a rank gets it. `padding` counts its repeated samples.
struct Given {
  Indices indices;
  int64_t global_size = 0, padding = 0;
};
// The batches of one rank in a pass from `state` on, at most `most`. `state` is set to the state after them.
std::vector<Given> pass_of(const Dataset& d, DataLoaderOptions options, int rank, int world,
                           LoaderState* state = nullptr, size_t most = 1 << 30) {
  options.rank = rank;
  options.world_size = world;
  DataLoader loader(d, options);
  if (state && state->dataset_size > 0) loader.set_state(*state);
  const int64_t before = loader.state().samples, size = loader.size();
  std::vector<Given> batches;
  LoaderState reached = loader.state();
  for (const Batch& b : loader) {
    EXPECT_EQ(b.input.to_vector<int64_t>(), b.indices);
    EXPECT_FALSE(b.indices.empty());
    batches.push_back({b.indices, b.global_size, b.padding});
    reached = loader.state();
    if (batches.size() == most) break;
  }
  if (before == 0 && most > batches.size()) {
    EXPECT_EQ(int64_t(batches.size()), size);
  }
  if (state) *state = reached;
  return batches;
}
std::vector<std::vector<Given>> passes_of(const Dataset& d, const DataLoaderOptions& options, int world,
                                          LoaderState* state = nullptr, size_t most = 1 << 30) {
  std::vector<std::vector<Given>> ranks;
  LoaderState start = state ? *state : LoaderState{}, end;
  for (int rank = 0; rank < world; ++rank) {
    LoaderState own = start;
    ranks.push_back(pass_of(d, options, rank, world, &own, most));
    if (rank == 0) end = own;
    EXPECT_EQ(own, end) << "ranks must agree where they are";
  }
  if (state) *state = end;
  return ranks;
}

// The global batches: sample i of one is from rank i % size.
std::vector<Given> joined(const std::vector<std::vector<Given>>& ranks) {
  std::vector<Given> all;
  for (size_t k = 0; k < ranks[0].size(); ++k) {
    Given together{.global_size = ranks[0][k].global_size};
    int64_t total = 0;
    for (const auto& rank : ranks) {
      if (rank.size() != ranks[0].size()) {
        ADD_FAILURE() << "ranks have " << rank.size() << " and " << ranks[0].size() << " batches";
        return all;
      }
      EXPECT_EQ(rank[k].global_size, together.global_size);
      total += int64_t(rank[k].indices.size());
      together.padding += rank[k].padding;
    }
    EXPECT_EQ(total, together.global_size);
    for (int64_t i = 0; i < total; ++i) {
      const auto& share = ranks[size_t(i) % ranks.size()][k].indices;
      const size_t at = size_t(i) / ranks.size();
      if (at >= share.size()) {
        ADD_FAILURE() << "shares of a batch differ by more than one sample";
        break;
      }
      together.indices.push_back(share[at]);
    }
    all.push_back(together);
  }
  return all;
}
Indices samples_of(const std::vector<Given>& batches) {
  Indices all;
  for (const Given& b : batches) all.insert(all.end(), b.indices.begin(), b.indices.end());
  return all;
}

struct Case {
  int64_t n;
  int world;
  int64_t batch;
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (int64_t n : {0, 1, 2, 3, 5, 8, 16, 23, 49, 64})
    for (int world : {1, 2, 3, 4, 8})
      for (int64_t batch : {1, 2, 5}) all.push_back({n, world, batch});
  return all;
}
std::string text(const Case& c) { return concat(c.n, " samples, ", c.world, " ranks, batches of ", c.batch); }

TEST(Shares, BalancedGiveEachSampleOnceInTheOneOrder) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(text(c));
    const Count d(c.n);
    const auto batches = joined(passes_of(d, {.batch_size = c.batch, .shuffle = true, .seed = 4}, c.world));
    Indices order = RandomSampler(c.n, 4).order(0);
    int64_t padding = 0;
    if (c.n > 0 && c.n < c.world) {  // samples are repeated until each rank has one
      padding = c.world - c.n;
      for (size_t i = 0; int64_t(order.size()) < c.world; ++i) order.push_back(order[i]);
    }
    EXPECT_EQ(samples_of(batches), order);
    int64_t padded = 0;
    for (size_t k = 0; k < batches.size(); ++k) {
      padded += batches[k].padding;
      const int64_t size = int64_t(batches[k].indices.size()), full = c.world * c.batch;
      if (k + 1 < batches.size()) {
        EXPECT_EQ(size, full);
      } else {  // fewer than `world` remaining samples join the last batch
        EXPECT_LT(size, full + c.world);
      }
    }
    EXPECT_EQ(padded, padding);
  }
}

TEST(Shares, PaddedAreEqualAndBeginAgainWithTheFirstSamples) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(text(c));
    const Count d(c.n);
    const auto ranks =
        passes_of(d, {.batch_size = c.batch, .shuffle = true, .uneven = Uneven::kPad, .seed = 4}, c.world);
    for (const auto& rank : ranks)
      for (size_t k = 0; k < rank.size(); ++k) EXPECT_EQ(rank[k].indices.size(), ranks[0][k].indices.size());
    const auto batches = joined(ranks);
    const Indices order = RandomSampler(c.n, 4).order(0);
    Indices expected = order;
    while (expected.size() % size_t(c.world) != 0)
      expected.push_back(order[(expected.size() - order.size()) % order.size()]);
    EXPECT_EQ(samples_of(batches), expected);
    if (!batches.empty()) {
      EXPECT_EQ(batches.back().padding, int64_t(expected.size() - order.size()));
    }
  }
}

TEST(Shares, DroppedAreEqualAndOfTheOrdersBegin) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(text(c));
    const Count d(c.n);
    const Indices order = RandomSampler(c.n, 4).order(0);
    const auto begin = [&](int64_t n) { return Indices(order.begin(), order.begin() + n); };
    const auto rest =
        passes_of(d, {.batch_size = c.batch, .shuffle = true, .uneven = Uneven::kDrop, .seed = 4}, c.world);
    EXPECT_EQ(samples_of(joined(rest)), begin(c.n / c.world * c.world));
    const int64_t full = c.batch * c.world;
    for (Uneven uneven : {Uneven::kBalance, Uneven::kPad, Uneven::kDrop}) {
      const auto whole = passes_of(
          d, {.batch_size = c.batch, .shuffle = true, .drop_last = true, .uneven = uneven, .seed = 4},
          c.world);
      EXPECT_EQ(samples_of(joined(whole)), begin(c.n / full * full));
      for (const Given& b : whole[0]) EXPECT_EQ(int64_t(b.indices.size()), c.batch);
    }
  }
}

TEST(Shares, OfTheLargestBatchSizeAreTheWholeEpochAtOnce) {
  const Count d(10);
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  for (const DataLoaderOptions& options :
       {DataLoaderOptions{.batch_size = kAll}, DataLoaderOptions{.global_batch_size = kAll}}) {
    for (int world : {1, 2, 3}) {
      const std::vector<Given> batches = joined(passes_of(d, options, world));
      ASSERT_EQ(batches.size(), 1u) << world << " ranks";
      EXPECT_EQ(batches[0].indices, (Indices{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
      EXPECT_EQ(batches[0].padding, 0);
    }
  }
}

// Stops after each number of batches with 2 ranks, and goes on with another number.
TEST(Shares, EachSampleComesOnceWhenAnotherNumberOfRanksResumes) {
  for (int64_t n : {2, 3, 7, 16, 23, 49, 50}) {
    const Count d(n);
    const Indices order = RandomSampler(n, 9).order(2);
    for (int64_t batch : {1, 3})
      for (int resumed : {1, 2, 3, 4}) {
        for (size_t stop = 1;; ++stop) {
          SCOPED_TRACE(
              concat(n, " samples, batches of ", batch, ", ", resumed, " ranks after ", stop, " batches"));
          const DataLoaderOptions options{.batch_size = batch, .shuffle = true, .seed = 9};
          LoaderState state{.epoch = 2, .samples = 0, .seed = 9, .dataset_size = n};
          const auto first = joined(passes_of(d, options, 2, &state, stop));
          if (first.size() < stop) break;
          const auto second = joined(passes_of(d, options, resumed, &state));
          Indices all = samples_of(first);
          for (const Given& b : second) all.insert(all.end(), b.indices.begin(), b.indices.end() - b.padding);
          EXPECT_EQ(all, order);
        }
      }
  }
}

TEST(Shares, PositionsThatAreNoMultipleOfTheNewGlobalBatchAreResumed) {
  const Count d(20);
  LoaderState state{.epoch = 0, .samples = 7, .seed = 1, .dataset_size = 20};
  const auto batches = joined(passes_of(d, {.batch_size = 2, .seed = 1}, 3, &state));
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_THAT(batches[0].indices, ElementsAre(7, 8, 9, 10, 11, 12));
  EXPECT_THAT(batches[1].indices, ElementsAre(13, 14, 15, 16, 17, 18, 19))
      << "one that is left joins the batch before";
}

TEST(Shares, AfterTheLastBatchNothingIsLeftForAnyNumberOfRanks) {
  const Count d(11);
  for (Uneven uneven : {Uneven::kBalance, Uneven::kPad, Uneven::kDrop}) {
    LoaderState state;
    const DataLoaderOptions options{.batch_size = 2, .uneven = uneven, .seed = 1};
    passes_of(d, options, 4, &state);
    EXPECT_EQ(state.samples, 11);
    EXPECT_TRUE(pass_of(d, options, 0, 1, &state).empty());
  }
}

TEST(Shares, OfAGlobalBatchSizeTakeTheSameStepsOnAnyNumberOfRanks) {
  const Count d(103);
  const DataLoaderOptions options{.global_batch_size = 12, .shuffle = true, .seed = 3};
  const auto one = joined(passes_of(d, options, 1));
  for (int world : {2, 3, 4, 5, 7, 12}) {
    const auto batches = joined(passes_of(d, options, world));
    for (size_t k = 0; k + 2 < one.size(); ++k)
      EXPECT_EQ(batches[k].indices, one[k].indices) << world << " ranks";
    EXPECT_EQ(samples_of(batches), samples_of(one));
  }
  EXPECT_THROW(DataLoader(d, {.global_batch_size = 12, .uneven = Uneven::kPad, .rank = 0, .world_size = 5}),
               ValueError);
  EXPECT_THROW(DataLoader(d, {.global_batch_size = 3, .rank = 0, .world_size = 5}), ValueError);
  EXPECT_THROW(DataLoader(d, {.batch_size = 2, .global_batch_size = 4}), ValueError);
  EXPECT_THROW(DataLoader(d, {.global_batch_size = -4}), ValueError);
}

// ---- sizes that change ----

constexpr int64_t kSamples = 50, kEpochs = 3;
// Number of samples shown -> global batch size from then on.
const std::map<int64_t, int64_t> kSizes = {
    {0, 12}, {28, 4}, {70, 8}};  // two changes: in the first and in the second epoch

// The global batches of kEpochs epochs from `state` on, at most `most`. `state` is set to the state after
// them.
std::vector<Given> changing(int world, int workers, LoaderState& state, size_t most = 1 << 30) {
  const LoaderState start = state;
  std::vector<std::vector<Given>> ranks(static_cast<size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    DataLoader loader(Count(kSamples), {.global_batch_sizes = kSizes,
                                        .shuffle = true,
                                        .num_workers = workers,
                                        .drop_last = true,
                                        .seed = 6,
                                        .rank = rank,
                                        .world_size = world});
    if (start.dataset_size > 0) loader.set_state(start);
    std::vector<Given>& given = ranks[size_t(rank)];
    LoaderState reached = start;
    while (given.size() < most && loader.epoch() < kEpochs)
      for (const Batch& b : loader) {
        given.push_back({b.indices, b.global_size, b.padding});
        reached = loader.state();
        if (given.size() == most) break;
      }
    if (rank == 0) state = reached;
    EXPECT_EQ(reached, state) << "ranks must agree where they are";
  }
  return joined(ranks);
}

std::vector<Indices> indices_of(const std::vector<Given>& batches) {
  std::vector<Indices> all;
  for (const Given& b : batches) all.push_back(b.indices);
  return all;
}

std::vector<Indices> expected_batches() {
  std::vector<Indices> all;
  int64_t shown = 0;
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Indices order = RandomSampler(kSamples, 6).order(epoch);
    int64_t at = 0;
    while (true) {
      const int64_t size = shown < 28 ? 12 : shown < 70 ? 4 : 8;
      if (at + size > kSamples) break;
      all.emplace_back(order.begin() + at, order.begin() + at + size);
      at += size, shown += size;
    }
  }
  return all;
}

TEST(SharesOfSizesThatChange, AreTheSameBatchesOnAnyNumberOfRanks) {
  for (const int world : {1, 2, 4})
    for (const int workers : {0, 3}) {
      LoaderState state;
      EXPECT_EQ(indices_of(changing(world, workers, state)), expected_batches()) << world << ' ' << workers;
      EXPECT_EQ(state.shown, 3 * 12 + 9 * 4 + 9 * 8);
    }
}

TEST(SharesOfSizesThatChange, GoOnFromEveryPlaceOnAnyNumberOfRanks) {
  const std::vector<Indices> expected = expected_batches();
  for (size_t stop = 1; stop <= expected.size(); ++stop)
    for (const int world : {1, 2, 4}) {
      LoaderState state;
      std::vector<Indices> all = indices_of(changing(2, int(stop % 3), state, stop));
      for (Indices& batch : indices_of(changing(world, int(stop % 2), state)))
        all.push_back(std::move(batch));
      EXPECT_EQ(all, expected) << world << " ranks after " << stop << " batches";
    }
}

TEST(SharesOfSizesThatChange, EndAnEpochByTheSizeThatItHasReached) {
  const Count d(23);
  const DataLoaderOptions options{.global_batch_sizes = {{0, 5}, {10, 3}}};
  std::vector<int64_t> sizes;
  for (const Given& b : joined(passes_of(d, options, 2))) sizes.push_back(b.global_size);
  EXPECT_THAT(sizes, ElementsAre(5, 5, 3, 3, 3, 4)) << "one that is left joins the batch before";
  LoaderState state{.samples = 13, .seed = 0, .dataset_size = 23, .shown = 5};
  DataLoader loader(d, {.global_batch_sizes = {{0, 5}, {10, 3}}, .seed = 0, .world_size = 1});
  EXPECT_EQ(loader.global_batch_size(), 5);
  EXPECT_EQ(loader.size(), 7);
  loader.set_state(state);
  sizes.clear();
  for (const Batch& b : loader) sizes.push_back(b.size());
  EXPECT_THAT(sizes, ElementsAre(5, 3, 2)) << "by the samples shown, not by the place in the epoch";
  EXPECT_EQ(loader.state(), (LoaderState{.epoch = 1, .samples = 0, .dataset_size = 23, .shown = 15}));
  EXPECT_EQ(loader.global_batch_size(), 3);
  EXPECT_EQ(loader.size(), 8);
  loader.set_epoch(0);
  EXPECT_EQ(loader.state().shown, 15);
}

// Workers read ahead beyond the changes of the size, and no sample is read twice.
TEST(SharesOfSizesThatChange, AreReadAheadAcrossTheChange) {
  class Counted : public Count {
   public:
    explicit Counted(std::atomic<int>& reads) : Count(48), reads_(reads) {}
    Sample get(int64_t i) const override {
      ++reads_;
      return Count::get(i);
    }

   private:
    std::atomic<int>& reads_;
  };
  std::atomic<int> reads = 0;
  DataLoader loader(Counted(reads), {.global_batch_sizes = {{0, 16}, {16, 4}, {24, 8}},
                                     .num_workers = 1,
                                     .prefetch_factor = 5,
                                     .world_size = 1});
  int64_t batches = 0;
  for (const Batch& b : loader) {
    EXPECT_EQ(b.size(), std::vector<int64_t>({16, 4, 4, 8, 8, 8}).at(size_t(batches)));
    if (batches++ > 0) continue;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (reads < 48 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_EQ(reads, 48) << "while the first batch is at hand";
  }
  EXPECT_EQ(batches, 6);
  EXPECT_EQ(reads, 48);
}

TEST(SharesOfSizesThatChange, AreCheckedBeforeTheFirstBatch) {
  const Count d(50);
  const auto error = [&](DataLoaderOptions options, int world) {
    options.rank = 0, options.world_size = world;
    return error_of<ValueError>([&] { DataLoader(d, options); });
  };
  EXPECT_THAT(error({.global_batch_sizes = {{1, 4}}}, 1), HasSubstr("from 0 samples on, got 1"));
  EXPECT_THAT(error({.global_batch_sizes = {{-1, 4}}}, 1), HasSubstr("from 0 samples on, got -1"));
  EXPECT_THAT(error({.global_batch_sizes = {{0, 4}, {8, 1}}}, 2), HasSubstr("at least the number of ranks"));
  EXPECT_THAT(error({.global_batch_sizes = {{0, 4}, {8, 3}}, .uneven = Uneven::kPad}, 2),
              HasSubstr("a multiple of the number of ranks, 2"));
  EXPECT_THAT(error({.global_batch_sizes = {{0, 4}, {8, 51}}, .drop_last = true}, 1),
              HasSubstr("no full batch of 51 among the 50 samples"));
  EXPECT_THAT(error({.batch_size = 2, .global_batch_sizes = {{0, 4}}}, 1), HasSubstr("batch_size"));
  EXPECT_THAT(error({.global_batch_size = 4, .global_batch_sizes = {{0, 4}}}, 1),
              HasSubstr("global_batch_size must be left out"));
  EXPECT_EQ(error({.global_batch_sizes = {{0, 4}, {8, 51}}}, 1), "no error");
}

TEST(Shares, OfSubsetsAndOtherSamplersAreOfTheirOrder) {
  const Count d(50);
  const Subset subset(d, {40, 10, 20, 30, 5});
  class Backwards : public Sampler {
   public:
    int64_t size() const override { return 5; }
    std::vector<int64_t> order(uint64_t) const override { return {4, 3, 2, 1, 0}; }
  };
  for (int world : {1, 2, 3}) {
    Indices values;
    for (int rank = 0; rank < world; ++rank) {
      DataLoader loader(subset,
                        {.sampler = std::make_shared<Backwards>(), .rank = rank, .world_size = world});
      for (const Batch& b : loader) {
        const auto read = b.input.to_vector<int64_t>();
        values.insert(values.end(), read.begin(), read.end());
      }
    }
    std::sort(values.begin(), values.end());
    EXPECT_THAT(values, ElementsAre(5, 10, 20, 30, 40)) << world << " ranks";
  }
}

// A job whose ranks exchange only value_of_first_caller: `told` has the first rank's value of every call.
class FakeJob : public Job {
 public:
  FakeJob(int number, int ranks, std::map<std::string, std::string>& told) : told_(told) {
    rank = number;
    size = ranks;
  }
  std::string value_of_first_caller(const std::string& what, const std::string& value) override {
    return told_.emplace(concat(what, calls_++), value).first->second;
  }

 private:
  std::map<std::string, std::string>& told_;
  int calls_ = 0;
};

// Makes this thread a rank of a FakeJob during its lifetime.
class InJob {
 public:
  InJob(int rank, int size, std::map<std::string, std::string>& told) : scope_(context_) {
    context_.job = make_ref<FakeJob>(rank, size, told);
  }

 private:
  Context context_ = Context::current().snapshot();
  ContextScope scope_;
};

TEST(Loader, TakesItsShareByTheJobWithoutBeingTold) {
  const Count d(10);
  std::map<std::string, std::string> told;
  for (int workers : {0, 2}) {
    std::optional<DataLoader> loader;
    {
      const InJob job(1, 3, told);
      loader.emplace(d, DataLoaderOptions{.batch_size = 2, .num_workers = workers});
      EXPECT_EQ(loader->options().rank, 1);
      EXPECT_EQ(loader->options().world_size, 3);
      DataLoader all(d, {.batch_size = 10, .world_size = 1});
      EXPECT_EQ(all.begin()->size(), 10);
    }
    Indices mine;  // read outside the job: the loader has kept its rank
    for (const Batch& b : *loader) mine.insert(mine.end(), b.indices.begin(), b.indices.end());
    EXPECT_THAT(mine, ElementsAre(1, 4, 7));
    told.clear();
  }
}

TEST(Loader, ThatIsNotAlikeOnAllRanksIsAnErrorThatSaysWhatDiffers) {
  const Count d(10), more(11);
  const auto error = [&](const DataLoaderOptions& first, const DataLoaderOptions& second,
                         const Dataset& other) {
    std::map<std::string, std::string> told;
    {
      const InJob job(0, 2, told);
      DataLoader loader(d, first);
    }
    const InJob job(1, 2, told);
    return error_of<ValueError>([&] { DataLoader loader(other, second); });
  };
  const DataLoaderOptions shuffled{.batch_size = 2, .shuffle = true, .seed = 1};
  EXPECT_EQ(error(shuffled, shuffled, d), "no error");
  EXPECT_THAT(error(shuffled, {.batch_size = 2, .shuffle = true, .seed = 7}, d),
              AllOf(HasSubstr("rank 1"), HasSubstr("seed 1"), HasSubstr("seed 7")));
  EXPECT_THAT(error(shuffled, {.batch_size = 3, .shuffle = true, .seed = 1}, d), HasSubstr("batch_size 3"));
  EXPECT_THAT(error(shuffled, shuffled, more), HasSubstr("11 samples"));
  EXPECT_THAT(error({.global_batch_sizes = {{0, 4}, {8, 2}}}, {.global_batch_sizes = {{0, 4}, {6, 2}}}, d),
              AllOf(HasSubstr("0:4,8:2"), HasSubstr("0:4,6:2")));
  // Without shuffling, seeds may differ. Loaders with their own world_size are not compared.
  EXPECT_EQ(error({.seed = 1}, {.seed = 2}, d), "no error");
  EXPECT_EQ(error(shuffled, {.batch_size = 5, .world_size = 1}, more), "no error");
}

TEST(Loader, WorkersBelongToTheJobOfItsCaller) {
  class Spy : public Count {
   public:
    using Count::Count;
    Sample get(int64_t) const override { return {scalar(Job::current()->rank), {}}; }
  };
  std::map<std::string, std::string> told;
  const InJob job(5, 8, told);
  DataLoader loader(Spy(16), {.batch_size = 2, .num_workers = 2});
  for (const Batch& b : loader) EXPECT_THAT(b.input.to_vector<float>(), Each(5.f));
}

}  // namespace
}  // namespace gradus::data
