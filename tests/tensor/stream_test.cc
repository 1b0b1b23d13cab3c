// Streams and events of the asynchronous CPU devices (cpu:1 and up), each stream with a worker thread: order,
// waiting, backlog, errors, lifetimes, copies between devices. Also run under ThreadSanitizer.
#include "gradus/tensor/runtime/stream.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/backlog.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/memory.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

const Device kFirst = Device::parse("cpu:1");
const Device kSecond = Device::parse("cpu:2");

void nap(int milliseconds = 10) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// Blocks a stream until open().
class Gate {
 public:
  void hold(const Stream& s) {
    s.enqueue([this] {
      while (!open_) nap(1);
    });
  }
  void open() { open_ = true; }
  ~Gate() { open(); }

 private:
  std::atomic<bool> open_{false};
};

TEST(Stream, RunsTasksInTheirOrder) {
  const Stream s = Stream::create(kFirst);
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) s.enqueue([&order, i] { order.push_back(i); });
  s.synchronize();
  ASSERT_EQ(order.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(Stream, DoesNotBlockTheHost) {
  const Stream s = Stream::create(kFirst);
  Gate gate;
  gate.hold(s);
  const Event e = Event::record(s);
  EXPECT_FALSE(e.done());
  gate.open();
  e.synchronize();
  EXPECT_TRUE(e.done());
  s.synchronize();
}

TEST(Stream, OfCpuZeroRunsInline) {
  const Stream s = Stream::of(kCPU);
  EXPECT_TRUE(s.is_inline());
  EXPECT_TRUE(Stream::create(kCPU).is_inline());
  const auto caller = std::this_thread::get_id();
  std::thread::id runner;
  s.enqueue([&] { runner = std::this_thread::get_id(); });
  EXPECT_EQ(runner, caller);
  EXPECT_TRUE(Event::record(s).done());
  EXPECT_THROW(s.enqueue([] { throw ValueError("task", "at once"); }), ValueError);
}

TEST(Stream, OfADeviceIsTheSameEveryTimeAndForEveryThread) {
  const Stream here = Stream::of(kFirst);
  EXPECT_EQ(here, Stream::of(kFirst));
  EXPECT_FALSE(here == Stream::of(kSecond));
  EXPECT_FALSE(here == Stream::create(kFirst));
  std::thread([&] { EXPECT_EQ(here, Stream::of(kFirst)); }).join();
}

TEST(Stream, ManyThreadsMayAskForADefaultStreamAtOnce) {
  const Device fresh = Device::parse("cpu:40");
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) threads.emplace_back([&] { Stream::of(fresh).enqueue([&] { ++ran; }); });
  for (auto& t : threads) t.join();
  synchronize(fresh);
  EXPECT_EQ(ran, 8);
}

// Sets the backlog's limit and stall timeout (runtime/backlog.h) for the scope's duration.
class BacklogLimit {
 public:
  BacklogLimit(int64_t bytes, std::chrono::milliseconds patience)
      : bytes_(internal::backlog().limit.exchange(bytes)),
        patience_(internal::backlog().stall_timeout.exchange(patience)) {}
  ~BacklogLimit() {
    internal::backlog().limit = bytes_;
    internal::backlog().stall_timeout = patience_;
  }

 private:
  int64_t bytes_;
  std::chrono::milliseconds patience_;
};

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(Backlog, BoundsWhatQueuedKernelsHold) {
  const BacklogLimit limit(8 * kMiB, std::chrono::seconds(60));
  const PeakMemory peak(kFirst);
  const int64_t before = memory_stats(kFirst).live_bytes;
  for (int i = 0; i < 60; ++i) {
    Stream::of(kFirst).enqueue([] { nap(1); });
    zeros({kMiB / 4}, {.device = kFirst});
  }
  synchronize(kFirst);
  EXPECT_LE(peak.bytes() - before, 10 * kMiB);  // the limit, the task that runs and the one that waited
  EXPECT_EQ(memory_stats(kFirst).live_bytes, before);
}

TEST(Backlog, CountsAllQueuesTogether) {
  const BacklogLimit limit(4 * kMiB, std::chrono::seconds(60));
  Gate gate;
  gate.hold(Stream::of(kFirst));
  for (int i = 0; i < 5; ++i) zeros({kMiB / 4}, {.device = kFirst});
  std::atomic<bool> queued{false};
  std::thread host([&] {
    zeros({16}, {.device = kSecond});
    queued = true;
  });
  nap(50);
  EXPECT_FALSE(queued);
  gate.open();
  host.join();
  synchronize(kFirst);
  synchronize(kSecond);
}

