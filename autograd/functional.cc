// Reverse-mode gradients of functions. value_and_grad, vjp, jvp, jacobian, hessian and hvp run f under
// recordings (Tape) of their own, whose leaves are aliases of the arguments. grad(ys, xs) runs a backward
// pass over a recording that the caller has opened, and leaves that recording open (PyTorch's create_graph).
// checkpoint recomputes the forward within the backward; apply records a user-defined Function. All use the
// thread's recordings.
#include "gradus/autograd/functional.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "gradus/autograd/engine.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::autograd {
namespace {

// Returns a view of x with its own slot (the tensor's position in the graph: its producing node, or its
// leaf). Attaching the view (making it a leaf) does not attach x. Recordings that follow x also follow the
// view, through a recorded identity op.
Tensor alias(const char* op, const Tensor& x) {
  if (!x.defined()) throw StateError(op, "an undefined tensor (none) was given to differentiate by");
  Tensor y = detach(x);
  if (Recorder r{"identity", x}) r.record(y, wrt(x, [](Tensor dy) { return dy; }));
  return y;
}

void check_result(const char* op, const Tensor& y) {
  if (!y.defined()) throw StateError(op, "the function returned an undefined tensor");
}

// Returns dy, or ones like y if dy is undefined.
Tensor default_dy(const char* op, const Tensor& y, const Tensor& dy) {
  check_result(op, y);
  if (!dy.defined()) return ones_like(y);
  if (!(dy.shape() == y.shape()))
    throw ShapeError(op, "dy must have the result's shape: dy ", describe(dy), ", result ", describe(y));
  return dy;
}

// Opens a recording of the ops that depend on `leaves`, and closes it at the end of the scope.
struct OpenScope {
  Ref<RecordingState> state;
  explicit OpenScope(const std::vector<Ref<AutogradSlot>>& leaves) : state(make_ref<RecordingState>(leaves)) {
    open_recording(state);
  }
  ~OpenScope() {
    close_recording(state.get());
    state->finish();
  }
};

// An open recording that follows aliases of tensors. Recordings opened before it record its backward passes.
class Tape {
 public:
  // Returns an alias of x, which the tape follows from now on.
  Tensor follow(const char* op, const Tensor& x) {
    inputs_.push_back(alias(op, x));
    const Ref<AutogradSlot> leaf = leaf_of(inputs_.back());
    scope_.state->add_leaf(leaf);
    targets_.push_back({leaf, 0});
    return inputs_.back();
  }
  std::vector<Tensor> follow(const char* op, const std::vector<Tensor>& xs) {
    std::vector<Tensor> inner;
    for (const Tensor& x : xs) inner.push_back(follow(op, x));
    return inner;
  }
  bool follows(const Tensor& y) const {
    const auto& slot = y.impl().slot;
    return slot && scope_.state->follows(slot.get());
  }
  // Returns the gradients of sum_i <ys[i], dys[i]> with respect to the followed tensors; undefined for those
  // on which no y depends. `is_last`: frees the saved tensors.
  std::vector<Tensor> backward(std::vector<Tensor> ys, std::vector<Tensor> dys, bool is_last = true) {
    std::vector<Tensor> grads(targets_.size());
    BackwardPass pass{.recording = *scope_.state,
                      .roots = std::move(ys),
                      .dys = std::move(dys),
                      .targets = targets_,
                      .keep_graph = !is_last};
    pass.deliver = [&](size_t i, Tensor g) { grads[i] = to_dense(g); };
    // With keep_graph the tape itself would record the pass, and grow.
    const RecordingsScope scope(recordings_of_backward(*scope_.state));
    run(pass);
    return grads;
  }

 private:
  std::vector<Tensor> inputs_;  // a gradient gets the shape and dtype of a leaf's tensor only while it lives
  std::vector<Edge> targets_;
  OpenScope scope_{{}};
};

}  // namespace

