// DataLoader with .device = cuda:0 on the GPU emulator, which runs streams late and in an order drawn from a
// seed: values and order of batches are those on the host; early ends of a pass, errors, and failing CUDA
// calls.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gradus/data/dataloader.h"
#include "gradus/data/iterable_loader.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace gradus::data {
namespace {

const Device kCuda = Device::parse("cuda:0");
constexpr uint64_t kOrders = 20;
constexpr int64_t kWidth = 1000;

// Sample i: kWidth elements of value i, and the target i. Sample `broken` cannot be read (-1: none).
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  std::string name() const override { return "Numbers"; }
  int64_t size() const override { return size_; }
  Sample get(int64_t i) const override {
    if (i == broken) throw FileError("decode", "broken.png");
    const Sample s = {full({kWidth}, double(i)), scalar(double(i), {.dtype = DType::kI64})};
    ++reads;
    return s;
  }

  int64_t broken = -1;
  mutable std::atomic<int64_t> reads{0};

 private:
  int64_t size_;
};

// Copies of a batch made by kernels on the device; is_right() compares them with the samples.
struct Used {
  std::vector<int64_t> indices;
  Tensor input, target;

  explicit Used(const Batch& b)
      : indices(b.indices), input(raw::clone(raw::clone(b.input))), target(raw::clone(b.target)) {}
  bool is_right() const {
    const std::vector<float> x = input.to_vector<float>();
    if (target.to_vector<int64_t>() != indices || x.size() != indices.size() * kWidth) return false;
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i] != float(indices[i / kWidth])) return false;
    return true;
  }
};

std::vector<std::vector<int64_t>> order_on_host(const Dataset& d, DataLoaderOptions options, int passes) {
  options.device = {};
  DataLoader loader(d, options);
  std::vector<std::vector<int64_t>> all;
  for (int i = 0; i < passes; ++i)
    for (const Batch& b : loader) all.push_back(b.indices);
  return all;
}

// The host does not wait before the last batch, so kernels run while the next batches are copied.
TEST(DeviceBatches, AreThoseOfTheHostInEveryOrder) {
  const Numbers d(46);
  for (uint64_t seed = 1; seed <= kOrders; ++seed) {
    cuda::emulated::set_seed(seed);
    for (const int workers : {0, 1, 3}) {
      const DataLoaderOptions options = {
          .batch_size = 4, .shuffle = true, .num_workers = workers, .seed = seed, .device = kCuda};
      DataLoader loader(d, options);
      std::vector<Used> used;
      for (int pass = 0; pass < 2; ++pass)
        for (const Batch& b : loader) {
          ASSERT_EQ(b.input.device(), kCuda);
          ASSERT_EQ(b.target.device(), kCuda);
          used.emplace_back(b);
        }
      const auto expected = order_on_host(d, options, 2);
      ASSERT_EQ(used.size(), expected.size());
      for (size_t i = 0; i < used.size(); ++i) {
        EXPECT_EQ(used[i].indices, expected[i]) << "batch " << i;
        EXPECT_TRUE(used[i].is_right()) << "seed " << seed << ", " << workers << " workers, batch " << i;
      }
    }
  }
}

// The loop's kernels are on a stream of its own.
TEST(DeviceBatches, ComeToTheCurrentStream) {
  const Numbers d(40);
  for (uint64_t seed = 1; seed <= kOrders; ++seed) {
    cuda::emulated::set_seed(seed);
    const StreamScope scope(Stream::create(kCuda));
    DataLoader loader(d, {.batch_size = 4, .num_workers = 2, .device = kCuda});
    std::vector<Used> used;
    for (const Batch& b : loader) used.emplace_back(b);
    for (const Used& u : used) EXPECT_TRUE(u.is_right()) << "seed " << seed;
  }
}

TEST(DeviceBatches, TheNextOneIsOnItsWayWhileTheLoopHasOne) {
  const Numbers d(12);
  DataLoader loader(d, {.batch_size = 4, .num_workers = 1, .prefetch_factor = 3, .device = kCuda});
  const int64_t before = memory_stats(kCuda).live_bytes;
  auto at = loader.begin();
  while (d.reads < 12) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the last batch is collated and pinned
  const int64_t one = 4 * kWidth * int64_t(sizeof(float));
  ++at;
  EXPECT_EQ(at->indices, (std::vector<int64_t>{4, 5, 6, 7}));
  EXPECT_GE(memory_stats(kCuda).live_bytes - before, 2 * one);
  EXPECT_EQ(loader.state().samples, 8) << "the batch in hand counts, not the next one";
  ++at;
  EXPECT_LT(memory_stats(kCuda).live_bytes - before, 2 * one);
  EXPECT_EQ(loader.state().samples, 12);
}

