// Activation checkpointing against the same network without it: bit-equal gradients, buffers and random
// numbers. Also the live memory during a backward, with and without checkpoints.
#include <gtest/gtest.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/runtime/memory.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using Values = std::vector<std::vector<double>>;

Values values_of(const std::vector<Tensor>& xs) {
  Values all;
  for (const Tensor& x : xs) all.push_back(x.defined() ? x.to_vector<double>() : std::vector<double>());
  return all;
}

nn::LayerFactory block(int64_t in, int64_t out, double p = 0) {
  return [=](nn::Module* parent, const std::string& name) {
    return std::make_unique<nn::Sequential>(
        parent, name,
        std::vector{nn::layer<nn::Conv2d>({.in = in, .out = out, .kernel = 3, .padding = 1}),
                    nn::layer<nn::BatchNorm2d>({.features = out}), nn::layer<nn::ReLU>(),
                    nn::layer<nn::Dropout>({.p = p})});
  };
}

struct Step {
  Values grads, buffers;
  double loss, next_random;
};

// One training step of five blocks in `segments` checkpointed segments; 0: without checkpoints.
Step step_in_segments(int64_t segments) {
  manual_seed(5);
  nn::Sequential net({block(2, 4, 0.3), block(4, 4), block(4, 4, 0.5), block(4, 4), block(4, 3)});
  const Tensor x = randn({3, 2, 6, 6});
  GradManager gm;
  gm.attach(net.parameters());
  auto recording = gm.record();
  const Tensor loss = sum(square(segments ? nn::checkpoint_sequential(net, segments, x) : net(x)));
  gm.backward(loss);
  Step s{{}, values_of(net.buffers()), loss.item<double>(), rand({1}).item<double>()};
  for (const Tensor& p : net.parameters()) s.grads.push_back(p.grad().to_vector<double>());
  return s;
}

TEST(CheckpointSequential, GivesTheSameBitsAsThePlainNetwork) {
  const Step plain = step_in_segments(0);
  for (int64_t segments : {1, 2, 3, 5}) {
    const Step s = step_in_segments(segments);
    EXPECT_EQ(s.loss, plain.loss) << segments;
    EXPECT_EQ(s.grads, plain.grads) << segments;
    EXPECT_EQ(s.buffers, plain.buffers) << segments << ": running statistics move once";
    EXPECT_EQ(s.next_random, plain.next_random) << segments;
  }
}

TEST(CheckpointSequential, ExplainsWrongSegments) {
  nn::Sequential net({nn::layer<nn::ReLU>(), nn::layer<nn::ReLU>()});
  const Tensor x = randn({2, 3});
  for (int64_t segments : {-1, 0, 3}) {
    EXPECT_ERROR(ValueError, nn::checkpoint_sequential(net, segments, x), "expected 1 to 2 segments");
  }
}

TEST(Checkpoint, LeavesBatchNormsStatisticsAloneTheSecondTime) {
  for (std::optional<double> momentum : {std::optional(0.1), std::optional<double>()}) {
    nn::BatchNorm1d bn({.features = 3, .momentum = momentum});
    const Tensor x = randn({8, 3});
    GradManager gm;
    gm.attach(bn.parameters());
    for (int i = 1; i <= 2; ++i) {
      auto recording = gm.record();
      const Tensor y = autograd::checkpoint([&](const Tensor& t) { return bn(t); }, x);
      const Values before = values_of(bn.buffers());
      gm.backward(sum(square(y)));
      EXPECT_EQ(values_of(bn.buffers()), before);
      EXPECT_EQ(bn.num_batches_tracked.item<int64_t>(), i);
    }
  }
}

TEST(Checkpoint, LeavesInstanceNormsStatisticsAloneTheSecondTime) {
  nn::InstanceNorm1d norm({.features = 3, .affine = true, .track_running_stats = true});
  const Tensor x = randn({2, 3, 5});
  GradManager gm;
  gm.attach(norm.parameters());
  auto recording = gm.record();
  const Tensor y = autograd::checkpoint([&](const Tensor& t) { return norm(t); }, x);
  const Values before = values_of(norm.buffers());
  gm.backward(sum(square(y)));
  EXPECT_EQ(values_of(norm.buffers()), before);
}

TEST(Checkpoint, LeavesPowerIterationsAloneTheSecondTime) {
  const auto step = [](bool checkpointed) {
    manual_seed(2);
    nn::Linear layer({.in = 5, .out = 4});
    nn::apply_spectral_norm(layer, {});
    const Tensor x = randn({3, 5});
    GradManager gm;
    gm.attach(layer.parameters());
    auto recording = gm.record();
    const auto f = [&](const Tensor& t) { return tanh(layer(t)); };
    gm.backward(sum(checkpointed ? autograd::checkpoint(f, x) : f(x)));
    Values all = values_of(layer.buffers());
    for (const Tensor& p : layer.parameters()) all.push_back(p.grad().to_vector<double>());
    return all;
  };
  EXPECT_EQ(step(true), step(false));
}