std::pair<Tensor, std::vector<Tensor>> value_and_grad(const NaryFunction& f, const std::vector<Tensor>& xs,
                                                      const Tensor& dy) {
  Tape tape;
  const Tensor value = f(tape.follow("grad", xs));
  std::vector<Tensor> grads = tape.backward({value}, {default_dy("grad", value, dy)});
  for (size_t i = 0; i < xs.size(); ++i)
    if (!grads[i].defined()) grads[i] = zeros_like(xs[i]);
  return {value, std::move(grads)};
}

std::pair<Tensor, Tensor> value_and_grad(const UnaryFunction& f, const Tensor& x, const Tensor& dy) {
  auto [value, grads] =
      value_and_grad([&](const std::vector<Tensor>& xs) { return f(xs[0]); }, std::vector{x}, dy);
  return {std::move(value), std::move(grads[0])};
}

Tensor grad(const UnaryFunction& f, const Tensor& x, const Tensor& dy) {
  return value_and_grad(f, x, dy).second;
}

std::vector<Tensor> grad(const NaryFunction& f, const std::vector<Tensor>& xs, const Tensor& dy) {
  return value_and_grad(f, xs, dy).second;
}

std::vector<Tensor> grad(const TensorList& ys, const std::vector<Tensor>& xs, const TensorList& dys) {
  if (!dys.empty() && dys.get().size() != ys.get().size())
    throw ValueError("grad", "needs one dy per y: ", ys.get().size(), " ys, ", dys.get().size(), " dys");
  Ref<RecordingState> state;  // the innermost open recording of the first y that has one
  for (size_t i = 0; i < ys.get().size(); ++i) {
    if (!ys.get()[i].defined())
      throw StateError("grad", "y ", i, " of ", ys.get().size(), " is undefined (none)");
    if (!state) state = innermost_following(ys.get()[i]);
  }
  for (size_t i = 0; i < xs.size(); ++i)
    if (!xs[i].defined()) throw StateError("grad", "x ", i, " of ", xs.size(), " is undefined (none)");
  if (!state)
    throw StateError("grad", "no open recording tracks ys: compute them inside record(), or use grad(f, x)");
  for (size_t i = 0; i < xs.size(); ++i)
    if (!innermost_following(xs[i]))
      throw StateError("grad", "no open recording follows x ", i, " of ", xs.size(), ": ", describe(xs[i]),
                       "; attach it before ys are computed, or use grad(f, x)");
  BackwardPass pass{.recording = *state, .roots = ys.get(), .keep_graph = true};
  for (size_t i = 0; i < ys.get().size(); ++i) {
    if (dys.empty() || !dys.get()[i].defined())
      check_one_element("grad", "y", ys.get()[i], " (or pass its dy)");
    pass.dys.push_back(default_dy("grad", ys.get()[i], dys.empty() ? Tensor() : dys.get()[i]));
  }
  for (const Tensor& x : xs) pass.targets.push_back({x.impl().slot, x.impl().slot_index});
  std::vector<Tensor> grads(xs.size());
  pass.deliver = [&](size_t i, Tensor g) { grads[i] = to_dense(g); };
  run(pass);
  return grads;
}

