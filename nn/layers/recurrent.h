// Recurrent layers: RNN, LSTM and GRU over sequences, and their single steps RNNCell, LSTMCell and GRUCell.
//
//   nn::LSTM lstm{this, "lstm", {.input_size = 32, .hidden_size = 64, .num_layers = 2}};
//   auto [y, state] = lstm(x);            // x [T,N,32] -> y [T,N,64], state.h and state.c [2,N,64]
//   auto [y2, state2] = lstm(x2, state);  // continues from that state
//
// Sequences are [T,N,features], with batch_first [N,T,features], or [T,features] without a batch. States are
// [layers * directions,N,hidden], or without N, ordered by layer and then direction. An omitted state is
// zeros. Weights have the names and the layout of torch.nn (weight_ih_l0, weight_hh_l0_reverse, ...), with
// the gates concatenated along dim 0 (LSTM: i, f, g, o; GRU: r, z, n). Initial weights are uniform on
// +-1/sqrt(hidden_size). Errors of constructors: ValueError for sizes or num_layers below 1, a dropout
// outside of [0, 1], or a proj_size outside of [0, hidden_size).
#pragma once

#include <memory>
#include <vector>

#include "gradus/autograd/ops/recurrent.h"
#include "gradus/nn/options.h"
#include "gradus/nn/packed_sequence.h"

namespace gradus::nn {

using gradus::LSTMState;

enum class RNNActivation { kTanh, kReLU };

struct RNNOptions {
  Required<int64_t, "input_size"> input_size;
  Required<int64_t, "hidden_size"> hidden_size;
  int64_t num_layers = 1;
  RNNActivation nonlinearity = RNNActivation::kTanh;
  bool bias = true;
  bool batch_first = false;    // sequences are [N,T,features]
  double dropout = 0;          // probability, of the outputs of all layers but the last, in training
  bool bidirectional = false;  // adds a second direction, which reads the sequence from its end
};
extern template class ModuleWith<RNNOptions>;

struct LSTMOptions {
  Required<int64_t, "input_size"> input_size;
  Required<int64_t, "hidden_size"> hidden_size;
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;  // of the outputs of all layers but the last, in training
  bool bidirectional = false;
  int64_t proj_size = 0;  // if positive, h is projected to this size by weight_hr; 0: no projection
};
extern template class ModuleWith<LSTMOptions>;

struct GRUOptions {
  Required<int64_t, "input_size"> input_size;
  Required<int64_t, "hidden_size"> hidden_size;
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;  // of the outputs of all layers but the last, in training
  bool bidirectional = false;
};
extern template class ModuleWith<GRUOptions>;

// output [T,N,directions * H]: of the last layer at all time steps, H = hidden_size or proj_size, forward
// features first. h [layers * directions,N,H]: the states of all layers after the last time step (of the
// reverse direction: after the first). LSTMState: h, and c [layers * directions,N,hidden_size].
struct RNNResult {
  Tensor output, h;
};
struct LSTMResult {
  Tensor output;
  LSTMState state;
};
// Results for a PackedSequence x [rows,features]: output.data is [rows,directions * H]. States are in the caller's order
// of the sequences, and final states those after each sequence's own last step.
struct PackedRNNResult {
  PackedSequence output;
  Tensor h;
};
struct PackedLSTMResult {
  PackedSequence output;
  LSTMState state;
};

// Base of RNN, LSTM and GRU, which have 1, 4 and 3 gates: the weights, and the loops over layers, directions
// and time steps. Composed of differentiable ops; W_ih x is computed for all time steps at once.
template <class O, int64_t gates> class Recurrent : public ModuleWith<O> {
 public:
  Recurrent(Module* parent, std::string name, O options);
  explicit Recurrent(O options);

 protected:
  // The parameters of one direction of one layer: w_ih [gates * hidden,input], w_hh [gates * hidden,H], b_ih
  // and b_hh [gates * hidden], null without bias; w_hr [proj_size,hidden], null without projection.
  struct Direction {
    std::unique_ptr<Parameter> w_ih, w_hh, b_ih, b_hh, w_hr;
  };

  // Runs all layers and directions over all time steps. Undefined states are zeros; only LSTM uses state.c.
  LSTMResult run(const Tensor& x, const LSTMState& state);
  PackedLSTMResult run(const PackedSequence& x, const LSTMState& state);

 private:
  // Returns whether b_ih + b_hh may be added to the input's products of all time steps at once.
  virtual bool can_sum_biases() const { return true; }
  // Returns the state after one time step. x_gates [N,gates * hidden] is W_ih x + b_ih (+ b_hh).
  virtual LSTMState step(const Direction& d, const Tensor& x_gates, const LSTMState& state) = 0;

  void add_weights();
  std::unique_ptr<Parameter> weight(const std::string& name, const Shape& shape);
  LSTMResult run_layers(Tensor x, const std::vector<int64_t>& batch_sizes, const LSTMState& state);
  LSTMResult unroll(const Direction& d, const Tensor& x, const std::vector<int64_t>& batch_sizes,
                    const LSTMState& initial, bool backwards);
  Tensor initial_state(const char* name, const Tensor& state, const Tensor& x, int64_t n, int64_t size,
                       bool batch) const;
  int64_t directions() const { return this->options().bidirectional ? 2 : 1; }
  int64_t projection() const;
  // Returns H, the size of h.
  int64_t output_size() const { return projection() ? projection() : *this->options().hidden_size; }

  static constexpr const char* kType = gates == 1 ? "RNN" : gates == 3 ? "GRU" : "LSTM";
  std::vector<Direction> directions_;  // layer 0 forward, layer 0 reverse, layer 1 forward, ...
};

// Elman network: in every layer h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu instead of tanh.
class RNN final : public Recurrent<RNNOptions, 1> {
 public:
  using Recurrent::Recurrent;

