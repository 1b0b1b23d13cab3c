// RNN, LSTM and GRU (weights and gate order as in torch.nn), and their cells. For each layer and direction
// the products of all time steps with the input are one matrix product; the products with the state and the
// cells run step by step. Internally x is packed, [rows, features]; a tensor [T, N, features] is T steps of N rows.
// LSTMState {h, c} serves all three: c is undefined except for LSTM.
#include "gradus/nn/layers/recurrent.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/dropout.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/init.h"
#include "gradus/nn/placement.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::nn {
namespace {

// Returns a tensor with elements from U(-1/sqrt(hidden), 1/sqrt(hidden)).
Tensor uniform_parameter(const Shape& shape, int64_t hidden) {
  const double bound = 1 / std::sqrt(double(hidden));
  return init::uniform_(empty(shape, {.device = internal::initial_device()}), {.low = -bound, .high = bound});
}

// Returns `count` rows of a state from `start` on; c may be undefined.
LSTMState state_rows(const LSTMState& s, int64_t start, int64_t count) {
  if (start == 0 && count == s.h.size(0)) return s;
  return {narrow(s.h, 0, start, count), s.c.defined() ? narrow(s.c, 0, start, count) : Tensor()};
}
LSTMState joined(const LSTMState& a, const LSTMState& b) {
  return {cat({a.h, b.h}, 0), a.c.defined() ? cat({a.c, b.c}, 0) : Tensor()};
}

Tensor activated(RNNActivation a, const Tensor& x) { return a == RNNActivation::kTanh ? tanh(x) : relu(x); }

}  // namespace

template <class O, int64_t gates>
Recurrent<O, gates>::Recurrent(Module* parent, std::string name, O options)
    : ModuleWith<O>(parent, std::move(name), options) {
  add_weights();
}
template <class O, int64_t gates> Recurrent<O, gates>::Recurrent(O options) : ModuleWith<O>(options) {
  add_weights();
}

template <class O, int64_t gates> int64_t Recurrent<O, gates>::projection() const {
  if constexpr (requires(O o) { o.proj_size; }) return this->options().proj_size;
  return 0;
}

template <class O, int64_t gates>
std::unique_ptr<Parameter> Recurrent<O, gates>::weight(const std::string& name, const Shape& shape) {
  return std::make_unique<Parameter>(this, name, uniform_parameter(shape, this->options().hidden_size));
}

template <class O, int64_t gates> void Recurrent<O, gates>::add_weights() {
  const O& o = this->options();
  if (o.input_size < 1 || o.hidden_size < 1 || o.num_layers < 1)
    throw ValueError(kType, "expected input_size, hidden_size, num_layers >= 1, got ", *o.input_size, ", ",
                     *o.hidden_size, ", ", o.num_layers);
  if (!(o.dropout >= 0 && o.dropout <= 1))
    throw ValueError(kType, "expected dropout in [0, 1], got ", o.dropout);
  if (projection() < 0 || projection() >= o.hidden_size)
    throw ValueError(kType, "expected 0 <= proj_size < hidden_size, got ", projection(), " and ",
                     *o.hidden_size);
  const int64_t rows = gates * o.hidden_size;
  for (int64_t layer = 0; layer < o.num_layers; ++layer) {
    const int64_t in = layer == 0 ? *o.input_size : output_size() * directions();
    for (int64_t d = 0; d < directions(); ++d) {
      const std::string end = concat("_l", layer, d ? "_reverse" : "");
      Direction w;
      w.w_ih = weight("weight_ih" + end, {rows, in});
      w.w_hh = weight("weight_hh" + end, {rows, output_size()});
      if (o.bias) w.b_ih = weight("bias_ih" + end, {rows}), w.b_hh = weight("bias_hh" + end, {rows});
      if (projection()) w.w_hr = weight("weight_hr" + end, {projection(), o.hidden_size});
      directions_.push_back(std::move(w));
    }
  }
}

