// What layers add to their ops: running statistics, modes, hooks, fused activations, errors. The ops' values
// are tested in tests/ops and against PyTorch in tests/golden.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/models/mnist_net.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;
using testing::StartsWith;

std::vector<float> values(const Tensor& x) { return x.to_vector<float>(); }
Tensor matrix(std::vector<float> v, int64_t rows) { return tensor(v, {rows, int64_t(v.size()) / rows}); }

TEST(BatchNormLayer, TracksStatisticsInTrainingAndUsesThemInEvaluation) {
  nn::BatchNorm1d bn({.features = 2});
  const Tensor x = matrix({1, 10, 3, 30, 5, 50}, 3);  // means 3, 30; unbiased variances 4, 400
  bn(x);
  EXPECT_THAT(values(bn.running_mean), Pointwise(FloatNear(1e-6f), {0.3f, 3.f}));
  EXPECT_THAT(values(bn.running_var), Pointwise(FloatNear(1e-5f), {0.9f + 0.4f, 0.9f + 40.f}));
  EXPECT_EQ(bn.num_batches_tracked.item<int64_t>(), 1);
  bn.eval();
  const Tensor y = bn(matrix({0.3f, 3.f}, 1));
  EXPECT_THAT(values(y), Pointwise(FloatNear(1e-6f), {0.f, 0.f}));
  EXPECT_EQ(bn.num_batches_tracked.item<int64_t>(), 1);
  bn.reset_running_stats();
  EXPECT_THAT(values(bn.running_var), ElementsAre(1, 1));
  EXPECT_EQ(bn.num_batches_tracked.item<int64_t>(), 0);
}

TEST(BatchNormLayer, WithoutMomentumAveragesAllBatches) {
  nn::BatchNorm1d bn({.features = 1, .momentum = std::nullopt});
  bn(matrix({0, 2}, 2));  // mean 1
  bn(matrix({3, 5}, 2));  // mean 4
  EXPECT_THAT(values(bn.running_mean), Pointwise(FloatNear(1e-6f), {2.5f}));
}

TEST(BatchNormLayer, DeferredStatisticsCountAllBatchesAsOne) {
  const Tensor x = matrix({1, 2, 6, 3, 8}, 5);
  nn::BatchNorm1d whole({.features = 1}), deferred({.features = 1});
  whole(x);
  deferred.defer_statistics(true);
  const Tensor y = deferred(narrow(x, 0, 0, 3));
  EXPECT_EQ(values(y), values(nn::BatchNorm1d({.features = 1})(narrow(x, 0, 0, 3))));
  deferred(narrow(x, 0, 3, 2));
  EXPECT_THAT(values(deferred.running_mean), Pointwise(FloatNear(0), {0.f}));
  deferred.apply_deferred_statistics();
  EXPECT_THAT(values(deferred.running_mean), Pointwise(FloatNear(1e-6f), values(whole.running_mean)));
  EXPECT_THAT(values(deferred.running_var), Pointwise(FloatNear(1e-6f), values(whole.running_var)));
  EXPECT_EQ(deferred.num_batches_tracked.item<int64_t>(), 1);
  // Deferred statistics that were not applied are dropped.
  deferred(x);
  deferred.defer_statistics(false);
  deferred.apply_deferred_statistics();
  EXPECT_EQ(deferred.num_batches_tracked.item<int64_t>(), 1);
}

TEST(BatchNormLayer, FrozenUsesTheRunningStatisticsInTrainingToo) {
  nn::BatchNorm1d bn({.features = 1, .eps = 0, .freeze = true});
  bn.running_mean.mutable_data<float>()[0] = 1;
  bn.running_var.mutable_data<float>()[0] = 4;
  const Tensor x = matrix({1, 5}, 2);
  for (const bool training : {true, false, true}) {
    bn.train(training);
    EXPECT_THAT(values(bn(x)), ElementsAre(0, 2));
    EXPECT_THAT(values(bn.relu(x)), ElementsAre(0, 2));
  }
  bn.defer_statistics(true);
  bn(x);
  bn.apply_deferred_statistics();
  EXPECT_THAT(values(bn.running_mean), ElementsAre(1));
  EXPECT_THAT(values(bn.running_var), ElementsAre(4));
  EXPECT_EQ(bn.num_batches_tracked.item<int64_t>(), 0);
  GradManager gm;
  gm.attach(bn.parameters());
  auto recording = gm.record();
  gm.backward(sum(bn(x)));
  EXPECT_THAT(values(bn.weight.grad()), ElementsAre(2)) << "weight and bias are learned";
  EXPECT_THROW(nn::BatchNorm1d({.features = 1, .track_running_stats = false, .freeze = true}), ValueError);
}

