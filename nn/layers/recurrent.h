// Recurrent layers: RNN, LSTM and GRU over sequences, and their single steps RNNCell, LSTMCell and GRUCell.
//
//   nn::LSTM lstm{this, "lstm", {.input_size = 32, .hidden_size = 64, .num_layers = 2}};
//   auto [y, state] = lstm(x);            // x [T,N,32] -> y [T,N,64], state.h and state.c [2,N,64]
//   auto [y2, state2] = lstm(x2, state);  // continues from that state
//
// Sequences are [T,N,features], with batch_first [N,T,features], or [T,features] without a batch.
// States are [layers * directions,N,hidden], or without N; the two directions of a layer follow one
// another. A state that is not given is zero. Weights have torch.nn's names (weight_ih_l0,
// weight_hh_l0_reverse, ...) and hold the gates one after the other (LSTM: i, f, g, o; GRU: r, z, n).
// They start uniform in +-1/sqrt(hidden_size).
#pragma once

#include <memory>
#include <vector>

#include "gradus/autograd/ops/recurrent.h"
#include "gradus/nn/module.h"

namespace gradus::nn {

using gradus::LSTMState;

enum class RNNActivation { kTanh, kReLU };

struct RNNOptions {
  Required<int64_t, "input_size"> input_size;
  Required<int64_t, "hidden_size"> hidden_size;
  int64_t num_layers = 1;
  RNNActivation nonlinearity = RNNActivation::kTanh;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;  // of the outputs of all layers but the last, in training
  bool bidirectional = false;
};

struct LSTMOptions {
  Required<int64_t, "input_size"> input_size;
  Required<int64_t, "hidden_size"> hidden_size;
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;  // of the outputs of all layers but the last, in training
  bool bidirectional = false;
  int64_t proj_size = 0;  // if positive, h is projected to that size
};

struct GRUOptions {
  Required<int64_t, "input_size"> input_size;
  Required<int64_t, "hidden_size"> hidden_size;
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;  // of the outputs of all layers but the last, in training
  bool bidirectional = false;
};

// The output of the last layer at all times, and the states of all layers after the last time.
struct RNNResult {
  Tensor output, h;
};
struct LSTMResult {
  Tensor output;
  LSTMState state;
};

// Base of the three layers: the weights, and the loop over times, layers and directions.
class Recurrent : public Module {
 protected:
  struct Form {
    const char* type;
    int64_t gates, input, hidden, layers, projection;
    bool bias, batch_first, bidirectional;
    double dropout;
  };
  template <class O>
  static Form form_of(const char* type, int64_t gates, const O& options, int64_t projection = 0);
  // One direction of one layer.
  struct Direction {
    std::unique_ptr<Parameter> w_ih, w_hh, b_ih, b_hh, w_hr;
  };

  Recurrent(Module* parent, std::string name, const Form& form);
  explicit Recurrent(const Form& form);

  // Runs all times, layers and directions.
  LSTMResult run(const Tensor& x, const LSTMState& state);
  std::string extra_repr() const override;

 private:
  // Returns whether the biases of input and state may be added once for all times.
  virtual bool joins_biases() const { return true; }
  // Returns the state after one time step. x_gates is the gates' product with the input.
  virtual LSTMState step(const Direction& d, const Tensor& x_gates, const LSTMState& state) = 0;

  void add_weights();
  std::unique_ptr<Parameter> weight(const std::string& name, const Shape& shape);
  LSTMResult unroll(const Direction& d, const Tensor& x, LSTMState state, bool backwards);
  void check_state(const char* name, const Tensor& given, const Shape& expected) const;
  int64_t directions() const { return form_.bidirectional ? 2 : 1; }
  int64_t output_size() const { return form_.projection ? form_.projection : form_.hidden; }

  const Form form_;
  std::vector<Direction> directions_;  // layer 0 (forward, backward), layer 1, ...
};

// In every layer h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu of that sum.
class RNN final : public Recurrent {
 public:
  using Options = RNNOptions;
  RNN(Module* parent, std::string name, Options options);
  explicit RNN(Options options);
  const Options& options() const { return options_; }

  // Errors: ShapeError for an x or h that does not fit, or no times.
  RNNResult operator()(const Tensor& x, const Tensor& h = {});
  std::string extra_repr() const override;