// Returns an initial state [layers * directions,N,size]: zeros if `state` is undefined.
template <class O, int64_t gates>
Tensor Recurrent<O, gates>::initial_state(const char* name, const Tensor& state, const Tensor& x, int64_t n,
                                          int64_t size, bool batch) const {
  const int64_t count = this->options().num_layers * directions();
  if (!state.defined()) return zeros({count, n, size}, {x.dtype(), x.device()});
  const Shape expected = batch ? Shape{count, n, size} : Shape{count, size};
  if (state.shape() != expected)
    throw ShapeError(kType, "expected ", name, " ", expected, ", got ", describe(state));
  return batch ? state : unsqueeze(state, 1);
}

// Runs one direction of one layer over packed sequences: x [rows,in] -> output [rows,out], in the order of x also if
// `backwards`. A sequence leaves the batch after its last step; backwards it enters there.
template <class O, int64_t gates>
LSTMResult Recurrent<O, gates>::unroll(const Direction& d, const Tensor& x,
                                       const std::vector<int64_t>& batch_sizes, const LSTMState& initial,
                                       bool backwards) {
  Tensor bias;
  if (d.b_ih) bias = can_sum_biases() ? *d.b_ih + *d.b_hh : *d.b_ih;
  const std::vector<Tensor> x_gates = split(linear(x, *d.w_ih, bias), batch_sizes, 0);
  std::vector<Tensor> outputs;
  std::vector<LSTMState> ended;
  int64_t n = backwards ? batch_sizes.back() : batch_sizes.front();
  LSTMState state = state_rows(initial, 0, n);
  for (size_t i = 0; i < batch_sizes.size(); ++i) {
    const size_t t = backwards ? batch_sizes.size() - 1 - i : i;
    const int64_t size = batch_sizes[t];
    if (size < n) {
      ended.push_back(state_rows(state, size, n - size));
      state = state_rows(state, 0, size);
    } else if (size > n) {
      state = joined(state, state_rows(initial, n, size - n));
    }
    n = size;
    state = step(d, x_gates[t], state);
    outputs.push_back(state.h);
  }
  if (backwards) std::reverse(outputs.begin(), outputs.end());
  for (; !ended.empty(); ended.pop_back()) state = joined(state, ended.back());
  return {cat(outputs, 0), state};
}

// Runs all layers: x [rows,in], states [layers * directions,N,size] -> output [rows,out], and final states.
template <class O, int64_t gates>
LSTMResult Recurrent<O, gates>::run_layers(Tensor x, const std::vector<int64_t>& batch_sizes,
                                           const LSTMState& state) {
  const O& o = this->options();
  std::vector<Tensor> h = unbind(state.h, 0), c;
  const bool has_cell_state = state.c.defined();
  if (has_cell_state) c = unbind(state.c, 0);
  for (int64_t layer = 0; layer < o.num_layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t d = 0; d < directions(); ++d) {
      const size_t i = size_t(layer * directions() + d);
      LSTMResult r = unroll(directions_[i], x, batch_sizes, {h[i], has_cell_state ? c[i] : Tensor()}, d == 1);
      outputs.push_back(r.output);
      h[i] = r.state.h;
      if (has_cell_state) c[i] = r.state.c;
    }
    x = outputs.size() == 1 ? outputs[0] : cat(outputs, 1);
    if (layer + 1 < o.num_layers && o.dropout > 0) x = dropout(std::move(x), o.dropout, this->is_training());
  }
  return {x, {stack(h, 0), has_cell_state ? stack(c, 0) : Tensor()}};
}

