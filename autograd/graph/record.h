// Recorder: makes an op differentiable by adding a node to the autograd tape. The backward rule is written
// next to the forward, as one lambda per input, which gets the gradient of the output and returns that of the
// input. The lambda calls differentiable ops only, so gradients of higher order need no further code:
//
//   Tensor mul(const Tensor& a, const Tensor& b) {
//     Tensor y = raw::mul(a, b);
//     if (Recorder r{"mul", a, b})
//       r.record(y, wrt(a, [b = r.save(b)](const Tensor& dy) { return mul(dy, b.get()); }),
//                   wrt(b, [a = r.save(a)](const Tensor& dy) { return mul(dy, a.get()); }));
//     return y;
//   }
//
//   Tensor exp(const Tensor& x) {
//     Tensor y = raw::unary<functors::Exp>(x);
//     if (Recorder r{"exp", x})
//       r.record(y, wrt(x, [y = r.save_output(y)](const Tensor& dy) { return mul(dy, y.get()); }));
//     return y;
//   }
//
// A recording is an open tape (GradManager::record); it follows the attached tensors and all results computed
// from them. An input that no recording follows is a constant: its rule is dropped at once, together with its
// captures. The engine sums a gradient to the input's shape and casts it to the input's dtype, so rules
// ignore broadcasting. A rule returns an undefined Tensor for no gradient; it never gets an undefined dy. A
// rule may take `Tensor dy` by value and pass `std::move(dy)` to an op that can reuse the buffer.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>

#include "gradus/autograd/graph/node.h"
#include "gradus/autograd/graph/saved.h"
#include "gradus/autograd/graph/tracking.h"

namespace gradus::autograd {

// Binds a rule to the input whose gradient it computes. Refers to `input`: use only as an argument of record.
template <class F> struct Wrt {
  const Tensor& input;
  F rule;
};
template <class F> Wrt<F> wrt(const Tensor& input, F rule) { return {input, std::move(rule)}; }

// Flags for a JointRule: needs[i] is true if the gradient of input i is required.
class Needs {
 public:
  explicit Needs(std::span<const char> flags) : flags_(flags) {}
  bool operator[](size_t input) const { return flags_[input]; }

 private:
  std::span<const char> flags_;
};

// The backward rule of an op with several outputs, or of an op that computes the gradients of its inputs
// together. Takes one gradient per output (undefined where none arrived) and returns one gradient per input
// (undefined where none is needed).
using JointRule = std::function<std::vector<Tensor>(std::vector<Tensor> dys, Needs needs)>;

// The node of an op with one output and one rule per input; the rule of a constant input is nullopt.
template <class... Rules> class RuleNode final : public Node {
 public:
  RuleNode(const char* op, std::optional<Rules>&&... rules)
      : Node(op, {.deferrable = true}), rules_(std::move(rules)...) {}

  void run(const RuleArgs& args) override {
    int count = 0;
    for (char n : args.needs) count += n;
    run_each(args, count, std::index_sequence_for<Rules...>());
  }
  void drop(std::span<const char> inputs) override {
    size_t i = 0;
    std::apply([&](auto&... rule) { ((inputs.empty() || inputs[i++] ? rule.reset() : void()), ...); },
               rules_);
  }

 private:
  template <size_t... I> void run_each(const RuleArgs& args, int count, std::index_sequence<I...>) {
    // The last rule to run receives the only reference to the gradient.
    Tensor& dy = args.dys[0];
    ((args.needs[I] ? void(args.dxs[I] = (*std::get<I>(rules_))(--count ? Tensor(dy) : std::move(dy)))
                    : void()),
     ...);
  }
  std::tuple<std::optional<Rules>...> rules_;
};

// Records an op on `inputs` in the thread's open recordings that follow one of them. False if there are none:
// the op then saves no tensors and makes no rule. A Recorder lives within the op and is used for one record,
// record_joint or attach; `op` must be a string literal.
class Recorder {
 public:
  template <class... Inputs>
    requires(std::is_same_v<Inputs, Tensor> && ...)
  Recorder(const char* op, const Inputs&... inputs) : op_(op) {
    Context& context = Context::current();
    if (context.recordings.empty()) return;
    const Tensor* all[] = {&inputs...};
    join(context, all);
  }
  Recorder(const char* op, const std::vector<Tensor>& inputs);
  Recorder(const char* op, std::span<const Edge> inputs);
  // Records the op in these open recordings, even if they follow none of its inputs.
  Recorder(const char* op, std::vector<RecordingState*> recordings)
      : op_(op), joined_(std::move(recordings)) {}

