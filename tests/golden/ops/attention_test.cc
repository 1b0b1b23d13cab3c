// Attention and LSTM cells against PyTorch's: cases of attention.py by name, as golden_ops.h explains.
// Inputs: query, key, value and an optional mask; gates and cell state.
#include "gradus/tests/golden/ops/golden_ops.h"

namespace gradus::golden {
namespace {

std::vector<Tensor> attend(X x, const AttentionOptions& o) {
  const AttentionResult r = attention_with_weights(x[0], x[1], x[2], o);
  return {r.output, r.weights};
}
GoldenOp attention(const std::string& name, bool causal = false) {
  return {name,
          [causal](X x) { return attend(x, {.mask = x.size() > 3 ? x[3] : Tensor(), .causal = causal}); }};
}
GoldenOp lstm(const std::string& name) {
  return {name, [](X x) {
            const LSTMState s = lstm_cell(x[0], x[1]);
            return std::vector<Tensor>{s.h, s.c};
          }};
}

Tensor mask() {
  return to(reshape(tensor({1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1}), {3, 5}), DType::kBool);
}

}  // namespace

static const bool added =
    add_golden_ops("attention", {
                                    attention("sdpa"),
                                    attention("sdpa/heads"),
                                    {"sdpa/mask", [](X x) { return attend(x, {.mask = mask()}); }},
                                    attention("sdpa/added"),
                                    attention("sdpa/causal", true),
                                    attention("sdpa/causal_long", true),
                                    attention("sdpa/one"),
                                    attention("sdpa/empty"),
                                    lstm("lstm_cell"),
                                    lstm("lstm_cell/one"),
                                });

}  // namespace gradus::golden
