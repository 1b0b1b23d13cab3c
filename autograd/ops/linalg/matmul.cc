// matmul and linear with backward rules, and linear_relu, which is recorded as linear followed by relu. The
// raw:: ops compute and check the operands; this file casts operands under autocast and records rules made of
// matmul:
//   y = a b:            da = dy b^T,  db = a^T dy
//   y = x w^T + bias:   dx = dy w,  dw = dy^T x,  dbias = sum of dy over its rows
// On a GPU one kernel computes dw and dbias.
#include "gradus/autograd/ops/linalg/matmul.h"

#include <tuple>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/ops/view.h"

namespace gradus {
namespace {

Tensor transposed(const Tensor& x) { return transpose(x, -2, -1); }
// Returns x[..., K] as a matrix [rows, K].
Tensor as_rows(const Tensor& x) {
  if (x.dim() == 2) return x;
  const Shape lead(std::span(x.shape().begin(), size_t(x.dim() - 1)));
  return reshape(x, {lead.product(), x.size(-1)});
}

// Returns dy^T x for dy [rows, out] and x [rows, in]. For a weight that was cast from f32 (`in_f32`), the
// gradient stays in f32, the dtype in which sums are accumulated; a result in 16 bits would be rounded and
// then cast back.
Tensor weight_grad(const Tensor& dy, const Tensor& x, bool in_f32) {
  if (!in_f32) return matmul(transposed(dy), x);
  Tensor dw = raw::matmul_in_f32(raw::transpose(dy, 0, 1), x);
  if (Recorder r{"matmul", dy, x})
    r.record(
        dw,
        wrt(dy,
            [x = r.save(x)](const Tensor& v) { return matmul(x.get(), transposed(to(v, x.get().dtype()))); }),
        wrt(x, [dy = r.save(dy)](const Tensor& v) { return matmul(dy.get(), to(v, dy.get().dtype())); }));
  return dw;
}

// Return the gradients of matmul for operands of two dims or more. The engine sums over broadcast batch dims.
Tensor matmul_left_grad(const Tensor& dy, const Tensor& b) { return matmul(dy, transposed(b)); }
Tensor matmul_right_grad(const Tensor& dy, const Tensor& a, int b_dims) {
  // If all matrices of the batch are multiplied by one matrix b, computes one large product instead of a
  // batch of products and their sum.
  if (b_dims == 2 && a.dim() > 2) return matmul(transposed(as_rows(a)), as_rows(dy));
  return matmul(transposed(a), dy);
}

// Returns dw and dbias of linear for dy [rows, out] and x [rows, in] on a GPU, by one kernel. They are in f32 if
// `in_f32`, as in weight_grad. In the rule, vs are the gradients of dw and dbias.
std::pair<Tensor, Tensor> weight_and_bias_grad(const Tensor& dy, const Tensor& x, bool in_f32) {
  const auto result = raw::linear_weight_grad(dy, x, in_f32 ? DType::kF32 : x.dtype());
  if (Recorder r{"linear_weight_grad", dy, x}) {
    const Tensor outputs[] = {result.first, result.second};
    r.record_joint(outputs, {dy, x},
                   [dy = r.save(dy), x = r.save(x)](std::vector<Tensor> vs, autograd::Needs needs) {
                     const Tensor g = dy.get();
                     for (Tensor& v : vs)
                       if (v.defined()) v = to(v, g.dtype());
                     std::vector<Tensor> grads(2);
                     if (needs[0])
                       grads[0] = vs[0].defined() ? linear(x.get(), vs[0], vs[1]) : expand(vs[1], g.shape());
                     if (needs[1] && vs[0].defined()) grads[1] = matmul(g, vs[0]);
                     return grads;
                   });
  }
  return result;
}

// Returns whether w is a weight in f32 that was cast to 16 bits.
bool is_cast_from_f32(const Tensor& w) {
  return w.dtype() != DType::kF32 && autograd::gradient_dtype(w) == DType::kF32;
}

// Records y = x w^T + bias. An undefined bias gets no rule.
void record_linear(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias) {
  Recorder r{"linear", x, w, bias};
  if (!r) return;
  const bool in_f32 = is_cast_from_f32(w);
  if (x.device().type == DeviceType::kCUDA && autograd::is_tracked(w) && autograd::is_tracked(bias))
    return r.record_joint({&y, 1}, {x, w, bias},
                          [x = r.save(x), w = autograd::is_tracked(x) ? r.save(w) : autograd::Saved(),
                           in_f32](std::vector<Tensor> dys, autograd::Needs needs) {
                            const Tensor& dy = dys[0];
                            std::vector<Tensor> grads(3);
                            if (needs[0]) grads[0] = matmul(dy, w.get());
                            if (needs[1])
                              std::tie(grads[1], grads[2]) =
                                  weight_and_bias_grad(as_rows(dy), as_rows(x.get()), in_f32);
                            else if (needs[2])
                              grads[2] = sum(as_rows(dy), {0});
                            return grads;
                          },
                          {.deferrable = true});  // dx may be computed before the others
  r.record(y, wrt(x, [w = r.save(w)](const Tensor& dy) { return matmul(dy, w.get()); }),
           wrt(w, [x = r.save(x),
                   in_f32](const Tensor& dy) { return weight_grad(as_rows(dy), as_rows(x.get()), in_f32); }),
           wrt(bias, [](const Tensor& dy) { return sum(as_rows(dy), {0}); }));
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  const OpCall call("matmul", {{"a", a}, {"b", b}});
  if (autograd::Casting cast{"matmul"}) return matmul(cast(a), cast(b));
  // Views vectors as matrices, so that the rules handle matrices alone.
  if (a.dim() == 1 && b.dim() >= 1) return squeeze(matmul(unsqueeze(a, 0), b), b.dim() == 1 ? -1 : -2);
  if (b.dim() == 1 && a.dim() >= 1) return squeeze(matmul(a, unsqueeze(b, 1)), -1);
  Tensor y = raw::matmul(a, b);
  if (Recorder r{"matmul", a, b})
    r.record(
        y, wrt(a, [b = r.save(b)](const Tensor& dy) { return matmul_left_grad(dy, b.get()); }),
        wrt(b, [a = r.save(a), n = b.dim()](const Tensor& dy) { return matmul_right_grad(dy, a.get(), n); }));
  return y;
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias) {
  const OpCall call("linear", {{"x", x}, {"weight", w}});
  if (autograd::Casting cast{"linear"}) return linear(cast(x), cast.weight(w), cast.weight(bias));
  const Tensor y = raw::linear(x, w, bias);
  record_linear(y, x, w, bias);
  return y;
}

Tensor linear_relu(const Tensor& x, const Tensor& w, const Tensor& bias) {
  const OpCall call("linear_relu", {{"x", x}, {"weight", w}});
  if (autograd::Casting cast{"linear"}) return linear_relu(cast(x), cast.weight(w), cast.weight(bias));
  const Tensor y = raw::linear_relu(x, w, bias);
  const Tensor h = detach(y);  // stands for the relu's operand in the graph; no rule reads its elements
  record_linear(h, x, w, bias);
  if (Recorder r{"relu", h})
    r.record(y, wrt(h, [y = r.save_output(y)](Tensor dy) { return relu_backward(std::move(dy), y.get()); }));
  return y;
}

}  // namespace gradus
