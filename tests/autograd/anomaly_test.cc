// detect_anomaly() throws ValueError at the first op whose result or gradient is NaN or infinite; the error
// names the op, its layer and the element. Also on other threads, in checkpoints and on asynchronous devices.
#include "gradus/autograd/graph/anomaly.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <thread>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/layer.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// log(x - 1) is NaN below 1; the gradient of sqrt(x) is infinite at 0.
struct Tail : nn::Layer {
  Tail(nn::Module* owner, std::string name, bool with_log)
      : nn::Layer(owner, std::move(name)), with_log(with_log) {}
  Tensor forward(const Tensor& x) override { return with_log ? log(x - 1) : sqrt(x); }
  bool with_log;
};
struct Net : nn::Layer {
  explicit Net(bool with_log) : tail(this, "tail", with_log) {}
  Tensor forward(const Tensor& x) override { return exp(tail(x * weight)); }
  nn::Parameter weight{this, "weight", ones({3})};
  Tail tail;
};

struct Training {
  explicit Training(bool with_log) : net(with_log) { gm.attach(net.parameters()); }
  void step(const Tensor& x) {
    auto recording = gm.record();
    gm.backward(sum(net(x)));
  }
  Net net;
  GradManager gm;
};

const Tensor& two_fours_and_zero() {
  static const Tensor x = tensor({2.f, 4.f, 0.f});
  return x;
}

TEST(DetectAnomaly, NamesTheOpAndLayerOfAResult) {
  Training t(true);
  auto detecting = autograd::detect_anomaly();
  EXPECT_NO_THROW(t.step(full({3}, 2)));
  EXPECT_THAT(error_of<ValueError>([&] { t.step(two_fours_and_zero()); }),
              AllOf(StartsWith("in tail: [log] "), HasSubstr("nan at element 2")));
}

TEST(DetectAnomaly, NamesTheOpAndLayerOfAGradient) {
  Training t(false);
  auto detecting = autograd::detect_anomaly();
  EXPECT_NO_THROW(t.step(full({3}, 2)));
  EXPECT_THAT(error_of<ValueError>([&] { t.step(two_fours_and_zero()); }),
              AllOf(StartsWith("while running backward of sqrt (tail): "), HasSubstr("inf at element 2")));
  // The recording has ended, and the next one starts anew.
  EXPECT_NO_THROW(t.step(full({3}, 2)));
}

TEST(DetectAnomaly, LastsAsLongAsItsScope) {
  Training t(true);
  { auto detecting = autograd::detect_anomaly(); }
  EXPECT_NO_THROW(t.step(two_fours_and_zero()));
  EXPECT_EQ(Context::current().observer.get(), nullptr);
  EXPECT_EQ(internal::observers.load(), 0);
}

TEST(DetectAnomaly, CanLetInfinityPass) {
  const Tensor w = ones({2}), mask = tensor({0.f, -INFINITY});
  GradManager gm;
  gm.attach(w);
  const auto step = [&](double factor) {
    auto recording = gm.record();
    gm.backward(sum(softmax(w * factor + mask, 0) * tensor({1.f, 2.f})));
  };
  auto detecting = autograd::detect_anomaly({.infinity = false});
  EXPECT_NO_THROW(step(1));
  EXPECT_THAT(error_of<ValueError>([&] { step(NAN); }), StartsWith("[mul] "));
  auto strictly = autograd::detect_anomaly();
  EXPECT_THAT(error_of<ValueError>([&] { step(1); }),
              AllOf(StartsWith("[add] "), HasSubstr("-inf at element 1")));
}

TEST(DetectAnomaly, SeesThreadsCheckpointsAndOtherDevices) {
  Training t(true);
  auto detecting = autograd::detect_anomaly();
  std::string error;
  std::thread([&, context = Context::current().snapshot()]() mutable {
    ContextScope scope(context);
    error = error_of<ValueError>([&] { t.step(two_fours_and_zero()); });
  }).join();
  EXPECT_THAT(error, HasSubstr("[log] "));

  const Tensor w = ones({3});
  GradManager gm;
  gm.attach(w);
  const auto through_checkpoint = [&] {
    auto recording = gm.record();
    gm.backward(sum(autograd::checkpoint([](const Tensor& x) { return sqrt(x - 1); }, w)));
  };
  EXPECT_THAT(error_of<ValueError>(through_checkpoint),
              AllOf(HasSubstr("while running backward of sqrt"), HasSubstr("inf")));

  const Tensor queued = full({3}, 1, {.device = Device{DeviceType::kCPU, 1}});
  gm.attach(queued);
  EXPECT_THAT(error_of<ValueError>([&] {
                auto recording = gm.record();
                gm.backward(sum(sqrt(queued - 1)));
              }),
              StartsWith("while running backward of sqrt"));
}

}  // namespace
}  // namespace gradus
