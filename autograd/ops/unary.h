// Differentiable element-wise ops of one operand, made of a functor (tensor/ops/elementwise.h) and a rule.
#pragma once

#include <string_view>
#include <utility>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/elementwise.h"

namespace gradus::autograd {

// The name of an op, and whether the op casts its operand to f32 under autocast, looked up at compile time.
struct UnaryOp {
  consteval UnaryOp(const char* op) : name(op) {
    for (const CastRule& rule : kCastRules)
      if (rule.op == std::string_view(op)) casts_to_f32 = rule.policy == CastPolicy::kF32;
  }
  const char* name;
  bool casts_to_f32 = false;
};

// Returns y = F(x) with the functor's parameters; f32 under autocast if op.casts_to_f32. Saves x for the
// backward, where rule(dy, x) returns the gradient of x.
template <class F, class Rule, class... P>
Tensor unary_saving_input(UnaryOp op, const Tensor& x, Rule rule, P... parameters) {
  const OpCall call(op.name, {{"x", x}});
  if (op.casts_to_f32)
    if (const Casting cast{CastPolicy::kF32}) return unary_saving_input<F>(op, cast(x), rule, parameters...);
  Tensor y = raw::unary<F>(x, parameters...);
  if (Recorder r{op.name, x})
    r.record(y, wrt(x, [x = r.save(x), rule](Tensor dy) { return rule(std::move(dy), x.get()); }));
  return y;
}

// The same with rule(dy, y), where y is the saved result.
template <class F, class Rule, class... P>
Tensor unary_saving_output(UnaryOp op, const Tensor& x, Rule rule, P... parameters) {
  const OpCall call(op.name, {{"x", x}});
  if (op.casts_to_f32)
    if (const Casting cast{CastPolicy::kF32}) return unary_saving_output<F>(op, cast(x), rule, parameters...);
  Tensor y = raw::unary<F>(x, parameters...);
  if (Recorder r{op.name, x})
    r.record(y, wrt(x, [y = r.save_output(y), rule](Tensor dy) { return rule(std::move(dy), y.get()); }));
  return y;
}

}  // namespace gradus::autograd
