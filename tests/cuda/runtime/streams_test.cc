// Streams and events of emulated CUDA devices, with kernels and host tasks, in the execution orders of many
// seeds.
#include "gradus/tensor/runtime/stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace gradus {
namespace {

const Device kCuda = Device::parse("cuda:0");
// cuda:1, or cuda:0 if it is the only one.
Device second() {
  const bool is_there = internal::find_device_runtime(DeviceType::kCUDA)->device_count() > 1;
  return {DeviceType::kCUDA, int16_t(is_there)};
}
const Device kWorker = Device::parse("cpu:1");
constexpr uint64_t kOrders = 40;

TEST(CudaStream, HasADefaultPerDevice) {
  EXPECT_EQ(current_stream(kCuda), Stream::of(kCuda));
  EXPECT_EQ(Stream::of(kCuda) == Stream::of(second()), second() == kCuda);
  EXPECT_FALSE(Stream::of(kCuda) == Stream::create(kCuda));
  EXPECT_FALSE(Stream::of(kCuda).is_inline());
  EXPECT_EQ(Stream::of(kCuda).device(), kCuda);
  std::thread([] { EXPECT_EQ(current_stream(kCuda), Stream::of(kCuda)); }).join();
}

TEST(CudaStream, EventsOrderStreams) {
  const Stream side = Stream::create(kCuda);
  int wrong = 0;
  for (uint64_t seed = 1; seed <= kOrders; ++seed) {
    cuda::emulated::set_seed(seed);
    for (const bool waits : {true, false}) {
      const Tensor x = zeros({64}, {.device = kCuda});
      Stream::of(kCuda).synchronize();
      raw::fill_(x, 1);
      if (waits) side.wait(Event::record(Stream::of(kCuda)));
      const StreamScope scope(side);
      const bool right = raw::clone(x).to_vector<float>() == std::vector<float>(64, 1);
      EXPECT_TRUE(right || !waits) << "seed " << seed;
      wrong += !right;
      synchronize(kCuda);
    }
  }
  EXPECT_GE(wrong, 5) << "the test would not notice";
}

TEST(CudaStream, EventsAreDoneWhenWhatWasQueuedHasRun) {
  const Stream side = Stream::create(kCuda);
  bool ever_open = false;
  for (uint64_t seed = 1; seed <= kOrders; ++seed) {
    cuda::emulated::set_seed(seed);
    std::atomic<bool> ran{false};
    side.enqueue([&] { ran = true; });
    const Event e = Event::record(side);
    ever_open = ever_open || !e.done();
    e.synchronize();
    EXPECT_TRUE(ran);
    EXPECT_TRUE(e.done());
  }
  EXPECT_TRUE(ever_open);
  EXPECT_TRUE(Event().done());
}

TEST(CudaStream, HostTasksRunInOrderAndTheirErrorsSurface) {
  const Stream s = Stream::create(kCuda);
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) s.enqueue([&order, i] { order.push_back(i); });
  s.synchronize();
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  s.enqueue([] { throw ValueError("task", "first"); });
  s.enqueue([] { throw ValueError("task", "second"); });
  EXPECT_THROW(s.synchronize(), ValueError);
  s.synchronize();
  Stream::of(kCuda).enqueue([] { throw ValueError("task", "of the default stream"); });
  EXPECT_THROW(synchronize(kCuda), ValueError);
  synchronize(kCuda);
  // A task's tensors are freed by the host.
  Tensor x = zeros({8}, {.device = kCuda});
  s.enqueue([x] {});
  x = {};
  s.synchronize();
}

TEST(CudaStream, WaitsForAWorkerAndAWorkerForIt) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    cuda::emulated::set_seed(seed);
    const Stream cuda = Stream::create(kCuda), worker = Stream::create(kWorker);
    std::atomic<int> step{0};
    worker.enqueue([&] { step = 1; });
    cuda.wait(Event::record(worker));
    cuda.enqueue([&] { step = step == 1 ? 2 : -1; });
    worker.wait(Event::record(cuda));
    worker.enqueue([&] { step = step == 2 ? 3 : -1; });
    worker.synchronize();
    EXPECT_EQ(step, 3);
  }
}

TEST(CudaStream, SynchronizeWaitsForAllOfADevice) {
  for (uint64_t seed = 1; seed <= kOrders; ++seed) {
    cuda::emulated::set_seed(seed);
    std::atomic<int> ran{0};
    {
      const Stream dropped = Stream::create(kCuda);
      for (int i = 0; i < 3; ++i) dropped.enqueue([&] { ++ran; });
    }
    Stream::of(kCuda).enqueue([&] { ++ran; });
    synchronize(kCuda);
    EXPECT_EQ(ran, 4);
  }
}

TEST(CudaStream, ManyThreadsMayAskForADefaultStreamAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&, t] {
      const Tensor x = full({100}, t, {.device = second()});
      right += raw::clone(x).to_vector<float>() == std::vector<float>(100, float(t));
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(right, 6);
}

}  // namespace
}  // namespace gradus
