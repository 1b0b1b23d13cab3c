// DataLoader and Endless on CPU: order for any number of worker threads, random numbers, resuming from a
// state, errors, timeouts, options.
#include "gradus/data/dataloader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/support/error.h"

namespace gradus::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sample i has a random input and the target i. `sleep`: reading times differ, so that workers overtake one
// another. Sample `broken` cannot be read (-1: none).
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  std::string name() const override { return "Numbers"; }
  int64_t size() const override { return size_; }
  Sample get(int64_t i) const override {
    check_index(i);
    if (i == broken) throw FileError("decode", "broken.png");
    if (sleep) std::this_thread::sleep_for(std::chrono::microseconds((i * 7919) % 300));
    reads.fetch_add(1);
    const PhiloxKey key = Context::current().generator->next();
    return {scalar(double(philox(key.seed, key.stream, 0)[0]), {.dtype = DType::kF64}),
            scalar(double(i), {.dtype = DType::kI64})};
  }

  int64_t broken = -1;
  bool sleep = false;
  mutable std::atomic<int64_t> reads{0};

 private:
  int64_t size_;
};

std::vector<std::vector<int64_t>> batches_of(DataLoader& loader) {
  std::vector<std::vector<int64_t>> all;
  for (const Batch& b : loader) {
    EXPECT_EQ(b.target.to_vector<int64_t>(), b.indices);
    all.push_back(b.indices);
  }
  return all;
}

TEST(DataLoader, CutsTheOrderIntoBatches) {
  const Numbers d(10);
  DataLoader loader(d, {.batch_size = 4});
  EXPECT_EQ(loader.size(), 3);
  EXPECT_THAT(batches_of(loader),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7), ElementsAre(8, 9)));
  DataLoader whole(d, {.batch_size = 4, .drop_last = true});
  EXPECT_EQ(whole.size(), 2);
  EXPECT_EQ(batches_of(whole).size(), 2u);
  DataLoader large(d, {.batch_size = 100, .num_workers = 3});
  EXPECT_EQ(batches_of(large).size(), 1u);
  const Numbers none(0);
  DataLoader nothing(none, {.batch_size = 4, .num_workers = 2});
  EXPECT_EQ(nothing.size(), 0);
  EXPECT_EQ(nothing.epoch(), 0u);
  EXPECT_TRUE(batches_of(nothing).empty());
  EXPECT_EQ(nothing.epoch(), 1u);
}

TEST(DataLoader, GivesTheSamplersOrderForAnyNumberOfWorkers) {
  Numbers d(203);
  d.sleep = true;
  const RandomSampler sampler(203, 5);
  for (int workers : {0, 1, 2, 3, 8}) {
    for (int prefetch : {1, 2, 7}) {
      DataLoader loader(
          d,
          {.batch_size = 8, .shuffle = true, .num_workers = workers, .prefetch_factor = prefetch, .seed = 5});
      for (uint64_t epoch : {0, 1}) {
        std::vector<int64_t> joined;
        for (const auto& batch : batches_of(loader)) joined.insert(joined.end(), batch.begin(), batch.end());
        EXPECT_EQ(joined, sampler.order(epoch)) << workers << " workers, epoch " << epoch;
      }
    }
  }
}

TEST(DataLoader, BringsBatchesToADevice) {
  const Numbers d(10);
  for (const int workers : {0, 2}) {
    DataLoader loader(d, {.batch_size = 4, .num_workers = workers, .device = "cpu:1"});
    for (const Batch& b : loader) {
      EXPECT_EQ(b.input.device(), Device("cpu:1"));
      EXPECT_EQ(b.target.device(), Device("cpu:1"));
      EXPECT_EQ(b.target.to_vector<int64_t>(), b.indices);
    }
  }
}

// The program has no such devices at all, or not this one.
TEST(DataLoader, ADeviceThatIsNotThereIsAnErrorBeforeTheFirstBatch) {
  const Numbers d(10);
  for (const Device device : {Device{DeviceType::kCUDA}, Device{DeviceType::kCPU, 64}})
    EXPECT_THROW(DataLoader(d, {.batch_size = 4, .device = device}), DeviceError) << to_string(device);
  EXPECT_EQ(d.reads, 0);
}

