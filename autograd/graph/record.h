// How an op becomes differentiable. The rule stands next to the forward, one lambda per input, with visible
// captures, and is made of public differentiable ops only, so its own derivative comes for free:
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
//     Tensor y = raw::exp(x);
//     if (Recorder r{"exp", x})
//       r.record(y, wrt(x, [y = r.save_output(y)](const Tensor& dy) { return mul(dy, y.get()); }));
//     return y;
//   }
//
// A rule whose input is a constant is dropped at once, with what it captured. The engine sums a gradient to
// its input's shape and casts it to its dtype, so rules ignore broadcasting. A rule may return an undefined
// Tensor: no gradient. A rule may take `Tensor dy` by value and hand `std::move(dy)` to an op that can
// reuse the buffer.
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

// Binds a rule to the input whose gradient it computes.
template <class F>
struct Wrt {
  const Tensor& input;
  F rule;
};
template <class F>
Wrt<F> wrt(const Tensor& input, F rule) {
  return {input, std::move(rule)};
}

// Which inputs of a joint rule need their gradient.
class Needs {
 public:
  explicit Needs(std::span<const char> flags) : flags_(flags) {}
  bool operator[](size_t input) const { return flags_[input]; }

 private:
  std::span<const char> flags_;
};

// Rule of an op whose gradients are computed together, or that has several outputs: takes the
// outputs' gradients (undefined where none arrived) and returns one gradient per input (undefined
// where none is needed).
using JointRule = std::function<std::vector<Tensor>(std::vector<Tensor> dys, Needs needs)>;

template <class... Rules>
class RuleNode final : public Node {
 public:
  RuleNode(const char* op, std::optional<Rules>&&... rules) : Node(op), rules_(std::move(rules)...) {}

  void run(std::span<Tensor> dys, std::span<const char> needs, std::span<Tensor> dxs) override {
    int left = 0;
    for (char n : needs) left += n;
    run_each(dys[0], needs, dxs, left, std::index_sequence_for<Rules...>());
  }
  void drop_rule() override {
    std::apply([](auto&... r) { (r.reset(), ...); }, rules_);
  }

 private:
  template <size_t... I>
  void run_each(Tensor& dy, std::span<const char> needs, std::span<Tensor> dxs, int left,
                std::index_sequence<I...>) {
    // The last rule to run may have the gradient for itself.
    ((needs[I] ? void(dxs[I] = (*std::get<I>(rules_))(--left ? Tensor(dy) : std::move(dy))) : void()), ...);
  }
  std::tuple<std::optional<Rules>...> rules_;
};

// Decides whether an op on `inputs` is recorded, and records it. False on most calls outside of training:
// then nothing is saved and no rule is made.
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
  // An op that these open recordings take part in, whether they follow its inputs or not.
  Recorder(const char* op, std::vector<RecordingState*> recordings)
      : op_(op), joined_(std::move(recordings)) {}

  explicit operator bool() const { return !joined_.empty(); }

  // Keeps an input, or a tensor that is no part of the graph (a mask, indices), for the rule.
  Saved save(const Tensor& x) const;
  // Keeps the op's own result for the rule, without a cycle of references.
  Saved save_output(const Tensor& y, int output = 0) const;

  // Makes `y` the result of an op whose gradients are the given rules'.
  template <class... Rules>
  void record(const Tensor& y, Wrt<Rules>... rules) {
    Ref<Node> node(new RuleNode<Rules...>(op_, keep(rules)...));
    attach(std::move(node), {&y, 1}, {edge_to(rules.input)...});
  }
  // The same with one rule for all inputs; undefined outputs are skipped.
  void record_joint(std::span<const Tensor> outputs, const std::vector<Tensor>& inputs, JointRule rule);
  // The same with a node of one's own.
  void attach(Ref<Node> node, std::span<const Tensor> outputs, std::vector<Edge> edges);

  Edge edge_to(const Tensor& x) const;
  // The recordings that the op joins, oldest first.
  const std::vector<RecordingState*>& recordings() const { return joined_; }

 private:
  template <class F>
  std::optional<F> keep(Wrt<F>& w) const {
    return tracked(w.input) ? std::optional<F>(std::move(w.rule)) : std::nullopt;
  }
  bool tracked(const Tensor& x) const { return bool(edge_to(x).slot); }
  void join(Context& context, std::span<const Tensor* const> inputs);

  const char* op_;
  std::vector<RecordingState*> joined_;
  std::array<const TensorImpl*, 4> inputs_{};  // to name the input in errors
};

// Lets the node of x take a relu of x over, if it can and nothing else has seen x. True: the result has x's
// place in the graph.
bool take_relu_over(const Tensor& x);
// Buffers may be reused in place: nobody else sees x, and no open recording follows it.
bool may_reuse(const Tensor& x);

}  // namespace gradus::autograd

namespace gradus {
using autograd::Recorder;
using autograd::wrt;
}  // namespace gradus
