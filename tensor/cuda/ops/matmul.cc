// CUDA kernels of matmul, matmul + relu and linear_weight_grad, by cuBLASLt:
//   out[G...,M,N] = a[G...,M,K] b[G...,K,N] + bias[N]    (optionally with relu)
//   dw[N,M] = dy[K,N]^T x[K,M],  dbias[N] = sum_k dy[k,N]
// out is row-major; a and b have the batch dims G of out, with stride 0 where they broadcast, and stride 1 in
// one of the last two dims; bias may be undefined. All have one floating dtype, except that without a bias, out
// may be f32 if a and b have 16 bits, and so may dw and dbias. cuBLASLt matrices are column-major, and the bytes
// of the row-major out are a column-major out'. So cuBLASLt computes the transposed product out' = b' a'.
#include "gradus/tensor/ops/linalg/matmul.h"

#include "gradus/tensor/cuda/cublas/cublaslt.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/activations.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::cuda {
namespace {

using raw::internal::matrix, raw::internal::merge_batch;

// Returns x' as a cuBLASLt operand, for x[M,N] or x[G,M,N]. If x's rows are dense, its bytes are a column-major
// x'. Otherwise x's columns are dense, its bytes are a column-major x, and the operand is marked `transposed`.
// Strides of dims of size 1 are normalized (TensorImpl::strides), so a single column also counts as dense rows.
MatrixBatch transposes_of(const Tensor& x) {
  const int64_t rows = x.size(-2), cols = x.size(-1), row_step = x.stride(-2), col_step = x.stride(-1);
  const int64_t step = x.dim() > 2 ? x.stride(0) : 0;
  if (col_step == 1) return {x.raw_ptr(), cols, rows, row_step, step};
  return {x.raw_ptr(), rows, cols, col_step, step, true};
}

// Errors: ShapeError if a dim, including batch dims, exceeds kMaxRows.
void check_size(const Tensor& out, const Tensor& a, const Tensor& b) {
  for (const Tensor* x : {&out, &a, &b})
    for (int d = 0; d < x->dim(); ++d)
      if (x->size(d) > kMaxRows)
        throw ShapeError("matmul", "cuBLASLt multiplies matrices of at most ", kMaxRows,
                         " rows and columns: a ", describe(a), ", b ", describe(b));
}

// Returns whether x repeats matrices: a batch dim has stride 0.
bool broadcasts(const Tensor& x) {
  for (int d = 0; d < x.dim() - 2; ++d)
    if (x.stride(d) == 0 && x.size(d) > 1) return true;
  return false;
}

// Computes out = a b + bias, then relu if `rectifies`, in one cuBLASLt call, for at most one batch dim.
void multiply_batch(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias, bool rectifies) {
  check_size(out, a, b);
  const cudaStream_t stream = stream_for({&out, &a, &b, &bias});
  const MatrixProduct product{.a = transposes_of(b),
                              .b = transposes_of(a),  // out' = b' a': the operands are swapped
                              .d = transposes_of(out),
                              .dtype = a.dtype(),
                              .result_dtype = out.dtype(),
                              .batch = out.dim() > 2 ? out.size(0) : 1,
                              .bias = bias ? bias.raw_ptr() : nullptr,
                              .relu = rectifies};
  call_library([&] { multiply("matmul", product, out.device(), stream); });  // throws, or returns true
}

// Computes the product for any number of batch dims: a loop over all but the last of them.
void multiply_batches(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
                      bool rectifies) {
  if (out.dim() <= 3) return multiply_batch(out, a, b, bias, rectifies);
  for (int64_t i = 0; i < out.size(0); ++i)
    multiply_batches(matrix(out, i), matrix(a, i), matrix(b, i), bias, rectifies);
}

template <bool rectifies>
void matmul_cuda(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  if (out.numel() == 0) return;
  if (a.size(-1) == 0) {  // K = 0: the product is zero
    bias ? raw::copy_(out, bias) : raw::fill_(out, 0);
    if (rectifies) raw::Unary<functors::Relu>::kernel(out, out, {});
    return;
  }
  Tensor o = out, x = a, y = b;
  merge_batch(o, x, y);
  if (o.dim() > 3) {
    // More than one batch dim remains, which costs one cuBLASLt call per batch index. Copies to row-major
    // layout make further dims mergeable, and take less time than many small products. An operand that
    // broadcasts is not copied: the copy would repeat its matrices.
    if (!broadcasts(x)) x = raw::contiguous(x);
    if (!broadcasts(y)) y = raw::contiguous(y);
    merge_batch(o, x, y);
  }
  multiply_batches(o, x, y, bias, rectifies);
}

// Computes dw and dbias in one cuBLASLt call, as dw' = x' dy and the sums of dy's columns, and returns true. Returns
// false if there is nothing to multiply, cuBLASLt has no algorithm for both, or TF32 would round dy in the sums too.
bool multiply_and_sum(const Tensor& dw, const Tensor& dbias, const Tensor& dy, const Tensor& x) {
  if (dw.numel() == 0 || dy.size(0) == 0 || (dy.dtype() == DType::kF32 && Context::current().tf32))
    return false;
  check_size(dw, dy, x);
  const cudaStream_t stream = stream_for({&dw, &dbias, &dy, &x});
  MatrixProduct product{.a = transposes_of(x),
                        .b = transposes_of(dy),
                        .d = transposes_of(dw),
                        .dtype = dy.dtype(),
                        .result_dtype = dw.dtype(),
                        .batch = 1,
                        .bias = nullptr,
                        .b_sums = dbias.raw_ptr()};
  product.b.transposed = !product.b.transposed;  // dy itself
  return call_library([&] { return multiply("linear_weight_grad", product, dw.device(), stream); });
}
void linear_weight_grad_cuda(const Tensor& dw, const Tensor& dbias, const Tensor& dy, const Tensor& x) {
  if (multiply_and_sum(dw, dbias, dy, x)) return;
  matmul_cuda<false>(dw, raw::transpose(dy, 0, 1), x, {});
  const int64_t n = dbias.size(0);
  raw::sum_kernel(view_as_strided(dbias, {1, n}, {n, 1}, dbias.impl().offset), raw::to(dy, dbias.dtype()),
                  1.0);
}

[[maybe_unused]] const bool is_set =
    (raw::matmul_kernel.cuda = &matmul_cuda<false>, raw::matmul_relu_kernel.cuda = &matmul_cuda<true>,
     raw::linear_weight_grad_kernel.cuda = &linear_weight_grad_cuda, true);

}  // namespace
}  // namespace gradus::cuda
