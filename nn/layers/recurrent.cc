#include "gradus/nn/layers/recurrent.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/dropout.h"
#include "gradus/autograd/ops/elementwise.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/init.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::nn {
namespace {

Tensor uniform_parameter(const Shape& shape, int64_t hidden) {
  const double bound = 1 / std::sqrt(double(hidden));
  return init::uniform_(empty(shape, {.device = Context::current().device}), {.low = -bound, .high = bound});
}

Tensor activated(RNNActivation a, const Tensor& x) { return a == RNNActivation::kTanh ? tanh(x) : relu(x); }

}  // namespace

template <class O>
Recurrent::Form Recurrent::form_of(const char* type, int64_t gates, const O& o, int64_t projection) {
  return {type,       gates,  o.input_size,  o.hidden_size,   o.num_layers,
          projection, o.bias, o.batch_first, o.bidirectional, o.dropout};
}

Recurrent::Recurrent(Module* parent, std::string name, const Form& form)
    : Module(parent, std::move(name)), form_(form) {
  add_weights();
}
Recurrent::Recurrent(const Form& form) : form_(form) { add_weights(); }

std::unique_ptr<Parameter> Recurrent::weight(const std::string& name, const Shape& shape) {
  return std::make_unique<Parameter>(this, name, uniform_parameter(shape, form_.hidden));
}

void Recurrent::add_weights() {
  const Form& f = form_;
  if (f.input < 1 || f.hidden < 1 || f.layers < 1)
    throw ValueError(f.type, "expected input_size, hidden_size, num_layers >= 1, given ", f.input, ", ",
                     f.hidden, ", ", f.layers);
  if (!(f.dropout >= 0 && f.dropout <= 1))
    throw ValueError(f.type, "expected dropout in [0, 1], given ", f.dropout);
  if (f.projection < 0 || f.projection >= f.hidden)
    throw ValueError(f.type, "expected 0 <= proj_size < hidden_size, given ", f.projection, " and ",
                     f.hidden);
  const int64_t rows = f.gates * f.hidden;
  for (int64_t layer = 0; layer < f.layers; ++layer) {
    const int64_t in = layer == 0 ? f.input : output_size() * directions();
    for (int64_t d = 0; d < directions(); ++d) {
      const std::string end = concat("_l", layer, d ? "_reverse" : "");
      Direction w;
      w.w_ih = weight("weight_ih" + end, {rows, in});
      w.w_hh = weight("weight_hh" + end, {rows, output_size()});
      if (f.bias) w.b_ih = weight("bias_ih" + end, {rows}), w.b_hh = weight("bias_hh" + end, {rows});
      if (f.projection) w.w_hr = weight("weight_hr" + end, {f.projection, f.hidden});
      directions_.push_back(std::move(w));
    }
  }
}

void Recurrent::check_state(const char* name, const Tensor& given, const Shape& expected) const {
  if (given.shape() != expected)
    throw ShapeError(form_.type, "expected ", name, " ", expected, ", given ", describe(given));
}

LSTMResult Recurrent::unroll(const Direction& d, const Tensor& x, LSTMState state, bool backwards) {
  Tensor bias;
  if (d.b_ih) bias = joins_biases() ? *d.b_ih + *d.b_hh : *d.b_ih;
  std::vector<Tensor> x_gates = unbind(linear(x, *d.w_ih, bias), 0), outputs;
  if (backwards) std::reverse(x_gates.begin(), x_gates.end());
  for (const Tensor& g : x_gates) {
    state = step(d, g, state);
    outputs.push_back(state.h);
  }
  if (backwards) std::reverse(outputs.begin(), outputs.end());
  return {stack(outputs, 0), state};
}

