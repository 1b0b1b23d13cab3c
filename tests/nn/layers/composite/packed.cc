// Rows of the layer table (layer_table.h) for packed sequences; packed.py has PyTorch's values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

using nn::Identity;
using nn::PackedSequence;

const std::vector<int64_t> kLengths{2, 5, 1, 5}, kOrdered{5, 4, 4, 1};

// Packs x by the lengths, runs m(packed, state), and returns the padded output and h.
template <class M>
std::vector<Tensor> run(M& m, const Tensor& x, const Tensor& h, const std::vector<int64_t>& lengths) {
  const PackedSequence packed =
      nn::pack_padded_sequence(x, lengths, {.enforce_sorted = &lengths == &kOrdered});
  const nn::PackedRNNResult r = m(packed, h);
  return {nn::pad_packed_sequence(r.output).padded, r.h};
}
std::vector<Tensor> run(nn::LSTM& m, const Tensor& x, const LSTMState& state) {
  const bool batch_first = m.options().batch_first;
  const nn::PackedLSTMResult r =
      m(nn::pack_padded_sequence(x, kLengths, {.batch_first = batch_first, .enforce_sorted = false}), state);
  return {nn::pad_packed_sequence(r.output, {.batch_first = batch_first}).padded, r.state.h, r.state.c};
}

template <class F> Row function(std::string name, F f, std::vector<std::function<void()>> errors = {}) {
  return row<Identity>("Identity/" + name, {}, [f](Identity&, X x) { return f(x); },
                       {.errors = std::move(errors)});
}

void pack(std::vector<int64_t> lengths) { nn::pack_padded_sequence(ones({3, 2, 1}), lengths); }
void unpack(PackedSequence p) { nn::RNN({.input_size = 1, .hidden_size = 2})(p); }

std::vector<Row> table() {
  return {
      row<nn::RNN>("RNN/packed", {.input_size = 3, .hidden_size = 2},
                   [](nn::RNN& m, X x) { return run(m, x[0], {}, kLengths); }),
      row<nn::RNN>("RNN/ordered",
                   {.input_size = 3,
                    .hidden_size = 2,
                    .nonlinearity = nn::RNNActivation::kReLU,
                    .bidirectional = true},
                   [](nn::RNN& m, X x) { return run(m, x[0], x[1], kOrdered); }),
      row<nn::LSTM>("LSTM/packed",
                    {.input_size = 3, .hidden_size = 2, .num_layers = 2, .bidirectional = true},
                    [](nn::LSTM& m, X x) {
                      return run(m, x[0], {x[1], x[2]});
                    },
                    {.second_order = true}),
      row<nn::LSTM>("LSTM/projected",
                    {.input_size = 3, .hidden_size = 3, .bias = false, .batch_first = true, .proj_size = 2},
                    [](nn::LSTM& m, X x) { return run(m, x[0], LSTMState{}); }),
      row<nn::GRU>("GRU/packed", {.input_size = 3, .hidden_size = 2, .num_layers = 2, .bidirectional = true},
                   [](nn::GRU& m, X x) { return run(m, x[0], x[1], kLengths); }),
      row<nn::GRU>("GRU/ordered", {.input_size = 3, .hidden_size = 2},
                   [](nn::GRU& m, X x) { return run(m, x[0], {}, kOrdered); }),
      function("pack", [](X x) { return nn::pack_padded_sequence(x[0], kOrdered).data; },
               {LAYER_ERROR(ValueError, pack({1, 2}), "descending", "enforce_sorted"),
                LAYER_ERROR(ValueError, pack({4, 1}), "[1, 3]", "4"),
                LAYER_ERROR(ValueError, pack({2, 0}), "[1, 3]", "0"),
                LAYER_ERROR(ValueError, pack({2}), "2 sequences", "1"),
                LAYER_ERROR(ShapeError, nn::pack_padded_sequence(ones({3}), {1}), "f32[3]")}),
      function("pack_unordered",
               [](X x) {
                 return nn::pack_padded_sequence(x[0], kLengths,
                                                 {.batch_first = true, .enforce_sorted = false})
                     .data;
               }),
      function("pad",
               [](X x) {
                 const PackedSequence p = nn::pack_padded_sequence(x[0], kLengths, {.enforce_sorted = false});
                 return nn::pad_packed_sequence(
                            p, {.batch_first = true, .padding_value = -1.5, .total_length = 7})
                     .padded;
               },
               {LAYER_ERROR(
                    ValueError,
                    nn::pad_packed_sequence({.data = ones({3}), .batch_sizes = {2, 1}}, {.total_length = 1}),
                    "total_length", "2", "1"),
                LAYER_ERROR(ValueError, unpack({.data = ones({3, 1}), .batch_sizes = {1, 2}}), "not increase",
                            "2"),
                LAYER_ERROR(ValueError, unpack({.data = ones({3, 1}), .batch_sizes = {2, 2}}), "4 rows",
                            "f32[3,1]"),
                LAYER_ERROR(ValueError, unpack({.data = ones({0, 1}), .batch_sizes = {}}), "batch_sizes"),
                LAYER_ERROR(ValueError, unpack({.batch_sizes = {1}}), "batch_sizes"),
                LAYER_ERROR(ValueError,
                            unpack({.data = ones({3, 1}), .batch_sizes = {2, 1}, .sorted_indices = {0, 2}}),
                            "permutation", "2"),
                LAYER_ERROR(ShapeError, unpack({.data = ones({3, 2}), .batch_sizes = {2, 1}}), "[RNN]",
                            "f32[3,2]")}),
      function("pad_sequence",
               [](X x) {
                 return std::vector<Tensor>{nn::pad_sequence(x),
                                            nn::pad_sequence(x, {.batch_first = true, .padding_value = 0.5}),
                                            nn::pad_sequence(x, {.padding_side = nn::PaddingSide::kLeft})};
               },
               {LAYER_ERROR(ValueError, nn::pad_sequence({}), "one sequence"),
                LAYER_ERROR(ShapeError, nn::pad_sequence({ones({2, 3}), ones({2, 4})}), "[2,3]", "[2,4]"),
                LAYER_ERROR(ShapeError, nn::pad_sequence({ones({})}), "f32[]")}),
      function("pack_sequence", [](X x) { return nn::pack_sequence(x, false).data; }),
      function("unpack_sequence",
               [](X x) {
                 return nn::unpack_sequence(
                     nn::pack_padded_sequence(x[0], kLengths, {.enforce_sorted = false}));
               }),
  };
}

const bool added = add_rows("composite/packed", table());

}  // namespace
}  // namespace gradus::layers