TEST(Backlog, AHostThatATaskWaitsForGoesOn) {
  const BacklogLimit limit(kMiB, std::chrono::milliseconds(50));
  Gate gate;
  gate.hold(Stream::of(kFirst));
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) zeros({kMiB / 4}, {.device = kFirst});
  EXPECT_LT(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(500));  // timed out once, not 20 times
  gate.open();
  synchronize(kFirst);
}

// If a worker thread blocked, the test would time out.
TEST(Backlog, AStreamsThreadNeverWaits) {
  const BacklogLimit limit(kMiB, std::chrono::hours(1));
  Gate gate;
  gate.hold(Stream::of(kFirst));
  for (int i = 0; i < 2; ++i) zeros({kMiB / 4}, {.device = kFirst});
  Stream::of(kSecond).synchronize();
  std::atomic<bool> ran{false};
  std::thread([&] {
    internal::Backlog::exempt_this_thread();
    Stream::of(kSecond).enqueue([&] { Stream::of(kFirst).enqueue([&] { ran = true; }); });
    Stream::of(kSecond).synchronize();
  }).join();
  gate.open();
  synchronize(kFirst);
  EXPECT_TRUE(ran);
}

TEST(Stream, TwoOfOneDeviceRunSideBySide) {
  const Stream a = Stream::create(kFirst), b = Stream::create(kFirst);
  std::atomic<bool> from_a{false}, from_b{false};
  // Each waits for the other: in sequence they would never end.
  a.enqueue([&] {
    from_a = true;
    while (!from_b) nap(1);
  });
  b.enqueue([&] {
    from_b = true;
    while (!from_a) nap(1);
  });
  a.synchronize();
  b.synchronize();
}

TEST(Stream, SynchronizeDeviceWaitsForAllItsStreams) {
  const Stream a = Stream::create(kFirst), b = Stream::create(kFirst);
  std::atomic<int> done{0};
  for (const Stream& s : {a, b, Stream::of(kFirst)})
    s.enqueue([&] {
      nap();
      ++done;
    });
  synchronize(kFirst);
  EXPECT_EQ(done, 3);
}

TEST(Stream, ATaskHasTheThreadCountOfWhoeverQueuedIt) {
  const Stream s = Stream::create(kFirst);
  Context context = Context::current().snapshot();
  const ContextScope scope(context);
  int first = 0, second = 0;
  set_num_threads(3);
  s.enqueue([&] { first = num_threads(); });
  set_num_threads(1);
  s.enqueue([&] { second = num_threads(); });
  s.synchronize();
  EXPECT_EQ(first, 3);
  EXPECT_EQ(second, 1);
}

TEST(Event, ALaterTaskOfAnotherStreamWaits) {
  const Stream producer = Stream::create(kFirst), consumer = Stream::create(kSecond);
  int value = 0, seen = -1;
  producer.enqueue([&] {
    nap(20);
    value = 42;
  });
  consumer.wait(Event::record(producer));
  consumer.enqueue([&] { seen = value; });
  consumer.synchronize();
  EXPECT_EQ(seen, 42);
}

TEST(Event, CountsOnlyWhatWasQueuedBeforeIt) {
  const Stream s = Stream::create(kFirst);
  const Event before = Event::record(s);
  Gate gate;
  gate.hold(s);
  before.synchronize();
  EXPECT_TRUE(before.done());
  gate.open();
  s.synchronize();
}

TEST(Event, ADefaultOneHasHappened) {
  EXPECT_TRUE(Event().done());
  Event().synchronize();
  Stream::of(kFirst).wait(Event());
}

TEST(StreamErrors, SurfaceAtSynchronizeOnce) {
  const Stream s = Stream::create(kFirst);
  std::atomic<bool> later{false};
  s.enqueue([] { throw ShapeError("kernel", "first"); });
  s.enqueue([] { throw ValueError("kernel", "second"); });
  s.enqueue([&] { later = true; });
  EXPECT_ERROR(ShapeError, s.synchronize(), "[kernel] first");
  EXPECT_TRUE(later);
  EXPECT_NO_THROW(s.synchronize());
}

TEST(StreamErrors, SurfaceWhereTheDevicesElementsAreRead) {
  const Device d = Device::parse("cpu:5");
  const Tensor x = empty({1}, {DType::kF32, d});
  Stream::of(d).enqueue([x] { throw ValueError("kernel", "no result"); });
  EXPECT_ERROR(ValueError, x.item<float>(), "no result");
  EXPECT_NO_THROW(x.item<float>());
}

