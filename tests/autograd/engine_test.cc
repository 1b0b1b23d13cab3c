// Recordings and the backward engine: several managers, threads, checkpoints, devices, second order, errors.
// Expected gradients are exact closed forms. cpu:1 and cpu:2 run kernels asynchronously on their own streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

Tensor vec(std::initializer_list<double> values) { return tensor(values); }
std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }
using V = std::vector<double>;

TEST(Engine, APausedRecordingStandsBesideAnotherOne) {
  Tensor w = vec({2});
  GradManager gm;
  gm.attach(w);
  std::vector<Recording> in_flight;
  std::vector<Tensor> losses;
  for (double x : {1.0, 10.0, 100.0}) {
    Recording r = gm.record();
    losses.push_back(w * w * x);
    in_flight.push_back(std::move(r).pause());
  }
  const Tensor unrecorded = w * 5;
  EXPECT_FALSE(unrecorded.impl().slot);
  in_flight[1].backward(losses[1]);
  EXPECT_EQ(values(w.grad()), V{40});
  in_flight[0].resume();
  losses[0] = losses[0] * 3;
  in_flight[0].backward(losses[0]);
  EXPECT_EQ(values(w.grad()), V{52});
  in_flight[2].backward(losses[2]);
  EXPECT_EQ(values(w.grad()), V{452});
}

TEST(Engine, AGradientOfAGradientPassesThroughACallback) {
  Tensor x = vec({3});
  GradManager outer, inner;
  outer.attach(x);
  inner.attach(x, [](const Tensor&, const Tensor& g) { return g * g; });
  auto r_outer = outer.record();
  {
    auto r_inner = inner.record();
    inner.backward(x * x * x);  // 3x^2, squared by the callback: 9x^4
  }
  const Tensor g = x.grad();
  EXPECT_EQ(values(g), V{729});
  x.set_grad({});
  outer.backward(g);  // 36x^3
  EXPECT_EQ(values(x.grad()), V{972});
}

TEST(Engine, AWorkerThreadRecordsOnlyWithItsCallersContext) {
  Tensor w = vec({2});
  GradManager gm;
  gm.attach(w);
  auto recording = gm.record();
  Tensor with, without;
  Context callers = Context::current().snapshot();
  std::thread([&] { without = w * 3; }).join();
  std::thread([&] {
    const ContextScope scope(callers);
    with = w * 3;
  }).join();
  EXPECT_FALSE(without.impl().slot);
  gm.backward(with);
  EXPECT_EQ(values(w.grad()), V{3});
}

TEST(Engine, ACheckpointedSegmentHasTheGradientsOfAPlainOne) {
  Tensor w = vec({0.5}), v = vec({-0.25}), x = vec({2});
  int calls = 0;
  auto segment = [&](const Tensor& t) {
    ++calls;
    return exp(t * w) * v + t;
  };
  auto gradients = [&](bool checkpointed) {
    GradManager gm;
    gm.attach({w, v, x});
    auto recording = gm.record();
    const Tensor h = square(x);
    gm.backward(sum((checkpointed ? autograd::checkpoint(segment, h) : segment(h)) * w));
    V g{values(w.grad())[0], values(v.grad())[0], values(x.grad())[0]};
    for (const Tensor& t : {w, v, x}) t.set_grad({});
    return g;
  };
  const V plain = gradients(false);
  calls = 0;
  EXPECT_EQ(gradients(true), plain);
  EXPECT_EQ(calls, 2);
}

