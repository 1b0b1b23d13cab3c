// IterableLoader: batches of streams of every small length on 1 to 4 ranks (loaders of one process), resuming on
// another number of ranks, random numbers, errors of streams, and blocked streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "gradus/data/iterable_loader.h"
#include "gradus/data/parallel_streams.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/support/error.h"

namespace gradus::data {
namespace {

using ::testing::ElementsAre;
using Indices = std::vector<int64_t>;

// The numbers 1000 * epoch, 1000 * epoch + 1, ..., each with a random target. Counts the reads and skips.
class Count : public IterableDataset {
 public:
  explicit Count(int64_t size) : size_(size) {}
  std::string name() const override { return "Count"; }
  std::unique_ptr<SampleStream> open(uint64_t epoch) const override {
    ++opened;
    return std::make_unique<Stream>(*this, int64_t(epoch) * 1000);
  }
  mutable std::atomic<int> opened{0}, read{0}, skipped{0};

 private:
  struct Stream : SampleStream {
    Stream(const Count& set_, int64_t first_) : set(set_), first(first_) {}
    std::optional<Sample> next() override {
      if (at == set.size_) return std::nullopt;
      ++set.read;
      return Sample{scalar(double(first + at++), {.dtype = DType::kI64}), rand({1})};
    }
    bool skip() override {
      if (at == set.size_) return false;
      ++set.skipped;
      return ++at, true;
    }
    const Count& set;
    const int64_t first;
    int64_t at = 0;
  };
  const int64_t size_;
};

struct Delivered {
  Indices values;
  std::vector<float> random;
  int64_t global_size, padding;
};

// The batches of a rank in the rest of the epoch after `from`, at most `max_batches`, and the state after them.
std::vector<Delivered> pass_of(const IterableDataset& set, IterableLoaderOptions options, int rank, int world,
                               LoaderState* state = nullptr, size_t max_batches = 1 << 20) {
  options.rank = rank;
  options.world_size = world;
  options.seed = 7;
  IterableLoader loader(set, options);
  if (state && state->dataset_size == -1) loader.set_state(*state);
  std::vector<Delivered> batches;
  for (const Batch& b : loader) {
    EXPECT_EQ(b.size(), b.input.size(0));
    batches.push_back({b.input.to_vector<int64_t>(), b.target.to_vector<float>(), b.global_size, b.padding});
    if (batches.size() == max_batches) {
      if (state) *state = loader.state();
      return batches;
    }
  }
  if (state) *state = loader.state();
  return batches;
}

// The values of the ranks' k-th batches in the order of the stream, without repeated samples.
std::vector<Indices> global_batches(const std::vector<std::vector<Delivered>>& ranks) {
  std::vector<Indices> all;
  for (size_t k = 0; k < ranks[0].size(); ++k) {
    Indices batch;
    int64_t total = 0;
    for (const auto& rank : ranks) {
      EXPECT_EQ(rank.size(), ranks[0].size()) << "all ranks have the same number of batches";
      if (rank.size() != ranks[0].size()) return all;
      EXPECT_FALSE(rank[k].values.empty());
      EXPECT_EQ(rank[k].global_size, ranks[0][k].global_size);
      total += int64_t(rank[k].values.size());
      batch.insert(batch.end(), rank[k].values.begin(), rank[k].values.end() - rank[k].padding);
    }
    EXPECT_EQ(total, ranks[0][k].global_size);
    std::sort(batch.begin(), batch.end());
    all.push_back(batch);
  }
  return all;
}

Indices joined(const std::vector<Indices>& batches) {
  Indices all;
  for (const Indices& b : batches) all.insert(all.end(), b.begin(), b.end());
  return all;
}

Indices numbers(int64_t begin, int64_t end) {
  Indices all;
  for (int64_t i = begin; i < end; ++i) all.push_back(i);
  return all;
}

TEST(IterableLoader, MakesBatchesOfAStream) {
  const Count set(7);
  for (int prefetch : {0, 1, 5}) {
    IterableLoader loader(set, {.batch_size = 3, .prefetch = prefetch});
    std::vector<Indices> batches;
    for (const Batch& b : loader) {
      EXPECT_EQ(b.indices, b.input.to_vector<int64_t>());
      batches.push_back(b.indices);
    }
    EXPECT_THAT(batches, ElementsAre(Indices{0, 1, 2}, Indices{3, 4, 5}, Indices{6})) << prefetch;
    EXPECT_EQ(loader.epoch(), 1u);
    EXPECT_THAT(loader.begin()->input.to_vector<int64_t>(), ElementsAre(1000, 1001, 1002));
    EXPECT_EQ(loader.state().shown, 10);
  }
}

TEST(IterableLoader, GivesRankRTheSamplesRPlusMultiplesOfTheNumberOfRanks) {
  const Count set(12);
  const auto batches = pass_of(set, {.batch_size = 2}, 1, 3);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_THAT(batches[0].values, ElementsAre(1, 4));
  EXPECT_THAT(batches[1].values, ElementsAre(7, 10));
  EXPECT_EQ(set.read, 4) << "samples of other ranks are skipped, not read";
}

TEST(IterableLoader, GivesEachSampleOnceAndAllRanksTheSameNumberOfBatches) {
  for (int prefetch : {0, 2})
    for (int world : {1, 2, 3, 4})
      for (int64_t size = 0; size <= 20; ++size)
        for (int64_t batch : {1, 2, 5}) {
          const Count set(size);
          std::vector<std::vector<Delivered>> ranks;
          for (int rank = 0; rank < world; ++rank)
            ranks.push_back(pass_of(set, {.batch_size = batch, .prefetch = prefetch}, rank, world));
          EXPECT_EQ(joined(global_batches(ranks)), numbers(0, size)) << world << ' ' << size << ' ' << batch;
          for (size_t k = 0; k + 1 < ranks[0].size(); ++k) EXPECT_EQ(ranks[0][k].global_size, batch * world);
          for (const auto& rank : ranks)
            for (const Delivered& d : rank) EXPECT_LE(d.padding, size < world ? 1 : 0);
        }
}

TEST(IterableLoader, DropsTheLastGlobalBatchOnAllRanks) {
  for (int world : {1, 2, 3})
    for (int64_t size = 0; size <= 13; ++size) {
      std::vector<std::vector<Delivered>> ranks;
      for (int rank = 0; rank < world; ++rank)
        ranks.push_back(pass_of(Count(size), {.batch_size = 2, .drop_last = true}, rank, world));
      const int64_t full = size / (2 * world);
      EXPECT_EQ(int64_t(ranks[0].size()), full);
      EXPECT_EQ(joined(global_batches(ranks)), numbers(0, full * 2 * world)) << world << ' ' << size;
    }
}

TEST(IterableLoader, ResumesOnAnotherNumberOfRanks) {
  const Count set(23);
  for (int before : {1, 2, 3})
    for (int after : {1, 2, 3, 4})
      for (size_t stop = 1; stop <= 12; ++stop) {
        std::vector<std::vector<Delivered>> first, second;
        LoaderState state;
        for (int rank = 0; rank < before; ++rank) {
          LoaderState own;
          first.push_back(pass_of(set, {.batch_size = 2}, rank, before, &own, stop));
          if (rank > 0) {
            EXPECT_EQ(own, state) << "ranks have one state";
          }
          state = own;
        }
        if (state.epoch == 1) continue;  // the pass ended before `stop` batches
        for (int rank = 0; rank < after; ++rank) {
          LoaderState own = state;
          second.push_back(pass_of(set, {.batch_size = 3}, rank, after, &own));
          EXPECT_EQ(own.epoch, 1u);
          EXPECT_EQ(own.samples, 0);
        }
        Indices all = joined(global_batches(first));
        const Indices rest = joined(global_batches(second));
        all.insert(all.end(), rest.begin(), rest.end());
        EXPECT_EQ(all, numbers(0, 23))
            << before << " ranks, then " << after << ", after " << stop << " batches";
      }
}

TEST(IterableLoader, AStateOfTheLastBatchResumesWithAnEmptyPass) {
  const Count set(6);
  LoaderState state;
  pass_of(set, {.batch_size = 3}, 0, 1, &state, 2);
  EXPECT_EQ(state.samples, 6);
  EXPECT_EQ(state.epoch, 0u);
  EXPECT_TRUE(pass_of(set, {.batch_size = 3}, 0, 1, &state).empty());
  EXPECT_EQ(state.epoch, 1u);
}

TEST(IterableLoader, RandomNumbersOfASampleDoNotDependOnRanksOrThreads) {
  const Count set(20);
  std::vector<float> expected;
  for (const Delivered& d : pass_of(set, {.batch_size = 20}, 0, 1))
    expected.insert(expected.end(), d.random.begin(), d.random.end());
  EXPECT_EQ(std::set<float>(expected.begin(), expected.end()).size(), 20u);
  for (int prefetch : {0, 2})
    for (int rank : {0, 1, 2}) {
      LoaderState state;
      auto batches = pass_of(set, {.batch_size = 1, .prefetch = prefetch}, rank, 3, &state, 2);
      const auto rest = pass_of(set, {.batch_size = 2, .prefetch = prefetch}, rank, 3, &state);
      batches.insert(batches.end(), rest.begin(), rest.end());
      for (const Delivered& d : batches)
        for (size_t i = 0; i < d.values.size(); ++i)
          EXPECT_EQ(d.random[i], expected[size_t(d.values[i])]) << d.values[i];
    }
}

TEST(IterableLoader, CollatesAndTransformsBatches) {
  const auto sum = [](const std::vector<Sample>& samples, std::span<const int64_t> positions) {
    EXPECT_EQ(samples.size(), positions.size());
    int64_t total = 0;
    for (const Sample& s : samples) total += s.input.item<int64_t>();
    return Batch{.input = tensor<int64_t>({total})};
  };
  const auto negate = [](Batch b) {
    b.target = rand({2});
    return b;
  };
  const Count set(5);
  for (int prefetch : {0, 2}) {
    IterableLoader loader(
        set, {.batch_size = 3, .prefetch = prefetch, .seed = 1, .collate = sum, .batch_transform = negate});
    Indices totals;
    std::set<float> random;
    for (const Batch& b : loader) {
      totals.push_back(b.input.item<int64_t>());
      for (float x : b.target.to_vector<float>()) random.insert(x);
    }
    EXPECT_THAT(totals, ElementsAre(3, 7));
    EXPECT_EQ(random.size(), 4u);
  }
}

TEST(IterableLoader, RejectsOptionsOutOfTheirDomain) {
  const Count set(5);
  const int64_t max = std::numeric_limits<int64_t>::max();
  EXPECT_ERROR(ValueError, IterableLoader(set, {.batch_size = 0}), "batch_size", "0");
  EXPECT_ERROR(ValueError, IterableLoader(set, {.batch_size = max}), "batch_size");
  EXPECT_ERROR(ValueError, IterableLoader(set, {.global_batch_size = 5, .rank = 0, .world_size = 2}),
               "multiple");
  EXPECT_ERROR(ValueError, IterableLoader(set, {.global_batch_size = -4, .rank = 0, .world_size = 2}), "-4");
  EXPECT_ERROR(ValueError, IterableLoader(set, {.prefetch = -1}), "prefetch");
  EXPECT_ERROR(ValueError, IterableLoader(set, {.rank = 2, .world_size = 2}), "rank");
  EXPECT_ERROR(ValueError, IterableLoader(set, {.rank = 1}), "world_size");
  EXPECT_ERROR(ValueError, IterableLoader(set, {.prefetch = 0, .timeout = std::chrono::milliseconds(5)}),
               "timeout");
  EXPECT_ERROR(ValueError, IterableLoader(std::shared_ptr<const IterableDataset>()), "null");
}

TEST(IterableLoader, RefusesStatesThatDoNotFit) {
  IterableLoader loader(std::make_shared<Count>(5), {.seed = 3});
  const LoaderState good = loader.state();
  for (const auto& change : std::vector<std::function<void(LoaderState&)>>{
           [](LoaderState& s) { s.seed = 4; }, [](LoaderState& s) { s.dataset_size = 5; },
           [](LoaderState& s) { s.samples = -1; }, [](LoaderState& s) { s.samples = int64_t{1} << 63; },
           [](LoaderState& s) { s.shown = std::numeric_limits<int64_t>::max(); }}) {
    LoaderState wrong = good;
    change(wrong);
    EXPECT_THROW(loader.set_state(wrong), ValueError);
  }
  LoaderState beyond = good;
  beyond.samples = 6;
  loader.set_state(beyond);
  EXPECT_ERROR(ValueError, loader.begin(), "ended after 5 samples", "6");
}

// Returns null, throws when it is opened, or throws at sample 4 or has no input there.
class Broken : public IterableDataset {
 public:
  explicit Broken(int how) : how_(how) {}
  std::string name() const override { return "Broken"; }
  std::unique_ptr<SampleStream> open(uint64_t) const override {
    if (how_ == 0) return nullptr;
    if (how_ == 1) throw std::runtime_error("no such archive");
    return std::make_unique<Stream>(how_);
  }

