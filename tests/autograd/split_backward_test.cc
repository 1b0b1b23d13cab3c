// Recording::backward_inputs() then backward_weights() against one backward(): bit-equal gradients, each rule
// runs once, and the memory kept in between is bounded.
#include <gmock/gmock.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/runtime/memory.h"
#include "gradus/tests/ops/values.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using testing::ElementsAre;
using Values = std::vector<double>;

Values grad_of(const Tensor& x) { return x.grad().defined() ? x.grad().to_vector<double>() : Values(); }
std::vector<Values> grads_of(const std::vector<Tensor>& xs) {
  std::vector<Values> all;
  for (const Tensor& x : xs) all.push_back(grad_of(x));
  return all;
}

Tensor f64(const Shape& shape, uint64_t seed) { return random_tensor(shape, DType::kF64, seed); }

using Function = std::function<Tensor(const std::vector<Tensor>& inputs, const std::vector<Tensor>& weights)>;

// Differentiates f by one backward and by the two parts: expects the same bits, and none for weights after
// the first.
void expect_same(const std::vector<Tensor>& inputs, const std::vector<Tensor>& weights, const Function& f) {
  std::vector<Tensor> all = inputs;
  all.insert(all.end(), weights.begin(), weights.end());
  GradManager gm;
  gm.attach(all);
  std::vector<Values> want;
  for (int parts = 1; parts <= 2; ++parts) {
    for (const Tensor& x : all) x.set_grad({});
    manual_seed(1);
    auto recording = gm.record();
    const Tensor y = f(inputs, weights);
    const Tensor dy = f64(y.shape(), 99);
    const Tensor cast_dy = to(dy, y.dtype());
    if (parts == 1) {
      recording.backward(y, cast_dy);
      want = grads_of(all);
      continue;
    }
    recording.backward_inputs(inputs, y, cast_dy);
    for (size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(grad_of(inputs[i]), want[i]) << "input " << i;
    for (const Tensor& w : weights) EXPECT_FALSE(w.grad().defined());
    recording.backward_weights();
    EXPECT_FALSE(recording.is_open());
    const auto got = grads_of(all);
    EXPECT_EQ(got, want);
  }
}

TEST(SplitBackward, ALinearLayer) {
  expect_same({f64({3, 4}, 1)}, {f64({5, 4}, 2), f64({5}, 3)},
              [](auto& x, auto& w) { return linear(x[0], w[0], w[1]); });
}
TEST(SplitBackward, AWeightUsedTwice) {
  expect_same({f64({3, 4}, 1)}, {f64({4, 4}, 2)},
              [](auto& x, auto& w) { return tanh(matmul(tanh(matmul(x[0], w[0])), w[0])); });
}
TEST(SplitBackward, WeightsThatAreComputed) {
  expect_same({f64({3, 4}, 1)}, {f64({5, 4}, 2), f64({5}, 3)}, [](auto& x, auto& w) {
    const Tensor scaled = transpose(exp(w[0]) * unsqueeze(w[1], 1), 0, 1);
    return matmul(x[0], scaled) + w[1] + sum(scaled);
  });
}
TEST(SplitBackward, BranchesAndSkips) {
  expect_same({f64({3, 4}, 1), f64({3, 4}, 2)}, {f64({4, 4}, 3), f64({4, 4}, 4)}, [](auto& x, auto& w) {
    const Tensor a = relu(matmul(x[0], w[0])), b = sigmoid(matmul(x[1], w[1]));
    return cat({a * b, x[0] + matmul(a, w[1]), b}, 1);
  });
}
TEST(SplitBackward, InputsThatAreNotReached) {
  expect_same({f64({3}, 1), f64({3}, 2)}, {f64({3}, 3)}, [](auto& x, auto& w) { return x[0] * w[0]; });
  expect_same({f64({3}, 1)}, {f64({3}, 3)}, [](auto&, auto& w) { return exp(w[0]); });
  expect_same({f64({3}, 1)}, {}, [](auto& x, auto&) { return exp(x[0]); });
}
TEST(SplitBackward, AnAttachedTensorOnTheWayToAnInput) {
  // The weight's gradient is known in the first part, and waits for the second.
  const Tensor x = f64({3}, 1), w = f64({3}, 2);
  GradManager gm;
  gm.attach({x, w});
  auto recording = gm.record();
  const Tensor h = x * w;
  gm.attach(h);
  const Tensor y = exp(h);
  recording.backward_inputs(x, y, ones_like(y));
  EXPECT_EQ(grad_of(x), (exp(x * w) * w).to_vector<double>());
  EXPECT_FALSE(h.grad().defined());
  recording.backward_weights();
  EXPECT_EQ(grad_of(h), exp(x * w).to_vector<double>());
  EXPECT_EQ(grad_of(w), (exp(x * w) * x).to_vector<double>());
}
TEST(SplitBackward, ConvolutionsAndNorms) {
  expect_same({f64({2, 4, 6, 6}, 1)},
              {f64({4, 4, 3, 3}, 2), f64({4}, 3), f64({4}, 4), f64({4}, 5), f64({6}, 6)},
              [](auto& x, auto& w) {
                const Tensor h = conv2d(x[0], w[0], w[1], {.padding = 1});
                return layer_norm(relu(group_norm(h, 2, w[2], w[3])), {6}, w[4]);
              });
}
TEST(SplitBackward, BatchNormAndDropout) {
  nn::Sequential net({nn::layer<nn::Conv2d>({.in = 2, .out = 4, .kernel = 3}),
                      nn::layer<nn::BatchNorm2d>({.features = 4}), nn::layer<nn::ReLU>(),
                      nn::layer<nn::Dropout>({.p = 0.5}), nn::layer<nn::Flatten>(),
                      nn::layer<nn::Linear>({.in = 64, .out = 3})});
  net.to(DType::kF64);
  expect_same({f64({3, 2, 6, 6}, 1)}, net.parameters(), [&](auto& x, auto&) { return net(x[0]); });
}
TEST(SplitBackward, Checkpoints) {
  expect_same({f64({3, 4}, 1)}, {f64({4, 4}, 2), f64({4, 4}, 3)}, [](auto& x, auto& w) {
    const Tensor h = autograd::checkpoint([&](const Tensor& in) { return tanh(matmul(in, w[0])); }, x[0]);
    return matmul(h, w[1]);
  });
}
TEST(SplitBackward, AutocastToBF16) {
  const Tensor x = random_tensor({3, 4}), w = random_tensor({5, 4}, DType::kF32, 2), b = random_tensor({5});
  expect_same({x}, {w, b}, [](auto& x, auto& w) {
    const Autocast scope(DType::kBF16);
    return linear(x[0], w[0], w[1]);
  });
}

// x * w; counts the calls of its rules: calls[0] for x, calls[1] for w.
Tensor counted(const Tensor& x, const Tensor& w, std::array<int, 2>& calls) {
  Tensor y = detach(x * w);
  if (Recorder r{"counted", x, w})
    r.record(y, wrt(x, [w = r.save(w), &calls](const Tensor& dy) { return ++calls[0], dy * w.get(); }),
             wrt(w, [x = r.save(x), &calls](const Tensor& dy) { return ++calls[1], dy * x.get(); }));
  return y;
}

TEST(SplitBackward, EachRuleRunsOnceAndInItsPart) {
  const Tensor x = f64({3}, 1), w = f64({3}, 2);
  GradManager gm;
  gm.attach({x, w});
  auto recording = gm.record();
  std::array<int, 2> calls{};
  const Tensor y = counted(counted(x, w, calls), w, calls);
  recording.backward_inputs(x, y, ones_like(y));
  EXPECT_THAT(calls, ElementsAre(2, 0));
  recording.backward_weights();
  EXPECT_THAT(calls, ElementsAre(2, 2));
}

TEST(SplitBackward, RecordingsMayInterleave) {
  const Tensor w = f64({4, 4}, 7);
  std::vector<Tensor> xs;
  for (int k = 0; k < 3; ++k) xs.push_back(f64({2, 4}, 10 + k));
  GradManager gm;
  gm.attach(w);
  for (const Tensor& x : xs) {
    auto recording = gm.record();
    gm.backward(sum(tanh(matmul(x, w))));
  }
  const Values want = grad_of(w);
  w.set_grad({});
  gm.attach(xs);
  std::vector<Recording> recordings;
  std::vector<Tensor> losses;
  for (const Tensor& x : xs) {
    recordings.push_back(gm.record());
    losses.push_back(sum(tanh(matmul(x, w))));
    recordings.back().pause();
  }
  recordings[0].backward_inputs(xs[0], losses[0]);
  recordings[1].backward_inputs(xs[1], losses[1]);
  recordings[0].backward_weights();
  recordings[2].backward_inputs(xs[2], losses[2]);
  recordings[1].backward_weights();
  recordings[2].backward_weights();
  EXPECT_EQ(grad_of(w), want);
  for (const Tensor& x : xs) EXPECT_TRUE(x.grad().defined());
}

TEST(SplitBackward, KeepsInputsOfLayersAndGradientsOfTheirResults) {
  constexpr int64_t kRows = 1000, kWidth = 64, kBytes = kRows * kWidth * 8;
  const Tensor x = f64({kRows, kWidth}, 1), w1 = f64({kWidth, kWidth}, 2), w2 = f64({kWidth, kWidth}, 3);
  GradManager gm;
  gm.attach({x, w1, w2}, Callback::Function([](const Tensor&, const Tensor& g) { return g; }));
  const int64_t before = memory_stats(kCPU).live_bytes;
  auto recording = gm.record();
  {
    Tensor h = matmul(tanh(sigmoid(tanh(matmul(x, w1)))), w2);
    Tensor y = mean(sigmoid(tanh(h)));
    h = {};
    recording.backward_inputs(x, y);
  }
  x.set_grad({});
  // Kept: the input of the second layer, and the gradients of both layers' results.
  EXPECT_NEAR(double(memory_stats(kCPU).live_bytes - before) / kBytes, 3, 0.1);
  recording.backward_weights();
  // The gradients of two weights, each 64 / 1000 of kBytes.
  EXPECT_NEAR(double(memory_stats(kCPU).live_bytes - before) / kBytes, 0.13, 0.05);
}

TEST(SplitBackward, DroppedInBetweenItFreesAll) {
  const Tensor x = f64({1000}, 1), w = f64({1000}, 2);
  GradManager gm;
  gm.attach({x, w});
  const auto live_after_half_a_backward = [&] {
    {
      auto recording = gm.record();
      recording.backward_inputs(x, sum(exp(x * w)));
    }
    x.set_grad({});
    return memory_stats(kCPU).live_bytes;
  };
  const int64_t first = live_after_half_a_backward();  // with the loss's gradient, which the manager keeps
  EXPECT_EQ(live_after_half_a_backward(), first);
  EXPECT_FALSE(w.grad().defined());
}

// Logs its calls, and which of its tensors the loss reaches.
struct Watcher : GradCallback {
  std::vector<std::string> calls;
  std::vector<bool> flags;
  void begin(const std::vector<Tensor>&, const std::vector<bool>& reached) override {
    calls.push_back("begin"), flags = reached;
  }
  std::optional<Tensor> ready(const Tensor&, const Tensor& grad) override {
    return calls.push_back("ready"), grad;
  }
  std::vector<Delivery> finish() override { return calls.push_back("finish"), std::vector<Delivery>(); }
  void abandon(std::exception_ptr) noexcept override { calls.push_back("abandon"); }
};

TEST(SplitBackward, CallbackObjectsSeeTheSecondPartAsABackward) {
  const Tensor x = f64({2, 3}, 1), w = f64({3}, 2), b = f64({3}, 3), unused = f64({3}, 4);
  const auto watcher = std::make_shared<Watcher>();
  GradManager gm;
  gm.attach(x);
  gm.attach({w, b, unused}, watcher);
  auto recording = gm.record();
  const Tensor y = layer_norm(x, {3}, w, b);
  recording.backward_inputs(x, y, ones_like(y));
  EXPECT_THAT(watcher->calls, ElementsAre());
  recording.backward_weights();
  EXPECT_THAT(watcher->calls, ElementsAre("begin", "ready", "ready", "ready", "finish"));
  EXPECT_THAT(watcher->flags, ElementsAre(true, true, false));
  EXPECT_TRUE(w.grad().defined() && b.grad().defined());
}

TEST(SplitBackward, Errors) {
  const Tensor x = f64({3}, 1), w = f64({3}, 2);
  const auto watcher = std::make_shared<Watcher>();
  GradManager gm, outer;
  gm.attach({x, w});
  outer.attach(w);
  {
    auto recording = gm.record();
    EXPECT_ERROR(Error, recording.backward_weights(), "call backward_inputs first");
    EXPECT_ERROR(Error, recording.backward_inputs(f64({3}, 5), sum(x * w)),
                 "an input must be attached to the manager: f64[3]");
    EXPECT_ERROR(Error, recording.backward_inputs(x, x * w), "pass its dy");
    EXPECT_ERROR(Error, recording.backward_inputs(x, f64({}, 1)), "depends on no attached");
    recording.backward_inputs(x, sum(x * w));
    EXPECT_ERROR(Error, recording.backward_inputs(x, sum(x * w)), "has begun already");
    EXPECT_ERROR(Error, recording.backward(sum(x * w)), "call backward_weights");
    recording.backward_weights();
    EXPECT_ERROR(Error, recording.backward_weights(), "already used");
  }
  {
    auto seeing = outer.record();
    auto recording = gm.record();
    EXPECT_ERROR(Error, recording.backward_inputs(x, sum(x * w)),
                 "for first order alone, and a recording that was opened before this one would record "
                 "it for the second order");
  }
  gm.attach(w, watcher);
  auto recording = gm.record();
  EXPECT_ERROR(Error, recording.backward_inputs(w, sum(x * w)), "must be functions");
}

// x * w, whose rule for x (`first`) or for w throws.
Tensor throwing(const Tensor& x, const Tensor& w, bool first) {
  Tensor y = detach(x * w);
  if (Recorder r{"throwing", x, w})
    r.record(y, wrt(x, [first](const Tensor& dy) { return first ? throw ValueError("throwing", "no") : dy; }),
             wrt(w, [first](const Tensor& dy) { return first ? dy : throw ValueError("throwing", "no"); }));
  return y;
}

TEST(SplitBackward, AnExceptionEndsTheRecording) {
  for (const bool first : {true, false}) {
    const Tensor x = f64({3}, 1), w = f64({3}, 2);
    const auto watcher = std::make_shared<Watcher>();
    GradManager gm;
    gm.attach(x);
    gm.attach(w, watcher);
    auto recording = gm.record();
    const Tensor loss = sum(throwing(x, w, first));
    if (first) {
      EXPECT_THROW(recording.backward_inputs(x, loss), ValueError);
      EXPECT_THAT(watcher->calls, ElementsAre("abandon"));
    } else {
      recording.backward_inputs(x, loss);
      EXPECT_THROW(recording.backward_weights(), ValueError);
      EXPECT_THAT(watcher->calls, ElementsAre("begin", "abandon"));
    }
    EXPECT_FALSE(recording.is_open());
    EXPECT_FALSE(w.grad().defined());
  }
}

}  // namespace
}  // namespace gradus