LSTMResult Recurrent::run(const Tensor& given, const LSTMState& state) {
  const Form& f = form_;
  const bool batch = given.dim() == 3;
  if ((given.dim() != 2 && !batch) || given.size(-1) != f.input ||
      given.size(f.batch_first && batch ? 1 : 0) < 1)
    throw ShapeError(f.type, "expected x ", f.batch_first ? "[N,T," : "[T,N,", f.input, "] or [T,", f.input,
                     "] with T >= 1, given ", describe(given));
  Tensor x = !batch ? unsqueeze(given, 1) : f.batch_first ? transpose(given, 0, 1) : given;
  const int64_t n = x.size(1), count = f.layers * directions();

  // Returns the part of a state for one direction of one layer.
  const auto parts = [&](const char* name, const Tensor& t, int64_t size) {
    if (!t.defined()) return std::vector<Tensor>(size_t(count), zeros({n, size}, {x.dtype(), x.device()}));
    check_state(name, t, batch ? Shape{count, n, size} : Shape{count, size});
    return unbind(batch ? t : unsqueeze(t, 1), 0);
  };
  std::vector<Tensor> h = parts("h", state.h, output_size()), c;
  const bool cells = f.gates == 4;
  if (cells) c = parts("c", state.c, f.hidden);

  for (int64_t layer = 0; layer < f.layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t d = 0; d < directions(); ++d) {
      const size_t i = size_t(layer * directions() + d);
      LSTMResult r = unroll(directions_[i], x, {h[i], cells ? c[i] : Tensor()}, d == 1);
      outputs.push_back(r.output);
      h[i] = r.state.h;
      if (cells) c[i] = r.state.c;
    }
    x = outputs.size() == 1 ? outputs[0] : cat(outputs, 2);
    if (layer + 1 < f.layers && f.dropout > 0) x = dropout(std::move(x), f.dropout, is_training());
  }
  const auto joined = [&](const std::vector<Tensor>& all) {
    return all.empty() ? Tensor() : batch ? stack(all, 0) : squeeze(stack(all, 0), 1);
  };
  return {!batch ? squeeze(x, 1) : f.batch_first ? transpose(x, 0, 1) : x, {joined(h), joined(c)}};
}

std::string Recurrent::extra_repr() const {
  const Form& f = form_;
  std::string text = concat(f.input, ", ", f.hidden);
  if (f.projection) text += concat(", proj_size=", f.projection);
  if (f.layers != 1) text += concat(", num_layers=", f.layers);
  if (!f.bias) text += ", bias=false";
  if (f.batch_first) text += ", batch_first=true";
  if (f.dropout != 0) text += concat(", dropout=", f.dropout);
  if (f.bidirectional) text += ", bidirectional=true";
  return text;
}

RNN::RNN(Module* parent, std::string name, Options o)
    : Recurrent(parent, std::move(name), form_of("RNN", 1, o)), options_(o) {}
RNN::RNN(Options o) : Recurrent(form_of("RNN", 1, o)), options_(o) {}
LSTM::LSTM(Module* parent, std::string name, Options o)
    : Recurrent(parent, std::move(name), form_of("LSTM", 4, o, o.proj_size)), options_(o) {}
LSTM::LSTM(Options o) : Recurrent(form_of("LSTM", 4, o, o.proj_size)), options_(o) {}
GRU::GRU(Module* parent, std::string name, Options o)
    : Recurrent(parent, std::move(name), form_of("GRU", 3, o)), options_(o) {}
GRU::GRU(Options o) : Recurrent(form_of("GRU", 3, o)), options_(o) {}

RNNResult RNN::operator()(const Tensor& x, const Tensor& h) {
  return call([&] {
    LSTMResult r = run(x, {h, {}});
    return RNNResult{r.output, r.state.h};
  });
}
LSTMResult LSTM::operator()(const Tensor& x, const LSTMState& state) {
  return call([&] { return run(x, state); });
}
RNNResult GRU::operator()(const Tensor& x, const Tensor& h) {
  return call([&] {
    LSTMResult r = run(x, {h, {}});
    return RNNResult{r.output, r.state.h};
  });
}

LSTMState RNN::step(const Direction& d, const Tensor& x_gates, const LSTMState& state) {
  return {activated(options_.nonlinearity, x_gates + linear(state.h, *d.w_hh)), {}};
}
LSTMState LSTM::step(const Direction& d, const Tensor& x_gates, const LSTMState& state) {
  LSTMState next = lstm_cell(x_gates + linear(state.h, *d.w_hh), state.c);
  if (d.w_hr) next.h = linear(next.h, *d.w_hr);
  return next;
}
LSTMState GRU::step(const Direction& d, const Tensor& x_gates, const LSTMState& state) {
  return {gru_cell(x_gates, linear(state.h, *d.w_hh, d.b_hh ? Tensor(*d.b_hh) : Tensor()), state.h), {}};
}

std::string RNN::extra_repr() const {
  return Recurrent::extra_repr() +
         (options_.nonlinearity == RNNActivation::kReLU ? ", nonlinearity=relu" : "");
}

