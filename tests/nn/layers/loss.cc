// Rows of the layer table (layer_table.h) for losses and distances, in every dtype against f64;
// tests/golden/ops compares their values with PyTorch's.
#include <tuple>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

using std::tuple;

// Targets for x: any numbers, numbers in [0, 1], class indices below 8.
Tensor numbers(const Tensor& x) { return like(pattern(x.shape(), 21), x); }
Tensor shares(const Tensor& x) { return like(abs(pattern(x.shape(), 22)) * 0.5, x); }
Tensor classes(const Tensor& x) {
  return raw::to(raw::to(abs(pattern({x.size(0)}, 24)) * 3.9, DType::kI64), x.device());
}

// A row that calls `loss` on the tuple arguments(x); its layer is an unused Identity.
template <class L, class F> Row of(std::string name, L loss, double roundings, F arguments) {
  return row<nn::Identity>(std::move(name), {},
                           [loss, arguments](nn::Identity&, X x) {
                             return std::apply([&](const auto&... a) { return loss(a...); }, arguments(x[0]));
                           },
                           {.inputs = {kFlat}, .roundings = roundings, .golden = false});
}
template <class L, class F> Row loss(std::string name, typename L::Options options, F arguments) {
  options.reduction = Reduction::kSum;
  return of(std::move(name), L(options), 16, arguments);
}

std::vector<Row> table() {
  const auto to_numbers = [](const Tensor& x) { return tuple(x, numbers(x)); };
  const auto to_shares = [](const Tensor& x) { return tuple(x, shares(x)); };
  const auto to_signs = [](const Tensor& x) { return tuple(x, signs(x, x.shape())); };
  const auto to_classes = [](const Tensor& x) { return tuple(x, classes(x)); };
  const auto triplet = [](const Tensor& x) { return tuple(x, numbers(x), like(pattern(x.shape(), 25), x)); };
  return {
      loss<nn::MSELoss>("MSELoss", {}, to_numbers),
      loss<nn::L1Loss>("L1Loss", {}, to_numbers),
      loss<nn::SmoothL1Loss>("SmoothL1Loss", {}, to_numbers),
      loss<nn::HuberLoss>("HuberLoss", {}, to_numbers),
      loss<nn::PoissonNLLLoss>("PoissonNLLLoss", {}, to_shares),
      loss<nn::KLDivLoss>("KLDivLoss", {}, to_shares),
      loss<nn::BCEWithLogitsLoss>("BCEWithLogitsLoss", {}, to_shares),
      loss<nn::BCELoss>("BCELoss", {}, [](const Tensor& x) { return tuple(sigmoid(x), shares(x)); }),
      loss<nn::SoftMarginLoss>("SoftMarginLoss", {}, to_signs),
      loss<nn::HingeEmbeddingLoss>("HingeEmbeddingLoss", {}, to_signs),
      loss<nn::MultiLabelSoftMarginLoss>("MultiLabelSoftMarginLoss", {}, to_shares),
      loss<nn::CrossEntropyLoss>("CrossEntropyLoss", {}, to_classes),
      loss<nn::NLLLoss>("NLLLoss", {}, to_classes),
      // With this margin no rounding crosses a kink.
      loss<nn::MultiMarginLoss>("MultiMarginLoss", {.margin = 8}, to_classes),
      loss<nn::GaussianNLLLoss>("GaussianNLLLoss", {},
                                [](const Tensor& x) { return tuple(x, numbers(x), shares(x) + 0.5); }),
      loss<nn::MarginRankingLoss>("MarginRankingLoss", {},
                                  [](const Tensor& x) { return tuple(x, numbers(x), signs(x, x.shape())); }),
      loss<nn::CosineEmbeddingLoss>(
          "CosineEmbeddingLoss", {},
          [](const Tensor& x) { return tuple(x, numbers(x), signs(x, {x.size(0)})); }),
      loss<nn::TripletMarginLoss>("TripletMarginLoss", {}, triplet),
      loss<nn::TripletMarginWithDistanceLoss>("TripletMarginWithDistanceLoss", {}, triplet),
      loss<nn::MultiLabelMarginLoss>(
          "MultiLabelMarginLoss/dtypes", {},
          [](const Tensor& x) {
            const Tensor row = raw::to(tensor({2, 0, -1, 3, 4, 1, 0, 0}), x.device());
            return tuple(x, expand_as(row, x));
          }),
      of(
          "CTCLoss/dtypes",
          [](const Tensor& x) {
            const int64_t n = x.size(0);
            const TensorOptions integers{DType::kI64};
            return ctc_loss(reshape(log_softmax(reshape(x, {n, 4, 2}), 2), {4, n, 2}),
                            raw::to(full({n, 2}, 1, integers), x.device()), full({n}, 4, integers),
                            full({n}, 2, integers), {.reduction = Reduction::kSum});
          },
          64, [](const Tensor& x) { return tuple(x); }),
      of("CosineSimilarity", nn::CosineSimilarity(), 8, to_numbers),
      of("PairwiseDistance", nn::PairwiseDistance(), 8, to_numbers),
  };
}

const bool added = add_rows("loss", table());

}  // namespace
}  // namespace gradus::layers
