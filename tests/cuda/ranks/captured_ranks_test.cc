// Captured steps (CapturedStep) with collectives, of 2 and 4 ranks with emulated GPUs and NCCL: the bits of plain steps,
// one launch per replay, the order among other calls, mismatches and failures of ranks, and what is refused.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gradus/autograd/captured_step.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/data_parallel/comm_hook.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/agreement.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/nn/losses.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/grad_scaler.h"
#include "gradus/optim/optim.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/stream.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using Tensors = CapturedStep::Tensors;
using dist::Group;
using dist::Milliseconds;
using dist::ReduceOp;

Device own_device() { return {DeviceType::kCUDA, int16_t(dist::get_rank())}; }
Tensor filled(const Shape& shape, double value) { return full(shape, value, {.device = own_device()}); }
std::string bits(const Tensor& x) {
  const Tensor here = raw::contiguous(raw::to(x, kCPU));
  return {static_cast<const char*>(here.raw_ptr()), size_t(here.nbytes())};
}

// ---- training

struct Net : nn::Layer {
  nn::Conv2d conv{this, "conv", {.in = 2, .out = 4, .kernel = 3}};
  nn::BatchNorm2d bn{this, "bn", {.features = 4}};
  nn::Linear fc{this, "fc", {.in = 64, .out = 3}};
  Tensor forward(const Tensor& x) override { return fc(flatten(bn.relu(conv(x)), 1, -1)); }
};

struct Mode {
  std::string name;
  int ranks = 2;
  bool amp = false;
  dist::DistributedDataParallelOptions options = {};
};

struct Training {
  explicit Training(const Mode& mode) : amp(mode.amp) {
    manual_seed(1);
    Context::current().deterministic = true;
    dist::convert_sync_batchnorm(net);
    net.to(own_device());
    ddp = std::make_unique<dist::DistributedDataParallel<Net>>(net, mode.options);
    ddp->attach(gm);
    opt = std::make_unique<optim::SGD>(net.parameters(), optim::SGDOptions{.lr = 0.05, .momentum = 0.9});
  }
  // in[2] multiplies the loss.
  Tensors step(const Tensors& in) {
    const auto bf16 = autocast(DType::kBF16, {.enabled = amp});
    auto recording = gm.record();
    const Tensor loss = nn::cross_entropy((*ddp)(in[0]), in[1]);
    if (amp) {
      scaler.backward(gm, loss * in[2]);
      scaler.step(*opt);
    } else {
      gm.backward(loss);
      opt->step();
    }
    opt->clear_grad();
    return {loss};
  }
  // Of this rank, other ones in each step. Step 4 overflows on rank 1.
  Tensors batch(int number) const {
    manual_seed(uint64_t(100 * number + dist::get_rank()));
    const double factor = number == 4 && dist::get_rank() == 1 ? std::numeric_limits<double>::infinity() : 1;
    return {randn({3, 2, 6, 6}, {.device = own_device()}),
            randint(3, {3}, {.dtype = DType::kI64, .device = own_device()}), filled({}, factor)};
  }
  std::vector<std::string> state() {
    std::vector<std::string> all;
    for (const Tensor& p : net.parameters()) all.push_back(bits(p));
    for (const Tensor& b : net.buffers()) all.push_back(bits(b));
    for (const auto& [name, x] : opt->state_dict().tensors) all.push_back(bits(x));
    all.push_back(std::to_string(scaler.scale()));
    return all;
  }

  const bool amp;
  Net net;
  std::unique_ptr<dist::DistributedDataParallel<Net>> ddp;
  GradManager gm;
  std::unique_ptr<optim::SGD> opt;
  optim::GradScaler scaler{{.init_scale = 1024, .growth_interval = 3}};
};

class CapturedRanks : public testing::TestWithParam<Mode> {};

