// Mixed precision: in a scope, products and convolutions compute in 16 bits and the other ops in f32.
// Parameters stay f32. docs/amp.md explains the scope and lists the ops.
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

// The scope. Threads that start with a snapshot of the Context inherit it. A parameter's cast is kept until
// the parameter changes or the outermost scope of that dtype ends.
class [[nodiscard]] Autocast {
 public:
  // Errors: DTypeError unless `dtype` is bf16 or f16.
  explicit Autocast(DType dtype, AutocastOptions options = {});
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  Ref<Counted> outer_;
  bool owner_ = false;  // this scope's end frees the kept casts
};

// Opens a scope: `auto amp = autocast(DType::kBF16);`. Scopes nest. f64 operands are not cast. A backward
// computes in the dtypes of its forward, inside the scope or outside of it.
inline Autocast autocast(DType dtype, AutocastOptions options = {}) { return Autocast(dtype, options); }

// Returns the dtype that ops on this thread cast to; nothing outside of scopes.
std::optional<DType> autocast_dtype();

namespace autograd {

// Suspends casting: rules, and ops called within an op, compute in the dtypes of their operands.
class NoAutocast {
 public:
  NoAutocast() : outer_(std::exchange(Context::current().autocast, nullptr)) {}
  ~NoAutocast() { Context::current().autocast = std::move(outer_); }
  NoAutocast(const NoAutocast&) = delete;
  NoAutocast& operator=(const NoAutocast&) = delete;

 private:
  Ref<Counted> outer_;
};

// Returns the dtype in which a rule may return x's gradient. If a scope cast x from a wider dtype, this is
// the wider dtype: the gradient then need not be rounded on its way. Otherwise it is x's dtype.
DType gradient_dtype(const Tensor& x);

// The casts of one op. True when a scope is open. The op then calls itself with the cast operands, and no op
// within that call casts again.
class Casting {
 public:
  explicit Casting(CastOp op) {
    if (Context::current().autocast) begin(op.policy(), {});
  }
  // Takes all operands: CastPolicy::kWidest needs them to choose the dtype.
  template <class... Operands> Casting(CastOp op, const Tensor& first, const Operands&... others) {
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

  // Returns x in the op's dtype, differentiably. Tensors that are not floating point, f64 tensors and
  // undefined ones are returned unchanged. The cast of an attached tensor to the scope's dtype is kept
  // for its next use.
  Tensor operator()(const Tensor& x) const;
  std::vector<Tensor> operator()(const std::vector<Tensor>& xs) const;
  // The same for an operand that is used again and again. Its cast is kept even if x is not attached.
  Tensor weight(const Tensor& x) const;

 private:
  void begin(CastPolicy policy, std::span<const Tensor* const> operands);

  Ref<Counted> scope_;
  DType to_ = DType::kF32;
};

}  // namespace autograd
}  // namespace gradus