TEST(StreamErrors, TravelWithEventsToTheStreamsThatWait) {
  const Stream producer = Stream::create(kFirst), consumer = Stream::create(kSecond);
  producer.enqueue([] { throw ValueError("kernel", "broken input"); });
  const Event e = Event::record(producer);
  consumer.wait(e);
  EXPECT_ERROR(ValueError, consumer.synchronize(), "broken input");
  EXPECT_ERROR(ValueError, e.synchronize(), "broken input");
  EXPECT_THROW(producer.synchronize(), ValueError);
  // The error has been reported: a new event does not carry it.
  Event::record(producer).synchronize();
}

TEST(StreamErrors, AreNotLostWithTheStream) {
  const Device d = Device::parse("cpu:6");
  Stream::create(d).enqueue([] { throw ValueError("kernel", "of a stream that is gone"); });
  Stream::create(d);  // removes ended streams, except those with an error to report
  EXPECT_ERROR(ValueError, synchronize(d), "of a stream that is gone");
  EXPECT_NO_THROW(synchronize(d));
}

TEST(StreamLifetime, WhatIsQueuedRunsAfterTheLastHandle) {
  std::atomic<int> ran{0};
  {
    const Stream s = Stream::create(kFirst);
    for (int i = 0; i < 100; ++i) s.enqueue([&] { ++ran; });
  }
  EXPECT_EQ(ran, 100);
}

TEST(StreamLifetime, ATaskMayHoldTheLastHandle) {
  std::atomic<bool> ran{false};
  {
    const Stream s = Stream::create(kFirst);
    auto gate = std::make_shared<std::atomic<bool>>(false);
    s.enqueue([gate] {
      while (!*gate) nap(1);
    });
    s.enqueue([s, &ran] { ran = true; });
    std::thread([gate] {
      nap();
      *gate = true;
    }).detach();
  }
  synchronize(kFirst);
  EXPECT_TRUE(ran);
}

TEST(StreamLifetime, AnEventOutlivesItsStream) {
  Event e;
  {
    const Stream s = Stream::create(kFirst);
    s.enqueue([] { nap(); });
    e = Event::record(s);
  }
  e.synchronize();
  EXPECT_TRUE(e.done());
}

TEST(StreamLifetime, AQueuedKernelKeepsItsTensors) {
  const Stream s = Stream::create(kFirst);
  const StreamScope scope(s);
  Gate gate;
  gate.hold(s);
  Tensor y;
  {
    const Tensor x = raw::to(tensor({1.f, 2.f, 3.f}), kFirst);
    y = raw::add(x, x);
  }
  // Would get the block of x if it were free already.
  const Tensor other = empty({3}, {DType::kF32, kFirst});
  gate.open();
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{2, 4, 6}));
}

TEST(TwoDevices, AChainOfKernelsGivesTheNumbersOfOne) {
  const Tensor start = random_tensor({64, 33});
  Tensor here = start, a = raw::to(start, kFirst), b;
  for (int i = 0; i < 50; ++i) {
    here = raw::add(raw::mul(here, here), start);
    // Squares on one device, sums on the other; each intermediate value is copied and then freed.
    b = raw::to(raw::mul(a, a), kSecond);
    b = raw::add(b, raw::to(start, kSecond));
    a = raw::to(b, kFirst);
    here = raw::mul(here, scalar(0.5));
    a = raw::mul(a, scalar(0.5, {DType::kF32, kFirst}));
  }
  EXPECT_EQ(a.to_vector<float>(), here.to_vector<float>());
}

TEST(TwoDevices, OverwritingASourceWaitsForTheCopyThatReadsIt) {
  Tensor src = raw::to(tensor({1.f}), kFirst);
  Gate gate;
  gate.hold(Stream::of(kSecond));
  const Tensor copy = raw::to(src, kSecond);
  raw::fill_(src, 9);
  gate.open();
  EXPECT_EQ(copy.item<float>(), 1);
  EXPECT_EQ(src.item<float>(), 9);
}

// Returns whether the stream finishes within 5 s all tasks queued so far. A stream behind a closed gate does
// not.
bool goes_on(const Stream& s) {
  const Event all = Event::record(s);
  for (int i = 0; i < 5000 && !all.done(); ++i) nap(1);
  return all.done();
}