template <class O, int64_t gates>
LSTMResult Recurrent<O, gates>::run(const Tensor& x_in, const LSTMState& state) {
  const O& o = this->options();
  const bool batch = x_in.dim() == 3;
  if ((x_in.dim() != 2 && !batch) || x_in.size(-1) != o.input_size ||
      x_in.size(o.batch_first && batch ? 1 : 0) < 1)
    throw ShapeError(kType, "expected x ", o.batch_first ? "[N,T," : "[T,N,", *o.input_size, "] or [T,",
                     *o.input_size, "] with T >= 1, got ", describe(x_in));
  const Tensor x = !batch ? unsqueeze(x_in, 1) : o.batch_first ? transpose(x_in, 0, 1) : x_in;
  const int64_t steps = x.size(0), n = x.size(1);
  const Tensor h = initial_state("h", state.h, x, n, output_size(), batch);
  const Tensor c = gates == 4 ? initial_state("c", state.c, x, n, o.hidden_size, batch) : Tensor();
  LSTMResult r =
      run_layers(reshape(x, {steps * n, *o.input_size}), std::vector<int64_t>(size_t(steps), n), {h, c});
  const Tensor y = reshape(r.output, {steps, n, r.output.size(1)});
  if (!batch) {
    r.state.h = squeeze(r.state.h, 1);
    if (r.state.c.defined()) r.state.c = squeeze(r.state.c, 1);
  }
  return {!batch ? squeeze(y, 1) : o.batch_first ? transpose(y, 0, 1) : y, r.state};
}

template <class O, int64_t gates>
PackedLSTMResult Recurrent<O, gates>::run(const PackedSequence& x, const LSTMState& state) {
  const O& o = this->options();
  x.lengths();  // checks x
  if (x.data.dim() != 2 || x.data.size(1) != o.input_size)
    throw ShapeError(kType, "expected packed data [rows,", *o.input_size, "], got ", describe(x.data));
  const int64_t n = x.batch_sizes[0];
  // Returns the states with dim 1 in the order of `index`.
  const auto ordered = [&](const Tensor& s, const std::vector<int64_t>& index) {
    return index.empty() || !s.defined() ? s : index_select(s, 1, gradus::to(tensor(index), s.device()));
  };
  std::vector<int64_t> back(x.sorted_indices.size());
  for (size_t i = 0; i < back.size(); ++i) back[size_t(x.sorted_indices[i])] = int64_t(i);
  const Tensor h = initial_state("h", state.h, x.data, n, output_size(), true);
  const Tensor c = gates == 4 ? initial_state("c", state.c, x.data, n, o.hidden_size, true) : Tensor();
  const LSTMResult r =
      run_layers(x.data, x.batch_sizes, {ordered(h, x.sorted_indices), ordered(c, x.sorted_indices)});
  return {{r.output, x.batch_sizes, x.sorted_indices}, {ordered(r.state.h, back), ordered(r.state.c, back)}};
}

namespace {
RNNResult without_cell_state(const LSTMResult& r) { return {r.output, r.state.h}; }
PackedRNNResult without_cell_state(const PackedLSTMResult& r) { return {r.output, r.state.h}; }
}  // namespace

RNNResult RNN::operator()(const Tensor& x, const Tensor& h) {
  return call([&] { return without_cell_state(run(x, {h, {}})); });
}
PackedRNNResult RNN::operator()(const PackedSequence& x, const Tensor& h) {
  return call([&] { return without_cell_state(run(x, {h, {}})); });
}
LSTMResult LSTM::operator()(const Tensor& x, const LSTMState& state) {
  return call([&] { return run(x, state); });
}
PackedLSTMResult LSTM::operator()(const PackedSequence& x, const LSTMState& state) {
  return call([&] { return run(x, state); });
}
RNNResult GRU::operator()(const Tensor& x, const Tensor& h) {
  return call([&] { return without_cell_state(run(x, {h, {}})); });
}
PackedRNNResult GRU::operator()(const PackedSequence& x, const Tensor& h) {
  return call([&] { return without_cell_state(run(x, {h, {}})); });
}

