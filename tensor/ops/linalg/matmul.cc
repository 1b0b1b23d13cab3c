// Raw matmul and linear: shape inference and broadcasting as in PyTorch, then a call of the device's kernel
// for batched matrix products. Operands are passed as strided views if their layout permits, else as copies.
// Results are new row-major tensors. Operands have one floating dtype and one device.
#include "gradus/tensor/ops/linalg/matmul.h"

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {

constinit decltype(linear_weight_grad_kernel) linear_weight_grad_kernel{"linear_weight_grad"};

namespace {

void check_pair(const char* op, const char* a_name, const Tensor& a, const char* b_name, const Tensor& b) {
  if (!are_compatible_devices(a.device(), b.device()))
    throw DeviceError(op, "operands on different devices: ", describe(a), " and ", describe(b));
  check_same_dtype(op, a_name, a, b_name, b);
  check_floating(op, a_name, a);
}

Tensor restrided(const Tensor& x, const Shape& shape, const Strides& strides) {
  return view_as_strided(x, shape, strides, x.impl().offset);
}

Shape broadcast_batch(const Tensor& a, const Tensor& b, const Shape& batch_a, const Shape& batch_b) {
  try {
    return broadcast_shapes(batch_a, batch_b, "matmul");
  } catch (const ShapeError&) {
    throw ShapeError("matmul", "batch dims ", batch_a, " and ", batch_b, " do not broadcast: a ", describe(a),
                     ", b ", describe(b));
  }
}

// Returns whether the matrices of the two innermost dims are row-major or column-major with a leading
// dimension, as kernels require: one of the two dims has stride 1, and rows (or columns) do not overlap.
bool has_dense_matrix_dim(const Tensor& x) {
  const int n = x.dim();
  const int64_t rows = x.shape()[n - 2], cols = x.shape()[n - 1];
  const int64_t row_step = x.strides()[n - 2], col_step = x.strides()[n - 1];
  const bool by_rows = (cols == 1 || col_step == 1) && (rows == 1 || row_step >= cols);
  const bool by_cols = (rows == 1 || row_step == 1) && (cols == 1 || col_step >= rows);
  return by_rows || by_cols;
}

// Returns x, or a row-major copy if its matrices have another layout.
Tensor as_matrices(const Tensor& x) { return has_dense_matrix_dim(x) ? x : contiguous(x); }

// Returns x [..., M, K] as a view with the batch dims `batch`; broadcast dims have stride 0.
Tensor expand_batch(const Tensor& x, const Shape& batch) {
  const int skip = batch.size() - (x.dim() - 2);
  Shape shape = batch;
  Strides strides = Dims::filled(batch.size(), 0);
  for (int i = skip; i < batch.size(); ++i)
    if (x.shape()[i - skip] == batch[i]) strides[i] = x.strides()[i - skip];
  for (int i = x.dim() - 2; i < x.dim(); ++i)
    shape.push_back(x.shape()[i]), strides.push_back(x.strides()[i]);
  return restrided(x, shape, strides);
}

// Returns x[..., M, K] viewed as one matrix [... * M, K], undefined if its strides do not allow that.
Tensor fold_batch(const Tensor& x) {
  const int n = x.dim();
  int64_t rows = 1, step = 0;
  for (int i = n - 2; i >= 0; --i) {
    if (x.shape()[i] == 1) continue;
    if (rows == 1)
      step = x.strides()[i];
    else if (x.strides()[i] != step * rows)
      return {};
    rows *= x.shape()[i];
  }
  return restrided(x, {rows, x.shape()[n - 1]}, {rows == 1 ? x.shape()[n - 1] : step, x.strides()[n - 1]});
}

// Returns the matrix product a_in b_in in dtype `result`.
Tensor multiply(const Tensor& a_in, const Tensor& b_in, DType result) {
  check_pair("matmul", "a", a_in, "b", b_in);
  if (a_in.dim() == 0 || b_in.dim() == 0)
    throw ShapeError("matmul", "operands need at least one dimension: ", describe(a_in), " and ",
                     describe(b_in));
  // A vector is a row on the left and a column on the right; the result has no dim for it.
  const bool row = a_in.dim() == 1, column = b_in.dim() == 1;
  Tensor a = row ? restrided(a_in, {1, a_in.size(0)}, {a_in.size(0), a_in.stride(0)}) : a_in;
  Tensor b = column ? restrided(b_in, {b_in.size(0), 1}, {b_in.stride(0), 1}) : b_in;
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  if (b.size(-2) != k)
    throw ShapeError("matmul", "a has ", k, " columns but b has ", b.size(-2), " rows: a ", describe(a_in),
                     ", b ", describe(b_in));

  auto batch_of = [](const Tensor& x) { return Shape(std::span(x.shape().begin(), size_t(x.dim() - 2))); };
  const Shape batch = broadcast_batch(a_in, b_in, batch_of(a), batch_of(b));
  Shape shape = batch;
  if (!row) shape.push_back(m);
  if (!column) shape.push_back(n);
  Tensor out = empty(shape, {result, a.device()});
  if (out.numel() == 0) return out;

  a = as_matrices(a), b = as_matrices(b);
  if (b.dim() == 2 && a.dim() > 2) {  // one matrix b for the whole batch: a single product
    if (Tensor flat = fold_batch(a); flat.defined() && has_dense_matrix_dim(flat)) {
      matmul_kernel(restrided(out, {batch.product() * m, n}, {n, 1}), flat, b, {});
      return out;
    }
  }
  Shape matrices = batch;
  matrices.push_back(m), matrices.push_back(n);
  matmul_kernel(restrided(out, matrices, row_major_strides(matrices)), expand_batch(a, batch),
                expand_batch(b, batch), {});
  return out;
}

// Returns x w' + bias by matmul_kernel or matmul_relu_kernel.
// Shapes: x [..., in], w [out, in], bias [out] or undefined -> [..., out].
Tensor linear_by(const decltype(matmul_kernel)& kernel, const Tensor& x, const Tensor& w,
                 const Tensor& bias) {
  check_pair("linear", "x", x, "weight", w);
  if (w.dim() != 2) throw ShapeError("linear", "weight must be [out, in]: weight ", describe(w));
  if (x.dim() < 1 || x.size(-1) != w.size(1))
    throw ShapeError("linear", "weight takes ", w.size(1), " features but x has ", x.dim() ? x.size(-1) : 0,
                     ": x ", describe(x), ", weight ", describe(w));
  const int64_t in = w.size(1), features = w.size(0);
  Tensor b;
  if (bias.defined()) {
    check_pair("linear", "x", x, "bias", bias);
    if (bias.dim() != 1 || bias.size(0) != features)
      throw ShapeError("linear", "bias must have ", features, " elements: bias ", describe(bias), ", weight ",
                       describe(w));
    b = contiguous(bias);
  }
  Shape shape = x.shape();
  shape[x.dim() - 1] = features;
  Tensor out = empty(shape, {x.dtype(), x.device()});
  if (out.numel() == 0) return out;

  // x is viewed as one matrix; the transposed weight is a view.
  Tensor rows = x.dim() == 1 ? restrided(x, {1, in}, {in, x.stride(0)}) : fold_batch(x);
  if (!rows.defined() || !has_dense_matrix_dim(rows))
    rows = restrided(contiguous(x), {out.numel() / features, in}, {in, 1});
  const Tensor plain = as_matrices(w);
  const Tensor transposed = restrided(plain, {in, features}, {plain.stride(1), plain.stride(0)});
  kernel(restrided(out, {out.numel() / features, features}, {features, 1}), rows, transposed, b);
  return out;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) { return multiply(a, b, a.dtype()); }

Tensor matmul_in_f32(const Tensor& a, const Tensor& b) {
  return multiply(a, b, a.dtype() == DType::kF64 ? DType::kF64 : DType::kF32);
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias) {
  return linear_by(matmul_kernel, x, w, bias);
}

Tensor linear_relu(const Tensor& x, const Tensor& w, const Tensor& bias) {
  return linear_by(matmul_relu_kernel, x, w, bias);
}

std::pair<Tensor, Tensor> linear_weight_grad(const Tensor& dy, const Tensor& x, DType dtype) {
  check_pair("linear_weight_grad", "dy", dy, "x", x);
  const Tensor dw = empty({dy.size(1), x.size(1)}, {dtype, x.device()}),
               dbias = empty({dy.size(1)}, {dtype, x.device()});
  linear_weight_grad_kernel(dw, dbias, as_matrices(dy), as_matrices(x));
  return {dw, dbias};
}

namespace internal {

Tensor matrix(const Tensor& x, int64_t i) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape.erase(0), strides.erase(0);
  return view_as_strided(x, shape, strides, x.impl().offset + i * x.stride(0));
}

void merge_batch(Tensor& out, Tensor& a, Tensor& b) {
  Tensor* const all[] = {&out, &a, &b};
  for (int d = out.dim() - 4; d >= 0; --d) {
    const int64_t size = out.size(d), next = out.size(d + 1);
    bool mergeable = true;
    for (const Tensor* x : all) mergeable &= x->stride(d) == x->stride(d + 1) * next;
    if (!mergeable && size != 1 && next != 1) continue;
    for (Tensor* x : all) {
      Shape shape = x->shape();
      Strides strides = x->strides();
      if (next == 1) strides[d + 1] = strides[d];
      shape[d + 1] *= size;
      shape.erase(d), strides.erase(d);
      *x = view_as_strided(*x, shape, strides, x->impl().offset);
    }
  }
}

}  // namespace internal

}  // namespace gradus::raw
