// Losses under the names of torch.nn: functions (nn::cross_entropy), and classes that store options:
//
//   const nn::CrossEntropyLoss criterion({.label_smoothing = 0.1});
//   Tensor loss = criterion(net(x), target);
#pragma once

#include <concepts>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gradus/autograd/ops/linalg/distance.h"
#include "gradus/autograd/ops/losses/cross_entropy.h"
#include "gradus/autograd/ops/losses/ctc_loss.h"
#include "gradus/autograd/ops/losses/margin_losses.h"
#include "gradus/autograd/ops/losses/pointwise_losses.h"

namespace gradus::nn {

using gradus::binary_cross_entropy;
using gradus::binary_cross_entropy_with_logits;
using gradus::binary_cross_entropy_with_logits_to;
using gradus::cosine_embedding_loss;
using gradus::cosine_similarity;
using gradus::cross_entropy;
using gradus::ctc_loss;
using gradus::gaussian_nll_loss;
using gradus::hinge_embedding_loss;
using gradus::huber_loss;
using gradus::kl_div;
using gradus::l1_loss;
using gradus::margin_ranking_loss;
using gradus::mse_loss;
using gradus::mse_loss_to;
using gradus::multi_margin_loss;
using gradus::multilabel_margin_loss;
using gradus::multilabel_soft_margin_loss;
using gradus::nll_loss;
using gradus::pairwise_distance;
using gradus::poisson_nll_loss;
using gradus::smooth_l1_loss;
using gradus::soft_margin_loss;
using gradus::triplet_margin_loss;
using gradus::triplet_margin_with_distance_loss;

// A loss function with stored options, which a call passes as the function's last argument.
template <auto kFunction> class Loss;
template <class... Arguments, Tensor (*kFunction)(Arguments...)> class Loss<kFunction> {
 public:
  using Options =
      std::remove_cvref_t<std::tuple_element_t<sizeof...(Arguments) - 1, std::tuple<Arguments...>>>;
  explicit Loss(Options options = {}) : options_(std::move(options)) {}

  template <class... T>
    requires(sizeof...(T) + 1 == sizeof...(Arguments) &&
             (std::convertible_to<const T&, const Tensor&> && ...))
  Tensor operator()(const T&... inputs) const {
    return kFunction(inputs..., options_);
  }
  const Options& options() const { return options_; }

 private:
  Options options_;
};

using BCELoss = Loss<&gradus::binary_cross_entropy>;
using BCEWithLogitsLoss = Loss<&gradus::binary_cross_entropy_with_logits>;
using CosineEmbeddingLoss = Loss<&gradus::cosine_embedding_loss>;
using CosineSimilarity = Loss<&gradus::cosine_similarity>;
using CrossEntropyLoss = Loss<&gradus::cross_entropy>;
using CTCLoss = Loss<&gradus::ctc_loss>;
using GaussianNLLLoss = Loss<&gradus::gaussian_nll_loss>;
using HingeEmbeddingLoss = Loss<&gradus::hinge_embedding_loss>;
using HuberLoss = Loss<&gradus::huber_loss>;
using KLDivLoss = Loss<&gradus::kl_div>;
using L1Loss = Loss<&gradus::l1_loss>;
using MarginRankingLoss = Loss<&gradus::margin_ranking_loss>;
using MSELoss = Loss<&gradus::mse_loss>;
using MultiLabelMarginLoss = Loss<&gradus::multilabel_margin_loss>;
using MultiLabelSoftMarginLoss = Loss<&gradus::multilabel_soft_margin_loss>;
using MultiMarginLoss = Loss<&gradus::multi_margin_loss>;
using NLLLoss = Loss<&gradus::nll_loss>;
using PairwiseDistance = Loss<&gradus::pairwise_distance>;
using PoissonNLLLoss = Loss<&gradus::poisson_nll_loss>;
using SmoothL1Loss = Loss<&gradus::smooth_l1_loss>;
using SoftMarginLoss = Loss<&gradus::soft_margin_loss>;
using TripletMarginLoss = Loss<&gradus::triplet_margin_loss>;
using TripletMarginWithDistanceLoss = Loss<&gradus::triplet_margin_with_distance_loss>;

}  // namespace gradus::nn