 private:
  struct Stream : SampleStream {
    explicit Stream(int how_) : how(how_) {}
    std::optional<Sample> next() override {
      if (at++ < 4) return Sample{scalar(1)};
      if (how == 2) throw std::runtime_error("cut archive");
      return Sample{};
    }
    int how, at = 0;
  };
  int how_;
};

TEST(IterableLoader, ErrorsOfTheStreamComeInPlaceOfTheBatch) {
  for (int prefetch : {0, 2}) {
    EXPECT_ERROR(ValueError, IterableLoader(Broken(0), {.prefetch = prefetch}).begin(), "Broken", "null");
    EXPECT_THROW(IterableLoader(Broken(1), {.prefetch = prefetch}).begin(), std::runtime_error);
    for (int how : {2, 3}) {
      IterableLoader loader(Broken(how), {.batch_size = 2, .prefetch = prefetch});
      int batches = 0;
      try {
        for ([[maybe_unused]] const Batch& b : loader) ++batches;
        ADD_FAILURE() << "no error";
      } catch (const SampleError& e) {
        EXPECT_EQ(e.index, 4);
        EXPECT_THAT(e.what(), ::testing::HasSubstr(how == 2 ? "cut archive" : "no input"));
      }
      EXPECT_EQ(batches, 1);
    }
  }
}

// Blocks at its third sample until release().
class Blocked : public IterableDataset {
 public:
  std::unique_ptr<SampleStream> open(uint64_t) const override { return std::make_unique<Stream>(state_); }
  void release() {
    const std::lock_guard lock(state_->mutex);
    state_->released = true;
    state_->changed.notify_all();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool released = false;
  };
  struct Stream : SampleStream {
    explicit Stream(std::shared_ptr<State> state_) : state(std::move(state_)) {}
    std::optional<Sample> next() override {
      if (at++ < 2) return Sample{scalar(1)};
      std::unique_lock lock(state->mutex);
      state->changed.wait(lock, [&] { return state->released; });
      return std::nullopt;
    }
    std::shared_ptr<State> state;
    int at = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(IterableLoader, ABlockedStreamIsATimeout) {
  const auto set = std::make_shared<Blocked>();
  IterableLoader loader(set, {.timeout = std::chrono::milliseconds(50)});
  auto it = loader.begin();
  EXPECT_EQ(it->size(), 1);
  EXPECT_THROW(++it, LoaderTimeoutError);
  EXPECT_TRUE(it == std::default_sentinel);
  set->release();
}

class Unbounded : public IterableDataset {
 public:
  std::unique_ptr<SampleStream> open(uint64_t) const override { return std::make_unique<Stream>(passed_); }
  int64_t passed() const { return *passed_; }

