// Scaled dot-product attention and its gradients: expands the operands to their common batch dims as views,
// allocates the results and calls the kernels. For the CPU 16-bit floats are converted to f32, and operands whose last
// dim has gaps are copied. The caller (autograd/ops/linalg/attention.cc) has checked shapes, dtypes and devices.
#include "gradus/tensor/ops/linalg/attention.h"

#include <limits>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"

namespace gradus::raw {
namespace {

bool is_cuda(const Tensor& x) { return x.device().type == DeviceType::kCUDA; }

// Returns x [...,rows,columns] with batch dims `batch` and `rows` rows for the kernels.
Tensor operand(const Tensor& x, Shape batch, int64_t rows, int64_t columns) {
  Tensor t = x.dtype() == DType::kBool || is_cuda(x) ? x : to(x, DType::kF32);
  Shape shape = t.shape();
  if (t.dim() == 0) shape.push_back(1), t = view(t, shape);
  shape[shape.size() - 1] = columns;
  t = expand(t, shape);
  if (columns > 1 && t.stride(-1) != 1 && !is_cuda(x)) t = contiguous(t);
  batch.push_back(rows), batch.push_back(columns);
  return expand(t, batch);
}

// The operands of a call for the kernels.
struct Operands {
  Operands(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in, const Tensor& mask_in) {
    const auto batch_of = [](const Tensor& x) {
      Shape s = x.shape();
      s.erase(s.size() - 1), s.erase(s.size() - 1);
      return s;
    };
    const char* op = "attention";
    batch = broadcast_shapes(broadcast_shapes(batch_of(q_in), batch_of(k_in), op), batch_of(v_in), op);
    q = operand(q_in, batch, q_in.size(-2), q_in.size(-1));
    k = operand(k_in, batch, k_in.size(-2), k_in.size(-1));
    v = operand(v_in, batch, v_in.size(-2), v_in.size(-1));
    if (mask_in.defined()) mask = operand(mask_in, batch, q.size(-2), k.size(-2));
  }
  // Returns an uninitialized result [batch,rows,columns] for the caller's operand x [...,rows,any]. The dims lie in
  // memory in x's order, but for dims that broadcast, which are outermost, and the last one, which is innermost: where
  // x's heads are a view of [...,rows,heads * columns], a view joins those of the result.
  Tensor result(const Tensor& x, int64_t columns) const {
    Shape shape = batch;
    shape.push_back(x.size(-2)), shape.push_back(x.size(-1));
    Strides order = expand(x, shape).strides();
    for (int64_t& stride : order)
      if (stride == 0) stride = std::numeric_limits<int64_t>::max();
    shape[shape.size() - 1] = columns, order[order.size() - 1] = 0;
    return empty_strided(shape, strides_in_order(shape, memory_order(order)), {q.dtype(), q.device()});
  }
  // Returns an uninitialized [batch,L,count] for numbers of each query's softmax.
  Tensor stats(int64_t count) const {
    Shape shape = q.shape();
    shape[shape.size() - 1] = count;
    return empty(shape, {q.dtype() == DType::kF64 ? DType::kF64 : DType::kF32, q.device()});
  }
  Shape batch;
  Tensor q, k, v, mask;
};

}  // namespace

constinit decltype(attention_by_library) attention_by_library = nullptr;

AttentionOutput attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                          const AttentionSpec& spec) {
  const Operands in(q, k, v, mask);
  const Tensor y = in.result(q, v.size(-1));
  const bool by_library =
      is_cuda(q) && attention_by_library && attention_by_library(y, in.q, in.k, in.v, in.mask, spec);
  const AttentionOutput r{y, in.stats(by_library ? 1 : 2)};
  if (in.k.size(-2) == 0)
    fill_(r.y, 0);
  else if (r.y.numel() > 0)
    attention_kernel(r.y, r.softmax_stats, in.q, in.k, in.v, in.mask, spec);
  return {to(r.y, q.dtype()), r.softmax_stats};
}

AttentionGrads attention_backward(const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Tensor& mask, const AttentionOutput& result,
                                  const AttentionSpec& spec) {
  const Operands in(q, k, v, mask);
  const AttentionGrads g{in.result(q, q.size(-1)), in.result(k, k.size(-1)), in.result(v, v.size(-1))};
  if (result.y.numel() > 0 && k.size(-2) > 0) {
    attention_backward_kernel(g.dq, g.dk, g.dv, operand(dy, in.batch, dy.size(-2), dy.size(-1)),
                              to(result.y, in.q.dtype()), result.softmax_stats, in.q, in.k, in.v, in.mask,
                              spec);
  } else {
    fill_(g.dq, 0), fill_(g.dk, 0), fill_(g.dv, 0);
  }
  return {to(g.dq, q.dtype()), to(g.dk, q.dtype()), to(g.dv, q.dtype())};
}

}  // namespace gradus::raw
