// Rows of the layer table (layer_table.h) for CTCLoss and MultiLabelMarginLoss; sequence_loss.py has PyTorch's values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

// A row that compares loss(inputs, reduction) with PyTorch's values, for each reduction.
template <class F> Row golden_row(std::string name, F loss) {
  return row<nn::Identity>(std::move(name), {}, [loss](nn::Identity&, X x) {
    return std::vector<Tensor>{loss(x, Reduction::kMean), loss(x, Reduction::kSum),
                               loss(x, Reduction::kNone)};
  });
}

Row ctc(std::string name, const Tensor& input_lengths, const Tensor& target_lengths,
        CtcLossOptions options = {}) {
  return golden_row("CTCLoss" + name, [=](X x, Reduction r) {
    CtcLossOptions o = options;
    o.reduction = r;
    return nn::CTCLoss(o)(log_softmax(x[0], -1), x[1], input_lengths, target_lengths);
  });
}

Row multilabel(std::string name) {
  return golden_row("MultiLabelMarginLoss" + name,
                    [](X x, Reduction r) { return nn::MultiLabelMarginLoss({.reduction = r})(x[0], x[1]); });
}

std::vector<Row> table() {
  return {
      multilabel(""),
      multilabel("/one"),
      ctc("", tensor({7, 6, 3, 0}), tensor({3, 2, 1, 0})),
      ctc("/blank", tensor({7, 5}), tensor({2, 0}), {.blank = 2}),
      ctc("/concatenated", tensor({6, 2, 6}), tensor({3, 0, 2})),
      ctc("/one", scalar(6, {DType::kI64}), scalar(2, {DType::kI64})),
      ctc("/infinite", tensor({6, 2}), tensor({2, 2})),
      ctc("/zero_infinity", tensor({6, 2}), tensor({2, 2}), {.zero_infinity = true}),
      golden_row("CTCLoss/scores",
                 [](X x, Reduction r) {
                   return ctc_loss(x[0], x[1], tensor({5, 4}), tensor({2, 1}), {.reduction = r});
                 }),
  };
}

const bool added = add_rows("composite/sequence_loss", table());

}  // namespace
}  // namespace gradus::layers