TEST(BatchNormLayer, WithoutTrackingUsesTheBatchInEvaluationToo) {
  nn::BatchNorm1d bn({.features = 1, .affine = false, .track_running_stats = false});
  bn.eval();
  EXPECT_THAT(values(bn(matrix({0, 2}, 2))), Pointwise(FloatNear(1e-4f), {-1.f, 1.f}));
  EXPECT_TRUE(bn.state_dict().empty());
}

// The fused relu, leaky_relu and add_relu against batch norm and activation as two ops: values, state, and
// the output that hooks get.
TEST(BatchNormLayer, RectifiesItsResultAndASum) {
  for (bool hooked : {false, true})
    for (bool training : {true, false}) {
      nn::BatchNorm2d one({.features = 3}), apart({.features = 3});
      one.train(training), apart.train(training);
      std::vector<Tensor> seen;
      if (hooked)
        one.register_forward_hook([&](nn::Layer&, const Tensor&, const Tensor& y) { seen.push_back(y); });
      const Tensor x = randn({4, 3, 5, 5}), residual = randn({4, 3, 5, 5});
      const Tensor before = apart(x), between = apart(x), again = apart(x);
      EXPECT_EQ(one.relu(x).to_vector<float>(), relu(before).to_vector<float>());
      EXPECT_EQ(one.leaky_relu(x, 0.2).to_vector<float>(), leaky_relu(between, 0.2).to_vector<float>());
      EXPECT_EQ(one.add_relu(x, residual).to_vector<float>(), relu(again + residual).to_vector<float>());
      const auto state = one.buffers(), expected = apart.buffers();
      for (size_t i = 0; i < state.size(); ++i)
        EXPECT_EQ(state[i].to_vector<double>(), expected[i].to_vector<double>()) << i;
      ASSERT_EQ(seen.size(), hooked ? 3u : 0u);
      for (size_t i = 0; i < seen.size(); ++i)
        EXPECT_EQ(values(seen[i]), values(i == 0 ? before : i == 1 ? between : again));
    }
  nn::BatchNorm2d bn({.features = 3});
  EXPECT_THROW(bn.relu(empty({2, 4, 4, 4})), ShapeError);
  EXPECT_THROW(bn.leaky_relu(empty({2, 4, 4, 4}), 0.2), ShapeError);
  EXPECT_THROW(bn.add_relu(empty({2, 3, 4, 4}), empty({2, 3, 4, 5})), ShapeError);
}

// In bf16 the fused pass rounds once; a hook, which gets the batch norm's own result, makes it two passes.
TEST(BatchNormLayer, AddsInOnePassAsSoonAsNoHookIsLeft) {
  nn::BatchNorm2d bn({.features = 3});
  const Tensor x = raw::to(randn({8, 3, 9, 9}), DType::kBF16),
               residual = raw::to(randn({8, 3, 9, 9}), DType::kBF16);
  const auto once = values(batch_norm_add_relu(x, residual, {}, {}, {}, {}, {.training = true}));
  nn::HookHandle hook = bn.register_forward_hook([](nn::Layer&, const Tensor&, const Tensor&) {});
  EXPECT_NE(values(bn.add_relu(x, residual)), once);
  hook.remove();
  EXPECT_EQ(values(bn.add_relu(x, residual)), once);
}

// Stands for statistics over two processes that have the same batch.
class Twice final : public nn::StatisticsReduction {
 public:
  int64_t sum(int64_t local) override { return 2 * local; }
  int size() const override { return 2; }
  int rank() const override { return 0; }
  Tensor all_gather(const Tensor& x) override { return cat({reshape(x, {1, -1}), reshape(x, {1, -1})}, 0); }
};