TEST(Checkpoint, TakesSeveralInputs) {
  const Tensor a = randn({3, 4}), b = randn({4}), w = randn({4});
  const Tensor rows = tensor({2, 0, 1});
  const auto f = [&](const std::vector<Tensor>& in) {
    EXPECT_FALSE(in[3].defined());
    return index_select(in[0] * w, 0, in[2]) * exp(in[1]) + in[1];
  };
  const auto gradients = [&](bool checkpointed) {
    GradManager gm;
    gm.attach({a, b, w});
    auto recording = gm.record();
    const std::vector<Tensor> in{a * 2, b, rows, Tensor()};
    gm.backward(sum(square(checkpointed ? autograd::checkpoint(f, in) : f(in))));
    Values g = values_of({a.grad(), b.grad(), w.grad()});
    for (const Tensor& t : {a, b, w}) t.set_grad({});
    return g;
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

TEST(Checkpoint, NestsAndSeesEachParameterOnce) {
  const Tensor w = randn({4}), x = randn({4});
  const auto inner = [&](const Tensor& t) { return tanh(t * w); };
  const auto outer = [&](const Tensor& t) {
    return autograd::checkpoint(inner, autograd::checkpoint(inner, t)) * w;
  };
  const auto gradient = [&](bool checkpointed) {
    int calls = 0;
    GradManager gm;
    gm.attach(w, [&](const Tensor&, const Tensor& g) { return ++calls, g; });
    auto recording = gm.record();
    gm.backward(sum(checkpointed ? autograd::checkpoint(outer, x) : inner(inner(x)) * w));
    EXPECT_EQ(calls, 1);
    const std::vector<double> g = w.grad().to_vector<double>();
    w.set_grad({});
    return g;
  };
  const std::vector<double> once = gradient(true), plain = gradient(false);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(once[i], plain[i], 1e-6);  // sums in another order
}

TEST(Checkpoint, ErrorsInBackwardNameTheLayer) {
  struct Fragile : nn::Layer {
    using Layer::Layer;
    Tensor forward(const Tensor& x) override {
      if (autograd::is_recomputing()) throw ValueError("fragile", "breaks");
      return exp(x);
    }
  };
  struct Net : nn::Layer {
    nn::Sequential blocks{this, "blocks"};
    Tensor forward(const Tensor& x) override { return nn::checkpoint_sequential(blocks, 2, x); }
  } net;
  net.blocks.add<Fragile>();
  net.blocks.add<Fragile>();
  const Tensor x = randn({2});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  const Tensor loss = sum(net(x));
  EXPECT_ERROR(Error, gm.backward(loss), "blocks.0", "[fragile] breaks");
  EXPECT_FALSE(autograd::is_recomputing());
  EXPECT_TRUE(Context::current().module_path.empty());
}

constexpr int64_t kRows = 64, kColumns = 4096, kBytes = 4 * kRows * kColumns;

// Bytes live when each gradient arrives and at the end, less those before the step. Each of eight ops saves
// an activation of kBytes. `keep_graph`: by autograd::grad(), which keeps the graph; returns the last number
// alone.
std::vector<int64_t> live_during_backward(
    const std::function<Tensor(const Tensor&, const std::vector<Tensor>&)>& net, bool keep_graph = false) {
  std::vector<Tensor> scales;
  for (int i = 0; i < 8; ++i) scales.push_back(rand({1, kColumns}));
  const Tensor x = rand({kRows, kColumns});
  const int64_t before = memory_stats().live_bytes;
  std::vector<int64_t> live;
  GradManager gm;
  gm.attach(scales, [&](const Tensor&, const Tensor& g) {
    live.push_back(memory_stats().live_bytes - before);
    return g;
  });
  auto recording = gm.record();
  const Tensor loss = sum(net(x, scales));
  if (keep_graph) {
    autograd::grad({loss}, scales);
    live.push_back(memory_stats().live_bytes - before);
    return live;
  }
  gm.backward(loss);
  live.push_back(memory_stats().live_bytes - before);
  return live;
}

Tensor chain(const Tensor& x, const std::vector<Tensor>& scales) {
  Tensor h = x;
  for (const Tensor& s : scales) h = exp(h * s * 0.01);
  return h;
}

TEST(BackwardMemory, FallsWithEveryRuleThatHasRun) {
  const std::vector<int64_t> live = live_during_backward(chain);
  ASSERT_EQ(live.size(), 9u);
  // After k + 1 gradients at most 7 - k activations and two intermediate gradients are live. The gradient of
  // a scale is 1 / 64 of an activation.
  for (int64_t k = 0; k < 8; ++k)
    EXPECT_LE(live[k], (7 - k + 2) * kBytes + (k + 1) * kBytes / 32) << "after " << k + 1 << " gradients";
  EXPECT_LE(live.back(), kBytes / 4) << "nothing but gradients is left";
}

TEST(BackwardMemory, StaysWhileTheGraphIsKept) {
  EXPECT_GE(live_during_backward(chain, true).back(), 8 * kBytes);
}

TEST(BackwardMemory, OfACheckpointIsItsInputs) {
  const auto checkpointed = [](const Tensor& x, const std::vector<Tensor>& scales) {
    Tensor h = x;
    for (size_t i = 0; i < scales.size(); i += 2)
      h = autograd::checkpoint(
          [&scales, i](const Tensor& t) {
            return chain(t, {scales[i], scales[i + 1]});
          },
          h);
    return h;
  };
  const auto peak_of = [](auto net) {
    PeakMemory peak;
    live_during_backward(net);
    return peak.added_bytes();
  };
  const int64_t plain = peak_of(chain), less = peak_of(checkpointed);
  // Four inputs, the two activations of the segment that runs, and what backward computes with.
  EXPECT_LE(less, plain - 2 * kBytes);
}

}  // namespace
}  // namespace gradus