// A batch is copied before kernels that the loop had queued earlier have run.
TEST(DeviceBatches, CopiesDoNotWaitForTheLoopsKernels) {
  const Numbers d(20);
  for (uint64_t seed = 1; seed <= kOrders; ++seed) {
    cuda::emulated::set_seed(seed);
    DataLoader loader(d, {.batch_size = 4, .num_workers = 1, .prefetch_factor = 5, .device = kCuda});
    auto at = loader.begin();
    while (d.reads < int64_t(20 * seed)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const Tensor x = at->input;
    for (int i = 0; i < 100; ++i) raw::clone(x);
    ++at;
    const Stream other = Stream::create(kCuda);
    {
      const StreamScope scope(other);
      ++at;
      other.synchronize();
    }
    EXPECT_FALSE(Event::record(Stream::of(kCuda)).done()) << "seed " << seed;
    EXPECT_EQ(at->input.to_vector<float>()[0], 8) << "seed " << seed;
  }
}

TEST(DeviceBatches, AStateResumesWithTheNextBatch) {
  const Numbers d(20);
  const DataLoaderOptions options = {
      .batch_size = 4, .shuffle = true, .num_workers = 2, .seed = 3, .device = kCuda};
  const auto expected = order_on_host(d, options, 1);
  for (size_t stop = 0; stop < expected.size(); ++stop) {
    DataLoader loader(d, options), resumed(d, options);
    size_t n = 0;
    for (const Batch& b : loader) {
      EXPECT_EQ(b.indices, expected[n]);
      if (n++ == stop) {
        resumed.set_state(loader.state());
        break;
      }
    }
    for (const Batch& b : resumed) EXPECT_EQ(b.indices, expected[n++]);
    EXPECT_EQ(n, expected.size());
    EXPECT_EQ(resumed.epoch(), 1u);
  }
}

struct Stop : std::exception {};

// A pass ends early, by break or by an exception in the loop's body. Queued work still runs, and the next
// pass gives the right batches.
TEST(DeviceBatches, APassMayEndEarly) {
  const Numbers d(40);
  for (uint64_t seed = 1; seed <= kOrders; ++seed) {
    cuda::emulated::set_seed(seed);
    DataLoader loader(d, {.batch_size = 4, .num_workers = 2, .device = kCuda});
    std::vector<Used> used;
    for (const Batch& b : loader) {
      used.emplace_back(b);
      if (used.size() == 3) break;
    }
    try {
      for (const Batch& b : loader) {
        used.emplace_back(b);
        if (used.size() == 5) throw Stop();
      }
      ADD_FAILURE() << "no exception";
    } catch (const Stop&) {
    }
    for (const Batch& b : loader) used.emplace_back(b);
    EXPECT_EQ(used.size(), 15u);
    for (const Used& u : used) EXPECT_TRUE(u.is_right()) << "seed " << seed;
  }
}

// The loop's kernels are still queued when the loader and its pass are gone.
TEST(DeviceBatches, TheEndOfAPassDoesNotWaitForTheLoopsKernels) {
  const Numbers d(40);
  for (uint64_t seed = 1; seed <= kOrders; ++seed) {
    cuda::emulated::set_seed(seed);
    std::optional<Used> last;
    {
      DataLoader loader(d, {.batch_size = 4, .num_workers = 2, .device = kCuda});
      auto at = loader.begin();
      for (int i = 0; i < 100; ++i) last.emplace(*at);
    }
    EXPECT_FALSE(Event::record(Stream::of(kCuda)).done()) << "seed " << seed;
    EXPECT_TRUE(last->is_right()) << "seed " << seed;
  }
}

TEST(DeviceBatches, AnErrorOfTheDataSetComesInPlaceOfItsBatch) {
  for (const int workers : {0, 2}) {
    Numbers d(40);
    d.broken = 13;
    DataLoader loader(d, {.batch_size = 4, .num_workers = workers, .prefetch_factor = 8, .device = kCuda});
    std::vector<Used> used;
    try {
      for (const Batch& b : loader) {
        used.emplace_back(b);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the broken one is read meanwhile
      }
      ADD_FAILURE() << "no exception";
    } catch (const SampleError& e) {
      EXPECT_EQ(e.index, 13);
    }
    EXPECT_EQ(used.size(), 3u);
    for (const Used& u : used) EXPECT_TRUE(u.is_right());
    EXPECT_EQ(loader.state().samples, 12);
  }
}

// Each runtime call fails in turn: a typed error or none, no memory leaks, the next pass gives the right
// batches.
TEST(DeviceBatches, EachCallMayFail) {
  const Numbers d(12);
  const int64_t before = memory_stats(kCuda).live_bytes;
  int errors = 0;
  for (int64_t n = 0; n < 120; ++n) {
    try {
      DataLoader loader(d, {.batch_size = 4, .num_workers = 1, .device = kCuda});
      cuda::emulated::fail_call(n, cudaErrorInvalidValue);
      std::vector<Used> used;
      for (const Batch& b : loader) used.emplace_back(b);
      for (const Used& u : used) EXPECT_TRUE(u.is_right()) << "call " << n;
      EXPECT_EQ(used.size(), 3u) << "call " << n;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("cuda"), std::string::npos) << e.what();
      ++errors;
    }
    cuda::emulated::fail_call(-1, cudaSuccess);
    synchronize(kCuda);
    EXPECT_EQ(memory_stats(kCuda).live_bytes, before) << "call " << n;
    DataLoader loader(d, {.batch_size = 4, .device = kCuda});
    for (const Batch& b : loader) EXPECT_TRUE(Used(b).is_right()) << "after call " << n;
  }
  EXPECT_GE(errors, 20);
  EXPECT_LT(errors, 120) << "there are more calls";
}