namespace {

using Tensors = std::vector<Tensor>;

MultiFunction as_multi(const UnaryFunction& f) {
  return [&f](const Tensors& xs) { return Tensors{f(xs[0])}; };
}
MultiFunction as_multi(const NaryFunction& f) {
  return [&f](const Tensors& xs) { return Tensors{f(xs)}; };
}

// As as_multi, with a check that the result has one element.
MultiFunction as_scalar(const char* op, const NaryFunction& f) {
  return [op, &f](const Tensors& xs) {
    const Tensor y = f(xs);
    check_result(op, y);
    check_one_element(op, "the function's result", y);
    return Tensors{y};
  };
}

// Suspends the caller's recordings for a scope unless the results are to be differentiable.
RecordingsScope enclosing(const DerivativeOptions& options) {
  return RecordingsScope(options.create_graph ? open_recordings() : std::vector<Ref<Counted>>());
}

// Returns one v per tensor; an omitted v is 1.
Tensors checked_vs(const char* op, const char* of, const Tensors& xs, const Tensors& vs) {
  if (!vs.empty() && vs.size() != xs.size())
    throw ValueError(op, "expected one v per ", of, ": ", xs.size(), ", got ", vs.size());
  Tensors checked;
  for (size_t i = 0; i < xs.size(); ++i) {
    const Tensor v = vs.empty() ? Tensor() : vs[i];
    if (!v.defined()) check_one_element(op, concat(of, " ", i), xs[i], " (or pass its v)");
    if (v.defined() && !(v.shape() == xs[i].shape()))
      throw ShapeError(op, "expected v of the shape of ", of, " ", i, ", ", describe(xs[i]), ", got ",
                       describe(v));
    checked.push_back(v.defined() ? v : ones_like(xs[i]));
  }
  return checked;
}

// Replaces undefined derivatives by zeros, or throws if `strict`.
void fill_in_zeros(const char* op, Tensors& derivatives, const Tensors& like, bool strict, const char* text) {
  for (size_t i = 0; i < like.size(); ++i) {
    if (derivatives[i].defined()) continue;
    if (strict) throw ValueError(op, text, " ", i, ", which strict forbids");
    derivatives[i] = zeros_like(like[i]);
  }
}
constexpr const char* kNotByInput = "no result of the function depends on input";

// Calls f, and checks its results.
Tensors call(const char* op, const Tape& tape, const MultiFunction& f, const Tensors& inputs, bool strict) {
  Tensors ys = f(inputs);
  for (size_t i = 0; i < ys.size(); ++i) {
    check_result(op, ys[i]);
    if (strict && !tape.follows(ys[i]))
      throw ValueError(op, "result ", i, " of the function depends on no input, which strict forbids");
  }
  return ys;
}

std::pair<Tensors, Tensors> vjp_of(const char* op, const MultiFunction& f, const Tensors& xs,
                                   const Tensors& vs, bool strict) {
  Tape tape;
  const Tensors ys = call(op, tape, f, tape.follow(op, xs), strict);
  Tensors grads = tape.backward(ys, checked_vs(op, "result", ys, vs));
  fill_in_zeros(op, grads, xs, strict, kNotByInput);
  return {ys, std::move(grads)};
}

std::vector<Tensors> jacobian_of(const char* op, const MultiFunction& f, const Tensors& xs, bool strict) {
  Tape tape;
  const Tensors ys = call(op, tape, f, tape.follow(op, xs), strict);
  std::vector<Tensors> jacobian;
  for (const Tensor& y : ys) {
    std::vector<Tensors> rows(xs.size());  // per x, one per element of y
    for (int64_t i = 0; i < y.numel(); ++i) {
      const Tensor dy = zeros(y.shape(), {.dtype = y.dtype(), .device = y.device()});
      raw::fill_(raw::narrow(raw::reshape(dy, {y.numel()}), 0, i, 1), 1);
      Tensors grads = tape.backward({y}, {dy}, /*is_last=*/false);
      fill_in_zeros(op, grads, xs, strict, "a result of the function does not depend on input");
      for (size_t j = 0; j < xs.size(); ++j) rows[j].push_back(grads[j]);
    }
    Tensors& of_y = jacobian.emplace_back();
    for (size_t j = 0; j < xs.size(); ++j) {
      Shape shape = y.shape();
      for (int64_t size : xs[j].shape()) shape.push_back(size);
      of_y.push_back(rows[j].empty() ? zeros(shape, {.dtype = xs[j].dtype(), .device = xs[j].device()})
                                     : reshape(stack(rows[j]), shape));
    }
  }
  return jacobian;
}

}  // namespace