// The first bucket has one gradient, so that there are several.
const dist::DistributedDataParallelOptions kSmallBuckets{.bucket_cap_mb = 1e-4};
std::vector<Mode> all_modes() {
  auto views = kSmallBuckets, cast = kSmallBuckets, late = kSmallBuckets, fixed = kSmallBuckets;
  views.gradient_as_bucket_view = true;
  cast.comm_hook = dist::bf16_compress_hook();
  late.overlap = false;
  fixed.static_graph = true, fixed.broadcast_buffers = false;
  return {{"TwoRanks", 2, false, kSmallBuckets},
          {"FourRanks", 4, false, kSmallBuckets},
          {"Scaled", 2, true, kSmallBuckets},
          {"Views", 2, false, views},
          {"Hook", 2, false, cast},
          {"Late", 2, false, late},
          {"Static", 2, true, fixed},
          {"OneBucket", 2, false, {}}};
}
INSTANTIATE_TEST_SUITE_P(All, CapturedRanks, testing::ValuesIn(all_modes()),
                         [](const auto& info) { return info.param.name; });

// Two plain steps, the recording, and five replays.
TEST_P(CapturedRanks, HaveTheBitsOfPlainSteps) {
  using States = std::vector<std::vector<std::string>>;
  const auto train = [&](bool is_captured, States* results) {
    States states(size_t(GetParam().ranks));
    results->resize(states.size());
    dist::run_ranks(GetParam().ranks, [&] {
      Training t(GetParam());
      CapturedStep step([&](const Tensors& in) { return t.step(in); }, {.warm_up = 2});
      std::vector<std::string>& losses = (*results)[size_t(dist::get_rank())];
      for (int i = 0; i < 8; ++i) {
        if (i == 5) t.opt->set_lr(0.02);
        const Tensors batch = t.batch(i);
        losses.push_back(bits((is_captured ? step(batch) : t.step(batch))[0]));
      }
      EXPECT_EQ(step.num_recordings(), is_captured ? 1u : 0u);
      states[size_t(dist::get_rank())] = t.state();
    });
    return states;
  };
  States losses, want_losses;
  const States want = train(false, &want_losses), got = train(true, &losses);
  EXPECT_EQ(losses, want_losses);
  for (size_t rank = 0; rank < got.size(); ++rank)
    for (size_t i = 0; i < got[rank].size(); ++i)
      EXPECT_EQ(got[rank][i] == want[rank][i], true) << "part " << i << " of the state of rank " << rank;
}

// The host waits for nothing, and calls nothing but the launch of the graph and the copies of inputs and results.
TEST_P(CapturedRanks, ReplayByOneLaunch) {
  cuda::HostCalls calls;  // of all ranks
  dist::run_ranks(GetParam().ranks, [&] {
    Training t(GetParam());
    CapturedStep step([&](const Tensors& in) { return t.step(in); }, {.warm_up = 2});
    const Tensors batch = t.batch(0);
    for (int i = 0; i < 5; ++i) step(batch);
    dist::barrier();
    std::optional<cuda::HostCallScope> scope;
    if (dist::get_rank() == 0) scope.emplace();
    dist::barrier();
    step(batch);
    dist::barrier();
    if (scope) calls = scope->total();
  });
  EXPECT_EQ(calls.waits, 0);
  EXPECT_EQ(calls.allocations, 0);
  EXPECT_EQ(calls.pageable_copies + calls.copies_to_device + calls.copies_to_host, 0);
  EXPECT_EQ(calls.library_calls, 0);
  EXPECT_LE(calls.launches + calls.copies_on_device, GetParam().ranks * (1 + 3 + 1 + 2));
}

// The same steps, of which some accumulate gradients under no_sync(): within a step, and for a later one. The latter are
// never replayed, since their gradients are in other memory each time.
TEST(CapturedRanksTest, AccumulateGradients) {
  const auto train = [](bool is_captured, bool within) {
    std::vector<std::string> state;
    size_t recordings = 0;
    dist::run_ranks(2, [&] {
      Training t({.options = kSmallBuckets});
      const auto accumulate = [&](const Tensors& in) -> Tensors {
        const dist::NoSync off = t.ddp->no_sync();
        auto recording = t.gm.record();
        t.gm.backward(nn::cross_entropy((*t.ddp)(in[0]), in[1]));
        return {};
      };
      const auto both = [&](const Tensors& in) {
        accumulate(in);
        return t.step(in);
      };
      CapturedStep first(accumulate, {.warm_up = 1}),
          second([&](const Tensors& in) { return t.step(in); }, {.warm_up = 1}), all(both, {.warm_up = 1});
      for (int i = 0; i < 6; ++i) {
        const Tensors batch = t.batch(i), more = t.batch(i + 10);
        if (within) {
          is_captured ? all(batch) : both(batch);
        } else {
          is_captured ? first(batch) : accumulate(batch);
          if (i % 2 == 1) is_captured ? first(more) : accumulate(more);
          is_captured ? second(batch) : t.step(batch);
        }
      }
      if (dist::get_rank() == 1) state = t.state(), recordings = all.num_recordings();
    });
    EXPECT_EQ(recordings, is_captured && within ? 1u : 0u);
    return state;
  };
  for (const bool within : {false, true})
    EXPECT_EQ(train(true, within) == train(false, within), true) << within;
}

