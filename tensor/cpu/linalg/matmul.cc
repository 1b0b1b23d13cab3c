// CPU kernels of the batched matrix product out[..., m, n] = sum_k a[..., m, k] b[..., k, n] + bias[n], and
// of its ReLU. Callers have broadcast a and b to the batch dims of `out` (stride 0), checked shapes and
// dtypes, and allocated a row-major `out` in the operands' dtype, or f32. Operands may have any strides;
// `bias` [n] is row-major or undefined. Small f32 products are computed by small_matmul or Eigen, f64 by Eigen,
// other f32 and, on processors with AVX512_BF16, bf16 by oneDNN. f16, and bf16 on other processors, are computed
// in f32 and rounded once: by oneDNN, or for bf16 by narrow_matmul if narrow_matmul is faster.
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/kernel.h"

#include <Eigen/Core>
#include <algorithm>
#include <cstring>

#include "gradus/tensor/cpu/linalg/matmul_kernels.h"
#include "gradus/tensor/cpu/onednn/problems.h"
#include "gradus/tensor/cpu/widen.h"
#include "gradus/tensor/ops/activations.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/flush_denormal.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus {
namespace {

using raw::internal::matrix, raw::internal::merge_batch;

// The last two dims of a tensor as an Eigen map, from element `offset`.
template <class T>
using Matrix = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0,
                          Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;

template <class T> Matrix<T> matrix_at(const Tensor& x, int64_t offset) {
  const int n = x.dim();
  return Matrix<T>(x.ptr<T>() + offset, x.shape()[n - 2], x.shape()[n - 1],
                   Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>(x.strides()[n - 2], x.strides()[n - 1]));
}

}  // namespace

// Eigen's product per matrix of the batch; threads divide the rows.
void matmul_reference(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  dispatch_floating(out.dtype(), "matmul", [&]<class T>() {
    const int batch_dims = out.dim() - 2;
    int64_t batch = 1;
    for (int d = 0; d < batch_dims; ++d) batch *= out.shape()[d];
    for (int64_t g = 0; g < batch; ++g) {
      int64_t at_out = 0, at_a = 0, at_b = 0;
      for (int64_t d = batch_dims - 1, rest = g; d >= 0; rest /= out.shape()[d--]) {
        const int64_t i = rest % out.shape()[d];
        at_out += i * out.strides()[d], at_a += i * a.strides()[d], at_b += i * b.strides()[d];
      }
      Matrix<T> y = matrix_at<T>(out, at_out), left = matrix_at<T>(a, at_a), right = matrix_at<T>(b, at_b);
      const int64_t grain = 1 + 32768 / (1 + left.cols() * right.cols());
      parallel_for(0, y.rows(), grain, [&](int64_t first, int64_t last) {
        auto rows = y.middleRows(first, last - first);
        rows.noalias() = left.middleRows(first, last - first) * right;
        if (bias.defined())
          rows.rowwise() +=
              Eigen::Map<const Eigen::Matrix<T, 1, Eigen::Dynamic>>(bias.ptr<T>(), bias.numel());
      });
    }
  });
}