std::pair<Tensors, Tensors> vjp(const MultiFunction& f, const Tensors& xs, const Tensors& vs,
                                const DerivativeOptions& o) {
  const RecordingsScope scope = enclosing(o);
  return vjp_of("vjp", f, xs, vs, o.strict);
}
std::pair<Tensor, Tensors> vjp(const NaryFunction& f, const Tensors& xs, const Tensor& v,
                               const DerivativeOptions& o) {
  auto [ys, grads] = vjp(as_multi(f), xs, {v}, o);
  return {ys[0], std::move(grads)};
}
std::pair<Tensor, Tensor> vjp(const UnaryFunction& f, const Tensor& x, const Tensor& v,
                              const DerivativeOptions& o) {
  const auto [ys, grads] = vjp(as_multi(f), {x}, {v}, o);
  return {ys[0], grads[0]};
}

// u -> u^T df/dx is linear, and its derivative along v is (df/dx v): two backward passes.
std::pair<Tensors, Tensors> jvp(const MultiFunction& f, const Tensors& xs, const Tensors& vs,
                                const DerivativeOptions& o) {
  const RecordingsScope scope = enclosing(o);
  Tape of_u, of_x;
  const Tensors inputs = of_x.follow("jvp", xs), v = checked_vs("jvp", "input", xs, vs);
  const Tensors ys = call("jvp", of_x, f, inputs, o.strict);
  Tensors us;
  for (const Tensor& y : ys) us.push_back(of_u.follow("jvp", zeros_like(y)));
  Tensors grads = of_x.backward(ys, us);
  fill_in_zeros("jvp", grads, xs, o.strict, kNotByInput);
  Tensors products = of_u.backward(grads, v);
  fill_in_zeros("jvp", products, ys, o.strict, "no input changes result");
  return {ys, std::move(products)};
}
std::pair<Tensor, Tensor> jvp(const NaryFunction& f, const Tensors& xs, const Tensors& vs,
                              const DerivativeOptions& o) {
  const auto [ys, products] = jvp(as_multi(f), xs, vs, o);
  return {ys[0], products[0]};
}
std::pair<Tensor, Tensor> jvp(const UnaryFunction& f, const Tensor& x, const Tensor& v,
                              const DerivativeOptions& o) {
  const auto [ys, products] = jvp(as_multi(f), {x}, {v}, o);
  return {ys[0], products[0]};
}

std::vector<Tensors> jacobian(const MultiFunction& f, const Tensors& xs, const DerivativeOptions& o) {
  const RecordingsScope scope = enclosing(o);
  return jacobian_of("jacobian", f, xs, o.strict);
}
Tensors jacobian(const NaryFunction& f, const Tensors& xs, const DerivativeOptions& o) {
  return jacobian(as_multi(f), xs, o)[0];
}
Tensor jacobian(const UnaryFunction& f, const Tensor& x, const DerivativeOptions& o) {
  return jacobian(as_multi(f), {x}, o)[0][0];
}

std::vector<Tensors> hessian(const NaryFunction& f, const Tensors& xs, const DerivativeOptions& o) {
  const RecordingsScope scope = enclosing(o);
  const auto gradient = [&](const Tensors& inputs) {
    return vjp_of("hessian", as_scalar("hessian", f), inputs, {}, o.strict).second;
  };
  return jacobian_of("hessian", gradient, xs, o.strict);
}
Tensor hessian(const UnaryFunction& f, const Tensor& x, const DerivativeOptions& o) {
  return hessian([&f](const Tensors& xs) { return f(xs[0]); }, {x}, o)[0][0];
}

std::pair<Tensor, Tensors> hvp(const NaryFunction& f, const Tensors& xs, const Tensors& vs,
                               const DerivativeOptions& o) {
  const RecordingsScope scope = enclosing(o);
  Tape tape;
  const Tensors inputs = tape.follow("hvp", xs), v = checked_vs("hvp", "input", xs, vs);
  const auto [ys, gradient] = vjp_of("hvp", as_scalar("hvp", f), inputs, {}, o.strict);
  Tensors products = tape.backward(gradient, v);
  fill_in_zeros("hvp", products, xs, o.strict, "the gradient does not depend on input");
  return {ys[0], std::move(products)};
}
std::pair<Tensor, Tensor> hvp(const UnaryFunction& f, const Tensor& x, const Tensor& v,
                              const DerivativeOptions& o) {
  const auto [y, products] = hvp([&f](const Tensors& xs) { return f(xs[0]); }, {x}, {v}, o);
  return {y, products[0]};
}