// A last batch that is smaller on one rank: no rank replays it, and random numbers go on as in plain steps.
TEST(CapturedRanksTest, ABatchWithoutARecordingOnOneRankIsAPlainStep) {
  const auto train = [](bool is_captured) {
    std::vector<std::string> results;
    dist::run_ranks(2, [&] {
      const Tensor w = filled({4}, 1);
      GradManager gm;
      gm.attach(Tensors{w}, dist::make_allreduce_cb(ReduceOp::kSum));
      const auto plain = [&](const Tensors& in) -> Tensors {
        auto recording = gm.record();
        gm.backward(sum(w * in[0]) * mean(rand({3}, {.device = own_device()})));
        raw::copy_(w, detach(w) + w.grad() * 0.1), w.set_grad({});
        return {w * 1};
      };
      CapturedStep step(plain, {.warm_up = 1});
      std::string all;
      for (int i = 0; i < 16; ++i) {
        const int64_t rows = i % 4 == 3 && dist::get_rank() == 1 ? 2 : 3;
        const Tensors in = {filled({rows, 4}, i)};
        all += bits((is_captured ? step(in) : plain(in))[0]);
      }
      EXPECT_EQ(step.num_recordings(), is_captured ? 1u : 0u);
      if (dist::get_rank() == 1) results.push_back(all);
    });
    return results;
  };
  EXPECT_EQ(train(true) == train(false), true);
}

// ---- plain collectives

// Keeps a stream of the rank busy until end(), at most 5 s, by a host function.
class BlockedStream {
 public:
  explicit BlockedStream(const Stream& stream)
      : thread_([this, native = internal::native_stream(stream)] {
          native->runtime().call_on_host(native->handle(), &BlockedStream::block, this);
          native->synchronize();
        }) {
    while (!is_blocked_) std::this_thread::yield();
  }
  ~BlockedStream() {
    may_end_ = true;
    thread_.join();
  }

