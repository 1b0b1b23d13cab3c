// make_allreduce_cb, the gradient reducer of data parallelism: gradients are sums or means over all ranks,
// also if ranks reach different parameters, accumulate, or drop recordings; errors are the same on all ranks.
// Ranks are threads.
#include "gradus/distributed/data_parallel/allreduce_callback.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/group/world.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using V = std::vector<double>;
V values(const Tensor& x) { return x.to_vector<double>(); }
[[maybe_unused]] Tensor f64(std::initializer_list<double> v) { return tensor(v); }
void on_ranks(int world, const std::function<void()>& body) {
  run_ranks(world, body, {.timeout = Milliseconds(20'000)});
}

// ---- sums and means ----

template <class Loss> void backward(GradManager& gm, Loss loss) {
  auto recording = gm.record();
  gm.backward(loss());
}

// Parameter: the number of ranks.
class OfWorlds : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Reducer, OfWorlds, testing::Values(1, 2, 3));

TEST_P(OfWorlds, ScalarsMixedDtypesLayoutsAndDevicesComeBackAsTheyWere) {
  const int world = GetParam();
  const Device other{DeviceType::kCPU, 1};
  for (bool view : {false, true})
    on_ranks(world, [&] {
      const std::vector<Tensor> params = {ones({3}, {.dtype = DType::kF16}),
                                          scalar(1),
                                          ones({4}, {.dtype = DType::kBF16}),
                                          ones({2}, {.dtype = DType::kF64}),
                                          ones({2, 2}, {.dtype = DType::kF32, .device = other}),
                                          channels_last(ones({2, 3, 4, 5}))};
      GradManager gm;
      gm.attach(params, make_allreduce_cb(ReduceOp::kMean, {.gradient_as_bucket_view = view}));
      for (int step = 1; step <= 2; ++step) {
        auto recording = gm.record();
        Tensor loss = scalar(0);
        for (size_t i = 0; i + 1 < params.size(); ++i)
          loss = loss + sum(to(to(params[i], kCPU), DType::kF32)) * (get_rank() + 1 + i);
        const Tensor weights = reshape(to(arange(120), DType::kF32), {2, 3, 4, 5});
        loss = loss + sum(params[5] * weights) * (get_rank() + 1);
        gm.backward(loss);
        const double mean = (world + 1) / 2.0;
        for (size_t i = 0; i + 1 < params.size(); ++i) {
          const Tensor grad = params[i].grad();
          EXPECT_EQ(grad.dtype(), params[i].dtype());
          EXPECT_EQ(grad.device(), params[i].device());
          EXPECT_EQ(grad.shape(), params[i].shape());
          EXPECT_THAT(values(grad), Each(step * (mean + i)));
        }
        EXPECT_TRUE(params[5].grad().is_channels_last());
        EXPECT_EQ(values(params[5].grad()), values(weights * (step * mean)));
      }
    });
}

// ---- ranks that go different ways ----

TEST_P(OfWorlds, ARankThatDoesNotReachAParameterCountsAsZerosThere) {
  const int world = GetParam();
  on_ranks(world, [&] {
    // One parameter that all ranks use, one for each rank alone, and one that no rank uses.
    std::vector<Tensor> own;
    for (int r = 0; r < world; ++r) own.push_back(f64({1, 1}));
    const Tensor shared = f64({1}), nobody = f64({1, 1, 1});
    auto cb = make_allreduce_cb(ReduceOp::kMean, {.name_of = [&](const Tensor& p) {
                                  return std::string(p.is_same(nobody) ? "nobody" : "");
                                }});
    GradManager gm;
    gm.attach(shared, cb).attach(own, cb).attach(nobody, cb);
    nobody.set_grad(f64({7, 8, 9}));
    for (int step = 1; step <= 2; ++step) {
      backward(gm, [&] { return sum(shared * (get_rank() + 1)) + 3 * sum(own[get_rank()]); });
      EXPECT_THAT(values(shared.grad()), Each(testing::DoubleEq(step * (world + 1) / 2.0)));
      for (const Tensor& x : own)
        EXPECT_THAT(values(x.grad()), ElementsAre(step * 3.0 / world, step * 3.0 / world));
      EXPECT_THAT(values(nobody.grad()), ElementsAre(7, 8, 9));
      EXPECT_EQ(cb->stats().bytes, world == 1 ? 0 : 8 * (1 + 2 * world)) << "nothing of what nobody reached";
    }
    EXPECT_THAT(cb->unused_parameters(2), ElementsAre("nobody"));
    EXPECT_THAT(cb->unused_parameters(3), IsEmpty());
    EXPECT_EQ(cb->locally_unused_parameters().size(), size_t(world - 1));
  });
}

TEST(Reducer, OneCallbackServesSeveralManagers) {
  on_ranks(2, [] {
    const Tensor a = f64({1}), b = f64({2}), c = f64({3});
    auto cb = make_allreduce_cb(ReduceOp::kSum);
    GradManager first, second;
    first.attach({a, b}, cb);
    second.attach({b, c}, cb);
    for (int step = 0; step < 2; ++step) {
      backward(first, [&] { return a + b * (get_rank() + 1); });
      backward(second, [&] { return 10 * b + c * (get_rank() + 1); });
    }
    EXPECT_THAT(values(a.grad()), ElementsAre(4));
    EXPECT_THAT(values(b.grad()), ElementsAre(2 * (3 + 20)));
    EXPECT_THAT(values(c.grad()), ElementsAre(6));
    EXPECT_THAT(cb->unused_parameters(), ElementsAre("parameter 0"));
  });
}

TEST(Reducer, ParametersMayComeAndGo) {
  on_ranks(2, [] {
    const Tensor a = f64({1, 1});
    auto cb = make_allreduce_cb(ReduceOp::kSum);
    GradManager gm;
    const auto step = [&](const std::vector<Tensor>& used) {
      auto recording = gm.record();
      Tensor loss = scalar(0);
      for (const Tensor& x : used) loss = loss + sum(x) * (get_rank() + 1);
      gm.backward(loss);
    };
    {
      const Tensor passing = f64({1, 1, 1});
      gm.attach(passing, cb).attach(a, cb);
      step({a, passing});
      EXPECT_THAT(values(passing.grad()), Each(3));
    }
    step({a});
    EXPECT_EQ(cb->stats().bytes, 16);
    const Tensor late = f64({1});
    gm.attach(late, cb);
    gm.attach(late, cb);
    step({a, late});
    EXPECT_EQ(cb->stats().bytes, 24);
    EXPECT_THAT(values(a.grad()), Each(9));
    EXPECT_THAT(values(late.grad()), ElementsAre(3));
    {
      auto recording = gm.record();
      const Tensor while_recording = f64({1});
      gm.attach(while_recording, cb);
      gm.backward(while_recording * (get_rank() + 1));
      EXPECT_THAT(values(while_recording.grad()), ElementsAre(3));
    }
  });
}

// ---- accumulation ----

TEST_P(OfWorlds, NoSyncSendsNothingAndWhatItKeptCanBeDropped) {
  const int world = GetParam();
  on_ranks(world, [&] {
    const Tensor x = f64({1, 2});
    auto cb = make_allreduce_cb(ReduceOp::kMean);
    GradManager gm;
    gm.attach(x, cb);
    const auto step = [&](double factor) { backward(gm, [&] { return sum(x) * (factor + get_rank()); }); };
    for (const bool drops : {false, true}) {
      {
        const NoSync off = cb->no_sync();
        for (int k = 1; k <= 4; ++k) step(k);
      }
      EXPECT_FALSE(x.grad().defined());
      EXPECT_EQ(cb->stats().backwards, int(drops));
      if (drops) cb->drop_pending();
      step(5);
      EXPECT_EQ(cb->stats().backwards, 1 + int(drops));
      const double mean_rank = (world - 1) / 2.0;
      EXPECT_THAT(values(x.grad()), Each(testing::DoubleEq(drops ? 5 + mean_rank : 15 + 5 * mean_rank)));
      x.set_grad({});
    }
  });
}

TEST_P(OfWorlds, WhatNoSyncKeepsIsNobodyElsesTensor) {
  const int world = GetParam();
  on_ranks(world, [&] {
    const Tensor x = f64({1, 1}), y = f64({1, 1});
    auto cb = make_allreduce_cb(ReduceOp::kSum);
    GradManager gm;
    gm.attach({x, y}, cb);
    const Tensor dy = f64({0, 0});
    const auto set_dy = [&](double to) {
      for (int i = 0; i < 2; ++i) Tensor(dy).mutable_data<double>()[i] = to * (i + 1);
    };
    const auto step = [&] {
      auto recording = gm.record();
      gm.backward({x, y}, {dy, dy});  // one tensor for both
    };
    for (int kept = 1; kept <= 3; ++kept) {
      set_dy(1);
      {
        const NoSync off = cb->no_sync();
        for (int k = 0; k < kept; ++k) step();
      }
      EXPECT_THAT(values(dy), ElementsAre(1, 2));
      set_dy(100);
      step();
      EXPECT_THAT(values(dy), ElementsAre(100, 200));
      for (const Tensor& p : {x, y}) {
        EXPECT_THAT(values(p.grad()), ElementsAre(world * (100 + kept), world * 2 * (100 + kept)));
        p.set_grad({});
      }
    }
  });
}

TEST(Reducer, NoSyncOnOneRankOnlyIsTheSameErrorOnAll) {
  for (bool static_graph : {false, true}) {
    const auto errors = errors_of(3, [&] {
      const Tensor x = f64({1});
      auto cb = make_allreduce_cb(ReduceOp::kMean, {.static_graph = static_graph});
      GradManager gm;
      gm.attach(x, cb);
      const auto step = [&] { backward(gm, [&] { return x * x; }); };
      step();
      if (get_rank() == 1) {
        const NoSync off = cb->no_sync();
        step();
        EXPECT_TRUE(x.grad().defined());
      } else {
        step();
      }
      step();
      barrier();
    });
    EXPECT_THAT(errors, Each(HasSubstr("rank 1")));
    EXPECT_THAT(errors, Each(HasSubstr("backward 3"))) << "and the others are in their second";
    EXPECT_THAT(errors, Each(HasSubstr(static_graph ? "bucket 0" : "no_sync()")));
  }
}

// ---- ranks or options that do not match ----

TEST(Reducer, OtherTensorsOrOptionsOnARankAreTheSameErrorOnAll) {
  const auto errors_with = [](auto make) {
    return errors_of(3, [&] {
      const std::vector<Tensor> params = {f64({1}), f64({1, 2}), f64({3})};
      GradManager gm;
      make(gm, params);
      backward(gm, [&] { return sum(params[0]); });
    });
  };
  EXPECT_THAT(errors_with([](GradManager& gm, std::vector<Tensor> params) {
                if (get_rank() == 2) std::swap(params[0], params[1]);
                gm.attach(params, make_allreduce_cb("mean"));
              }),
              Each(AllOf(HasSubstr("rank 2 attached other tensors"),
                         HasSubstr(": rank 0 has parameter 0 f64[1], rank 2 has parameter 0 f64[2]"))));
  EXPECT_THAT(errors_with([](GradManager& gm, std::vector<Tensor> params) {
                gm.attach(params, make_allreduce_cb(get_rank() == 1 ? "mean" : "sum"));
              }),
              Each(AllOf(HasSubstr("rank 1 attached other tensors"), HasSubstr(": rank 0 has sum with"),
                         HasSubstr(", rank 1 has avg with bucket_cap_mb = 25"))));
  EXPECT_THAT(errors_with([](GradManager& gm, std::vector<Tensor> params) {
                auto cb = make_allreduce_cb("mean");
                GradManager other;
                other.attach(params[0], cb);
                gm.attach(params, cb);
                if (get_rank() != 1) return;
                backward(other, [&] { return params[0]; });
              }),
              Each(HasSubstr("rank 1 runs the backward of another manager")));
}

TEST(Reducer, RefusesWhatItCannotDo) {
  EXPECT_THROW(make_allreduce_cb(ReduceOp::kMax), ValueError);
  EXPECT_THROW(make_allreduce_cb("median"), ValueError);
  EXPECT_THROW(make_allreduce_cb(ReduceOp::kSum, {.bucket_cap_mb = 0}), ValueError);
  EXPECT_THROW(make_allreduce_cb(ReduceOp::kSum, {.first_bucket_mb = -1}), ValueError);
  const auto early = make_allreduce_cb("mean");
  const auto errors = errors_of(2, [&] {
    const Tensor x = f64({1});
    GradManager gm;
    gm.attach(x, early);
    backward(gm, [&] { return x; });
  });
  EXPECT_THAT(errors, Each(HasSubstr("before init_process_group")));
}

// ---- static graphs ----

TEST(Reducer, AStaticGraphIsAgreedOnOnce) {
  on_ranks(3, [] {
    const Tensor shared = f64({1}), of_first = f64({1, 1}), nobody = f64({1});
    auto cb = make_allreduce_cb(ReduceOp::kSum, {.static_graph = true});
    GradManager gm;
    gm.attach({shared, of_first, nobody}, cb);
    for (int step = 1; step <= 4; ++step) {
      auto recording = gm.record();
      Tensor loss = shared * (get_rank() + 1);
      if (get_rank() == 0) loss = loss + sum(of_first);
      gm.backward(loss);
      EXPECT_THAT(values(shared.grad()), ElementsAre(6 * step));
      EXPECT_THAT(values(of_first.grad()), Each(step));
      EXPECT_FALSE(nobody.grad().defined());
    }
    // If all ranks drop a recording, the graph has not changed.
    { auto dropped = gm.record(); }
    backward(gm, [&] { return get_rank() == 0 ? shared + sum(of_first) : shared; });
    EXPECT_THAT(values(shared.grad()), ElementsAre(27));
  });
}

TEST(Reducer, AStaticGraphThatChangesIsAnErrorByName) {
  const auto errors = errors_of(3, [] {
    const Tensor a = f64({1}), b = f64({2});
    GradManager gm;
    gm.attach({a, b},
              make_allreduce_cb(ReduceOp::kSum, {.static_graph = true, .name_of = [&](const Tensor& p) {
                                                   return std::string(p.is_same(b) ? "fc.b" : "fc.a");
                                                 }}));
    for (int step = 0; step < 3; ++step) {
      backward(gm, [&] { return step == 2 && get_rank() == 1 ? a : a * b; });
    }
  });
  EXPECT_THAT(errors[1], HasSubstr("fc.b is no longer reached"));
  EXPECT_THAT(errors, Each(HasSubstr("static_graph")));
  EXPECT_THAT(errors[0], HasSubstr("rank 1"));
  EXPECT_THAT(errors[2], HasSubstr("rank 1"));
}

// ---- recordings that end otherwise ----

TEST(Reducer, ARecordingMayBeDroppedInTheMiddleOfAnothersBackward) {
  on_ranks(2, [] {
    const Tensor a = f64({1}), b = f64({1});
    auto cb = make_allreduce_cb(ReduceOp::kSum, {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6});
    GradManager gm;
    std::optional<Recording> other;
    // `other` is dropped in the middle of the backward on rank 0, after it on rank 1.
    gm.attach({a, b}, [&](const Tensor&, const Tensor& g) {
      if (get_rank() == 0) other.reset();
      return g;
    });
    gm.attach({a, b}, cb);
    for (int step = 1; step <= 3; ++step) {
      auto recording = gm.record();
      other = gm.record();
      recording.backward(a * b);
      other.reset();
      EXPECT_THAT(values(a.grad()), ElementsAre(2 * step));
    }
  });
}

struct Failing : autograd::Function {
  std::vector<Tensor> forward(const std::vector<Tensor>& x) override { return {2 * x[0]}; }
  std::vector<Tensor> backward(std::vector<Tensor>) override {
    throw ValueError("failing", "this rank has had enough");
  }
};
Tensor failing(const Tensor& x) { return autograd::apply(std::make_shared<Failing>(), {x})[0]; }

TEST(Reducer, ABackwardThatThrowsOnOneRankIsAnErrorByNameOnTheOthersAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = errors_of(
      3,
      [] {
        const Tensor a = f64({1}), b = f64({2});
        GradManager gm;
        gm.attach({a, b},
                  make_allreduce_cb(ReduceOp::kMean, {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6}));
        for (int step = 0; step < 2; ++step) {
          auto recording = gm.record();
          const Tensor h = step == 1 && get_rank() == 1 ? failing(a) : 2 * a;
          gm.backward(sum(h * b));
        }
        barrier();
      },
      {.timeout = Milliseconds(60'000)});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_THAT(errors, Each(HasSubstr("this rank has had enough")));
  EXPECT_THAT(errors[0], HasSubstr("rank 1 failed in its backward"));
  EXPECT_THAT(errors[2], HasSubstr("rank 1 failed in its backward"));
}

TEST(Reducer, ABackwardThatThrowsLeavesNothingBehindInAGroupOfOne) {
  const Tensor a = f64({1}), b = f64({2});
  auto cb = make_allreduce_cb("mean");
  GradManager gm;
  gm.attach({a, b}, cb);
  {
    auto recording = gm.record();
    EXPECT_THROW(gm.backward(sum(failing(a) * b)), ValueError);
  }
  backward(gm, [&] { return a * b; });
  EXPECT_THAT(values(a.grad()), ElementsAre(2));
  EXPECT_THAT(values(b.grad()), ElementsAre(1));
  EXPECT_EQ(cb->stats().backwards, 1);
}

// make_allreduce_cb is a collective: the ranks compare it under its own name.
TEST(Reducer, ACallbackThatOneRankAloneMakesIsAMismatchByName) {
  const auto errors = errors_of(3, [] {
    if (get_rank() == 1) make_allreduce_cb("mean");
    barrier();
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error,
                HasSubstr("rank 1 called make_allreduce_cb() as call 1 of group 'world', where rank 0 called "
                          "barrier()"));
}

// ---- derivatives of derivatives ----

TEST(Reducer, InsideAnOuterRecordingTheGradientIsDifferentiable) {
  // Second order: the gradient's norm, over ranks with a sample each, against one rank with both.
  const V samples = {0.3, -1.2, 0.7};
  const auto gradients = [](const V& xs, const Tensor& w, double weight, bool average) {
    GradManager outer, inner;
    std::vector<Callback> of_outer, of_inner;
    if (average) of_outer.push_back(make_allreduce_cb("mean"));
    if (average) of_inner.push_back(make_allreduce_cb("mean"));
    outer.attach(w, of_outer);
    inner.attach(w, of_inner);
    auto recording = outer.record();
    {
      auto inside = inner.record();
      Tensor loss = scalar(0, {DType::kF64});
      for (double x : xs) loss = loss + sum(exp(w * x)) / double(xs.size());
      inner.backward(loss);
    }
    const Tensor g = w.grad();
    w.set_grad({});
    outer.backward(sum(square(g)) * weight);
    return std::pair(values(g), values(w.grad()));
  };
  const Tensor whole = f64({0.5, -0.25});
  const auto [g, gg] = gradients(samples, whole, 2, false);  // 2: the mean of the ranks' weights
  on_ranks(3, [&, g = g, gg = gg] {
    const Tensor w = f64({0.5, -0.25});
    const auto [mine_g, mine_gg] = gradients({samples[get_rank()]}, w, get_rank() + 1, true);
    for (size_t i = 0; i < g.size(); ++i) EXPECT_NEAR(mine_g[i], g[i], 1e-15);
    for (size_t i = 0; i < gg.size(); ++i) EXPECT_NEAR(mine_gg[i], gg[i], 1e-14);
  });
}

TEST(Reducer, AnOuterRecordingThatFollowsNoGradientCostsNoBuckets) {
  on_ranks(2, [] {
    const Tensor x = f64({1}), y = f64({2}), elsewhere = f64({1});
    auto cb = make_allreduce_cb(ReduceOp::kSum);
    GradManager outer, gm;
    outer.attach(elsewhere);
    gm.attach({x, y}, cb);
    auto watching = outer.record();
    backward(gm, [&] { return x * y * (get_rank() + 1); });
    EXPECT_THAT(values(x.grad()), ElementsAre(6));
    EXPECT_EQ(cb->stats().buckets, 1);
  });
}

TEST(Reducer, AnOuterRecordingOnOneRankOnlyIsTheSameErrorOnAll) {
  const auto errors = errors_of(2, [] {
    const Tensor x = f64({1});
    GradManager outer, gm;
    outer.attach(x);
    gm.attach(x, make_allreduce_cb("mean"));
    std::optional<Recording> watching;
    if (get_rank() == 1) watching = outer.record();
    backward(gm, [&] { return x * x; });
  });
  EXPECT_THAT(errors, Each(HasSubstr("outer recording")));
}

// ---- overlap ----

// The identity; its backward sleeps for 3 ms and logs a 0.
struct Slow : autograd::Function {
  explicit Slow(std::vector<int>* log = nullptr) : log(log) {}
  std::vector<Tensor> forward(const std::vector<Tensor>& x) override { return {1 * x[0]}; }
  std::vector<Tensor> backward(std::vector<Tensor> dys) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    if (log) log->push_back(0);
    return {dys[0]};
  }
  std::vector<int>* log;
};

TEST(Reducer, ChainedCallbacksSeeTheReducedGradientWhileBackwardGoesOn) {
  for (bool overlap : {true, false})
    on_ranks(2, [&] {
      std::vector<Tensor> params;
      for (int i = 0; i < 20; ++i) params.push_back(f64({1}));
      std::vector<int> log;  // 0: backward of a Slow; 1: callback on a reduced gradient
      GradManager gm;
      auto cb = make_allreduce_cb(ReduceOp::kMean,
                                  {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6, .overlap = overlap});
      gm.attach(params, cb);
      gm.attach(params, [&](const Tensor&, const Tensor& g) {
        log.push_back(1);
        EXPECT_THAT(values(g), ElementsAre(1.5));
        return 2 * g;
      });
      auto recording = gm.record();
      Tensor h = f64({get_rank() + 1.0});
      for (const Tensor& p : params) h = autograd::apply(std::make_shared<Slow>(&log), {h * p})[0];
      gm.backward(h);
      for (const Tensor& p : params) EXPECT_THAT(values(p.grad()), ElementsAre(3));
      ASSERT_EQ(log.size(), 40u);
      // With overlap, some gradients are reduced before the last backward; without, none.
      const bool early = std::find(log.begin(), log.begin() + 20, 1) != log.begin() + 20;
      EXPECT_EQ(early, overlap);
      EXPECT_EQ(cb->stats().buckets, 20);
      EXPECT_GT(cb->stats().communication_s, 0);
      EXPECT_GE(cb->stats().communication_s, cb->stats().exposed_s);
      EXPECT_GT(cb->stats().backward_s, cb->stats().communication_s);
      if (overlap) {
        EXPECT_GT(cb->stats().overlap(), 0.2);
      } else {
        EXPECT_LT(cb->stats().overlap(), 0.01);
      }
    });
}

// ---- memory ----

TEST(Reducer, GradientsMayBeViewsOfTheBucket) {
  on_ranks(2, [] {
    const Tensor a = f64({1, 1}), b = f64({1});
    GradManager gm;
    gm.attach({a, b}, make_allreduce_cb(ReduceOp::kSum, {.gradient_as_bucket_view = true}));
    const auto step = [&] { backward(gm, [&] { return sum(a) * b * (get_rank() + 1); }); };
    step();
    EXPECT_EQ(a.grad().storage(), b.grad().storage());
    const void* const memory = a.grad().storage()->data();
    a.set_grad({});
    b.set_grad({});
    step();
    EXPECT_EQ(a.grad().storage()->data(), memory) << "nobody saw it any more";
    const Tensor held = a.grad();
    a.set_grad({});
    b.set_grad({});
    step();
    EXPECT_NE(a.grad().storage()->data(), memory) << "somebody still sees it";
    EXPECT_THAT(values(held), Each(3));
    step();  // adds up
    EXPECT_THAT(values(a.grad()), Each(6));
    EXPECT_THAT(values(b.grad()), Each(12));
  });
}

// ---- the order of buckets ----

// Buckets of one parameter each, and a hook that appends the name of each bucket's parameter to `sent`.
struct Ordered {
  explicit Ordered(bool static_graph = false) {
    const CommHook hook = [this](const GradBucket& bucket) {
      for (const Tensor& p : bucket.parameters)
        for (const auto& [name, tensor] : params)
          if (p.is_same(tensor)) sent += name;
      all_reduce(bucket.buffer, {.group = bucket.group});
      return [] {};
    };
    cb = make_allreduce_cb(ReduceOp::kSum, {.bucket_cap_mb = 1e-6,
                                            .first_bucket_mb = 1e-6,
                                            .static_graph = static_graph,
                                            .rebuild_buckets = true,
                                            .comm_hook = hook});
    for (const char name : std::string("abcd")) attach(name);
  }
  void attach(char name) {
    params.emplace_back(name, f64({1}));
    gm.attach(params.back().second, cb);
  }
  // Uses the parameters in this order, so that backward computes their gradients in the reverse order. Returns the
  // order of the buckets.
  std::string step(const std::string& names) {
    sent.clear();
    auto recording = gm.record();
    Tensor loss;
    for (const char used : names)
      for (auto& [name, tensor] : params)
        if (name == used) loss = loss.defined() ? loss + sum(tensor * 2) : sum(tensor * 2);
    gm.backward(loss);
    for (const auto& [name, tensor] : params) {
      if (names.find(name) != std::string::npos) {
        EXPECT_THAT(values(tensor.grad()), ElementsAre(4)) << name;
      }
      tensor.set_grad({});
    }
    return sent;
  }
  std::vector<std::pair<char, Tensor>> params;
  std::shared_ptr<AllReduceCallback> cb;
  GradManager gm;
  std::string sent;
};

TEST(Reducer, RebuildsBucketsOnceInTheOrderOfTheFirstRank) {
  for (bool static_graph : {false, true})
    on_ranks(2, [&] {
      Ordered net(static_graph);
      EXPECT_EQ(net.step(get_rank() == 0 ? "cab" : "abc"), "cba") << "d is unused";
      EXPECT_EQ(net.step("bca"), "bac");
      EXPECT_EQ(net.step("abc"), "bac");
      if (static_graph) return;
      EXPECT_EQ(net.step("abcd"), "bacd");
      net.attach('e');
      EXPECT_EQ(net.step("acdeb"), "edcba") << "a new plan";
      EXPECT_EQ(net.step("abcde"), "bedca");
    });
}

TEST(Reducer, RebuildsBucketsInTheOrderOfARankThatHasData) {
  on_ranks(2, [] {
    Ordered net;
    for (int i = 0; i < 2; ++i) {
      auto canceled = net.gm.record();
    }
    join({net.cb}, [&] {
      if (get_rank() == 0) return;
      net.sent.clear();
      for (int i = 0; i < 2; ++i) {
        auto recording = net.gm.record();
        Tensor loss = sum(net.params[1].second);
        for (int p : {2, 0}) loss = loss + sum(net.params[p].second);
        net.gm.backward(loss);
        for (const auto& [name, tensor] : net.params) tensor.set_grad({});
      }
      EXPECT_EQ(net.sent, "cbaacb");
    });
    EXPECT_EQ(net.step("abc"), "acb") << "on the joined rank too";
  });
}

// ---- NaN, infinity, and diverging parameters ----

AllReduceCallbackOptions named(const std::vector<Tensor>& params, AllReduceCallbackOptions options) {
  options.name_of = [params](const Tensor& p) {
    for (size_t i = 0; i < params.size(); ++i)
      if (p.is_same(params[i])) return concat("layer", i, ".weight");
    return std::string();
  };
  return options;
}

TEST_P(OfWorlds, AGradientThatIsNotFiniteIsTheSameErrorOnAllByRankAndName) {
  const int world = GetParam(), bad = world - 1;
  for (bool outer : {false, true})
    for (double factor : {std::numeric_limits<double>::infinity(), std::nan("")})
      on_ranks(world, [&] {
        const std::vector<Tensor> params = {f64({1}), f64({1, 2, 3}), f64({1})};
        GradManager gm, watching;
        watching.attach(params);
        gm.attach(params, make_allreduce_cb(ReduceOp::kMean, named(params, {.check_finite = true})));
        std::optional<Recording> open;
        if (outer) open = watching.record();
        const auto step = [&](bool spoilt) {
          auto recording = gm.record();
          const Tensor weights = f64({1, spoilt && get_rank() == bad ? factor : 1.0, 1});
          gm.backward(sum(params[0] * params[0]) + sum(params[1] * weights));
        };
        step(false);
        const std::string want =
            concat("rank ", bad, " has NaN or infinity in the gradient of layer1.weight, first in element 1");
        EXPECT_ERROR(NotFiniteError, step(true), want);
        EXPECT_THAT(values(params[1].grad()), Each(1)) << "nothing of the bad step was delivered";
        step(false);  // the job goes on
        EXPECT_THAT(values(params[1].grad()), Each(2));
      });
}

TEST(Reducer, ParametersThatDivergeAreFoundAndNamedEverySoManyBackwards) {
  on_ranks(3, [] {
    const std::vector<Tensor> params = {f64({1}), f64({1, 2}), f64({3})};
    GradManager gm;
    gm.attach(params, make_allreduce_cb(ReduceOp::kMean, named(params, {.check_divergence_every = 3})));
    int step = 0;
    const auto run = [&] {
      backward(gm, [&] { return sum(params[0]) + sum(params[2]); });
      ++step;
    };
    run();
    if (get_rank() == 1) Tensor(params[1]).mutable_data<double>()[1] = std::nextafter(2, 3);
    run();  // not compared
    EXPECT_THROW(
        try { run(); } catch (const MismatchError& e) {
          EXPECT_THAT(e.what(),
                      AllOf(HasSubstr("rank 0 has layer1.weight"), HasSubstr("rank 1 has layer1.weight")));
          EXPECT_EQ(e.rank(), 1);
          throw;
        },
        MismatchError);
    Tensor(params[1]).mutable_data<double>()[1] = 2;  // mended: the job goes on
    for (int i = 0; i < 4; ++i) run();
    EXPECT_EQ(step, 6);
  });
}

// Ranks receive the end of a step at different times, with different numbers of buckets in flight.
TEST(Reducer, AnEndThatAllFindOutIsTheSameForSlowAndFastRanks) {
  on_ranks(3, [] {
    std::vector<Tensor> params;
    for (int i = 0; i < 6; ++i) params.push_back(f64({1}));
    auto cb = make_allreduce_cb(
        ReduceOp::kSum, {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6, .check_divergence_every = 1});
    GradManager gm;
    gm.attach(params, cb);
    const auto step = [&](int slow, int drops = -1) {
      auto recording = gm.record();
      Tensor h = f64({1});
      for (const Tensor& p : params) {
        h = h * p;
        if (get_rank() == slow) h = autograd::apply(std::make_shared<Slow>(), {h})[0];
      }
      if (get_rank() != drops) gm.backward(h);
    };
    for (int slow = 0; slow < 3; ++slow) {
      step(slow, (slow + 1) % 3);
      EXPECT_FALSE(params[0].grad().defined());
      if (get_rank() == 1) Tensor(params[3]).mutable_data<double>()[0] = 2;
      EXPECT_THROW(step(slow), MismatchError);
      EXPECT_FALSE(params[0].grad().defined());
      if (get_rank() == 1) Tensor(params[3]).mutable_data<double>()[0] = 1;
      step(slow);
      for (const Tensor& p : params) {
        EXPECT_THAT(values(p.grad()), ElementsAre(3));
        p.set_grad({});
      }
    }
  });
}

// ---- reports ----

TEST(Reducer, TheDebugLevelReportsBucketsAndTimes) {
  const auto text_at = [](const char* level) {
    setenv("TORCH_DISTRIBUTED_DEBUG", level, 1);
    testing::internal::CaptureStderr();
    on_ranks(2, [] {
      const Tensor w = f64({1, 2}), b = f64({3});
      GradManager gm;
      gm.attach({w, b}, make_allreduce_cb(
                            ReduceOp::kSum,
                            {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6, .name_of = [=](const Tensor& p) {
                               return std::string(p.is_same(w) ? "w" : "b");
                             }}));
      for (int i = 0; i < 12; ++i) backward(gm, [&] { return sum(w) + sum(b); });
    });
    return testing::internal::GetCapturedStderr();
  };
  for (const char* level : {"INFO", "detail"}) {
    const std::string text = text_at(level);
    EXPECT_THAT(text, HasSubstr("2 buckets of gradients\ngradus: bucket 0, 8 bytes: b f64[1]\n"
                                "gradus: bucket 1, 16 bytes: w f64[2]\n"));
    EXPECT_THAT(text, AllOf(HasSubstr("backward 10 took "), HasSubstr(" ms; 24 bytes in 2 buckets\n")));
    EXPECT_EQ(std::ranges::count(text, '\n'), 4) << "once, by rank 0: " << text;
  }
  EXPECT_EQ(text_at("OFF"), "");
  EXPECT_EQ(text_at(""), "");
  setenv("TORCH_DISTRIBUTED_DEBUG", "ALL", 1);
  EXPECT_THROW(make_allreduce_cb(), ValueError);
  unsetenv("TORCH_DISTRIBUTED_DEBUG");
}

// ---- hooks and buffers ----

TEST_P(OfWorlds, AHookTakesThePlaceOfTheAllReduce) {
  const int world = GetParam();
  on_ranks(world, [&] {
    std::vector<int> launched, completed;
    const CommHook hook = [&](const GradBucket& bucket) {
      launched.push_back(bucket.index);
      EXPECT_EQ(bucket.is_last, bucket.index == 3);
      EXPECT_EQ(bucket.parameters.size(), 1u);
      EXPECT_EQ(bucket.gradients[0].shape(), bucket.parameters[0].shape());
      EXPECT_EQ(bucket.gradients[0].storage(), bucket.buffer.storage());
      EXPECT_EQ(bucket.op, ReduceOp::kMean);
      EXPECT_EQ(bucket.divisor, world);
      const Work work = all_reduce(bucket.buffer, {.group = bucket.group, .async_op = true});
      return [&completed, work, bucket] {
        work.wait();
        completed.push_back(bucket.index);
        mul_(bucket.buffer, 10.0);
      };
    };
    const std::vector<Tensor> params = {f64({1, 1}), f64({1}), f64({1, 1, 1})};
    const Tensor unused = f64({1});
    auto cb = make_allreduce_cb(ReduceOp::kMean,
                                {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6, .comm_hook = hook});
    GradManager gm;
    gm.attach(params, cb);
    gm.attach(unused, cb);
    backward(gm, [&] { return sum(params[0]) + sum(params[1]) + sum(params[2]); });
    if (world == 1) {
      EXPECT_THAT(values(params[0].grad()), Each(1)) << "not called in a group of one";
      return;
    }
    EXPECT_THAT(launched, ElementsAre(1, 2, 3)) << "0 holds what nobody reached";
    EXPECT_THAT(completed, ElementsAre(1, 2, 3));
    for (const Tensor& p : params) EXPECT_THAT(values(p.grad()), Each(10 * world));
  });
}

TEST(Reducer, TensorsToBroadcastBecomeRankZerosAfterEachBackwardThatSynchronizes) {
  on_ranks(3, [] {
    const Tensor x = f64({1});
    const Tensor mean = f64({double(get_rank()), 5}), count = scalar(get_rank() + 1, {DType::kI64});
    const std::vector<Tensor> all = {mean, count, channels_last(full({1, 2, 3, 4}, double(get_rank())))};
    auto cb = make_allreduce_cb(ReduceOp::kMean, {.broadcast_after = [&] { return all; }});
    GradManager gm;
    gm.attach(x, cb);
    const auto step = [&] { backward(gm, [&] { return x * x; }); };
    {
      const NoSync off = cb->no_sync();
      step();
    }
    EXPECT_THAT(values(count), ElementsAre(get_rank() + 1));
    step();
    EXPECT_THAT(values(mean), ElementsAre(0, 5));
    EXPECT_THAT(values(count), ElementsAre(1));
    EXPECT_THAT(values(all[2]), Each(0));
  });
}

// Gradients of 1 MiB and more are reduced in place, unless other code has a reference to them.
TEST(Reducer, LargeGradientsAreRightAndWhatOthersSawOfThemStays) {
  constexpr int64_t kMany = (1 << 20) / 8 + 5;
  for (const bool view : {false, true})
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean})
      on_ranks(3, [&] {
        const int rank = get_rank();
        const Tensor small = f64({1}), large = ones({kMany}, {.dtype = DType::kF64}),
                     other = ones({kMany}, {.dtype = DType::kF64}), last = f64({2}),
                     factor = ones({kMany}, {.dtype = DType::kF64});
        const double by = op == ReduceOp::kMean ? 3 : 1;
        GradManager gm;
        std::vector<Tensor> seen;
        gm.attach(other, [&](const Tensor&, const Tensor& g) { return seen.push_back(g), g; });
        gm.attach({small, large, other, last}, make_allreduce_cb(op, {.gradient_as_bucket_view = view}));
        for (int step = 1; step <= 3; ++step) {
          for (const Tensor& p : {small, large, other, last}) p.set_grad({});
          auto recording = gm.record();
          Tensor loss = sum(other * factor) * ((rank + 1) * step) + sum(small) + sum(last);
          if (rank != 1) loss = loss + sum(large * factor) * (rank + 1);  // rank 1 does not reach it
          gm.backward(loss);
          for (const int64_t i : {int64_t(0), kMany - 1}) {
            EXPECT_NEAR(large.grad().data<double>()[i], 4 / by, 1e-12);
            EXPECT_NEAR(other.grad().data<double>()[i], 6 * step / by, 1e-12);
          }
          EXPECT_THAT(values(last.grad()), Each(testing::DoubleNear(3 / by, 1e-12)));
        }
        for (int step = 1; step <= 3; ++step)
          EXPECT_EQ(seen[size_t(step - 1)].data<double>()[kMany - 1], (rank + 1) * step);
      });
}

// A backward within a backward of the same callback throws, and so does the outer backward, even if the inner
// error is caught.
TEST(Reducer, ABackwardWithinAnotherOneEndsBoth) {
  for (const int world : {1, 2}) {
    const auto errors = errors_of(world, [] {
      const Tensor x = f64({1}), y = f64({1});
      const auto callback = make_allreduce_cb(ReduceOp::kSum, {});
      GradManager outer, inner;
      inner.attach(y, callback);
      outer.attach(x, [&](const Tensor&, const Tensor& g) {
        auto recording = inner.record();
        EXPECT_THROW(inner.backward(y * 2), StateError);
        return g;
      });
      outer.attach(x, callback);
      backward(outer, [&] { return x * 2; });
    });
    EXPECT_THAT(errors, Each(HasSubstr("one backward at a time"))) << world;
  }
}

// The user's collectives in forward and backward must not be matched with those of the reducer.
TEST(Reducer, TheUsersOwnCollectivesDoNotInterfere) {
  on_ranks(3, [] {
    const std::vector<Tensor> params = {f64({1}), f64({1}), f64({1})};
    GradManager gm;
    gm.attach(params, [](const Tensor&, const Tensor& g) {
      all_reduce(ones({3}));
      return g;
    });
    gm.attach(params, make_allreduce_cb(ReduceOp::kSum, {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6}));
    for (int step = 0; step < 20; ++step) {
      for (const Tensor& p : params) p.set_grad({});
      auto recording = gm.record();
      Tensor h = f64({1});
      for (const Tensor& p : params) h = functional::all_reduce(h * p * (get_rank() + 1)) / 6;
      gm.backward(h);
      // d(sum over ranks of h) / dp: each rank's h counts.
      for (const Tensor& p : params) EXPECT_THAT(values(p.grad()), Each(testing::DoubleNear(3, 1e-12)));
    }
  });
}

}  // namespace
}  // namespace gradus::dist