TEST(DataLoader, RandomNumbersOfSamplesDoNotDependOnWorkersOrBatchSize) {
  const Numbers d(60);
  const auto drawn = [&](int workers, int64_t batch_size) {
    DataLoader loader(d, {.batch_size = batch_size, .shuffle = true, .num_workers = workers, .seed = 2});
    std::vector<double> values(60);
    for (int epoch = 0; epoch < 2; ++epoch)
      for (const Batch& b : loader)
        for (int64_t i = 0; i < b.size(); ++i)
          values[size_t(b.indices[size_t(i)])] = b.input.data<double>()[i];
    return values;
  };
  const auto values = drawn(0, 4);
  EXPECT_EQ(values, drawn(3, 4));
  EXPECT_EQ(values, drawn(2, 7));
  EXPECT_EQ(std::set<double>(values.begin(), values.end()).size(), 60u);
}

// ---- batches divided over the workers ----

DataLoaderOptions divided(DataLoaderOptions options) {
  options.num_workers = 3;
  options.divide = true;
  return options;
}

TEST(DataLoader, DividedBatchesAreEqual) {
  Numbers d(61);
  d.sleep = true;
  const auto collate = [](const std::vector<Sample>& samples, std::span<const int64_t> indices) {
    Batch b = data::collate(samples, indices, "collated");
    b.input.mutable_data<double>()[0] += double(Context::current().generator->next().stream);
    return b;
  };
  for (const bool collates : {false, true}) {
    DataLoaderOptions options = {.batch_size = 7, .shuffle = true, .seed = 3};
    if (collates) options.collate = collate;
    DataLoader whole(d, options), parts(d, divided(options));
    for (int epoch = 0; epoch < 2; ++epoch) {
      auto expected = whole.begin();
      for (const Batch& b : parts) {
        EXPECT_EQ(b.input.to_vector<double>(), expected->input.to_vector<double>());
        EXPECT_EQ(b.input.strides(), expected->input.strides());
        EXPECT_EQ(b.target.to_vector<int64_t>(), b.indices);
        EXPECT_EQ(b.indices, expected->indices);
        EXPECT_EQ(b.global_size, expected->global_size);
        EXPECT_EQ(parts.state(), whole.state());
        ++expected;
      }
      EXPECT_EQ(expected, std::default_sentinel);
    }
  }
}

