// Automatic mixed precision, as torch.autocast: in a scope, matrix products and convolutions compute in bf16
// or f16, and ops that need precision in f32 (graph/cast_policy.h). Parameters stay f32. docs/guide/amp.md
// lists the ops.
//
//   auto recording = gm.record();
//   Tensor loss = [&] {
//     auto amp = autocast(DType::kBF16);
//     return nn::cross_entropy(net(b.input), b.target);
//   }();
//   gm.backward(loss);  // gradients arrive in f32
//
// A differentiable op casts its operands in its first line:
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
  bool enabled = true;  // false: ops in the scope do not cast
};

// An autocast scope; ends on the thread that opened it, scopes in reverse order. Threads that start with a
// snapshot of the Context inherit it. A parameter's cast is cached until the parameter changes or the
// outermost scope of that dtype ends.
class [[nodiscard]] Autocast {
 public:
  // Errors: DTypeError unless `dtype` is bf16 or f16.
  explicit Autocast(DType dtype, AutocastOptions options = {});
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  Ref<Counted> outer_;
  bool owns_cache_ = false;  // the end of this scope frees the cached casts
};

// Opens a scope: `auto amp = autocast(DType::kBF16);`. Scopes nest. f64 operands are not cast. A backward
// computes in the dtypes of its forward, inside the scope or outside of it.
inline Autocast autocast(DType dtype, AutocastOptions options = {}) { return Autocast(dtype, options); }

// Returns the dtype of this thread's innermost scope; nullopt outside of scopes and with enabled = false.
std::optional<DType> autocast_dtype();

namespace autograd {

// Disables casting for its lifetime. Backward rules and ops called within an op compute in the dtypes of
// their operands.
class NoAutocast {
 public:
  NoAutocast() : outer_(std::exchange(Context::current().autocast, nullptr)) {}
  ~NoAutocast() { Context::current().autocast = std::move(outer_); }
  NoAutocast(const NoAutocast&) = delete;
  NoAutocast& operator=(const NoAutocast&) = delete;

 private:
  Ref<Counted> outer_;
};

// Returns the dtype in which a rule may return x's gradient: the dtype of the operand if x is a recorded cast
// of an operand of a wider dtype, which avoids a rounding; otherwise x's dtype.
DType gradient_dtype(const Tensor& x);

// The casts of one op call. True when a scope is open: the op then calls itself with the cast operands.
// Casting suspends the scope for its own lifetime, so ops within that call do not cast again.
class Casting {
 public:
  explicit Casting(CastOp op) : Casting(op.policy()) {}
  explicit Casting(CastPolicy policy) {
    if (Context::current().autocast) begin(policy, {});
  }
  // CastPolicy::kWidest chooses the dtype from all operands.
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

  // Returns x in the op's dtype, differentiably. Undefined, f64, and not floating-point tensors are returned
  // unchanged. The cast of an attached tensor (a parameter) to the scope's dtype is cached for its next use.
  Tensor operator()(const Tensor& x) const;
  std::vector<Tensor> operator()(const std::vector<Tensor>& xs) const;
  // The same for weights: also caches the cast of an x that is neither attached nor a recorded op's result.
  Tensor weight(const Tensor& x) const;

 private:
  void begin(CastPolicy policy, std::span<const Tensor* const> operands);

  Ref<Counted> scope_;
  DType dtype_ = DType::kF32;
};

}  // namespace autograd
}  // namespace gradus