// --- cells ---

RecurrentCell::RecurrentCell(Module* parent, std::string name, const Form& form)
    : Module(parent, std::move(name)), form_(form) {}
RecurrentCell::RecurrentCell(const Form& form) : form_(form) {}

Tensor RecurrentCell::initial(const Shape& shape) const {
  if (form_.input < 1 || form_.hidden < 1)
    throw ValueError(form_.type, "expected input_size, hidden_size >= 1, given ", form_.input, ", ",
                     form_.hidden);
  return uniform_parameter(shape, form_.hidden);
}

bool RecurrentCell::prepare(Tensor& x, std::initializer_list<Tensor*> state) const {
  const bool batch = x.dim() == 2;
  if ((x.dim() != 1 && !batch) || x.size(-1) != form_.input)
    throw ShapeError(form_.type, "expected x [N,", form_.input, "] or [", form_.input, "], given ",
                     describe(x));
  const Shape expected = batch ? Shape{x.size(0), form_.hidden} : Shape{form_.hidden};
  for (Tensor* s : state) {
    if (!s->defined()) *s = zeros(expected, {x.dtype(), x.device()});
    if (s->shape() != expected)
      throw ShapeError(form_.type, "expected a state ", expected, ", given ", describe(*s));
    if (!batch) *s = unsqueeze(*s, 0);
  }
  if (!batch) x = unsqueeze(x, 0);
  return batch;
}

std::string RecurrentCell::extra_repr() const {
  return concat(form_.input, ", ", form_.hidden, form_.bias ? "" : ", bias=false");
}

RNNCell::RNNCell(Module* parent, std::string name, Options o)
    : RecurrentCell(parent, std::move(name), Form{"RNNCell", 1, *o.input_size, *o.hidden_size, o.bias}),
      nonlinearity_(o.nonlinearity) {}
RNNCell::RNNCell(Options o)
    : RecurrentCell(Form{"RNNCell", 1, *o.input_size, *o.hidden_size, o.bias}),
      nonlinearity_(o.nonlinearity) {}
LSTMCell::LSTMCell(Module* parent, std::string name, Options o)
    : RecurrentCell(parent, std::move(name), Form{"LSTMCell", 4, *o.input_size, *o.hidden_size, o.bias}) {}
LSTMCell::LSTMCell(Options o) : RecurrentCell(Form{"LSTMCell", 4, *o.input_size, *o.hidden_size, o.bias}) {}
GRUCell::GRUCell(Module* parent, std::string name, Options o)
    : RecurrentCell(parent, std::move(name), Form{"GRUCell", 3, *o.input_size, *o.hidden_size, o.bias}) {}
GRUCell::GRUCell(Options o) : RecurrentCell(Form{"GRUCell", 3, *o.input_size, *o.hidden_size, o.bias}) {}

Tensor RNNCell::operator()(const Tensor& given, const Tensor& given_h) {
  return call([&] {
    Tensor x = given, h = given_h;
    const bool batch = prepare(x, {&h});
    const Tensor y = activated(nonlinearity_, linear(x, weight_ih, bias_ih) + linear(h, weight_hh, bias_hh));
    return batch ? y : squeeze(y, 0);
  });
}

LSTMState LSTMCell::operator()(const Tensor& given, const LSTMState& state) {
  return call([&] {
    Tensor x = given, h = state.h, c = state.c;
    const bool batch = prepare(x, {&h, &c});
    const LSTMState next = lstm_cell(linear(x, weight_ih, bias_ih) + linear(h, weight_hh, bias_hh), c);
    return batch ? next : LSTMState{squeeze(next.h, 0), squeeze(next.c, 0)};
  });
}

Tensor GRUCell::operator()(const Tensor& given, const Tensor& given_h) {
  return call([&] {
    Tensor x = given, h = given_h;
    const bool batch = prepare(x, {&h});
    const Tensor y = gru_cell(linear(x, weight_ih, bias_ih), linear(h, weight_hh, bias_hh), h);
    return batch ? y : squeeze(y, 0);
  });
}

std::string RNNCell::extra_repr() const {
  return RecurrentCell::extra_repr() + (nonlinearity_ == RNNActivation::kReLU ? ", nonlinearity=relu" : "");
}

}  // namespace gradus::nn