TEST(TwoDevices, ACopyDoesNotWaitForWhatElseIsQueuedAtItsDestination) {
  const Tensor x = raw::to(tensor({1.f, 2.f}), kFirst);
  Gate gate;
  gate.hold(Stream::of(kSecond));
  const Tensor there = raw::to(x, kSecond), twice = raw::add(there, there);
  const Tensor next = raw::add(x, x);
  EXPECT_TRUE(goes_on(Stream::of(kFirst)));
  gate.open();
  EXPECT_EQ(twice.to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(next.to_vector<float>(), (std::vector<float>{2, 4}));
}

TEST(TwoDevices, ADestinationInUseIsOverwrittenWhenItsTurnComes) {
  const Tensor src = raw::to(tensor({5.f}), kFirst), dst = raw::to(tensor({1.f, 2.f}), kSecond);
  Gate gate;
  gate.hold(Stream::of(kSecond));
  const Tensor before = raw::clone(dst);
  raw::copy_(dst, src);
  raw::fill_(src, 9);
  const Tensor after = raw::clone(dst);
  EXPECT_TRUE(goes_on(Stream::of(kFirst)));
  gate.open();
  EXPECT_EQ(before.to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(after.to_vector<float>(), (std::vector<float>{5, 5}));
  EXPECT_EQ(src.item<float>(), 9);
}

TEST(TwoDevices, MemoryIsReusedWhenTheCopyIsDone) {
  Gate gate;
  gate.hold(Stream::of(kFirst));
  Tensor copy;
  {
    const Tensor src = raw::to(tensor({1.f, 2.f, 3.f}), kFirst);
    raw::to(src, kSecond);  // dropped before it is written
    copy = raw::to(src, kSecond);
  }
  // Would get the blocks if they were free already.
  const Tensor a = raw::to(tensor({7.f, 7.f, 7.f}), kFirst), b = raw::to(tensor({8.f, 8.f, 8.f}), kSecond);
  gate.open();
  EXPECT_EQ(copy.to_vector<float>(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{7, 7, 7}));
  EXPECT_EQ(b.to_vector<float>(), (std::vector<float>{8, 8, 8}));
}

TEST(TwoDevices, AnErrorGoesWhereItsResultsGo) {
  const Device from = Device::parse("cpu:7"), to = Device::parse("cpu:8");
  const Tensor x = raw::to(tensor({1.f}), from);
  Stream::of(to).enqueue([] { throw ValueError("kernel", "at the destination"); });
  const Tensor y = raw::to(x, to);
  EXPECT_EQ(x.item<float>(), 1);  // the error is not the source's
  EXPECT_ERROR(ValueError, y.item<float>(), "at the destination");
  Stream::of(from).enqueue([] { throw ValueError("kernel", "at the source"); });
  const Tensor z = raw::to(x, to);
  EXPECT_ERROR(ValueError, z.item<float>(), "at the source");
  EXPECT_THROW(synchronize(from), ValueError);
}

// As pipeline stages: the first works ahead of the second, and freed memory is soon reused.
TEST(TwoDevices, OneMayWorkFarAheadOfTheOther) {
  Tensor sum = raw::to(zeros({1000}), kSecond);
  for (int i = 0; i < 300; ++i) {
    Tensor x = raw::to(full({1000}, i), kFirst);
    raw::add_(x, x);
    const Tensor there = raw::to(x, kSecond);
    raw::fill_(x, -1);
    raw::add_(sum, there);
  }
  for (const float v : sum.to_vector<float>()) ASSERT_EQ(v, 2 * 300 * 299 / 2);
}

TEST(TwoDevices, AHostSourceMayBeOverwrittenAtOnce) {
  Tensor src = tensor({1.f});
  Gate gate;
  gate.hold(Stream::of(kFirst));
  const Tensor copy = raw::to(src, kFirst);
  src.mutable_data<float>()[0] = 9;
  gate.open();
  EXPECT_EQ(copy.item<float>(), 1);
}

TEST(TwoDevices, SeveralHostThreadsMayUseThem) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      const Device mine = t % 2 ? kFirst : kSecond, other = t % 2 ? kSecond : kFirst;
      Tensor x = raw::to(tensor({float(t)}), mine);
      for (int i = 0; i < 100; ++i)
        x = raw::to(raw::to(raw::add(x, scalar(1, {DType::kF32, mine})), other), mine);
      EXPECT_EQ(x.item<float>(), float(t + 100));
    });
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace gradus