LSTMState RNN::step(const Direction& d, const Tensor& x_gates, const LSTMState& state) {
  return {activated(options().nonlinearity, x_gates + linear(state.h, *d.w_hh)), {}};
}
LSTMState LSTM::step(const Direction& d, const Tensor& x_gates, const LSTMState& state) {
  LSTMState next = lstm_cell(x_gates + linear(state.h, *d.w_hh), state.c);
  if (d.w_hr) next.h = linear(next.h, *d.w_hr);
  return next;
}
LSTMState GRU::step(const Direction& d, const Tensor& x_gates, const LSTMState& state) {
  return {gru_cell(x_gates, linear(state.h, *d.w_hh, d.b_hh ? Tensor(*d.b_hh) : Tensor()), state.h), {}};
}

// --- cells ---

template <class O, int64_t gates> Tensor RecurrentCell<O, gates>::initial_weight(int64_t in) const {
  const O& o = this->options();
  if (o.input_size < 1 || o.hidden_size < 1)
    throw ValueError(kType, "expected input_size, hidden_size >= 1, got ", *o.input_size, ", ",
                     *o.hidden_size);
  return uniform_parameter({gates * o.hidden_size, in}, o.hidden_size);
}
template <class O, int64_t gates> Tensor RecurrentCell<O, gates>::initial_bias() const {
  const O& o = this->options();
  return o.bias ? uniform_parameter({gates * o.hidden_size}, o.hidden_size) : Tensor();
}

template <class O, int64_t gates>
bool RecurrentCell<O, gates>::prepare(Tensor& x, std::initializer_list<Tensor*> state) const {
  const O& o = this->options();
  const bool batch = x.dim() == 2;
  if ((x.dim() != 1 && !batch) || x.size(-1) != o.input_size)
    throw ShapeError(kType, "expected x [N,", *o.input_size, "] or [", *o.input_size, "], got ", describe(x));
  const Shape expected = batch ? Shape{x.size(0), o.hidden_size} : Shape{o.hidden_size};
  for (Tensor* s : state) {
    if (!s->defined()) *s = zeros(expected, {x.dtype(), x.device()});
    if (s->shape() != expected)
      throw ShapeError(kType, "expected a state ", expected, ", got ", describe(*s));
    if (!batch) *s = unsqueeze(*s, 0);
  }
  if (!batch) x = unsqueeze(x, 0);
  return batch;
}

template class Recurrent<RNNOptions, 1>;
template class Recurrent<LSTMOptions, 4>;
template class Recurrent<GRUOptions, 3>;
template class RecurrentCell<RNNCellOptions, 1>;
template class RecurrentCell<RecurrentCellOptions, 3>;
template class RecurrentCell<RecurrentCellOptions, 4>;

Tensor RNNCell::operator()(const Tensor& x_in, const Tensor& h_in) {
  return call([&] {
    Tensor x = x_in, h = h_in;
    const bool batch = prepare(x, {&h});
    const Tensor y =
        activated(options().nonlinearity, linear(x, weight_ih, bias_ih) + linear(h, weight_hh, bias_hh));
    return batch ? y : squeeze(y, 0);
  });
}

LSTMState LSTMCell::operator()(const Tensor& x_in, const LSTMState& state) {
  return call([&] {
    Tensor x = x_in, h = state.h, c = state.c;
    const bool batch = prepare(x, {&h, &c});
    const LSTMState next = lstm_cell(linear(x, weight_ih, bias_ih) + linear(h, weight_hh, bias_hh), c);
    return batch ? next : LSTMState{squeeze(next.h, 0), squeeze(next.c, 0)};
  });
}

Tensor GRUCell::operator()(const Tensor& x_in, const Tensor& h_in) {
  return call([&] {
    Tensor x = x_in, h = h_in;
    const bool batch = prepare(x, {&h});
    const Tensor y = gru_cell(linear(x, weight_ih, bias_ih), linear(h, weight_hh, bias_hh), h);
    return batch ? y : squeeze(y, 0);
  });
}

template class ModuleWith<GRUOptions>;
template class ModuleWith<LSTMOptions>;
template class ModuleWith<RNNCellOptions>;
template class ModuleWith<RNNOptions>;
template class ModuleWith<RecurrentCellOptions>;
}  // namespace gradus::nn