 private:
  struct Stream : SampleStream {
    explicit Stream(std::shared_ptr<std::atomic<int64_t>> passed) : passed(std::move(passed)) {}
    std::optional<Sample> next() override {
      ++*passed;
      return Sample{scalar(1.f)};
    }
    std::shared_ptr<std::atomic<int64_t>> passed;
  };
  std::shared_ptr<std::atomic<int64_t>> passed_ = std::make_shared<std::atomic<int64_t>>(0);
};

TEST(IterableLoader, StopsWithinABatch) {
  const auto set = std::make_shared<Unbounded>();
  IterableLoader loader(set, {.timeout = std::chrono::milliseconds(50)});
  LoaderState state = loader.state();
  state.samples = int64_t{1} << 40;  // to be passed over
  loader.set_state(state);
  EXPECT_THROW(loader.begin(), LoaderTimeoutError);
  int64_t before = -1;
  for (int i = 0; i < 100 && before != set->passed(); ++i) {
    before = set->passed();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(set->passed(), before) << "the thread goes on reading";
}

TEST(IterableLoader, StopsWithTheLoop) {
  for (int prefetch : {1, 4}) {
    const Count set(1000);
    IterableLoader loader(set, {.batch_size = 2, .prefetch = prefetch});
    for (int epoch = 0; epoch < 20; ++epoch) {
      for (const Batch& b : loader)
        if (b.indices[0] == 2) break;
      EXPECT_EQ(loader.epoch(), uint64_t(epoch));
    }
    EXPECT_EQ(set.opened, 20);
    EXPECT_LT(set.read, 20 * (4 + 2 * (prefetch + 2) + 1)) << "the thread reads ahead `prefetch` batches";
  }
}

// ---- parallel streams ----

std::vector<std::shared_ptr<const IterableDataset>> counts(const Indices& sizes) {
  std::vector<std::shared_ptr<const IterableDataset>> parts;
  for (const int64_t size : sizes) parts.push_back(std::make_shared<Count>(size));
  return parts;
}

TEST(ParallelStreams, TakeTheirPartsInTurnUntilEachEnds) {
  const ParallelStreams set(counts({3, 0, 1, 4}), {.prefetch = 2});
  for (const int prefetch : {0, 2}) {
    IterableLoader loader(set, {.batch_size = 3, .prefetch = prefetch});
    std::vector<Indices> batches;
    for (const Batch& b : loader) batches.push_back(b.input.to_vector<int64_t>());
    EXPECT_THAT(batches, ElementsAre(Indices{0, 0, 0}, Indices{1, 1, 2}, Indices{2, 3}));
    EXPECT_THAT(loader.begin()->input.to_vector<int64_t>(), ElementsAre(1000, 1000, 1000));
  }
  const std::unique_ptr<SampleStream> stream = ParallelStreams(counts({1})).open(0);
  EXPECT_TRUE(stream->skip());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(stream->next());
}

TEST(ParallelStreams, AreTheSameForAnyPrefetchRanksAndAfterResuming) {
  const auto samples = [](int64_t prefetch, int world, size_t before) {
    const ParallelStreams set(counts({9, 4, 13}), {.prefetch = prefetch});
    std::vector<std::pair<int64_t, float>> all;
    for (int rank = 0; rank < world; ++rank) {
      LoaderState state;
      auto batches = pass_of(set, {.batch_size = 1}, rank, world, &state, before);
      const auto rest = pass_of(set, {.batch_size = 2}, rank, world, &state);
      batches.insert(batches.end(), rest.begin(), rest.end());
      for (const Delivered& d : batches)
        for (size_t i = 0; i < d.values.size(); ++i) all.emplace_back(d.values[i], d.random[i]);
    }
    std::sort(all.begin(), all.end());
    return all;
  };
  const auto expected = samples(1, 1, 3);
  EXPECT_EQ(expected.size(), 26u);
  EXPECT_EQ(std::set(expected.begin(), expected.end()).size(), 26u) << "parts draw different random numbers";
  EXPECT_EQ(samples(100, 1, 7), expected);
  EXPECT_EQ(samples(3, 2, 2), expected);
}

// A stream of two samples that waits for another such stream before each.
struct Meeting : IterableDataset {
  struct Stream : SampleStream {
    explicit Stream(std::atomic<int>& entered_) : entered(entered_) {}
    std::optional<Sample> next() override {
      if (at == 2) return std::nullopt;
      ++entered;
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (entered < 2 * (at + 1) && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
      if (entered < 2 * (at + 1)) throw std::runtime_error("nobody came");
      return Sample{scalar(double(at++), {.dtype = DType::kI64})};
    }
    std::atomic<int>& entered;
    int at = 0;
  };
  std::unique_ptr<SampleStream> open(uint64_t) const override { return std::make_unique<Stream>(*entered); }
  std::shared_ptr<std::atomic<int>> entered = std::make_shared<std::atomic<int>>(0);
};

TEST(ParallelStreams, AreReadAtOnce) {
  const auto part = std::make_shared<Meeting>();
  const ParallelStreams set({part, part});
  int64_t count = 0;
  for (const Batch& b : IterableLoader(set, {.batch_size = 4})) count += b.size();
  EXPECT_EQ(count, 4);
}

TEST(ParallelStreams, ErrorsComeInPlaceOfTheirSample) {
  struct Broken : IterableDataset {
    struct Stream : SampleStream {
      std::optional<Sample> next() override {
        if (at == 2) throw FileError("read", "broken");
        return Sample{scalar(double(at++), {.dtype = DType::kI64})};
      }
      int at = 0;
    };
    std::unique_ptr<SampleStream> open(uint64_t) const override { return std::make_unique<Stream>(); }
  };
  struct Closed : IterableDataset {
    std::unique_ptr<SampleStream> open(uint64_t) const override { return nullptr; }
  };
  const ParallelStreams set({std::make_shared<Count>(9), std::make_shared<Broken>()});
  IterableLoader loader(set, {.batch_size = 1, .prefetch = 0});
  int64_t read = 0;
  try {
    for ([[maybe_unused]] const Batch& b : loader) ++read;
    FAIL();
  } catch (const SampleError& e) {
    EXPECT_EQ(e.index, 5);
    EXPECT_THAT(e.what(), testing::HasSubstr("broken"));
  }
  EXPECT_EQ(read, 4);  // of 5 samples: a batch needs the sample after it
  EXPECT_ERROR(ValueError, ParallelStreams({std::make_shared<Closed>()}).open(0)->next(),
               "open() returned null");
  EXPECT_ERROR(ValueError, ParallelStreams({}), "at least one part");
  EXPECT_ERROR(ValueError, ParallelStreams({nullptr}), "null part");
  EXPECT_ERROR(ValueError, ParallelStreams(counts({1}), {.prefetch = 0}), "prefetch");
}

TEST(ParallelStreams, EndWithTheLoop) {
  const ParallelStreams set(counts({1 << 30, 1 << 30}), {.prefetch = 4});
  for (const Batch& b : IterableLoader(set, {.batch_size = 2}))
    if (b.indices[0] >= 20) break;
}

}  // namespace
}  // namespace gradus::data