  // Errors: ShapeError for an x or h that does not fit, or no times.
  RNNResult operator()(const Tensor& x, const Tensor& h = {});
  PackedRNNResult operator()(const PackedSequence& x, const Tensor& h = {});

 private:
  LSTMState step(const Direction& d, const Tensor& x_gates, const LSTMState& state) override;
};

// Long short-term memory: in every layer the gates i, f, g, o are W_ih x + b_ih + W_hh h + b_hh, and
//   c' = sigmoid(f) c + sigmoid(i) tanh(g),  h' = sigmoid(o) tanh(c'), projected by W_hr if proj_size is set.
class LSTM final : public Recurrent<LSTMOptions, 4> {
 public:
  using Recurrent::Recurrent;

  // Errors: ShapeError for an x or state that does not fit, or no times.
  LSTMResult operator()(const Tensor& x, const LSTMState& state = {});
  PackedLSTMResult operator()(const PackedSequence& x, const LSTMState& state = {});

 private:
  LSTMState step(const Direction& d, const Tensor& x_gates, const LSTMState& state) override;
};

// Gated recurrent unit, as torch.nn.GRU: with gates x_ = W_ih x + b_ih and h_ = W_hh h + b_hh of each layer
//   r = sigmoid(x_r + h_r), z = sigmoid(x_z + h_z), n = tanh(x_n + r h_n),  h' = (1 - z) n + z h.
class GRU final : public Recurrent<GRUOptions, 3> {
 public:
  using Recurrent::Recurrent;

  // Errors: ShapeError for an x or h that does not fit, or no times.
  RNNResult operator()(const Tensor& x, const Tensor& h = {});
  PackedRNNResult operator()(const PackedSequence& x, const Tensor& h = {});

 private:
  bool can_sum_biases() const override { return false; }
  LSTMState step(const Direction& d, const Tensor& x_gates, const LSTMState& state) override;
};

struct RNNCellOptions {
  Required<int64_t, "input_size"> input_size;
  Required<int64_t, "hidden_size"> hidden_size;
  bool bias = true;
  RNNActivation nonlinearity = RNNActivation::kTanh;
};
extern template class ModuleWith<RNNCellOptions>;
struct RecurrentCellOptions {
  Required<int64_t, "input_size"> input_size;
  Required<int64_t, "hidden_size"> hidden_size;
  bool bias = true;
};
extern template class ModuleWith<RecurrentCellOptions>;

// Base of the cells, which compute one time step of one layer: weight_ih [gates * hidden,input], weight_hh
// [gates * hidden,hidden], bias_ih and bias_hh [gates * hidden].
template <class O, int64_t gates> class RecurrentCell : public ModuleWith<O> {
 public:
  using ModuleWith<O>::ModuleWith;
  Parameter weight_ih{this, "weight_ih", initial_weight(this->options().input_size)};
  Parameter weight_hh{this, "weight_hh", initial_weight(this->options().hidden_size)};
  Parameter bias_ih{this, "bias_ih", initial_bias()};
  Parameter bias_hh{this, "bias_hh", initial_bias()};

 protected:
  // Checks x [N,input] or [input] and the states. Replaces undefined states by zeros, adds a batch dim to x
  // and to the states if x has none, and returns whether x had a batch dim.
  bool prepare(Tensor& x, std::initializer_list<Tensor*> state) const;

 private:
  Tensor initial_weight(int64_t in) const;
  Tensor initial_bias() const;
  static constexpr const char* kType = gates == 1 ? "RNNCell" : gates == 3 ? "GRUCell" : "LSTMCell";
};

// Errors of the cells: ShapeError for x or states of other shapes. An undefined state is zeros.
// Shapes: x [N,input], h [N,hidden] -> [N,hidden]; all without N alike.
class RNNCell final : public RecurrentCell<RNNCellOptions, 1> {
 public:
  using RecurrentCell::RecurrentCell;
  Tensor operator()(const Tensor& x, const Tensor& h = {});
};

// Shapes: x [N,input], h and c [N,hidden] -> h and c [N,hidden]; all without N alike.
class LSTMCell final : public RecurrentCell<RecurrentCellOptions, 4> {
 public:
  using RecurrentCell::RecurrentCell;
  LSTMState operator()(const Tensor& x, const LSTMState& state = {});
};

// Shapes: x [N,input], h [N,hidden] -> [N,hidden]; all without N alike.
class GRUCell final : public RecurrentCell<RecurrentCellOptions, 3> {
 public:
  using RecurrentCell::RecurrentCell;
  Tensor operator()(const Tensor& x, const Tensor& h = {});
};

}  // namespace gradus::nn