namespace {

// Returns the row and column strides of x as oneDNN accepts them: a dim of size 1 gets the stride of a dense
// matrix.
std::array<int64_t, 2> matrix_strides(const Tensor& x) {
  const int n = x.dim();
  const int64_t rows = x.shape()[n - 2], cols = x.shape()[n - 1];
  int64_t row_step = x.strides()[n - 2], col_step = x.strides()[n - 1];
  if (cols == 1) {
    if (rows == 1 || row_step == 1) return {1, rows};
    return {row_step, 1};
  }
  if (rows == 1) return col_step == 1 ? std::array<int64_t, 2>{cols, 1} : std::array<int64_t, 2>{1, col_step};
  return {row_step, col_step};
}

// Returns the sizes and strides of a matrix or a batch of matrices.
onednn::MatrixLayout layout_of(const Tensor& x) {
  const auto [row_step, col_step] = matrix_strides(x);
  onednn::MatrixLayout m{{x.size(-2), x.size(-1)}, {row_step, col_step}};
  // A batch of one matrix broadcasts in oneDNN, so a broadcast batch dim is passed as size 1.
  if (x.dim() == 3) {
    const bool is_broadcast = x.stride(0) == 0 && x.size(0) > 1;
    m.sizes.insert(m.sizes.begin(), is_broadcast ? 1 : x.size(0));
    const int64_t one = x.size(-2) * row_step + x.size(-1) * col_step;
    m.strides.insert(m.strides.begin(), m.sizes[0] == 1 ? one : x.stride(0));
  }
  return m;
}

// Returns x, or a row-major copy if oneDNN cannot describe x's layout.
Tensor supported_layout(const Tensor& x) {
  if (onednn::has_memory_desc(layout_of(x))) return x;
  const Tensor copy = empty(x.shape(), {x.dtype(), x.device()});
  raw::copy_kernel.cpu(copy, x);  // the kernel, not the op, which would queue the copy
  return copy;
}

// out = a b + bias with oneDNN in a's dtype. Returns false if oneDNN does not support a's dtype on this
// processor, which never is the case for f32.
bool onednn_matmul(const Tensor& out, const Tensor& a_in, const Tensor& b_in, const Tensor& bias) {
  static const char kind[] = "matmul";
  if (!onednn::supports_dtype(a_in.dtype())) return false;
  const Tensor a = supported_layout(a_in), b = supported_layout(b_in);
  const onednn::MatrixLayout left = layout_of(a), right = layout_of(b);
  onednn::PlanKey key(kind);
  for (const auto* list : {&left.sizes, &left.strides, &right.sizes, &right.strides})
    for (int64_t v : *list) key.add(v);
  key.add(out.dim()).add(bias.defined()).add(int64_t(out.dtype()));
  const auto plan = onednn::find_or_create_plan(
      a.dtype(), key, [&] { return onednn::matmul_plan(a.dtype(), left, right, out, bias.defined()); });
  if (!plan) return false;
  onednn::run(*plan, {{DNNL_ARG_SRC, onednn::memory(plan->src, a)},
                      {DNNL_ARG_WEIGHTS, onednn::memory(plan->weights, b)},
                      {DNNL_ARG_BIAS, onednn::memory(plan->bias, bias)},
                      {DNNL_ARG_DST, onednn::memory(plan->dst, out)}});
  return true;
}

void matmul_cpu(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias);

// The product where both a and b are broadcast along the batch dim, which oneDNN does not support: computed
// once and copied.
void broadcast_product(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  matmul_cpu(matrix(out, 0), matrix(a, 0), matrix(b, 0), bias);
  char* to = static_cast<char*>(out.raw_ptr());
  const int64_t bytes = out.nbytes() / out.size(0);
  for (int64_t i = 1; i < out.size(0); ++i) std::memcpy(to + i * bytes, to, bytes);
}

// Returns whether narrow_matmul is faster than converting a, b and out for oneDNN's f32 product: with
// AVX-512, if there are few multiplications per converted element. There are M N K multiplications and M K +
// K N + M N elements.
bool prefers_narrow_matmul(const Tensor& out, const Tensor& a) {
  const int64_t M = out.size(-2), N = out.size(-1), K = a.size(-1);
  return a.dtype() == DType::kBF16 && cpu::has_avx512() && 1.0 / M + 1.0 / N + 1.0 / K > 1.0 / 128;
}

// The product with at most one batch dim: oneDNN in the operands' dtype, or else through f32.
void multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  if (onednn_matmul(out, a, b, bias)) return;
  if (prefers_narrow_matmul(out, a)) return narrow_matmul(out, a, b, bias);
  cpu::compute_in_f32(
      out, [&](const Tensor& y) { matmul_cpu(y, cpu::to_f32(a), cpu::to_f32(b), cpu::to_f32(bias)); });
}

// The product with an inner dim of size 0: out = bias, or 0.
void fill_with_bias(const Tensor& out, const Tensor& bias) {
  char* to = static_cast<char*>(out.raw_ptr());
  const int64_t row = out.size(-1) * size_of(out.dtype());
  std::memset(to, 0, out.nbytes());
  if (!bias.defined()) return;
  for (int64_t at = 0; at < out.nbytes(); at += row) std::memcpy(to + at, bias.raw_ptr(), row);
}

// Returns whether Eigen computes the product: f64, small f32 products, for which oneDNN's overhead is larger
// than the product, and all f32 products on ARM, where oneDNN is slow.
bool prefers_reference(const Tensor& out, const Tensor& a) {
  if (out.dtype() != a.dtype()) return false;
  if (out.dtype() == DType::kF32)
    return !onednn::kHasFastMatmul || (out.dim() == 2 && out.numel() * a.size(-1) <= 4096);
  return out.dtype() == DType::kF64;
}

// Returns whether small_matmul computes the product. For 256 multiplications and more Eigen and oneDNN took 1.04
// to 20 times as long, in one thread of an Intel processor with AVX-512, with AVX2 too.
bool prefers_small_matmul(const Tensor& out, const Tensor& a) {
  return out.dim() == 2 && out.dtype() == DType::kF32 && a.dtype() == DType::kF32 &&
         std::max({out.size(0), out.size(1), a.size(1)}) <= kMaxSmallSize && out.numel() * a.size(1) <= 32768;
}

// Chooses the algorithm. More than one batch dim is merged, or looped over if strides do not allow merging.
void matmul_cpu(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  if (a.size(-1) == 0) return fill_with_bias(out, bias);
  if (prefers_small_matmul(out, a)) return small_matmul(out, a, b, bias);
  if (prefers_reference(out, a)) return matmul_reference(out, a, b, bias);
  if (out.dim() == 2) return multiply(out, a, b, bias);
  Tensor o = out, x = a, y = b;
  merge_batch(o, x, y);
  if (o.dim() > 3) {
    for (int64_t i = 0; i < o.size(0); ++i) matmul_cpu(matrix(o, i), matrix(x, i), matrix(y, i), bias);
  } else if (x.stride(0) == 0 && y.stride(0) == 0 && o.size(0) > 1) {
    broadcast_product(o, x, y, bias);
  } else {
    multiply(o, x, y, bias);
  }
}

void matmul_relu_cpu(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  matmul_cpu(out, a, b, bias);
  raw::Unary<functors::Relu>::kernel.cpu(out, out, {});
}

}  // namespace

constinit decltype(raw::matmul_kernel) raw::matmul_kernel{"matmul", cpu::flushing<&matmul_cpu>};
constinit decltype(raw::matmul_relu_kernel) raw::matmul_relu_kernel{"matmul_relu",
                                                                    cpu::flushing<&matmul_relu_cpu>};

}  // namespace gradus
