// Loss classes against the loss functions with the same options; probabilities out of range; the functions'
// names in namespace nn.
#include "gradus/nn/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

double value(const Tensor& x) { return x.item<double>(); }

TEST(BinaryCrossEntropy, RefusesWhatIsNoProbability) {
  const Tensor half = full({3, 2}, 0.5);
  const auto with = [](double v) {
    return transpose(tensor<double>({0.5, 0., 1., 0.5, v, 0.25}, {2, 3}), 0, 1);
  };
  for (const double bad : {2., -1e-30, 1.0000001, double(NAN), double(INFINITY)}) {
    for (const Reduction r : {Reduction::kMean, Reduction::kNone}) {
      EXPECT_THROW(binary_cross_entropy(with(bad), half, {.reduction = r}), ValueError) << bad;
      EXPECT_THROW(binary_cross_entropy(half, with(bad), {.reduction = r}), ValueError) << bad;
    }
    EXPECT_THROW(nn::BCELoss({.weight = half})(with(bad), half), ValueError) << bad;
  }
  for (const double good : {0., -0., 1., 0.75}) EXPECT_NO_THROW(binary_cross_entropy(with(good), with(good)));
  try {
    binary_cross_entropy(with(2), half);
    ADD_FAILURE() << "no error";
  } catch (const ValueError& error) {
    EXPECT_EQ(error.op(), "binary_cross_entropy");
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("x from 0 to 1"), testing::HasSubstr("got 2"),
                                             testing::HasSubstr("element 3")));
  }
}

TEST(CtcLoss, HasNoSecondDerivative) {
  const Tensor x = randn({4, 1, 3});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  const Tensor loss = ctc_loss(log_softmax(x, 2), tensor({1, 2}), tensor({4}), tensor({2}));
  const Tensor dx = autograd::grad(loss, {x})[0];
  EXPECT_ERROR(StateError, autograd::grad(sum(square(dx)), {x}), "[ctc_loss]", "second derivative");
}

TEST(CtcLoss, OfAnInputOfNoFramesIsThatOfAnEmptyTarget) {
  const Tensor none = zeros({0, 2, 3}), lengths = zeros({2}, {.dtype = DType::kI64});
  const Tensor losses = ctc_loss(none, tensor({1}), lengths, tensor({0, 1}), {.reduction = Reduction::kNone});
  EXPECT_EQ(losses.to_vector<float>(), (std::vector<float>{0, INFINITY}));
}

TEST(Losses, CallTheFunctionWithTheirOptions) {
  const Tensor x = randn({4, 5}), y = randint(5, {4}), t = rand({4, 5}), v = rand({4, 5}) + 0.5;
  const nn::CrossEntropyLoss criterion({.label_smoothing = 0.1});
  EXPECT_EQ(criterion.options().label_smoothing, 0.1);
  EXPECT_EQ(value(criterion(x, y)), value(cross_entropy(x, y, {.label_smoothing = 0.1})));
  EXPECT_EQ(value(nn::CrossEntropyLoss()(x, y)), value(cross_entropy(x, y)));
  EXPECT_EQ(value(nn::NLLLoss()(x, y)), value(nll_loss(x, y)));
  EXPECT_EQ(value(nn::MSELoss({.reduction = Reduction::kSum})(x, t)),
            value(mse_loss(x, t, {.reduction = Reduction::kSum})));
  EXPECT_EQ(value(nn::L1Loss()(x, t)), value(l1_loss(x, t)));
  EXPECT_EQ(value(nn::SmoothL1Loss({.beta = 0.5})(x, t)), value(smooth_l1_loss(x, t, {.beta = 0.5})));
  EXPECT_EQ(value(nn::HuberLoss({.delta = 0.5})(x, t)), value(huber_loss(x, t, {.delta = 0.5})));
  EXPECT_EQ(value(nn::BCELoss()(t, t)), value(binary_cross_entropy(t, t)));
  EXPECT_EQ(value(nn::BCEWithLogitsLoss({.pos_weight = v})(x, t)),
            value(binary_cross_entropy_with_logits(x, t, {.pos_weight = v})));
  EXPECT_EQ(value(nn::KLDivLoss({.reduction = Reduction::kBatchMean})(x, t)),
            value(kl_div(x, t, {.reduction = Reduction::kBatchMean})));
  EXPECT_EQ(value(nn::PoissonNLLLoss({.full = true})(x, t)), value(poisson_nll_loss(x, t, {.full = true})));
  EXPECT_EQ(value(nn::GaussianNLLLoss()(x, t, v)), value(gaussian_nll_loss(x, t, v)));
  EXPECT_EQ(value(nn::SoftMarginLoss()(x, t)), value(soft_margin_loss(x, t)));
  EXPECT_EQ(value(nn::HingeEmbeddingLoss()(x, t)), value(hinge_embedding_loss(x, t)));
  EXPECT_EQ(value(nn::MarginRankingLoss({.margin = 1})(x, t, v)),
            value(margin_ranking_loss(x, t, v, {.margin = 1})));
  EXPECT_EQ(value(nn::CosineEmbeddingLoss()(x, t, ones({4}))), value(cosine_embedding_loss(x, t, ones({4}))));
  EXPECT_EQ(value(nn::TripletMarginLoss({.swap = true})(x, t, v)),
            value(triplet_margin_loss(x, t, v, {.swap = true})));
  EXPECT_EQ(value(nn::TripletMarginWithDistanceLoss()(x, t, v)),
            value(triplet_margin_with_distance_loss(x, t, v)));
  EXPECT_EQ(value(nn::MultiLabelSoftMarginLoss()(x, t)), value(multilabel_soft_margin_loss(x, t)));
  EXPECT_EQ(value(nn::MultiMarginLoss({.p = 2})(x, y)), value(multi_margin_loss(x, y, {.p = 2})));
  EXPECT_EQ(value(sum(nn::PairwiseDistance({.p = 1})(x, t))), value(sum(pairwise_distance(x, t, {.p = 1}))));
  EXPECT_EQ(value(sum(nn::CosineSimilarity()(x, t))), value(sum(cosine_similarity(x, t))));
}

TEST(Losses, BatchMeanHoldsWhereTheSumDoesNot) {
  // The sum, 160,000, exceeds the largest f16, 65,504.
  const Tensor x = full({1000, 20}, -8, {.dtype = DType::kF16}), t = ones({1000, 20}, {.dtype = DType::kF16});
  const Tensor mean = kl_div(x, t, {.reduction = Reduction::kBatchMean});
  EXPECT_EQ(mean.dtype(), DType::kF16);
  EXPECT_EQ(mean.item<double>(), 160);
}

TEST(Losses, AreUnderBothNames) {
  const Tensor x = randn({3, 2}), t = rand({3, 2});
  EXPECT_EQ(value(nn::mse_loss(x, t)), value(mse_loss(x, t)));
  EXPECT_EQ(value(nn::binary_cross_entropy_with_logits(x, t)), value(binary_cross_entropy_with_logits(x, t)));
  EXPECT_EQ(value(nn::huber_loss(x, t)), value(huber_loss(x, t)));
}

}  // namespace
}  // namespace gradus