 private:
  LSTMState step(const Direction& d, const Tensor& x_gates, const LSTMState& state) override;
  Options options_;
};

// Long short-term memory: in every layer lstm_cell of the gates W_ih x + b_ih + W_hh h + b_hh.
class LSTM final : public Recurrent {
 public:
  using Options = LSTMOptions;
  LSTM(Module* parent, std::string name, Options options);
  explicit LSTM(Options options);
  const Options& options() const { return options_; }

  // Errors: ShapeError for an x or state that does not fit, or no times.
  LSTMResult operator()(const Tensor& x, const LSTMState& state = {});

 private:
  LSTMState step(const Direction& d, const Tensor& x_gates, const LSTMState& state) override;
  Options options_;
};

// Gated recurrent units: in every layer gru_cell of the gates W_ih x + b_ih and W_hh h + b_hh.
class GRU final : public Recurrent {
 public:
  using Options = GRUOptions;
  GRU(Module* parent, std::string name, Options options);
  explicit GRU(Options options);
  const Options& options() const { return options_; }

  // Errors: ShapeError for an x or h that does not fit, or no times.
  RNNResult operator()(const Tensor& x, const Tensor& h = {});

 private:
  bool joins_biases() const override { return false; }
  LSTMState step(const Direction& d, const Tensor& x_gates, const LSTMState& state) override;
  Options options_;
};

struct RNNCellOptions {
  Required<int64_t, "input_size"> input_size;
  Required<int64_t, "hidden_size"> hidden_size;
  bool bias = true;
  RNNActivation nonlinearity = RNNActivation::kTanh;
};
struct RecurrentCellOptions {
  Required<int64_t, "input_size"> input_size;
  Required<int64_t, "hidden_size"> hidden_size;
  bool bias = true;
};

// Base of the cells: weight_ih [gates * hidden,input], weight_hh [gates * hidden,hidden], bias_ih, bias_hh.
class RecurrentCell : public Module {
 protected:
  struct Form {
    const char* type;
    int64_t gates, input, hidden;
    bool bias;
  };
  RecurrentCell(Module* parent, std::string name, const Form& form);
  explicit RecurrentCell(const Form& form);

  // Checks x [N,input] or [input]. Adds a batch dim to x and to the state; a state that is not
  // given becomes zeros.
  bool prepare(Tensor& x, std::initializer_list<Tensor*> state) const;
  std::string extra_repr() const override;

 private:
  Tensor initial(const Shape& shape) const;
  const Form form_;

 public:
  Parameter weight_ih{this, "weight_ih", initial({form_.gates * form_.hidden, form_.input})};
  Parameter weight_hh{this, "weight_hh", initial({form_.gates * form_.hidden, form_.hidden})};
  Parameter bias_ih{this, "bias_ih", form_.bias ? initial({form_.gates * form_.hidden}) : Tensor()};
  Parameter bias_hh{this, "bias_hh", form_.bias ? initial({form_.gates * form_.hidden}) : Tensor()};
};

// Shapes: x [N,input], h [N,hidden] -> [N,hidden]; all without N alike.
class RNNCell final : public RecurrentCell {
 public:
  using Options = RNNCellOptions;
  RNNCell(Module* parent, std::string name, Options options);
  explicit RNNCell(Options options);
  Tensor operator()(const Tensor& x, const Tensor& h = {});
  std::string extra_repr() const override;

 private:
  RNNActivation nonlinearity_;
};

// Shapes: x [N,input], h and c [N,hidden] -> h and c [N,hidden]; all without N alike.
class LSTMCell final : public RecurrentCell {
 public:
  using Options = RecurrentCellOptions;
  LSTMCell(Module* parent, std::string name, Options options);
  explicit LSTMCell(Options options);
  LSTMState operator()(const Tensor& x, const LSTMState& state = {});
};

// Shapes: x [N,input], h [N,hidden] -> [N,hidden]; all without N alike.
class GRUCell final : public RecurrentCell {
 public:
  using Options = RecurrentCellOptions;
  GRUCell(Module* parent, std::string name, Options options);
  explicit GRUCell(Options options);
  Tensor operator()(const Tensor& x, const Tensor& h = {});
};

}  // namespace gradus::nn
