// The order of collectives on emulated GPUs: between a call and the kernels before and behind it, between calls of two
// groups, between a call and the memory that it uses. The emulated device runs queued work as late as the program's
// waits allow, in an order that a seed gives, so a missing wait gives wrong numbers in many of a test's rounds.
// tools/gpu-waits.sh removes each wait in turn, and shows that these tests notice.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/data_parallel/comm_hook.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/stream.h"
#include "gradus/tools/cuda_emulator/call.h"

namespace gradus {
namespace {

using Tensors = std::vector<Tensor>;
using dist::Group;
using dist::Milliseconds;
using dist::ReduceOp;
using dist::Work;
constexpr int64_t kNumel = 700;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Device own_device() { return {DeviceType::kCUDA, int16_t(dist::get_rank())}; }
Tensor uninitialized(const Shape& shape = {kNumel}) { return empty(shape, {.device = own_device()}); }
// Written by two kernels: a read between them sees NaN.
Tensor late(double value, const Shape& shape = {kNumel}) {
  const Tensor x = uninitialized(shape);
  raw::fill_(x, kNan);
  raw::fill_(x, value);
  return x;
}

// Tensors whose elements must have one value, read at the end so that the host waits for nothing before.
class Expectations {
 public:
  void add(const Tensor& x, double value, std::string what = {}) {
    all_.push_back({x, value, std::move(what)});
  }
  void check() {
    for (const Device device : {Device{DeviceType::kCUDA, 0}, Device{DeviceType::kCUDA, 1}})
      synchronize(device);
    for (const auto& [x, value, what] : all_) {
      const std::vector<float> got = x.to_vector<float>();
      const auto wrong = std::ranges::find_if(got, [&](float v) { return v != float(value); });
      EXPECT_EQ(wrong, got.end()) << what << " on rank " << dist::get_rank() << ": expected " << value
                                  << ", got " << *wrong << " at " << wrong - got.begin();
    }
    all_.clear();
  }

 private:
  struct Expectation {
    Tensor x;
    double value;
    std::string what;
  };
  std::vector<Expectation> all_;
};

// Streams of the rank's GPU that wait for nothing by themselves.
struct Streams {
  Stream calls = Stream::create(own_device()), reads = Stream::create(own_device());
};

// Keeps a stream busy until end(), at most 5 s, by a host function of the stream and a thread that runs what is
// queued. The function is queued without the lock of Stream::enqueue(), in which the emulated device may run it.
class BlockedStream {
 public:
  explicit BlockedStream(const Stream& stream)
      : thread_([this, native = internal::native_stream(stream)] {
          native->runtime().call_on_host(native->handle(), &BlockedStream::block, this);
          native->synchronize();
        }) {
    while (!is_blocked_) std::this_thread::yield();
  }
  ~BlockedStream() { end(); }