namespace {

// Note [Checkpoint]
// The forward runs under a probe, a recording that keeps edges but no rules. The edges from the probe's nodes
// to other slots are the graph inputs that f uses. The backward runs f again under a recording whose leaves
// are these inputs, and returns their gradients. Enclosing recordings record the second run and its backward,
// so gradients of higher order work.

// The parts of the Context that the second run of f restores: random state, module path, autocast.
class ContextSnapshot {
 public:
  ContextSnapshot() : ContextSnapshot(Context::current()) {}

  // Calls f with the saved state, and restores the caller's state afterward.
  template <class F> auto call(F f) const {
    struct Restore {
      Context& c;
      std::array<uint64_t, 2> random = c.generator->state();
      std::vector<const std::string*> path = c.module_path;
      ~Restore() {
        c.generator->set_state(random);
        c.module_path.swap(path);
      }
    } restore{Context::current()};
    restore.c.generator->set_state(random_);
    restore.c.module_path = path_;
    const Autocast amp(casts_to_.value_or(DType::kBF16), {.enabled = casts_to_.has_value()});
    return f();
  }

 private:
  explicit ContextSnapshot(const Context& c) : random_(c.generator->state()), path_(c.module_path) {}

  std::array<uint64_t, 2> random_;
  std::vector<const std::string*> path_;
  std::optional<DType> casts_to_ = autocast_dtype();  // null: autocast is off
};

// The node of one checkpoint(f, xs). Its inputs are xs, then `used`; args.needs and args.dxs have this order.
// `xs` are saved for the second run, which is a StateError if one was written in place meanwhile.
// `communicates`: f exchanges data with other ranks, so the node must run (see NodeTraits::required), even if
// no gradient arrives.
class CheckpointNode final : public Node {
 public:
  CheckpointNode(NaryFunction f, std::vector<Saved> xs, std::vector<Edge> used, ContextSnapshot snapshot,
                 bool communicates)
      : Node("checkpoint", {.required = communicates}),
        f_(std::move(f)),
        xs_(std::move(xs)),
        used_(std::move(used)),
        snapshot_(std::move(snapshot)) {}

  void run(const RuleArgs& args) override {
    std::vector<Tensor> inner;
    std::vector<Ref<AutogradSlot>> leaves;
    std::vector<Edge> targets(xs_.size() + used_.size());
    for (size_t i = 0; i < xs_.size(); ++i) {
      const Tensor x = xs_[i].get();
      inner.push_back(x.defined() ? alias("checkpoint", x) : x);
      if (!x.defined() || !is_floating(x.dtype())) continue;
      leaves.push_back(leaf_of(inner[i]));
      if (args.needs[i]) targets[i] = {leaves.back(), 0};
    }
    for (size_t i = 0; i < used_.size(); ++i) {
      leaves.push_back(used_[i].slot);
      if (args.needs[xs_.size() + i]) targets[xs_.size() + i] = used_[i];
    }
    const OpenScope scope(leaves);
    const Tensor y = snapshot_.call([&] { return f_(inner); });
    BackwardPass pass{.recording = *scope.state, .targets = std::move(targets)};
    // Moved: the gradient's buffer is free for reuse as soon as the first rule has read it.
    if (args.dys[0].defined()) pass.roots.push_back(y), pass.dys.push_back(std::move(args.dys[0]));
    pass.deliver = [&](size_t i, Tensor g) { args.dxs[i] = std::move(g); };
    autograd::run(pass);
  }

  void drop(std::span<const char>) override {
    f_ = nullptr;
    xs_.clear();
    used_.clear();
  }