TEST(Engine, ACheckpointedSegmentDrawsTheSameRandomNumbersAgain) {
  Tensor x = tensor(std::vector<double>(64, 1.0), {64});
  auto run = [&](bool checkpointed) {
    manual_seed(7);
    auto f = [](const Tensor& t) { return dropout(t, 0.5, true) * t; };
    GradManager gm;
    gm.attach(x);
    auto recording = gm.record();
    const Tensor y = checkpointed ? autograd::checkpoint(f, x) : f(x);
    const Tensor after = rand({2});
    gm.backward(sum(y));
    V g = values(x.grad());
    x.set_grad({});
    for (double u : after.to_vector<double>()) g.push_back(u);
    return g;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Engine, ACheckpointedPoolingOfAReluFromOutsideHasItsGradient) {
  const Tensor x = tensor(std::vector<double>{-1, 2, 3, -4}, {1, 1, 2, 2}), z = vec({5});
  GradManager gm;
  gm.attach({x, z});
  auto recording = gm.record();
  const Tensor h = relu(x);
  gm.backward(
      sum(autograd::checkpoint([&](const Tensor& t) { return max_pool2d(h, {.kernel = 2}) * t; }, z)));
  EXPECT_EQ(values(x.grad()), (V{0, 0, 5, 0}));
  EXPECT_EQ(values(z.grad()), V{3});
}

TEST(Engine, MisuseIsATypedError) {
  GradManager gm;
  const GradManager moved = std::move(gm);
  EXPECT_THROW((void)gm.record(), StateError);
  EXPECT_THROW(gm.attach(vec({1})), StateError);
  EXPECT_THROW(autograd::apply(nullptr, {vec({1})}), ValueError);
  EXPECT_THROW(vec({1}).set_grad(vec({1, 2})), ShapeError);
  const Tensor x = vec({1});
  EXPECT_THROW(x.set_grad(x), ValueError);  // it would keep itself alive
}

TEST(Engine, ACheckpointedSegmentIsRightAtSecondOrder) {
  const Tensor w = vec({0.5});
  auto f = [&](const Tensor& x) {
    return autograd::checkpoint([&](const Tensor& t) { return t * t * t * w; }, x);
  };
  auto df = [&](const Tensor& x) { return autograd::grad(f, x); };
  EXPECT_EQ(values(df(vec({2}))), V{6});                  // 3 w x^2
  EXPECT_EQ(values(autograd::grad(df, vec({2}))), V{6});  // 6 w x
}

TEST(Engine, OpsOnAnAsynchronousDeviceRunBackwardThere) {
  const Device device = Device::parse("cpu:1");
  Tensor w = to(vec({1, 2, 3}), device);
  GradManager gm;
  gm.attach(w);
  auto recording = gm.record();
  Tensor y = sum(square(w) * w);
  const Tensor home = to(y, kCPU);
  gm.backward(home);
  EXPECT_EQ(w.grad().device(), device);
  EXPECT_EQ(values(w.grad()), (V{3, 12, 27}));
}

TEST(Engine, ErrorsOfAsynchronousKernelsSurfaceWhereTheHostWaits) {
  const Device device = Device::parse("cpu:2");
  const Stream stream = Stream::of(device);
  stream.enqueue([] { throw IndexError("probe", "out of range"); });
  EXPECT_THROW(synchronize(device), IndexError);
  synchronize(device);  // reported once
}

TEST(Engine, AChainOf200000OpsRunsBackwardAndIsFreedWithoutRecursion) {
  Tensor x = vec({1});
  GradManager gm;
  gm.attach(x);
  {
    auto recording = gm.record();
    Tensor y = x;
    for (int i = 0; i < 200000; ++i) y = y + 1.0;
    gm.backward(y);
    EXPECT_EQ(values(x.grad()), V{1});
  }
  {
    auto recording = gm.record();  // freed by dropping its last tensor, while the recording is open
    Tensor y = x;
    for (int i = 0; i < 200000; ++i) y = y * 1.0;
  }
  auto recording = gm.record();  // freed by the end of the recording, tensor kept
  Tensor y = x;
  for (int i = 0; i < 200000; ++i) y = y * 1.0;
  recording.release();
  EXPECT_FALSE(autograd::is_tracked(y));
}

TEST(Engine, SavedTensorsAreFreedWhileTheBackwardRuns) {
  Tensor x = rand({1 << 16});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  Tensor y = x;
  for (int i = 0; i < 32; ++i) y = tanh(y);
  const Tensor loss = sum(y);
  y = Tensor();
  const int64_t saved = memory_stats().live_bytes;
  reset_peak_memory();
  gm.backward(loss);
  // A few gradients of 256 KiB on top of what forward saved; nothing else.
  EXPECT_LT(memory_stats().peak_bytes, saved + 4 * x.nbytes());
}

TEST(Engine, ErrorsSayWhatToDo) {
  Tensor x = vec({1, 2});
  GradManager gm;
  gm.attach(x);
  auto expect_error = [](auto&& f, const char* text) { EXPECT_ERROR(Error, f(), text); };
  expect_error([&] { gm.backward(x); }, "call record()");
  {
    auto r = gm.record();
    expect_error([&] { gm.backward(x * 2); }, "f64[2]");
  }
  {
    auto r = gm.record();
    expect_error([&] { gm.backward(sum(detach(x))); }, "depends on no attached tensor");
  }
  {
    auto r = gm.record();
    gm.backward(sum(x));
    expect_error([&] { gm.backward(sum(x)); }, "no computation history");
  }
  expect_error([&] { gm.attach(tensor({1, 2})); }, "i64[2]");
}

TEST(Engine, GradientsOfOneTensorAreNotSharedBetweenLeaves) {
  Tensor a = vec({1}), b = vec({2});
  GradManager gm;
  gm.attach({a, b});
  auto recording = gm.record();
  gm.backward(a + b);
  a.grad().mutable_data<double>()[0] = 9;
  EXPECT_EQ(values(b.grad()), V{1});
}

TEST(Engine, BackwardSumsOverBroadcastDimensionsAndKeepsDtype) {
  Tensor a = tensor(std::vector<float>(6, 2.f), {2, 3}), b = tensor(std::vector<float>{1, 2, 3}, {3});
  GradManager gm;
  gm.attach({a, b});
  auto recording = gm.record();
  gm.backward(sum(a * b));
  EXPECT_EQ(b.grad().shape(), (Shape{3}));
  EXPECT_EQ(values(b.grad()), (V{4, 4, 4}));
  EXPECT_EQ(a.grad().dtype(), DType::kF32);
}

TEST(Engine, OnlyNarrowsARecordingToTheNamedTensors) {
  Tensor d = vec({2}), g = vec({3});
  GradManager gm;
  gm.attach({d, g});
  {
    auto recording = gm.record({.only = d});
    gm.backward(d * g);
  }
  EXPECT_EQ(values(d.grad()), V{3});
  EXPECT_FALSE(g.grad().defined());
  EXPECT_THROW((void)gm.record({.only = vec({1})}), StateError);
}

TEST(Functional, GradOfGradIsTheSecondDerivative) {
  auto f = [](const Tensor& x) { return sum(x * x * x); };
  auto df = [&](const Tensor& x) { return autograd::grad(f, x); };
  auto ddf = [&](const Tensor& x) { return autograd::grad([&](const Tensor& t) { return sum(df(t)); }, x); };
  EXPECT_EQ(values(df(vec({1, 2}))), (V{3, 12}));
  EXPECT_EQ(values(ddf(vec({1, 2}))), (V{6, 12}));
  EXPECT_EQ(values(autograd::grad([&](const Tensor& t) { return sum(ddf(t)); }, vec({1, 2}))), (V{6, 6}));
}

TEST(Functional, AGradientPenaltyReachesTheWeights) {
  // f(x) = w x^2; (df/dx)^2 = 4 w^2 x^2; its derivative with respect to w is 8 w x^2.
  Tensor w = vec({3}), x = vec({2});
  GradManager gm;
  gm.attach(w);
  auto recording = gm.record();
  const Tensor gx = autograd::grad([&](const Tensor& t) { return sum(w * t * t); }, x);
  gm.backward(square(gx));
  EXPECT_EQ(values(w.grad()), V{96});
}

TEST(Functional, GradOfTrackedTensorsLeavesTheRecordingOpen) {
  Tensor w = vec({3});
  GradManager gm;
  gm.attach(w);
  auto recording = gm.record();
  const Tensor h = w * w;
  const Tensor y = h * h;
  const auto g = autograd::grad(y, {h, w});
  EXPECT_EQ(values(g[0]), V{18});
  EXPECT_EQ(values(g[1]), V{108});
  gm.backward(g[1] + y);  // 12 w^2 + 4 w^3
  EXPECT_EQ(values(w.grad()), V{216});
}

TEST(Functional, AFusedNodeSplitsWhenTheValueInsideItIsAskedFor) {
  const Tensor x = tensor(std::vector<double>{-1, 2, 3, -4}, {1, 1, 2, 2});
  const Tensor all_negative = tensor(std::vector<double>{-1, -2, -3, -4}, {1, 1, 2, 2});
  for (const Tensor& input : {x, all_negative}) {
    GradManager gm;
    gm.attach(input);
    auto recording = gm.record();
    const Tensor h = relu(input);
    const Tensor y = max_pool2d(h, {.kernel = 2});
    const auto g = autograd::grad(sum(y), {h, input});
    // The pooling passes its gradient to the first maximum, also where that is the relu's 0.
    EXPECT_EQ(values(g[0]), input.is_same(x) ? (V{0, 0, 1, 0}) : (V{1, 0, 0, 0}));
    EXPECT_EQ(values(g[1]), input.is_same(x) ? (V{0, 0, 1, 0}) : (V{0, 0, 0, 0}));
  }
}

TEST(Functional, GradIsZeroWhereTheFunctionDoesNotDependOnItsArgument) {
  EXPECT_EQ(values(autograd::grad([](const Tensor&) { return tensor({1.0}); }, vec({1, 2}))), (V{0, 0}));
}

TEST(Functional, ExplainNamesWhatIsReachedAndWhereTheRestEnds) {
  Tensor a = vec({1}), b = vec({2}), c = vec({3});
  GradManager gm;
  gm.attach({a, b, c});
  auto recording = gm.record();
  const Tensor cut = exp(b);
  const Tensor loss = sum(a * detach(cut));
  const std::string text = autograd::explain(loss, {"a", "b", "c"});
  EXPECT_THAT(text, testing::HasSubstr("a f64[1] cpu: reached: mul -> sum"));
  EXPECT_THAT(text,
              testing::HasSubstr("b f64[1] cpu: not reached: used by exp, whose result goes no further"));
  EXPECT_THAT(text, testing::HasSubstr("c f64[1] cpu: not reached: no recorded op uses it"));
}

}  // namespace
}  // namespace gradus