TEST(DeviceBatches, LayoutsAndEmptyTensorsTravel) {
  const auto collate = [](const std::vector<Sample>& samples, std::span<const int64_t> indices) {
    const Tensor rows = empty({int64_t(samples.size()), 3, 4, 5});
    for (size_t i = 0; i < samples.size(); ++i)
      raw::fill_(view_as_strided(rows, {60}, {1}, int64_t(i) * 60), double(indices[i]));
    return Batch{.input = raw::channels_last(rows), .target = empty({0, 2})};
  };
  const Numbers d(8);
  DataLoader loader(d, {.batch_size = 4, .num_workers = 1, .collate = collate, .device = kCuda});
  for (const Batch& b : loader) {
    EXPECT_TRUE(b.input.is_channels_last());
    EXPECT_EQ(b.target.shape(), (Shape{0, 2}));
    const std::vector<float> x = b.input.to_vector<float>();
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(x[i], float(b.indices[i / 60]));
  }
}

TEST(DeviceBatches, ADeviceThatIsNotThereIsAnErrorOfTheLoader) {
  const Numbers d(4);
  EXPECT_THROW(DataLoader(d, {.device = Device{DeviceType::kCUDA, 2}}), DeviceError);
}

// The samples of Numbers in order.
class NumberStream : public IterableDataset {
 public:
  explicit NumberStream(const Numbers& numbers) : numbers_(numbers) {}
  std::unique_ptr<SampleStream> open(uint64_t) const override { return std::make_unique<Stream>(numbers_); }

 private:
  struct Stream : SampleStream {
    explicit Stream(const Numbers& numbers_) : numbers(numbers_) {}
    std::optional<Sample> next() override {
      if (at == numbers.size()) return std::nullopt;
      return numbers.get(at++);
    }
    const Numbers& numbers;
    int64_t at = 0;
  };
  const Numbers& numbers_;
};

TEST(DeviceBatches, OfStreamsAreThoseOfTheHostInEveryOrder) {
  const Numbers d(30);
  const NumberStream stream(d);
  for (uint64_t seed = 1; seed <= kOrders; ++seed) {
    cuda::emulated::set_seed(seed);
    for (const int prefetch : {0, 1, 3}) {
      IterableLoader loader(stream, {.batch_size = 4, .prefetch = prefetch, .device = kCuda});
      std::vector<Used> used;
      for (int pass = 0; pass < 2; ++pass)
        for (const Batch& b : loader) {
          ASSERT_EQ(b.input.device(), kCuda);
          EXPECT_EQ(b.indices[0], loader.state().samples - b.size())
              << "the state is that of the loop's batch";
          used.emplace_back(b);
        }
      EXPECT_EQ(used.size(), 16u);
      for (const Used& u : used) EXPECT_TRUE(u.is_right()) << "seed " << seed << ", prefetch " << prefetch;
    }
  }
}

}  // namespace
}  // namespace gradus::data