TEST(BatchNormLayer, RectifiesByTheStatisticsOfAllProcesses) {
  nn::BatchNorm2d one({.features = 3}), apart({.features = 3});
  one.set_reduction(std::make_shared<Twice>()), apart.set_reduction(std::make_shared<Twice>());
  const Tensor x = randn({2, 3, 2, 2}), residual = randn({2, 3, 2, 2});
  const Tensor before = apart(x), between = apart(x), again = apart(x);
  EXPECT_EQ(one.relu(x).to_vector<float>(), relu(before).to_vector<float>());
  EXPECT_EQ(values(one.leaky_relu(x, 0.2)), values(leaky_relu(between, 0.2)));
  EXPECT_EQ(one.add_relu(x, residual).to_vector<float>(), relu(again + residual).to_vector<float>());
  EXPECT_EQ(values(one.running_var), values(apart.running_var));
}

TEST(BatchNormLayer, NamesTheShapeItTakes) {
  nn::BatchNorm2d bn({.features = 3});
  EXPECT_ERROR(ShapeError, bn(empty({2, 4, 5, 5})), "expected x [N,3,H,W], got f32[2,4,5,5]");
  EXPECT_THROW(nn::BatchNorm1d({.features = 3})(empty({2, 3, 4, 4})), ShapeError);
}

TEST(MultiheadAttentionLayer, CausalExcludesNoAppendedKey) {
  nn::MultiheadAttention attention(
      {.embed_dim = 4, .num_heads = 2, .add_bias_kv = true, .add_zero_attn = true});
  const Tensor x = sin(reshape(arange(24.f), {3, 2, 4}));
  const Tensor later = gt(arange(3), unsqueeze(arange(3), 1));
  for (const Tensor& padding : {Tensor(), lt(zeros({2, 3}), 0), zeros({2, 3})}) {
    const auto causal = attention(x, x, x, {.key_padding_mask = padding, .causal = true}),
               masked = attention(x, x, x, {.key_padding_mask = padding, .attn_mask = later}),
               both = attention(x, x, x, {.attn_mask = expand(later, {4, 3, 3}), .causal = true});
    EXPECT_EQ(values(causal.weights), values(masked.weights));
    EXPECT_EQ(values(causal.output), values(masked.output));
    EXPECT_EQ(values(both.weights), values(masked.weights));
    const std::vector<float> of_first_query = values(narrow(narrow(causal.weights, 0, 0, 1), 1, 0, 1));
    EXPECT_EQ(of_first_query[1], 0);
    EXPECT_EQ(of_first_query[2], 0);
    EXPECT_GT(of_first_query[3], 0);
    EXPECT_GT(of_first_query[4], 0);
  }
}

TEST(EmbeddingBagLayer, HasSparseGradientsOfTheRowsItReads) {
  std::vector<Tensor> gradients;
  for (const bool sparse : {false, true}) {
    nn::EmbeddingBag bag({.num_embeddings = 6, .embedding_dim = 2, .sparse = sparse, .padding_idx = 2});
    GradManager gm;
    gm.attach(bag.parameters());
    auto recording = gm.record();
    gm.backward(sum(bag(tensor({1, 4, 4, 2, 0}), tensor({0, 3})) * matrix({1, 2, 3, 4}, 2)));
    EXPECT_EQ(autograd::is_sparse(bag.weight.grad()), sparse);
    gradients.push_back(autograd::to_dense(bag.weight.grad()));
  }
  EXPECT_THAT(values(gradients[0]),
              ElementsAre(3, 4, FloatNear(1 / 3.f, 1e-6f), FloatNear(2 / 3.f, 1e-6f), 0, 0, 0, 0,
                          FloatNear(2 / 3.f, 1e-6f), FloatNear(4 / 3.f, 1e-6f), 0, 0));
  EXPECT_EQ(values(gradients[0]), values(gradients[1]));
}

TEST(DropoutLayer, DropsInTrainingAlone) {
  manual_seed(1);
  nn::Dropout dropout({.p = 0.25});
  const Tensor x = nn::init::ones_(empty({10000}));
  const std::vector<float> y = values(dropout(x));
  const auto zeros = std::count(y.begin(), y.end(), 0.f);
  EXPECT_NEAR(double(zeros), 2500, 5 * std::sqrt(10000 * 0.25 * 0.75));
  EXPECT_EQ(std::count(y.begin(), y.end(), 1 / 0.75f), 10000 - zeros);
  dropout.eval();
  EXPECT_THAT(values(dropout(x)), Each(1));
}