 private:
  static void block(void* stream) {
    auto* const s = static_cast<BlockedStream*>(stream);
    s->is_blocked_ = true;
    for (int i = 0; i < 5'000 && !s->may_end_; ++i) std::this_thread::sleep_for(Milliseconds(1));
  }

  std::atomic<bool> is_blocked_{false}, may_end_{false};
  std::thread thread_;
};

// y = sum over the ranks of 2 x
CapturedStep sums(const Group& group = {}) {
  return CapturedStep(
      [=](const Tensors& in) -> Tensors {
        const Tensor y = in[0] * 2;
        dist::all_reduce(y, {.group = group});
        return {y};
      },
      {.warm_up = 1});
}
void expect_all(const Tensor& x, double value) {
  EXPECT_EQ(x.to_vector<double>(), std::vector<double>(size_t(x.numel()), value))
      << "rank " << dist::get_rank();
}

TEST(CapturedRanksTest, EachCollectiveIsCaptured) {
  const auto per_rank = [](const Tensor& x) { return dist::functional::all_gather(x); };
  const std::vector<std::pair<std::string, std::function<Tensors(const Tensor&)>>> calls = {
      {"broadcast",
       [](const Tensor& x) {
         const Tensor y = x * 1;
         dist::broadcast(y, {.src = 1});
         return Tensors{y};
       }},
      {"all_gather", [](const Tensor& x) { return dist::all_gather(x); }},
      {"reduce_scatter", [](const Tensor& x) { return Tensors{dist::functional::reduce_scatter(x)}; }},
      {"all_to_all", [](const Tensor& x) { return Tensors{dist::functional::all_to_all(x, 0, 0)}; }},
      {"functional::all_gather", per_rank},
      // The memory of y is not used again before the call is done.
      {"dropped",
       [](const Tensor& x) {
         (void)dist::all_reduce(x * 1, {.async_op = true});
         Tensors all;
         for (int i = 1; i < 5; ++i) all.push_back(x + i);
         return all;
       }},
      {"asynchronous",
       [](const Tensor& x) {
         const Tensor y = x * 1, z = x * 3;
         const dist::Work first = dist::all_reduce(y, {.async_op = true});
         dist::all_reduce(z, {.op = ReduceOp::kMax, .async_op = true});  // nobody waits for it
         const Tensor w = x + 1;
         first.wait();
         return Tensors{y + w};
       }},
  };
  for (const auto& [name, call] : calls) {
    dist::run_ranks(2, [&, &call = call, &name = name] {
      CapturedStep step([&](const Tensors& in) { return call(in[0]); }, {.warm_up = 1});
      for (int i = 0; i < 6; ++i) {
        const Tensor x = filled({4, 3}, 10 * i + dist::get_rank());
        const Tensors want = call(x), got = step({x});
        ASSERT_EQ(got.size(), want.size());
        for (size_t k = 0; k < got.size(); ++k)
          EXPECT_EQ(bits(got[k]), bits(want[k])) << name << ", step " << i;
      }
      EXPECT_EQ(step.num_recordings(), 1u) << name;
    });
  }
}

// Replays, and calls of three groups and two threads before and behind them.
TEST(CapturedRanksTest, OtherCallsGoBetweenReplays) {
  dist::run_ranks(2, [] {
    const Group other = dist::world().duplicate(), of_thread = dist::world().duplicate();
    CapturedStep first = sums(), second = sums(other);
    const Tensor warm_up = filled({700}, 1);
    for (int i = 0; i < 2; ++i) {
      // The recording begins while this call waits for rank 1.
      const Tensor z = filled({3}, 1);
      if (dist::get_rank() == 1) std::this_thread::sleep_for(Milliseconds(20));
      dist::all_reduce(z, {.async_op = true});
      first({warm_up}), second({warm_up});
      expect_all(z, 2);
    }
    for (int round = 0; round < 24; ++round) {
      const Tensor x = filled({700}, round + dist::get_rank()), y = filled({700}, 1);
      const double sum = 2 * round + 1;
      const Event is_filled = Event::record(current_stream(own_device()));
      std::vector<dist::Work> works;
      works.push_back(dist::all_reduce(x, {.group = round % 2 ? other : Group(), .async_op = true}));
      std::thread thread([&, job = Context::current().snapshot()]() mutable {
        const ContextScope scope(job);
        const StreamScope stream(Stream::create(own_device()));
        current_stream(own_device()).wait(is_filled);
        for (int i = 0; i < 2; ++i) dist::all_reduce(y, {.group = of_thread});
        current_stream(own_device()).synchronize();
      });
      const Tensor z = first({filled({700}, round)})[0];
      works[0].wait();
      const Tensor w = (round % 3 ? second : first)({x})[0];
      dist::all_reduce(w, {.op = ReduceOp::kMax});
      thread.join();
      expect_all(x, sum), expect_all(y, 4), expect_all(z, 4 * round), expect_all(w, 4 * sum);
    }
  });
}

// The side stream of the graph comes to the end of the first call while the step's stream is blocked behind it.
TEST(CapturedRanksTest, TheFirstBucketTravelsDuringBackward) {
  struct Flag {
    std::atomic<bool> is_set{false}, was_seen{false};
  } flags[2];
  dist::run_ranks(2, [&] {
    const Tensor first = filled({3}, 2), last = filled({3}, 3);
    Flag& flag = flags[dist::get_rank()];
    const auto block = [&](const Tensor&, const Tensor& grad) {
      const Capture* const capture = Context::current().capture.get();
      if (!capture || !capture->is_recording()) return grad;
      const auto call = [&](const Stream& stream, void (*f)(void*)) {
        const auto native = internal::native_stream(stream);
        native->runtime().call_on_host(native->handle(), f, &flag);
      };
      call(Context::current().capture->side_stream(), [](void* f) { static_cast<Flag*>(f)->is_set = true; });
      call(current_stream(own_device()), [](void* p) {
        auto* const f = static_cast<Flag*>(p);
        for (int i = 0; i < 2'000 && !f->is_set; ++i) std::this_thread::sleep_for(Milliseconds(1));
        f->was_seen = f->is_set.load();
      });
      return grad;
    };
    const auto all_reduce =
        dist::make_allreduce_cb(ReduceOp::kSum, {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6});
    GradManager gm;
    gm.attach(Tensors{first}, block, all_reduce);
    gm.attach(Tensors{last}, all_reduce);
    CapturedStep step(
        [&](const Tensors& in) -> Tensors {
          first.set_grad({}), last.set_grad({});
          auto recording = gm.record();
          gm.backward(sum(last * (first * in[0])));
          return {first.grad(), last.grad()};
        },
        {.warm_up = 1});
    for (int i = 0; i < 4; ++i) {
      flag.is_set = flag.was_seen = false;
      const Tensors grads = step({filled({3}, 2)});
      expect_all(grads[0], 12), expect_all(grads[1], 8);
      EXPECT_EQ(flag.was_seen, i > 0) << "step " << i;
    }
  });
}

TEST(CapturedRanksTest, AGroupOfOneNeedsNoOtherRank) {
  dist::run_ranks(2, [] {
    const Group own = dist::world().split(dist::get_rank());
    CapturedStep step = sums(own);
    for (int i = 0; i < 2 + 2 * dist::get_rank(); ++i) expect_all(step({filled({4}, i)})[0], 2 * i);
  });
}

// Within a job that ends, and by a step that outlives it. The device reports a communicator that ends before its graphs.
TEST(CapturedRanksTest, AStepMayOutliveItsGroup) {
  std::vector<std::unique_ptr<CapturedStep>> steps(2);
  dist::run_ranks(2, [&] {
    auto& step = steps[size_t(dist::get_rank())];
    {
      const Group group = dist::world().duplicate();
      step.reset(new CapturedStep(sums(group)));
    }
    for (int i = 0; i < 4; ++i) expect_all(step->operator()({filled({4}, i)})[0], 4 * i);
    CapturedStep other = sums();
    for (int i = 0; i < 4; ++i) other({filled({4}, i)});
  });
}

// ---- ranks that differ or fail

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Two ranks record a step, and replay it once. Then rank 0 calls `zero`, rank 1 `one`. Returns the text of rank 0's E. A
// new job trains on the devices afterwards.
template <class E>
std::string error_of_rank_0(const std::function<void(CapturedStep&)>& zero,
                            const std::function<void(CapturedStep&)>& one,
                            Milliseconds timeout = Milliseconds(600'000)) {
  std::string text = "no error";
  std::atomic<double> seconds = 0;
  try {
    dist::run_ranks(2,
                    [&] {
                      CapturedStep step = sums();
                      for (int i = 0; i < 3; ++i) expect_all(step({filled({4}, 1)})[0], 4);
                      dist::barrier();
                      const auto begin = std::chrono::steady_clock::now();
                      try {
                        dist::get_rank() == 0 ? zero(step) : one(step);
                        synchronize(own_device());
                        current_stream(own_device()).synchronize();
                      } catch (const E& e) {
                        if (dist::get_rank() == 0) text = e.what(), seconds = seconds_since(begin);
                        throw;
                      }
                    },
                    {.timeout = timeout});
    ADD_FAILURE() << "no rank throws";
  } catch (const std::exception&) {
  }
  EXPECT_LT(seconds, 2 + (timeout < Milliseconds(10'000) ? double(timeout.count()) / 1000 : 0.));
  dist::run_ranks(2, [] {
    CapturedStep step = sums();
    for (int i = 0; i < 4; ++i) expect_all(step({filled({4}, i)})[0], 4 * i);
  });
  return text;
}
void replay(CapturedStep& step) { step({filled({4}, 1)}); }

void expect_parts(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

TEST(CapturedRanksTest, AnotherCallIsAMismatch) {
  expect_parts(
      error_of_rank_0<dist::MismatchError>(&replay, [](auto&) { dist::all_reduce(filled({4}, 1)); }),
      {"[CapturedStep]", "rank 1 called all_reduce(f32[4] on cuda, sum)", "rank 0 called CapturedStep()"});
}

TEST(CapturedRanksTest, AnotherRecordingIsAMismatch) {
  std::string text;
  EXPECT_THROW(dist::run_ranks(2,
                               [&] {
                                 CapturedStep a = sums(), b = sums();
                                 for (int i = 0; i < 3; ++i) replay(a), replay(b);
                                 try {
                                   replay(dist::get_rank() == 0 ? a : b);
                                 } catch (const dist::MismatchError& e) {
                                   if (dist::get_rank() == 0) text = e.what();
                                   throw;
                                 }
                               }),
               dist::MismatchError);
  expect_parts(text, {"rank 1 called CapturedStep with the recording that began with call #",
                      "where rank 0 called it with the recording that began with call #"});
}

TEST(CapturedRanksTest, ARankThatDoesNotReplayIsNamed) {
  expect_parts(
      error_of_rank_0<dist::DistributedError>(&replay, [](auto&) { throw ValueError("loss", "a mistake"); }),
      {"[CapturedStep]", "rank 1", "a mistake"});
  expect_parts(error_of_rank_0<dist::DistributedError>(&replay, [](auto&) {}), {"[CapturedStep]", "rank 1"});
  expect_parts(
      error_of_rank_0<dist::TimeoutError>(
          &replay, [](auto&) { std::this_thread::sleep_for(Milliseconds(1'200)); }, Milliseconds(500)),
      {"[CapturedStep]", "CapturedStep #", "of group 'world'", "rank 1"});
}

// All ranks have launched the graph, and the GPU of one comes no further.
TEST(CapturedRanksTest, ALaunchThatDoesNotEndIsAborted) {
  for (const bool throws : {false, true}) {
    std::atomic<bool> is_blocked{false}, has_launched{false}, has_ended{false};
    const auto wait_for = [](const std::atomic<bool>& flag) {
      for (int i = 0; i < 20'000 && !flag; ++i) std::this_thread::sleep_for(Milliseconds(1));
    };
    const std::string text = error_of_rank_0<dist::DistributedError>(
        [&](CapturedStep& step) {
          const struct End {
            std::atomic<bool>& has_ended;
            ~End() { has_ended = true; }
          } end{has_ended};
          wait_for(is_blocked);  // the emulated device runs a host function on any thread that calls it
          const Tensors results = step({filled({4}, 1)});
          has_launched = true;
          results[0].to_vector<double>();
        },
        [&](CapturedStep& step) {
          const BlockedStream stream(current_stream(own_device()));
          is_blocked = true;
          step({filled({4}, 1)});
          wait_for(has_launched);
          std::exception_ptr error;
          if (throws) error = std::make_exception_ptr(ValueError("loss", "a mistake"));
          if (throws) dist::internal::report_backward_failure(dist::internal::World::current(), error);
          wait_for(has_ended);
        },
        throws ? Milliseconds(600'000) : Milliseconds(3'000));
    expect_parts(text, {"[CapturedStep]", "CapturedStep #", "of group 'world' was queued on the GPU"});
    if (throws) expect_parts(text, {"rank 1", "a mistake"});
  }
}

TEST(CapturedRanksTest, ARankThatFailsInTheRecordingIsNamed) {
  std::string text;
  try {
    dist::run_ranks(2, [&] {
      CapturedStep step(
          [](const Tensors& in) -> Tensors {
            dist::all_reduce(in[0] * 1);
            if (recording_capture() && dist::get_rank() == 1) throw ValueError("loss", "a mistake");
            return {in[0] * 2};
          },
          {.warm_up = 1});
      replay(step);
      try {
        replay(step);
        // The first launch needs rank 1.
        ADD_FAILURE() << "no error on rank " << dist::get_rank();
      } catch (const dist::DistributedError& e) {
        if (dist::get_rank() == 0) text = e.what();
        throw;
      } catch (const ValueError&) {
        std::this_thread::sleep_for(Milliseconds(500));  // rank 1 does not end
        throw;
      }
    });
    ADD_FAILURE() << "no rank throws";
  } catch (const std::exception&) {
  }
  expect_parts(text, {"rank 1 failed in a step that was captured", "a mistake"});
}

// ---- refusals

// All ranks throw it, and the job goes on.
TEST(CapturedRanksTest, RefuseWhatAReplayCannotRepeat) {
  struct Refusal {
    const char *op, *reason;
    std::function<void(const Tensor&)> call;
    bool nccl = true;
  };
  const Tensor on_host = ones({2});
  const std::vector<Refusal> refusals = {
      {"[all_reduce]", "through host memory", [](const Tensor& x) { dist::all_reduce(x * 1); }, false},
      {"[all_reduce]", "through host memory",
       [](const Tensor& x) { dist::all_reduce(gt(x, 0), {.op = ReduceOp::kBand}); }},
      {"[all_reduce]", "for tensors on the step's GPU", [&](const Tensor&) { dist::all_reduce(on_host); }},
      {"[barrier]", "other ranks", [](const Tensor&) { dist::barrier(); }},
      {"[send]", "messages", [](const Tensor& x) { dist::send(x, {.dst = 1 - dist::get_rank()}); }},
  };
  for (const Refusal& r : refusals)
    dist::run_ranks(2,
                    [&] {
                      CapturedStep step(
                          [&](const Tensors& in) -> Tensors {
                            if (recording_capture() || r.nccl == false) r.call(in[0]);
                            return {};
                          },
                          {.warm_up = 1});
                      const Tensor x = filled({4}, 1);
                      step({x});
                      EXPECT_ERROR(StateError, step({x}), r.op, "cannot be captured", r.reason);
                      dist::all_reduce(x);
                      expect_all(x, 2);
                    },
                    {.nccl = r.nccl});
}

TEST(CapturedRanksTest, RefuseStepsOnTheCpu) {
  dist::run_ranks(2, [] {
    CapturedStep step([](const Tensors& in) -> Tensors {
      dist::all_reduce(in[0] * 1);
      return {};
    });
    for (int i = 0; i < 3; ++i) step({ones({2})});
    EXPECT_ERROR(StateError, step({ones({2})}), "[all_reduce] cannot be captured");
    dist::barrier();
  });
}

// The recording has calls of other ranks then, and so the job fails: the text is that of the first rank.
TEST(CapturedRanksTest, RefuseWaitsOfTheHostAndGroupsOfOtherRanks) {
  const auto refused = [](int ranks, const std::function<void(const Tensor&, const Group&)>& call) {
    std::string text;
    try {
      dist::run_ranks(ranks, [&] {
        const Group half = dist::world().split(dist::get_rank() / 2);
        CapturedStep step(
            [&](const Tensors& in) -> Tensors {
              const Tensor y = in[0] * 1;
              dist::all_reduce(y);
              call(y, half);
              return {};
            },
            {.warm_up = 1});
        replay(step), replay(step);
      });
    } catch (const Error& e) {
      text = e.what();
    }
    return text;
  };
  const auto all_reduce = [](const Tensor& y) { return dist::all_reduce(y, {.async_op = true}); };
  const auto is_recording = [] { return recording_capture() != nullptr; };
  expect_parts(refused(2, [&](const Tensor& y, const Group&) { all_reduce(y).wait(Milliseconds(1'000)); }),
               {"wait", "cannot be captured"});
  expect_parts(refused(2,
                       [&](const Tensor& y, const Group&) {
                         if (is_recording()) all_reduce(y).is_completed();
                       }),
               {"is_completed", "cannot be captured"});
  expect_parts(
      refused(4, [&](const Tensor& y, const Group& half) { dist::all_reduce(y, {.group = half}); }),
      {"cannot be captured: group ", " has the ranks ", "of group 'world' with the ranks 0, 1, 2, 3"});
}

TEST(CapturedRanksTest, AWorkOfTheRecordingEndsWithIt) {
  dist::run_ranks(2, [] {
    dist::Work work;
    CapturedStep step(
        [&](const Tensors& in) -> Tensors {
          work = dist::all_reduce(in[0] * 1, {.async_op = true});
          return {};
        },
        {.warm_up = 1});
    for (int i = 0; i < 3; ++i) replay(step);
    EXPECT_ERROR(StateError, work.wait(), "[wait]", "within the step's function");
    EXPECT_ERROR(StateError, work.is_completed(), "[is_completed]", "within the step's function");
  });
}

}  // namespace
}  // namespace gradus
