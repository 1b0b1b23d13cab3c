// Rows of the layer table (layer_table.h) for EmbeddingBag and AdaptiveLogSoftmaxWithLoss; vocabulary.py has
// PyTorch's values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

using nn::AdaptiveLogSoftmaxWithLoss;
using nn::EmbeddingBag;

std::vector<Row> table() {
  const auto with_offsets = [](EmbeddingBag& m, X x) { return m(x[0], x[1]); };
  std::vector<Row> rows;
  for (const auto& [name, mode] : {std::pair<std::string, BagMode>{"sum", BagMode::kSum},
                                   {"mean", BagMode::kMean},
                                   {"max", BagMode::kMax}}) {
    const std::string bag = "EmbeddingBag/" + name;
    const EmbeddingBag::Options o{.num_embeddings = 7, .embedding_dim = 3, .mode = mode};
    EmbeddingBag::Options padding = o, ends = o;
    padding.padding_idx = -3;
    ends.padding_idx = 0, ends.include_last_offset = true;
    rows.push_back(
        row<EmbeddingBag>(bag, o, {.inputs = {{kRows, 4}}, .indices = true, .second_order = false}));
    rows.push_back(row<EmbeddingBag>(bag + "_padding", padding));
    rows.push_back(row<EmbeddingBag>(bag + "_offsets", o, with_offsets));
    rows.push_back(row<EmbeddingBag>(bag + "_ends", ends, with_offsets));
  }
  const EmbeddingBag::Options sums{.num_embeddings = 7, .embedding_dim = 3, .mode = BagMode::kSum};
  EmbeddingBag::Options weighted = sums, by_freq = sums;
  weighted.padding_idx = 4;
  by_freq.scale_grad_by_freq = true;
  rows.push_back(row<EmbeddingBag>(
      "EmbeddingBag/weights", sums, [](EmbeddingBag& m, X x) { return m(x[0], x[1], x[2]); },
      {.prints = "EmbeddingBag(num_embeddings=7, embedding_dim=3, mode=kSum)",
       .errors = {
           LAYER_ERROR(ValueError, EmbeddingBag({.num_embeddings = 0, .embedding_dim = 2}), "[EmbeddingBag]",
                       "0"),
           LAYER_ERROR(ValueError, EmbeddingBag({.num_embeddings = 4, .embedding_dim = 2, .padding_idx = 4}),
                       "padding_idx", "4")}}));
  rows.push_back(row<EmbeddingBag>("EmbeddingBag/weights_rows", weighted,
                                   [](EmbeddingBag& m, X x) { return m(x[0], {}, x[1]); }));
  rows.push_back(row<EmbeddingBag>("EmbeddingBag/by_freq", by_freq));
  rows.push_back(row<EmbeddingBag>(
      "EmbeddingBag/norm", {.num_embeddings = 7, .embedding_dim = 3, .max_norm = 0.5, .norm_type = 1}));

  const auto targets = [](AdaptiveLogSoftmaxWithLoss& m, X x) {
    const nn::AdaptiveLogSoftmaxResult r = m(x[0], x[1]);
    return std::vector<Tensor>{r.output, r.loss};
  };
  const AdaptiveLogSoftmaxWithLoss::Options o{
      .in = 8, .n_classes = 9, .cutoffs = std::vector<int64_t>{3, 5}, .div_value = 2};
  using Cutoffs = std::vector<int64_t>;
  rows.push_back(row<AdaptiveLogSoftmaxWithLoss>(
      "AdaptiveLogSoftmaxWithLoss", o, targets,
      {.prints = "AdaptiveLogSoftmaxWithLoss(in=8, n_classes=9, cutoffs=[3,5], div_value=2)",
       .errors = {
           LAYER_ERROR(ValueError,
                       AdaptiveLogSoftmaxWithLoss({.in = 8, .n_classes = 9, .cutoffs = Cutoffs{}}), "cutoff"),
           LAYER_ERROR(ValueError,
                       AdaptiveLogSoftmaxWithLoss({.in = 8, .n_classes = 9, .cutoffs = Cutoffs{3, 3}}),
                       "ascending", "3"),
           LAYER_ERROR(ValueError,
                       AdaptiveLogSoftmaxWithLoss({.in = 8, .n_classes = 9, .cutoffs = Cutoffs{9}}), "9"),
           LAYER_ERROR(
               ValueError,
               AdaptiveLogSoftmaxWithLoss({.in = 8, .n_classes = 9, .cutoffs = Cutoffs{3}, .div_value = 0.5}),
               "div_value", "0.5"),
           LAYER_ERROR(IndexError,
                       AdaptiveLogSoftmaxWithLoss({.in = 8, .n_classes = 9, .cutoffs = Cutoffs{3}})(
                           ones({1, 8}), tensor({9})),
                       "9"),
           LAYER_ERROR(ShapeError,
                       AdaptiveLogSoftmaxWithLoss({.in = 8, .n_classes = 9, .cutoffs = Cutoffs{3}})(
                           ones({2, 8}), tensor({1})),
                       "[2,8]", "[1]"),
       }}));
  rows.push_back(row<AdaptiveLogSoftmaxWithLoss>(
      "AdaptiveLogSoftmaxWithLoss/bias",
      {.in = 8, .n_classes = 9, .cutoffs = Cutoffs{3, 5}, .div_value = 1.5, .head_bias = true}, targets));
  rows.push_back(row<AdaptiveLogSoftmaxWithLoss>("AdaptiveLogSoftmaxWithLoss/one", o, targets));
  rows.push_back(
      row<AdaptiveLogSoftmaxWithLoss>("AdaptiveLogSoftmaxWithLoss/log_prob", o,
                                      [](AdaptiveLogSoftmaxWithLoss& m, X x) { return m.log_prob(x[0]); },
                                      {.inputs = {{kRows, 8}}, .roundings = 64, .second_order = true}));
  rows.push_back(
      row<AdaptiveLogSoftmaxWithLoss>("AdaptiveLogSoftmaxWithLoss/predict", o,
                                      [](AdaptiveLogSoftmaxWithLoss& m, X x) { return m.predict(x[0]); }));
  rows.push_back(row<AdaptiveLogSoftmaxWithLoss>(
      "AdaptiveLogSoftmaxWithLoss/dtypes", o,
      [](AdaptiveLogSoftmaxWithLoss& m, X x) {
        const Tensor classes = remainder(arange(x[0].size(0)) * 4, 9);
        return m(x[0], raw::to(classes, x[0].device())).output;
      },
      {.inputs = {{kRows, 8}}, .roundings = 64, .golden = false, .second_order = true}));
  return rows;
}

const bool added = add_rows("composite/vocabulary", table());

}  // namespace
}  // namespace gradus::layers