  bool is_blocked() const { return is_blocked_; }
  void end() {
    may_end_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  static void block(void* stream) {
    auto* const s = static_cast<BlockedStream*>(stream);
    s->is_blocked_ = true;
    for (int i = 0; i < 5'000 && !s->may_end_; ++i) std::this_thread::sleep_for(Milliseconds(1));
    s->is_blocked_ = false;
  }

  std::atomic<bool> is_blocked_{false}, may_end_{false};
  std::thread thread_;
};

// Blocks the current stream of a rank. Meanwhile the other ranks call no CUDA: the emulated device runs a host function on
// any thread that calls it.
void block_stream_of(int rank, std::optional<BlockedStream>& blocked) {
  dist::barrier();
  if (dist::get_rank() == rank) blocked.emplace(current_stream(own_device()));
  dist::barrier();
}

enum class Way { kNccl, kHost };
class WaitsOnGpus : public testing::TestWithParam<Way> {
 protected:
  bool nccl() const { return GetParam() == Way::kNccl; }
  void run(const std::function<void()>& body) {
    dist::run_ranks(2, body, {.timeout = Milliseconds(15'000), .nccl = nccl()});
  }
};
INSTANTIATE_TEST_SUITE_P(Nccl, WaitsOnGpus, testing::Values(Way::kNccl));
INSTANTIATE_TEST_SUITE_P(Host, WaitsOnGpus, testing::Values(Way::kHost));

// A collective whose inputs are `late`, and the values of its results.
struct Started {
  Work work;
  Tensors results;
  std::vector<double> values;
};
struct Row {
  const char* name;
  std::function<Started(int round, bool async)> start;
};
// Rank r's inputs have the values v, v + 1 ... of v = input(round, r).
double input(int round, int rank) { return 100 * (round + 1) + 10 * rank; }

const std::vector<Row>& rows() {
  static const auto here = [](int round) { return input(round, dist::get_rank()); };
  static const auto lists = [](double value) { return Tensors{late(value), late(value + 1)}; };
  static const std::vector<Row> all = {
      {"all_reduce",
       [](int k, bool async) {
         const Tensor x = late(here(k));
         return Started{dist::all_reduce(x, {.async_op = async}), {x}, {input(k, 0) + input(k, 1)}};
       }},
      {"all_reduce_coalesced",
       [](int k, bool async) {
         const Tensors xs = lists(here(k));
         const double sum = input(k, 0) + input(k, 1);
         return Started{dist::all_reduce_coalesced(xs, {.async_op = async}), xs, {sum, sum + 2}};
       }},
      {"reduce",
       [](int k, bool async) {
         const Tensor x = late(here(k));
         const bool is_root = dist::get_rank() == k % 2;
         return Started{dist::reduce(x, {.dst = k % 2, .async_op = async}),
                        {x},
                        {is_root ? input(k, 0) + input(k, 1) : here(k)}};
       }},
      {"broadcast",
       [](int k, bool async) {
         const Tensor x = late(here(k));
         return Started{dist::broadcast(x, {.src = k % 2, .async_op = async}), {x}, {input(k, k % 2)}};
       }},
      {"all_gather",
       [](int k, bool async) {
         const Tensors ys = lists(kNan);
         return Started{
             dist::all_gather(ys, late(here(k)), {.async_op = async}), ys, {input(k, 0), input(k, 1)}};
       }},
      {"reduce_scatter",
       [](int k, bool async) {
         const Tensor y = late(kNan);
         return Started{dist::reduce_scatter(y, lists(here(k)), {.async_op = async}),
                        {y},
                        {input(k, 0) + input(k, 1) + 2 * dist::get_rank()}};
       }},
      {"all_to_all",
       [](int k, bool async) {
         const Tensors ys = lists(kNan);
         const int r = dist::get_rank();
         return Started{dist::all_to_all(ys, lists(here(k)), {.async_op = async}),
                        ys,
                        {input(k, 0) + r, input(k, 1) + r}};
       }},
  };
  return all;
}

// Order: kernels of the caller's stream that write the inputs, the call, kernels that read the results there.
TEST_P(WaitsOnGpus, ASynchronousCallIsInTheOrderOfTheCallersStream) {
  for (const Row& row : rows())
    run([&] {
      const Streams streams;
      const StreamScope scope(streams.calls);
      Expectations all;
      for (int round = 0; round < 6; ++round) {
        const Started call = row.start(round, false);
        for (size_t i = 0; i < call.results.size(); ++i)
          all.add(call.results[i] * 2, 2 * call.values[i], row.name);
      }
      all.check();
    });
}

// Order: kernels of the caller's stream, the call, kernels of another stream on which wait() is called.
TEST_P(WaitsOnGpus, AnAsynchronousCallIsBehindItsCallerAndBeforeItsWaiter) {
  for (const Row& row : rows())
    run([&] {
      const Streams streams;
      Expectations all;
      Tensors alive;
      for (int round = 0; round < 6; ++round) {
        std::optional<StreamScope> scope(streams.calls);
        const Started call = row.start(round, true);
        scope.emplace(streams.reads);
        call.work.wait();
        for (size_t i = 0; i < call.results.size(); ++i) {
          all.add(call.results[i] * 2, 2 * call.values[i], row.name);
          alive.push_back(call.results[i]);
        }
      }
      all.check();
    });
}

// Order: asynchronous calls, a synchronous one behind them, kernels that read its result.
TEST_P(WaitsOnGpus, ASynchronousCallBehindAsynchronousOnesIsDoneWhenItReturns) {
  run([&] {
    const Streams streams;
    const StreamScope scope(streams.calls);
    Expectations all;
    for (int round = 0; round < 10; ++round) {
      const Tensor x = late(round), y = late(round + 1);
      const Work work = dist::all_reduce(x, {.async_op = true});
      dist::all_reduce(y);
      all.add(y * 2, 4 * (round + 1));
      work.wait();
      all.add(x * 2, 4 * round);
    }
    all.check();
  });
}

// Order: a call that is_completed() has reported, kernels of a stream that waits for nothing.
TEST_P(WaitsOnGpus, ACompletedCallIsDone) {
  run([&] {
    const Streams streams;
    Expectations all;
    Tensors alive;
    for (int round = 0; round < 10; ++round) {
      std::optional<StreamScope> scope(streams.calls);
      const Tensor x = alive.emplace_back(late(round));
      const Work work = dist::all_reduce(x, {.async_op = true});
      while (!work.is_completed()) std::this_thread::yield();
      scope.emplace(streams.reads);
      all.add(x * 2, 4 * round);
    }
    all.check();
  });
}

// Order: a call that the host waits for with a timeout, kernels of a stream that waits for nothing.
TEST_P(WaitsOnGpus, WaitWithATimeoutBlocksTheHostUntilTheCallIsDone) {
  run([&] {
    const Streams streams;
    Expectations all;
    Tensors alive;
    for (int round = 0; round < 10; ++round) {
      std::optional<StreamScope> scope(streams.calls);
      const Tensor x = alive.emplace_back(late(round));
      dist::all_reduce(x, {.async_op = true}).wait(Milliseconds(10'000));
      scope.emplace(streams.reads);
      all.add(x * 2, 4 * round);
    }
    all.check();
  });
}

// The timeout of wait() ends although the GPU is not done.
TEST_P(WaitsOnGpus, WaitWithATimeoutEnds) {
  run([&] {
    const Tensor x = late(1);
    BlockedStream blocked(current_stream(own_device()));
    const Work work = dist::all_reduce(x, {.async_op = true});
    EXPECT_THROW(work.wait(Milliseconds(30)), dist::TimeoutError);
    blocked.end();
    work.wait();
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(kNumel, 2));
  });
}

// is_completed() does not wait for the other rank.
TEST_P(WaitsOnGpus, AskingForCompletionBlocksForNoRank) {
  std::atomic<bool> has_asked{false};
  run([&] {
    const Tensor x = late(1);
    dist::all_reduce(x);
    if (dist::get_rank() == 1)
      for (int i = 0; i < 3000 && !has_asked; ++i) std::this_thread::sleep_for(Milliseconds(1));
    EXPECT_TRUE(has_asked || dist::get_rank() == 0);
    const Work work = dist::all_reduce(x, {.async_op = true});
    if (dist::get_rank() == 0) {
      (void)work.is_completed();
      has_asked = true;
    }
    work.wait();
  });
}

// ---- memory ----

// Order: a call that reads and writes a tensor which its caller has freed, kernels that write to a tensor in the same
// memory.
TEST_P(WaitsOnGpus, FreedTensorsAreNotUsedAgainBeforeTheCallIsDone) {
  run([&] {
    const Streams streams;
    const StreamScope scope(streams.calls);
    Expectations all;
    for (int round = 0; round < 12; ++round) {
      const int root = round % 2;
      Tensor x = late(input(round, dist::get_rank())), y = late(kNan);
      const bool is_root = dist::get_rank() == root;
      const Work work = dist::broadcast(is_root ? x : y, {.src = root, .async_op = true});
      const Work sum = dist::all_reduce(is_root ? y : x, {.async_op = true});
      if (!is_root) all.add(y, input(round, root), "the result");
      x = y = Tensor();
      dist::barrier();  // the calls are queued, and have released their tensors
      for (int i = 0; i < 2; ++i) {
        const Tensor next = uninitialized();
        raw::fill_(next, 5);
        all.add(next, 5, "the next tensor");
      }
      work.wait(), sum.wait();
    }
    all.check();
  });
}

// Order: a synchronous call on one stream, kernels of another one, which has allocated the input and freed it.
TEST_P(WaitsOnGpus, InputsOfAnotherStreamAreNotUsedAgainBeforeTheCallIsDone) {
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> calls = {
      {"gather",
       [](const Tensor& x) {
         const Tensors all = dist::gather(x, {.dst = 0});
         return all.empty() ? Tensor() : all[1];
       }},
      {"all_gather", [](const Tensor& x) { return dist::all_gather(x)[0]; }},
      {"functional::all_reduce", [](const Tensor& x) { return dist::functional::all_reduce(x); }},
      {"functional::all_gather", [](const Tensor& x) { return dist::functional::all_gather(x)[0]; }},
  };
  for (const auto& [name, call] : calls)
    run([&, name = name, call = call] {
      const Streams streams;
      Expectations all;
      for (int round = 0; round < 12; ++round) {
        const double value = input(round, 0);
        std::optional<StreamScope> scope(streams.calls);
        Tensor x = late(value);
        streams.reads.wait(Event::record(streams.calls));
        scope.emplace(streams.reads);
        const Tensor y = call(x);
        if (y.defined()) all.add(y * 1, std::string(name).ends_with("reduce") ? 2 * value : value, name);
        scope.emplace(streams.calls);
        x = Tensor();
        raw::fill_(uninitialized(), -1);
      }
      all.check();
    });
}

// Order: the copy of a result to the GPU from a pinned block that the call has released, a copy of the host to that
// block.
TEST_P(WaitsOnGpus, PinnedBlocksAreNotUsedAgainBeforeTheirCopies) {
  if (nccl()) GTEST_SKIP() << "no pinned blocks";
  run([] {
    const Shape shape{75 << 10};  // no other test has pinned blocks of this size
    const Tensor other = full(shape, -1);
    Expectations all;
    for (int round = 0; round < 48; ++round) {
      const Tensor x = uninitialized(shape);
      raw::fill_(x, input(round, dist::get_rank()));
      dist::broadcast(x, {.src = round % 2});
      const Stream stream = Stream::create(own_device());
      const StreamScope scope(stream);
      const Tensor y = raw::to(other, own_device());
      all.add(x, input(round, round % 2));
      all.check();
    }
  });
}

// Order: kernels that read tensors which a call has made, a later call of another stream that uses their memory again.
TEST_P(WaitsOnGpus, TensorsThatACallHasMadeAreNotUsedAgainBeforeTheirReaders) {
  const std::vector<std::pair<const char*, std::function<Tensors(const Tensor&)>>> calls = {
      {"all_gather", [](const Tensor& x) { return dist::all_gather(x); }},
      {"functional::all_gather", [](const Tensor& x) { return dist::functional::all_gather(x); }},
      {"functional::all_to_all",
       [](const Tensor& x) {
         return dist::functional::all_to_all(Tensors{x, x});
       }},
  };
  for (const auto& [name, call] : calls)
    run([&, name = name, call = call] {
      const Streams streams;
      Expectations all;
      for (int round = 0; round < 12; ++round) {
        std::optional<StreamScope> scope(streams.calls);
        Tensors made = call(late(round));
        for (const Tensor& y : made) all.add(y * 2, 2 * round, name);
        made.clear();
        scope.emplace(streams.reads);
        dist::all_reduce_coalesced({late(-1, {kNumel / 2}), late(-1, {kNumel / 2})});
        dist::all_reduce_coalesced({late(-1, {kNumel / 2}), late(-1, {kNumel / 2})});
      }
      all.check();
    });
}

// ---- two groups ----

// All ranks queue the calls of all groups in one order, whatever the order in which they post them: else the GPUs would
// wait for each other.
TEST_P(WaitsOnGpus, CallsOfTwoGroupsAreQueuedInOneOrder) {
  run([&] {
    const Group a = dist::world().duplicate(), b = dist::world().duplicate();
    Expectations all;
    for (int round = 0; round < 40; ++round) {
      const bool swaps = dist::get_rank() == round % 2;
      const Tensor x = late(round), y = late(round + 1);
      std::vector<Work> works(2);
      for (const int i : {0, 1}) {
        const bool is_a = (i == 0) != swaps;
        works[size_t(i)] = dist::all_reduce(is_a ? x : y, {.group = is_a ? a : b, .async_op = true});
      }
      for (const Work& work : works) work.wait();
      all.add(x * 2, 4 * round), all.add(y * 2, 4 * (round + 1));
    }
    all.check();
  });
}

// A number that a call gets is greater than those of calls that are queued already, also those that other ranks have
// proposed. Rank 1 posts b before a; on rank 0, a is queued before b is posted.
TEST_P(WaitsOnGpus, ALaterCallIsQueuedLaterOnAllRanks) {
  run([&] {
    const Group a = dist::world().duplicate(), b = dist::world().duplicate();
    const Group own = dist::world().split(dist::get_rank());
    const Tensor x = late(1), y = late(2), z = late(3);
    dist::all_reduce(x, {.group = a}), dist::all_reduce(y, {.group = b});
    std::vector<Work> works;
    if (dist::get_rank() == 0) {
      works.push_back(dist::all_reduce(x, {.group = a, .async_op = true}));
      std::this_thread::sleep_for(Milliseconds(100));
      works.push_back(dist::all_reduce(y, {.group = b, .async_op = true}));
    } else {
      for (int i = 0; i < 5; ++i) dist::all_reduce(z, {.group = own});
      works.push_back(dist::all_reduce(y, {.group = b, .async_op = true}));
      std::this_thread::sleep_for(Milliseconds(20));
      works.push_back(dist::all_reduce(x, {.group = a, .async_op = true}));
    }
    for (const Work& work : works) work.wait();
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(kNumel, 4));
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(kNumel, 8));
  });
}

// ---- ends ----

// A rank that exits without wait() does so after its queued calls: the other rank's results are right.
TEST_P(WaitsOnGpus, ARankExitsAfterItsQueuedCalls) {
  for (int round = 0; round < 3; ++round) {
    std::vector<Tensor> results(2);
    run([&] {
      const Tensor warm_up = late(1);
      dist::all_reduce(warm_up);
      const Tensor x = late(1 + dist::get_rank());
      if (dist::get_rank() == 1)
        current_stream(own_device()).enqueue([] { std::this_thread::sleep_for(Milliseconds(50)); });
      dist::all_reduce(x, {.async_op = true});
      results[size_t(dist::get_rank())] = x;
    });
    for (const Tensor& x : results) {
      synchronize(x.device());
      EXPECT_EQ(x.to_vector<float>(), std::vector<float>(kNumel, 3));
    }
  }
}

// A group that is dropped with calls in progress is closed behind them, together with the other members' groups, while
// the job goes on. A group without calls is closed at once.
TEST_P(WaitsOnGpus, ADroppedGroupIsClosedBehindItsCalls) {
  if (!nccl()) GTEST_SKIP() << "nothing is to be closed";
  (void)cuda::emulated::take_calls();
  const auto expect_closed = [](int ranks) {
    std::this_thread::sleep_for(Milliseconds(200));
    dist::barrier();
    if (dist::get_rank() == 0) {
      auto calls = cuda::emulated::take_calls();
      EXPECT_EQ(calls["ncclCommFinalize"], ranks);
      EXPECT_EQ(calls["ncclCommDestroy"], ranks);
      EXPECT_EQ(calls["ncclCommAbort"], 0);
    }
    dist::barrier();
  };
  run([&] {
    const Tensor x = late(1);
    {
      const Group group = dist::world().duplicate();
      dist::all_reduce(x, {.group = group});
      synchronize(own_device());
      std::this_thread::sleep_for(Milliseconds(100));  // the thread that watches calls has none
    }
    expect_closed(2);
    Work work;
    std::optional<BlockedStream> blocked;
    {
      const Group group = dist::world().duplicate();
      dist::all_reduce(late(1), {.group = group});
      block_stream_of(1, blocked);
      work = dist::all_reduce(x, {.group = group, .async_op = true});
      dist::barrier({.group = group});  // the call is queued
    }
    std::this_thread::sleep_for(Milliseconds(100));
    if (dist::get_rank() == 0) {
      EXPECT_EQ(cuda::emulated::take_calls()["ncclCommFinalize"], 0);
    }
    dist::barrier();
    blocked.reset();
    work.wait();
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(kNumel, 4));
    expect_closed(2);
  });
}

// ---- errors ----

Tensor row_of_index(int64_t index) {
  return embedding(raw::to(full({1}, double(index), {.dtype = DType::kI64}), own_device()), late(1, {4, 1}));
}

// Takes the errors of kernels that no wait has thrown.
void clear_errors() {
  for (const int16_t device : {0, 1})
    for (bool more = true; more;) try {
        synchronize(Device{DeviceType::kCUDA, device});
        more = false;
      } catch (const Error&) {
      }
}

// wait() with a timeout throws the error of a kernel before the call.
TEST_P(WaitsOnGpus, WaitWithATimeoutThrowsTheErrorsOfEarlierKernels) {
  std::atomic<int> errors{0};
  try {
    run([&] {
      const Tensor x = row_of_index(9);
      try {
        dist::all_reduce(x, {.async_op = true}).wait(Milliseconds(10'000));
      } catch (const IndexError&) {
        ++errors;
      } catch (const dist::DistributedError&) {
        ++errors;  // the other rank's
      }
    });
  } catch (const Error&) {
  }
  clear_errors();
  EXPECT_EQ(errors, 2);
}

// A call through host memory does not send what a kernel with an error has made.
TEST_P(WaitsOnGpus, ACallThroughTheHostThrowsTheErrorsOfEarlierKernels) {
  if (nccl()) GTEST_SKIP() << "the host waits for nothing";
  std::atomic<int> errors{0};
  try {
    run([&] {
      const Tensor x = row_of_index(9);
      try {
        dist::all_reduce(x);
      } catch (const Error&) {
        ++errors;
      }
    });
  } catch (const Error&) {
  }
  clear_errors();
  EXPECT_EQ(errors, 2);
}

// A call through host memory that waits for its GPU ends when another rank fails.
TEST_P(WaitsOnGpus, TheFailureOfAnotherRankEndsTheWaitForTheGpu) {
  if (nccl()) GTEST_SKIP() << "the host waits for nothing";
  std::atomic<bool> has_thrown{false};
  try {
    run([&] {
      const Tensor x = late(1);
      dist::all_reduce(x);
      std::optional<BlockedStream> blocked;
      block_stream_of(0, blocked);
      if (dist::get_rank() == 1) return (void)dist::all_reduce(x, {.timeout = Milliseconds(200)});
      try {
        dist::all_reduce(x);
      } catch (const dist::DistributedError&) {
        has_thrown = blocked->is_blocked();
      }
    });
  } catch (const Error&) {
  }
  EXPECT_TRUE(has_thrown);
}

// Queued calls of two groups end when a rank fails whose GPU runs neither.
TEST_P(WaitsOnGpus, TheFailureOfAnotherRankEndsTheCallsOfAllGroups) {
  if (!nccl()) GTEST_SKIP() << "no call waits on the GPU";
  std::optional<BlockedStream> blocked;  // of rank 1, until rank 0 has thrown
  std::string text;
  try {
    run([&] {
      const Group groups[] = {dist::world().duplicate(), dist::world().duplicate()};
      const Tensor x = late(1), y = late(2);
      for (const Group& group : groups) dist::all_reduce(x, {.group = group});
      synchronize(own_device());
      block_stream_of(1, blocked);
      const Work works[] = {dist::all_reduce(x, {.group = groups[0], .async_op = true}),
                            dist::all_reduce(y, {.group = groups[1], .async_op = true})};
      for (const Group& group : groups) dist::barrier({.group = group});  // both are queued
      if (dist::get_rank() == 1) throw ValueError("rank 1", "a mistake");
      try {
        works[1].wait();
        synchronize(own_device());
      } catch (const dist::DistributedError& e) {
        text = e.what();
      }
      EXPECT_TRUE(blocked->is_blocked());
      blocked->end();
    });
  } catch (const Error&) {
  }
  EXPECT_NE(text.find("a mistake"), std::string::npos) << text;
}

// Errors of kernels pass from stream to stream by events.
TEST_P(WaitsOnGpus, TheErrorsOfKernelsPassThroughTheCall) {
  std::atomic<int> errors{0};
  try {
    run([&] {
      const Streams streams;
      std::optional<StreamScope> scope(streams.calls);
      const Tensor x = row_of_index(9);
      try {
        const Work work = dist::all_reduce(x, {.async_op = true});
        scope.emplace(streams.reads);
        work.wait();
        streams.reads.synchronize();
      } catch (const Error&) {
        ++errors;
      }
    });
  } catch (const Error&) {
  }
  clear_errors();
  EXPECT_EQ(errors, 2);
}

// ---- data-parallel training ----

// The gradients of parameters by backwards on one stream of what another stream has computed. The latter uses
// the memory of freed gradients again at once.
void check_gradients(const std::vector<Shape>& shapes, int rounds, dist::AllReduceCallbackOptions options,
                     double tolerance = 1e-6) {
  const Streams streams;
  Tensors params, got;
  std::vector<double> want;
  for (const Shape& shape : shapes) params.push_back(full(shape, 1, {.device = own_device()}));
  synchronize(own_device());
  GradManager gm;
  gm.attach(params, dist::make_allreduce_cb(ReduceOp::kMean, options));
  for (int round = 0; round < rounds; ++round) {
    std::optional<StreamScope> scope(streams.calls);
    auto recording = gm.record();
    Tensor loss;
    for (size_t i = 0; i < params.size(); ++i) {
      const Tensor term = sum(params[i] * late(1 + round + 2 * dist::get_rank() + double(i), shapes[i]));
      loss = loss.defined() ? loss + term : term;
    }
    streams.reads.wait(Event::record(streams.calls));
    scope.emplace(streams.reads);
    gm.backward(loss);
    for (size_t i = 0; i < params.size(); ++i) {
      got.push_back(sum(params[i].grad()) / double(params[i].numel()));
      want.push_back(2 + round + double(i));
      params[i].set_grad({});
    }
    scope.emplace(streams.calls);
    for (int i = 0; i < 2; ++i)
      for (const Shape& shape : shapes) raw::fill_(uninitialized(shape), kNan);
  }
  synchronize(own_device());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i].item<double>(), want[i], tolerance * want[i]) << i;
}

const std::vector<Shape> kParams = {{20, 30}, {30}, {700}};

// Order: kernels of a backward, the all-reduce of a bucket, kernels that read the gradients.
TEST_P(WaitsOnGpus, GradientsAreReducedBehindTheirKernels) {
  run([] {
    check_gradients(kParams, 8, {});
    check_gradients(kParams, 8, {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6});
    check_gradients(kParams, 4, {.gradient_as_bucket_view = true});
  });
}

// Order: the all-reduce of a large gradient in its own memory, kernels of another stream, which has allocated the
// gradient. One rank frees the gradient, the other one reads it.
TEST_P(WaitsOnGpus, GradientsAreNotUsedAgainBeforeTheyAreReduced) {
  if (!nccl()) GTEST_SKIP() << "the host waits until the gradient is read";
  run([] {
    const Shape shape{(1 << 20) / 8};
    const Streams streams;
    const Tensor w = zeros(shape, {.dtype = DType::kF64, .device = own_device()});
    synchronize(own_device());
    GradManager gm;
    gm.attach(w, dist::make_allreduce_cb(ReduceOp::kSum));
    for (int round = 0; round < 8; ++round) {
      std::optional<StreamScope> scope(streams.calls);
      auto recording = gm.record();
      const Tensor loss = sum(w * double(round + 1));
      streams.reads.wait(Event::record(streams.calls));
      scope.emplace(streams.reads);
      gm.backward(loss);
      Tensor got;
      if (dist::get_rank() == round % 2) got = narrow(w.grad(), 0, 0, 100) * 1;
      w.set_grad({});
      scope.emplace(streams.calls);
      for (int i = 0; i < 2; ++i)
        raw::fill_(narrow(empty(shape, {.dtype = DType::kF64, .device = own_device()}), 0, 0, 100), kNan);
      synchronize(own_device());
      if (got.defined()) {
        EXPECT_EQ(got.to_vector<double>(), std::vector<double>(100, 2. * (round + 1)));
      }
    }
  });
}

// Order: a hook's kernels, its all-reduce, the kernels of its completion.
TEST_P(WaitsOnGpus, HooksWaitForTheirCalls) {
  run([] {
    check_gradients(kParams, 8, {.comm_hook = dist::allreduce_hook()});
    check_gradients(kParams, 8, {.comm_hook = dist::bf16_compress_hook()}, 1e-2);
    check_gradients(kParams, 8,
                    {.comm_hook = dist::power_sgd_hook({.start_iter = 2, .min_compression_rate = 0.1})},
                    1e-3);
  });
}

// Order: kernels that write the tensors, the broadcasts of packs, kernels that read the tensors.
TEST_P(WaitsOnGpus, ListsAreBroadcastInTheOrderOfTheCallersStream) {
  run([] {
    const Streams streams;
    const StreamScope scope(streams.calls);
    Expectations all;
    for (int round = 0; round < 8; ++round) {
      const Tensors xs{late(input(round, dist::get_rank())), late(1 + input(round, dist::get_rank()), {50})};
      dist::bcast_list_(xs, {.verify = false});
      for (const int i : {0, 1}) all.add(xs[size_t(i)] * 2, 2 * (input(round, 0) + i));
    }
    all.check();
  });
}

// ---- messages ----

// Order: kernels that use the receiver's tensor before irecv, the copy of the message, kernels behind wait().
TEST_P(WaitsOnGpus, AMessageIsCopiedBetweenTheKernelsOfItsReceiver) {
  run([] {
    Expectations all;
    for (int round = 0; round < 16; ++round) {
      const Stream before = Stream::create(own_device()), waits = Stream::create(own_device()),
                   again = Stream::create(own_device());
      const int other = 1 - dist::get_rank();
      const Work send = dist::isend(late(input(round, dist::get_rank())), {.dst = other});
      std::optional<StreamScope> scope(before);
      const Tensor x = late(-1);
      const Tensor y = x * 2;
      const Work receive = dist::irecv(x, {.src = other});
      scope.emplace(waits);
      receive.wait();
      all.add(x * 2, 2 * input(round, other), "read behind wait()");
      scope.emplace(again);
      receive.wait();
      all.add(x * 3, 3 * input(round, other), "read behind the second wait()");
      all.add(y, -2, "read before irecv");
      all.add(x, input(round, other), "the message");
      send.wait();
    }
    all.check();
  });
}

// Order: kernels that write the sender's tensor, the message, kernels behind the sender's wait() that write again.
TEST_P(WaitsOnGpus, AMessageIsSentBetweenTheKernelsOfItsSender) {
  run([] {
    Expectations all;
    const int other = 1 - dist::get_rank();
    for (int round = 0; round < 16; ++round) {
      const Stream before = Stream::create(own_device()), again = Stream::create(own_device());
      std::optional<StreamScope> scope(before);
      const Tensor x = late(input(round, dist::get_rank())), y = uninitialized();
      if (round % 4 < 2) {
        const Work receive = dist::irecv(y, {.src = other}), send = dist::isend(x, {.dst = other});
        scope.emplace(again);
        send.wait();
        raw::fill_(x, kNan);
        receive.wait();
      } else if (dist::get_rank() == 0) {
        dist::send(x, {.dst = 1});
        raw::fill_(x, kNan);
        dist::recv(y);
      } else {
        dist::recv(y);
        dist::send(x, {.dst = 0});
        raw::fill_(x, kNan);
      }
      all.add(y * 2, 2 * input(round, other));
    }
    all.check();
  });
}

// Order: kernels on one GPU, a message to a rank on the CPU, which the sender's host copies.
TEST_P(WaitsOnGpus, AMessageToTheHostIsCopiedBehindItsKernels) {
  run([] {
    for (int round = 0; round < 16; ++round) {
      const double value = input(round, 0);
      if (dist::get_rank() == 0) {
        const StreamScope scope(Stream::create(own_device()));
        current_stream(own_device()).enqueue([] { std::this_thread::sleep_for(Milliseconds(2)); });
        const Tensor x = late(value);
        dist::isend(x, {.dst = 1}).wait();
        raw::fill_(x, kNan);
        continue;
      }
      const Tensor x = full({kNumel}, -1);
      dist::recv(x);
      EXPECT_EQ(x.to_vector<float>(), std::vector<float>(kNumel, float(value)));
    }
  });
}

// Order: messages on one stream, kernels of another one, which uses the memory of freed tensors again. One rank reads what
// it received, the other one frees it at once.
TEST_P(WaitsOnGpus, TensorsOfMessagesAreNotUsedAgainBeforeTheyAreDone) {
  if (!nccl()) GTEST_SKIP() << "the host waits until a message is copied";
  run([] {
    const Streams streams;
    const StreamScope scope(streams.calls);
    Expectations all;
    const int other = 1 - dist::get_rank();
    for (int round = 0; round < 12; ++round) {
      Tensor x = late(input(round, dist::get_rank())), y = uninitialized();
      const Tensor z = late(0, {30}), u = uninitialized({30});
      Work send = dist::isend(x, {.dst = other}), receive = dist::irecv(y, {.src = other});
      {
        const StreamScope reads(streams.reads);
        send.wait(), receive.wait();
        if (dist::get_rank() == round % 2) all.add(y * 2, 2 * input(round, other), "the message");
      }
      x = y = Tensor(), send = receive = Work();
      const Work last = dist::isend(z, {.dst = other});  // releases the messages that are queued
      for (int i = 0; i < 3; ++i) {
        const Tensor next = uninitialized();
        raw::fill_(next, 5);
        all.add(next, 5, "the next tensor");
      }
      dist::irecv(u, {.src = other}).wait(), last.wait();
    }
    all.check();
  });
}

// The ranks start two messages and a call in opposite orders, and in both directions.
TEST_P(WaitsOnGpus, MessagesAndCallsAreQueuedInOneOrder) {
  run([] {
    Expectations all;
    const int rank = dist::get_rank(), other = 1 - rank;
    for (int round = 0; round < 30; ++round) {
      const Tensor x = late(input(round, rank)), y = late(-1), z = late(round),
                   u = late(input(round, rank) + 1), v = late(-1);
      const std::vector<std::function<Work()>> starts = {
          [&] { return dist::isend(x, {.dst = other, .tag = 1}); },
          [&] { return dist::all_reduce(z, {.async_op = true}); },
          [&] { return dist::irecv(y, {.src = other, .tag = 1}); },
          [&] { return dist::irecv(v, {.src = other, .tag = 2}); },
          [&] { return dist::isend(u, {.dst = other, .tag = 2}); },
      };
      std::vector<Work> works;
      for (size_t i = 0; i < starts.size(); ++i)
        works.push_back(starts[rank == round % 2 ? i : starts.size() - 1 - i]());
      for (const Work& work : works) work.wait();
      all.add(y * 2, 2 * input(round, other), "the first message");
      all.add(v * 2, 2 * input(round, other) + 2, "the second message");
      all.add(z * 2, 4 * round, "the sum");
    }
    all.check();
  });
}

// Order: a message that is_completed() has reported, or for which the host has waited with a timeout, kernels of a stream
// that waits for nothing. wait() without a timeout waits until the message is queued.
TEST_P(WaitsOnGpus, ACompletedMessageIsDone) {
  run([&] {
    const Streams streams;
    Expectations all;
    Tensors alive;
    const int other = 1 - dist::get_rank();
    for (int round = 0; round < 12; ++round) {
      std::optional<StreamScope> scope(streams.calls);
      const Tensor x = alive.emplace_back(late(input(round, dist::get_rank()))),
                   y = alive.emplace_back(uninitialized());
      const Work send = dist::isend(x, {.dst = other}), receive = dist::irecv(y, {.src = other});
      for (const Work& work : {send, receive})
        if (round % 2)
          while (!work.is_completed()) std::this_thread::yield();
        else
          work.wait(Milliseconds(10'000));
      if (!nccl()) synchronize(own_device());  // the copy to the GPU is queued
      scope.emplace(streams.reads);
      all.add(y * 2, 2 * input(round, other));
      raw::fill_(x, kNan);
    }
    all.check();
  });
}

// The timeout of wait() ends although the GPU is not done.
TEST_P(WaitsOnGpus, AMessagesWaitWithATimeoutEnds) {
  if (!nccl()) GTEST_SKIP() << "the message needs no GPU of the sender any more";
  run([] {
    const Tensor x = late(dist::get_rank());
    std::optional<BlockedStream> blocked;
    block_stream_of(1, blocked);
    const Work work = dist::get_rank() == 0 ? dist::isend(x, {.dst = 1}) : dist::irecv(x, {.src = 0});
    EXPECT_THROW(work.wait(Milliseconds(60)), dist::TimeoutError);
    EXPECT_FALSE(work.is_completed());
    dist::barrier();
    blocked.reset();
    work.wait();
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(kNumel, 0));
  });
}

// A rank that exits without wait() does so after its queued messages.
TEST_P(WaitsOnGpus, ARankExitsAfterItsQueuedMessages) {
  if (!nccl()) GTEST_SKIP() << "a receive without wait() is dropped";
  for (int round = 0; round < 3; ++round) {
    std::vector<Tensor> results(2);
    run([&] {
      const int other = 1 - dist::get_rank();
      const Tensor x = late(1 + dist::get_rank()), y = uninitialized();
      if (dist::get_rank() == 1)
        current_stream(own_device()).enqueue([] { std::this_thread::sleep_for(Milliseconds(50)); });
      dist::irecv(y, {.src = other});
      dist::isend(x, {.dst = other});
      dist::barrier();
      std::this_thread::sleep_for(Milliseconds(20));  // the receives have matched, or would be dropped
      results[size_t(dist::get_rank())] = y;
    });
    for (int rank = 0; rank < 2; ++rank) {
      const Tensor& y = results[size_t(rank)];
      synchronize(y.device());
      EXPECT_EQ(y.to_vector<float>(), std::vector<float>(kNumel, float(2 - rank)));
    }
  }
}

// A message that is not done by its deadline is ended, and the error names it.
TEST_P(WaitsOnGpus, AMessageEndsAtItsDeadline) {
  if (!nccl()) GTEST_SKIP() << "the message needs no GPU of the sender any more";
  std::atomic<int> errors{0};
  try {
    run([&] {
      const Milliseconds timeout(300);
      const Tensor x = late(1);
      std::optional<BlockedStream> blocked;
      block_stream_of(1, blocked);
      const Work work = dist::get_rank() == 0 ? dist::isend(x, {.dst = 1, .timeout = timeout})
                                              : dist::irecv(x, {.src = 0, .timeout = timeout});
      const auto begin = std::chrono::steady_clock::now();
      try {
        work.wait();
        if (dist::get_rank() == 0) synchronize(own_device());
        dist::barrier();
      } catch (const dist::TimeoutError& e) {
        const std::string text = e.what();
        errors += text.find("(tag 0) in group 'world' is queued on the GPUs of all members") != text.npos;
      }
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
      blocked.reset();
      throw StateError("a test", "the end");
    });
  } catch (const Error&) {
  }
  clear_errors();
  EXPECT_EQ(errors, 2);
}

// ---- streams ----

// Order: kernels before an event, kernels of a stream that waits for nothing, queued by the host behind the event.
TEST_P(WaitsOnGpus, AnEventBlocksTheHost) {
  run([] {
    const Streams streams;
    Expectations all;
    Tensors alive;
    for (int round = 0; round < 10; ++round) {
      std::optional<StreamScope> scope(streams.calls);
      const Tensor x = alive.emplace_back(late(round));
      Event::record(streams.calls).synchronize();
      scope.emplace(streams.reads);
      all.add(x * 2, 2 * round);
    }
    all.check();
  });
}

}  // namespace
}  // namespace gradus