  explicit operator bool() const { return !joined_.empty(); }

  // Saves a tensor for the rule: an input, or a tensor outside of the graph (a mask, indices). An undefined x
  // is saved as undefined. Saved::get throws if the tensor was written in place in between.
  Saved save(const Tensor& x) const;
  // Saves the op's own result for the rule, without a cycle of references. `output`: index of the output.
  Saved save_output(const Tensor& y, int output = 0) const;

  // Makes y the output of a new node with these rules, one per input. y must not be recorded yet.
  template <class... Rules> void record(const Tensor& y, Wrt<Rules>... rules) {
    Ref<Node> node(new RuleNode<Rules...>(op_, rule_if_tracked(rules)...));
    attach(std::move(node), {&y, 1}, {edge_to(rules.input)...});
  }
  // Makes `outputs` the outputs of a new node with one rule for all inputs. Undefined outputs get no slot. A
  // deferrable rule may run twice, for different inputs; Saved::release drops the tensor in the last run.
  void record_joint(std::span<const Tensor> outputs, const std::vector<Tensor>& inputs, JointRule rule,
                    NodeTraits traits = {});
  // Makes `outputs` the outputs of the caller's node. edges[i] is edge_to(input i).
  void attach(Ref<Node> node, std::span<const Tensor> outputs, std::vector<Edge> edges);

  // Returns the edge to x; its slot is null if no recording that the op joins follows x.
  Edge edge_to(const Tensor& x) const;
  // Returns the recordings that the op joins, oldest first.
  const std::vector<RecordingState*>& recordings() const { return joined_; }

 private:
  template <class F> std::optional<F> rule_if_tracked(Wrt<F>& w) const {
    return tracked(w.input) ? std::optional<F>(std::move(w.rule)) : std::nullopt;
  }
  bool tracked(const Tensor& x) const { return bool(edge_to(x).slot); }
  void join(Context& context, std::span<const Tensor* const> inputs);

  const char* op_;
  std::vector<RecordingState*> joined_;        // the recordings that get the node
  std::array<const TensorImpl*, 4> inputs_{};  // the first inputs, to name them in errors
};

// Records y as a function of x alone, with a rule that saves no tensors, and returns y.
template <class Rule> Tensor record_unary(const char* op, const Tensor& x, Tensor y, Rule rule) {
  if (Recorder r{op, x}) r.record(y, wrt(x, std::move(rule)));
  return y;
}

// Returns whether an op may write its result into x's buffer: x is its sole owner, is dense and not attached,
// and no other GPU stream uses the buffer.
bool may_reuse(const Tensor& x);
// Returns a tensor on dy's buffer, without a slot in the graph, for the result of an element-wise op on dy
// and x. Returns an undefined tensor when dy has other owners, or when the shapes of dy and x differ.
inline Tensor try_reuse(const Tensor& dy, const Tensor& x) {
  return may_reuse(dy) && dy.shape() == x.shape() ? detach(dy) : Tensor();
}

// mark_ones marks x's storage as filled with ones, such as the gradient of a loss with respect to itself.
// is_known_ones returns whether the storage is marked and has not been written to since. An op that computes
// its input's gradient in its forward (cross_entropy) can return this gradient unscaled if its dy is 1.
void mark_ones(const Tensor& x);
bool is_known_ones(const Tensor& x);

// Throws DeviceError "[op] X is on ... but Y on ..." unless x and y are on the same device.
void check_same_device(const char* op, const char* name_x, const Tensor& x, const char* name_y,
                       const Tensor& y);

// Throws StateError for an attached tensor. Called by `x op= y` and `x[i] = y` with a recorded operand: these
// assign a new tensor to the handle x, while managers, optimizers and modules would keep the attached tensor.
void check_not_leaf(const char* op, const Tensor& x);

// Throws StateError when an open recording follows x: a write would change values that rules have saved.
void check_in_place(const char* op, const Tensor& x);

}  // namespace gradus::autograd

namespace gradus {
using autograd::Recorder;
using autograd::wrt;
}  // namespace gradus