 private:
  NaryFunction f_;
  std::vector<Saved> xs_;
  std::vector<Edge> used_;  // graph inputs other than xs
  ContextSnapshot snapshot_;
};

// Returns the edges that lead from the probe's nodes, and from its result, to slots outside of the probe.
std::vector<Edge> edges_leaving(const RecordingState& probe, const Tensor& result) {
  std::vector<Edge> used;
  const auto use = [&](const Edge& e) {
    const auto is_e = [&](const Edge& u) { return u.slot == e.slot && u.index == e.index; };
    if (!e.slot || std::any_of(used.begin(), used.end(), is_e)) return;
    if (e.slot->is_leaf() || !static_cast<const Node*>(e.slot.get())->belongs_to(&probe)) used.push_back(e);
  };
  for (const Ref<Node>& node : probe.nodes())
    for (const Edge& e : node->edges()) use(e);
  if (const auto& slot = result.ref()->slot; slot && probe.follows(slot.get()))
    use({slot, result.ref()->slot_index});
  return used;
}

}  // namespace

Tensor checkpoint(const UnaryFunction& f, const Tensor& x) {
  return checkpoint([f](const std::vector<Tensor>& xs) { return f(xs[0]); }, std::vector{x});
}

Tensor checkpoint(const NaryFunction& f, const std::vector<Tensor>& xs) {
  const std::vector<Ref<Counted>> outer = open_recordings();
  if (outer.empty()) return f(xs);
  ContextSnapshot snapshot;
  const Ref<RecordingState> probe = RecordingState::probe(outer);
  std::vector<Tensor> inner;
  for (const Tensor& x : xs) inner.push_back(x.defined() ? detach(x) : x);
  Tensor y;
  std::vector<Edge> used;
  {
    const RecordingsScope scope({probe});
    y = f(inner);
    if (!y.defined()) throw StateError("checkpoint", "the function returned an undefined tensor");
    used = edges_leaving(*probe, y);
    probe->finish();
  }
  if (probe->communicates())
    for (const Ref<Counted>& r : outer)
      if (as_recording(r)->is_probe())
        as_recording(r)->set_communicates();  // a checkpoint within a checkpoint
  // The result is a new tensor: y belongs to the probe, or comes from outside.
  Tensor result = detach(y);
  std::vector<Edge> edges;
  for (const Tensor& x : xs) edges.push_back(x.defined() ? Edge{x.ref()->slot, x.ref()->slot_index} : Edge{});
  edges.insert(edges.end(), used.begin(), used.end());
  Recorder recorder("checkpoint", edges);
  if (!recorder) return result;
  std::vector<Saved> saved;
  for (size_t i = 0; i < xs.size(); ++i) {
    edges[i] = recorder.edge_to(xs[i]);
    saved.push_back(recorder.save(xs[i]));
  }
  Ref<Node> node(new CheckpointNode(f, std::move(saved), used, std::move(snapshot), probe->communicates()));
  recorder.attach(node, {&result, 1}, std::move(edges));
  return result;
}

std::vector<Tensor> apply(std::shared_ptr<Function> f, const std::vector<Tensor>& inputs) {
  if (!f) throw ValueError("apply", "no Function given");
  std::vector<Tensor> outputs;
  {
    const NoRecord off;
    outputs = f->forward(inputs);
  }
  for (const Tensor& y : outputs)
    for (const Tensor& x : inputs)
      if (y.defined() && y.is_same(x))
        throw StateError("apply", "a Function must not return an input itself; return a clone");
  Recorder recorder("function", inputs);
  if (recorder) {
    // An output is saved without its graph edge: the node's reference to its own output would be a cycle.
    for (const Tensor& x : f->to_save_) {
      const bool is_output =
          std::any_of(outputs.begin(), outputs.end(), [&](const Tensor& y) { return y.is_same(x); });
      if (!is_output) {
        f->saved_.push_back(recorder.save(x));
        continue;
      }
      for (size_t i = 0; i < outputs.size(); ++i)
        if (outputs[i].is_same(x)) f->saved_.push_back(recorder.save_output(x, static_cast<int>(i)));
    }
    recorder.record_joint(outputs, inputs,
                          [f](std::vector<Tensor> dys, Needs) { return f->backward(std::move(dys)); });
  }
  f->to_save_.clear();
  return outputs;
}

}  // namespace gradus::autograd
