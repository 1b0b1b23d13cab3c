// Mixed precision: a scope in which products and convolutions compute in 16 bits and the rest in f32, while
// parameters stay f32. docs/amp.md explains it and lists the ops.
//
//   auto recording = gm.record();
//   Tensor loss = [&] {
//     auto amp = autocast(DType::kBF16);
//     return nn::cross_entropy(net(b.input), b.target);
//   }();
//   gm.backward(loss);  // gradients arrive in f32
//
// A differentiable op casts in one line at its entry:
//
//   Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias) {
//     if (autograd::Casting cast{"linear"}) return linear(cast(x), cast.weight(w), cast.weight(bias));
//     ...
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gradus/autograd/graph/cast_policy.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

struct AutocastOptions {
  bool enabled = true;  // false: ops in the scope take their operands as they are
};

// The scope; what a thread starts with a snapshot of the Context inherits it. Casts of parameters are kept
// until the parameter changes or the outermost scope of that dtype ends.
class [[nodiscard]] Autocast {
 public:
  // Errors: DTypeError unless `dtype` is bf16 or f16.
  explicit Autocast(DType dtype, AutocastOptions options = {});
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  Ref<Counted> outer_;
  bool owner_ = false;  // of the casts that are kept
};

// Opens a scope: `auto amp = autocast(DType::kBF16);`. Scopes nest; f64 operands are left alone. A backward,
// in the scope or outside, computes in the dtypes of its forward.
inline Autocast autocast(DType dtype, AutocastOptions options = {}) { return Autocast(dtype, options); }

// The dtype that ops on this thread cast to; none outside of scopes.
std::optional<DType> autocast_dtype();

namespace autograd {

// Suspends casting: rules and the insides of ops compute in the dtypes that they are given.
class NoAutocast {
 public:
  NoAutocast() : outer_(std::exchange(Context::current().autocast, nullptr)) {}
  ~NoAutocast() { Context::current().autocast = std::move(outer_); }
  NoAutocast(const NoAutocast&) = delete;
  NoAutocast& operator=(const NoAutocast&) = delete;

 private:
  Ref<Counted> outer_;
};

// The dtype in which a rule may return x's gradient: that of what x was cast from by a scope if it is wider,
// so that the gradient need not be rounded on its way; else x's.
DType gradient_dtype(const Tensor& x);

// The casts of one op. True when a scope is open; then the op calls itself with what this returns, and no op
// within it casts again.
class Casting {
 public:
  explicit Casting(CastOp op) {
    if (Context::current().autocast) begin(op.policy(), {});
  }
  // For CastPolicy::kWidest, which looks at all operands first.
  template <class... Operands>
  Casting(CastOp op, const Tensor& first, const Operands&... others) {
    const Tensor* const all[] = {&first, &others...};
    if (Context::current().autocast) begin(op.policy(), all);
  }
  Casting(CastOp op, const std::vector<Tensor>& operands);
  ~Casting() {
    if (scope_) Context::current().autocast = std::move(scope_);
  }
  Casting(const Casting&) = delete;
  Casting& operator=(const Casting&) = delete;

  explicit operator bool() const { return bool(scope_); }

  // Returns x in the op's dtype, differentiably. Other than floating-point tensors, f64 and undefined ones
  // stay as they are; so do the values of attached tensors, whose casts are kept.
  Tensor operator()(const Tensor& x) const;
  std::vector<Tensor> operator()(const std::vector<Tensor>& xs) const;
  // The same for an operand that is used again and again: its cast is kept though nothing follows it.
  Tensor weight(const Tensor& x) const;

 private:
  void begin(CastPolicy policy, std::span<const Tensor* const> operands);

  Ref<Counted> scope_;
  DType to_ = DType::kF32;
};

}  // namespace autograd
}  // namespace gradus