// Each sample waits for another one, which a batch that one thread reads would never give.
class Pairs : public Numbers {
 public:
  using Numbers::Numbers;
  Sample get(int64_t i) const override {
    entered.fetch_add(1);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (entered.load() % 2 != 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    return Numbers::get(i);
  }
  mutable std::atomic<int64_t> entered{0};
};

TEST(DataLoader, SamplesOfADividedBatchAreReadAtOnce) {
  const Pairs d(4);
  DataLoader loader(d, {.batch_size = 2, .num_workers = 2, .divide = true});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(batches_of(loader).size(), 2u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(50));
}

TEST(DataLoader, ErrorsOfDividedBatchesAreEqual) {
  Numbers d(20);
  d.broken = 9;
  const auto error = [&](const DataLoaderOptions& options) {
    DataLoader loader(d, options);
    std::vector<std::vector<int64_t>> all;
    try {
      for (const Batch& b : loader) all.push_back(b.indices);
    } catch (const SampleError& e) {
      return concat(all.size(), e.index, e.what());
    }
    return std::string();
  };
  EXPECT_EQ(error(divided({.batch_size = 4})), error({.batch_size = 4}));
  EXPECT_THAT(error(divided({.batch_size = 4})), HasSubstr("broken.png"));
}

// Samples with channels-last images; those from 6 on have another shape.
class Sizes : public Numbers {
 public:
  using Numbers::Numbers;
  Batch get_batch(std::span<const int64_t> indices) const override {
    const int64_t n = int64_t(indices.size()), size = indices[0] < 6 ? 2 : 3;
    Batch b{empty_channels_last({n, 3, size, 2}, {DType::kF32})};
    for (int64_t i = 0; i < b.input.numel(); ++i)
      b.input.ptr<float>()[i] = float(indices[size_t(i / (6 * size))] * 100 + i % (6 * size));
    b.indices.assign(indices.begin(), indices.end());
    return b;
  }
};

// Samples 3 and 8 are replacements.
class Replaced : public Numbers {
 public:
  using Numbers::Numbers;
  Sample get(int64_t i) const override {
    Sample s = Numbers::get(i);
    s.is_replacement = i == 3 || i == 8;
    return s;
  }
};

TEST(DataLoader, ReplacementsOfDividedBatchesComeLast) {
  const Replaced d(12);
  DataLoader whole(d, {.batch_size = 6}), parts(d, divided({.batch_size = 6}));
  auto expected = whole.begin();
  for (const Batch& b : parts) {
    EXPECT_EQ(b.indices, expected->indices);
    EXPECT_EQ(b.input.to_vector<double>(), expected->input.to_vector<double>());
    EXPECT_EQ(b.padding, 1);
    EXPECT_EQ(b.skipped, 1);
    ++expected;
  }
  EXPECT_EQ(parts.skipped(), 2);
}

TEST(DataLoader, DividedBatchesKeepTheirLayoutOrAreReadAsAWhole) {
  const Sizes d(9);
  DataLoader whole(d, {.batch_size = 4}), parts(d, divided({.batch_size = 4}));
  auto expected = whole.begin();
  for (const Batch& b : parts) {
    EXPECT_EQ(b.input.shape(), expected->input.shape());
    EXPECT_EQ(b.input.strides(), expected->input.strides());
    EXPECT_EQ(b.input.to_vector<float>(), expected->input.to_vector<float>());
    EXPECT_FALSE(b.target.defined());
    ++expected;
  }
}

TEST(DataLoader, LeavesTheCallersGeneratorAlone) {
  const Numbers d(20);
  for (int workers : {0, 2}) {
    DataLoader loader(d, {.batch_size = 4, .num_workers = workers});
    const auto before = Context::current().generator->state();
    batches_of(loader);
    EXPECT_EQ(Context::current().generator->state(), before);
  }
}

TEST(DataLoader, SeedComesFromTheGeneratorUnlessGiven) {
  const Numbers d(50);
  manual_seed(77);
  DataLoader a(d, {.batch_size = 50, .shuffle = true});
  EXPECT_EQ(batches_of(a)[0], RandomSampler(50, 77).order(0));
}

TEST(DataLoader, EpochsAdvanceAndCanBeSet) {
  const Numbers d(50);
  DataLoader loader(d, {.batch_size = 50, .shuffle = true, .num_workers = 1, .seed = 1});
  const RandomSampler sampler(50, 1);
  EXPECT_EQ(loader.epoch(), 0u);
  EXPECT_EQ(batches_of(loader)[0], sampler.order(0));
  EXPECT_EQ(loader.epoch(), 1u);
  EXPECT_EQ(batches_of(loader)[0], sampler.order(1));
  loader.set_epoch(9);
  EXPECT_EQ(batches_of(loader)[0], sampler.order(9));
  EXPECT_EQ(loader.epoch(), 10u);
}

TEST(DataLoader, ExceptionsArriveInPlaceOfTheirBatchAndNameTheSample) {
  Numbers d(100);
  d.sleep = true;
  d.broken = 42;
  for (int workers : {0, 1, 4}) {
    DataLoader loader(d, {.batch_size = 4, .num_workers = workers});
    int64_t seen = 0;
    try {
      for (const Batch& b : loader) {
        EXPECT_EQ(b.indices[0], seen);
        seen += b.size();
      }
      FAIL() << "the exception was lost";
    } catch (const SampleError& e) {
      EXPECT_EQ(seen, 40);
      EXPECT_EQ(e.index, 42);
      EXPECT_THAT(e.what(), HasSubstr("[Numbers] sample 42: [decode] broken.png"));
      EXPECT_THROW(std::rethrow_if_nested(e), FileError);
    }
    EXPECT_EQ(loader.state().samples, 40);
  }
}

TEST(DataLoader, AFailingGetBatchIsReportedWithItsSamples) {
  class Fails : public Numbers {
   public:
    using Numbers::Numbers;
    Batch get_batch(std::span<const int64_t>) const override { throw std::runtime_error("no connection"); }
  };
  const Fails d(10);
  DataLoader loader(d, {.batch_size = 5, .num_workers = 1});
  EXPECT_ERROR(SampleError, loader.begin(), "sample 0", "4", "no connection");
}

TEST(DataLoader, EarlyBreakStopsTheWorkersAndTheNextPassIsTheNextEpoch) {
  Numbers d(10'000);
  DataLoader loader(d, {.batch_size = 4, .shuffle = true, .num_workers = 4, .seed = 3});
  for (int round = 0; round < 50; ++round) {
    for (const Batch& b : loader)
      if (b.indices[0] % 3 == 0) break;
  }
  const int64_t reads = d.reads;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(d.reads, reads) << "workers go on after the loop was left";
  EXPECT_EQ(loader.begin()->indices[0], RandomSampler(10'000, 3).order(50)[0]);
}

TEST(DataLoader, ReadsAheadNoMoreThanTold) {
  const Numbers d(1000);
  DataLoader loader(d, {.batch_size = 1, .num_workers = 2, .prefetch_factor = 3});
  auto it = loader.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(d.reads, 1 + 2 * 3);
}

TEST(DataLoader, AnIteratorOutlivesItsLoader) {
  const Numbers d(100);
  auto loader = std::make_unique<DataLoader>(d, DataLoaderOptions{.batch_size = 10, .num_workers = 2});
  auto it = loader->begin();
  loader.reset();
  int64_t batches = 0;
  for (; it != std::default_sentinel; ++it) ++batches;
  EXPECT_EQ(batches, 10);
}

TEST(DataLoader, OwnsATemporaryDataSet) {
  DataLoader loader(TensorDataset(tensor<float>({1, 2, 3}, {3})), {.batch_size = 3, .num_workers = 1});
  EXPECT_THAT(loader.begin()->input.to_vector<float>(), ElementsAre(1, 2, 3));
}

TEST(DataLoader, ResumesInTheMiddleOfAnEpoch) {
  const Numbers d(103);
  const DataLoaderOptions options{.batch_size = 8, .shuffle = true, .num_workers = 2, .seed = 11};
  std::vector<std::vector<int64_t>> expected;
  DataLoader reference(d, options);
  for (int epoch = 0; epoch < 3; ++epoch)
    for (auto& batch : batches_of(reference)) expected.push_back(batch);

  for (size_t stop : {1u, 5u, 12u, 13u, 14u, 26u, 30u}) {
    DataLoader first(d, options);
    std::vector<std::vector<int64_t>> got;
    LoaderState saved;
    while (got.size() < stop)
      for (const Batch& b : first) {
        got.push_back(b.indices);
        saved = first.state();
        if (got.size() == stop) break;
      }
    DataLoader second(d, options);
    second.set_state(saved);
    EXPECT_EQ(second.state(), saved);
    while (got.size() < expected.size())
      for (auto& batch : batches_of(second)) got.push_back(batch);
    EXPECT_EQ(got, expected) << "stopped after " << stop << " batches";
  }
}

TEST(DataLoader, StateOfAnotherLoaderIsRefused) {
  const Numbers d(100), larger(101);
  DataLoader a(d, {.batch_size = 8, .seed = 1});
  const LoaderState state = a.state();
  EXPECT_THROW(DataLoader(d, {.batch_size = 8, .seed = 2}).set_state(state), ValueError);
  EXPECT_THROW(DataLoader(larger, {.batch_size = 8, .seed = 1}).set_state(state), ValueError);
  LoaderState wrong = state;
  wrong.samples = 101;
  EXPECT_THROW(a.set_state(wrong), ValueError);
  wrong.samples = -1;
  EXPECT_THROW(a.set_state(wrong), ValueError);
  for (const int64_t shown : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    wrong = state;
    wrong.shown = shown;
    EXPECT_THROW(a.set_state(wrong), ValueError) << shown;
  }
}

TEST(DataLoader, TheEpochEndsWithTheLoopNotWithTheLastBatch) {
  const Numbers d(10);
  for (int workers : {0, 2}) {
    const DataLoaderOptions options{.batch_size = 4, .num_workers = workers, .seed = 1};
    DataLoader loader(d, options);
    LoaderState last;
    for ([[maybe_unused]] const Batch& b : loader) {
      EXPECT_EQ(loader.epoch(), 0u);
      last = loader.state();
    }
    EXPECT_EQ(loader.epoch(), 1u);
    EXPECT_EQ(loader.state().samples, 0);

    DataLoader resumed(d, options);
    resumed.set_state(last);
    EXPECT_EQ(resumed.epoch(), 0u);
    EXPECT_TRUE(batches_of(resumed).empty());
    EXPECT_EQ(resumed.epoch(), 1u);
    EXPECT_EQ(batches_of(resumed).size(), 3u);
  }
}

TEST(DataLoader, WorkersRunInTheirCallersContextWithOneThread) {
  class Spy : public Dataset {
   public:
    int64_t size() const override { return 8; }
    Sample get(int64_t) const override {
      const Context& c = Context::current();
      return {tensor({float(c.deterministic), float(c.threads)}), {}};
    }
  };
  Context context = Context::current().snapshot();
  context.deterministic = true;
  ContextScope scope(context);
  DataLoader loader(Spy{}, {.batch_size = 8, .num_workers = 1});
  EXPECT_THAT(loader.begin()->input.to_vector<float>(),
              ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
}

TEST(DataLoader, RejectsOptionsOutOfTheirDomain) {
  const Numbers d(10);
  EXPECT_THROW(DataLoader(d, {.batch_size = 0}), ValueError);
  EXPECT_THROW(DataLoader(d, {.num_workers = -1}), ValueError);
  EXPECT_THROW(DataLoader(d, {.prefetch_factor = 0}), ValueError);
  EXPECT_THROW(DataLoader(d, {.num_workers = 1, .divide = true}), ValueError);
  EXPECT_THROW(DataLoader(d, {.rank = 1, .world_size = 1}), ValueError);
  EXPECT_THROW(DataLoader(d, {.num_workers = 1, .timeout = std::chrono::milliseconds(-1)}), ValueError);
  EXPECT_THROW(DataLoader(d, {.timeout = std::chrono::milliseconds(1)}), ValueError) << "without workers";
  EXPECT_THROW(DataLoader(d, {.shuffle = true, .sampler = std::make_shared<SequentialSampler>(10)}),
               ValueError);
  DataLoader outside(d, {.sampler = std::make_shared<SequentialSampler>(11)});
  EXPECT_THROW(outside.begin(), IndexError);
}

TEST(DataLoader, CollatesAsTold) {
  const Numbers d(10);
  for (int workers : {0, 2}) {
    std::atomic<int> calls{0};
    DataLoader loader(d,
                      {.batch_size = 4,
                       .num_workers = workers,
                       .collate = [&](const std::vector<Sample>& samples, std::span<const int64_t> indices) {
                         ++calls;
                         EXPECT_EQ(samples.size(), indices.size());
                         return Batch{.input = scalar(double(samples.size())), .target = samples[0].target};
                       }});
    int64_t first = 0;
    for (const Batch& b : loader) {
      EXPECT_EQ(b.input.item<double>(), double(b.size()));
      EXPECT_EQ(b.target.item<int64_t>(), first);
      EXPECT_EQ(b.indices[0], first);
      EXPECT_EQ(b.global_size, b.size());
      first += b.size();
    }
    EXPECT_EQ(calls, 3);
  }
  // With a collate function samples draw the same random numbers as without.
  const auto first_numbers = [&](const DataLoaderOptions& options) {
    DataLoader loader(d, options);
    return loader.begin()->input.to_vector<double>();
  };
  EXPECT_EQ(first_numbers({.batch_size = 4,
                           .seed = 1,
                           .collate = [](const auto& samples,
                                         auto indices) { return collate(samples, indices, "collated"); }}),
            first_numbers({.batch_size = 4, .seed = 1}));

  DataLoader fails(d, {.batch_size = 4, .num_workers = 1, .collate = [](const auto&, auto) -> Batch {
                         throw std::runtime_error("of different lengths");
                       }});
  EXPECT_ERROR(SampleError, fails.begin(), "sample 0", "of different lengths");
}

// Reading sample 6 takes until `go`.
class Stuck : public Numbers {
 public:
  using Numbers::Numbers;
  Sample get(int64_t i) const override {
    while (i == 6 && !*go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Numbers::get(i);
  }
  std::shared_ptr<std::atomic<bool>> go = std::make_shared<std::atomic<bool>>(false);
};

TEST(DataLoader, ATimeoutNamesTheSamplesThatAreBeingReadAndNobodyWaitsForThem) {
  auto d = std::make_shared<Stuck>(12);
  for (int workers : {1, 3}) {
    DataLoader loader(std::shared_ptr<const Dataset>(d),
                      {.batch_size = 4, .num_workers = workers, .timeout = std::chrono::milliseconds(100)});
    int64_t batches = 0;
    try {
      for ([[maybe_unused]] const Batch& b : loader) ++batches;
      FAIL();
    } catch (const LoaderTimeoutError& e) {
      EXPECT_THAT(e.what(),
                  ::testing::AllOf(HasSubstr("[DataLoader] dataloader timeout"), HasSubstr("Numbers"),
                                   HasSubstr("100 ms"), HasSubstr("samples 4, 5, 6, 7 are being read")));
      EXPECT_EQ(e.dataset, "Numbers");
      EXPECT_THAT(e.indices, ElementsAre(4, 5, 6, 7));
    }
    EXPECT_EQ(batches, 1);
    // Leaving the loop does not wait for a stuck worker either.
    for ([[maybe_unused]] const Batch& b : loader) break;
  }
  *d->go = true;  // the workers hold the data set and end now
  DataLoader loader(std::shared_ptr<const Dataset>(d),
                    {.batch_size = 4, .num_workers = 2, .timeout = std::chrono::milliseconds(10'000)});
  EXPECT_EQ(batches_of(loader).size(), 3u);
}

TEST(Endless, GoesThroughTheEpochsWithoutEnd) {
  const Numbers d(10);
  const DataLoaderOptions options{.batch_size = 4, .shuffle = true, .num_workers = 2, .seed = 3};
  std::vector<std::vector<int64_t>> expected;
  DataLoader reference(d, options);
  for (int epoch = 0; epoch < 4; ++epoch)
    for (auto& batch : batches_of(reference)) expected.push_back(batch);

  DataLoader loader(d, options);
  Endless endless(loader);
  std::vector<std::vector<int64_t>> got;
  while (got.size() < expected.size()) got.push_back(endless.next().indices);
  EXPECT_EQ(got, expected);
  EXPECT_EQ(loader.epoch(), 3u);
}

TEST(Endless, ResumesWithTheNextBatchAlsoBetweenEpochs) {
  const Numbers d(10);
  const DataLoaderOptions options{.batch_size = 4, .shuffle = true, .seed = 3};
  DataLoader reference(d, options);
  Endless all(reference);
  std::vector<std::vector<int64_t>> expected;
  for (int i = 0; i < 8; ++i) expected.push_back(all.next().indices);
  for (size_t stop = 1; stop < 7; ++stop) {
    DataLoader first(d, options), second(d, options);
    Endless before(first), after(second);
    for (size_t i = 0; i < stop; ++i) before.next();
    second.set_state(first.state());
    EXPECT_EQ(after.next().indices, expected[stop]) << "after " << stop << " batches";
    EXPECT_EQ(after.next().indices, expected[stop + 1]);
  }
}

TEST(Endless, OfALoaderWithoutBatchesIsAnError) {
  const Numbers none(0);
  DataLoader loader(none, {.batch_size = 4});
  EXPECT_THROW(Endless(loader).next(), ValueError);
}

}  // namespace
}  // namespace gradus::data