TEST(ReluLayer, NeverChangesATensorThatSomeoneElseHolds) {
  nn::ReLU relu;
  const Tensor x = tensor({-1.f, 2.f});
  relu(Tensor(x));
  EXPECT_THAT(values(x), ElementsAre(-1, 2));
}

TEST(Layers, ErrorsNameTheInnermostLayer) {
  struct Block : nn::Layer {
    nn::Linear fc{this, "fc", {.in = 3, .out = 2}};
    using nn::Layer::Layer;
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  struct Net : nn::Layer {
    Block block{this, "block"};
    Tensor forward(const Tensor& x) override { return block(x); }
  } net;
  EXPECT_THAT(error_of<ShapeError>([&] { net(ones({1, 4})); }), StartsWith("in block.fc: [linear] "));
}

TEST(Layers, ErrorsNameAModuleThatIsNoLayer) {
  struct Net : nn::Module {
    nn::LSTM lstm{this, "lstm", {.input_size = 3, .hidden_size = 4}};
  } net;
  EXPECT_ERROR(ShapeError, net.lstm(ones({2, 5, 4})), "lstm");
}

TEST(Losses, RefuseAWeightThatIsToBeDifferentiated) {
  const Tensor x = ones({2, 3}), weight = ones({3});
  GradManager gm;
  gm.attach({x, weight});
  auto recording = gm.record();
  EXPECT_THROW(cross_entropy(x, tensor({0, 1}), {.weight = weight}), StateError);
  cross_entropy(x, tensor({0, 1}), {.weight = detach(weight)});
}

TEST(Layers, RefuseOptionsOutOfTheirDomain) {
  EXPECT_THROW(nn::Linear({.in = -1, .out = 2}), ValueError);
  EXPECT_THROW(nn::Conv2d({.in = 3, .out = 4, .kernel = 3, .groups = 2}), ValueError);
  EXPECT_THROW(nn::Conv2d({.in = 4, .out = 4, .kernel = 0}), ValueError);
  EXPECT_THROW(nn::BatchNorm2d({.features = 0}), ValueError);
}

TEST(Losses, OfScoresThatAreLargeStayExact) {
  const Tensor x = matrix({10000, 9999, 10000, 10001}, 2), y = tensor(std::vector<int64_t>{0, 0}, {2});
  EXPECT_THAT(values(nn::cross_entropy(x, y, {.reduction = Reduction::kNone})),
              Pointwise(FloatNear(1e-6f), {std::log1p(std::exp(-1.f)), std::log1p(std::exp(1.f))}));
}

TEST(Losses, NameTheTargetThatIsNoClass) {
  EXPECT_ERROR(IndexError, nn::cross_entropy(empty({3, 10}), tensor(std::vector<int64_t>{1, 2, 10}, {3})),
               "target 10 of sample 2 is no class: there are 10");
  EXPECT_THROW(nn::cross_entropy(empty({3, 10}), tensor(std::vector<int64_t>{1, 2, -1}, {3})), IndexError);
  EXPECT_THROW(nn::cross_entropy(empty({3, 10}), empty({3}, {.dtype = DType::kBool})), DTypeError);
  EXPECT_THROW(nn::nll_loss(empty({3, 10}), empty({3})), DTypeError);
  EXPECT_THROW(nn::mse_loss(empty({3, 10}), empty({3, 10}, {.dtype = DType::kI64})), DTypeError);
}

TEST(MnistNet, HasPyTorchsNamesAndSizes) {
  models::MnistNet net;
  EXPECT_EQ(net.num_parameters(), 1199882);
  EXPECT_EQ(net.named_parameters()[4].first, "fc1.weight");
  EXPECT_EQ(net(nn::init::zeros_(empty({2, 1, 28, 28}))).shape(), (Shape{2, 10}));
  EXPECT_THAT(to_string(net), HasSubstr("(conv2): Conv2d(in=32, out=64, kernel=3x3)"));
  EXPECT_THAT(to_string(net), HasSubstr("1,199,882 parameters in 8 tensors (4.6 MiB)"));
}

}  // namespace
}  // namespace gradus
