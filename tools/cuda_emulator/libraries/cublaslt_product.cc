// Checks and computes a matrix product of the emulated cuBLASLt. Memory errors, which a real device may not
// report, are faults.
#include <cmath>
#include <string>
#include <vector>

#include "gradus/tools/cuda_emulator/libraries/cublaslt.h"
#include "gradus/tools/cuda_emulator/libraries/library_operand.h"

namespace gradus::cuda::emulated {
namespace {

bool is_operation(int32_t op) { return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C; }

// Returns whether cuBLASLt supports sums of type `compute` for this type of A's and this type of D's
// elements.
bool takes(int32_t compute, uint32_t a, uint32_t d) {
  switch (compute) {
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return d == CUDA_R_32F && a == d;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      return d == CUDA_R_32F ? a == CUDA_R_32F || a == CUDA_R_16F || a == CUDA_R_16BF
                             : (d == CUDA_R_16F || d == CUDA_R_16BF) && a == d;
    case CUBLAS_COMPUTE_64F:
      return d == CUDA_R_64F && a == d;
    default:
      return false;
  }
}

constexpr uint64_t kLargest = 0x7fffffff;  // maximal number of rows or columns

cublasStatus_t check_layout(const MatrixLayout& x) {
  if (x.order != CUBLASLT_ORDER_COL && x.order != CUBLASLT_ORDER_ROW) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (x.ld < 0 || static_cast<uint64_t>(x.ld) < (x.order == CUBLASLT_ORDER_COL ? x.rows : x.cols))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (x.rows > kLargest || x.cols > kLargest || static_cast<uint64_t>(x.ld) > kLargest)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t check_shapes(const Product& p) {
  const bool ta = p.desc.op_a != CUBLAS_OP_N, tb = p.desc.op_b != CUBLAS_OP_N;
  const uint64_t a_rows = ta ? p.a.cols : p.a.rows, b_rows = tb ? p.b.cols : p.b.rows;
  const uint64_t b_cols = tb ? p.b.rows : p.b.cols;
  const bool fit = a_rows == p.m() && b_rows == p.k() && b_cols == p.n() && p.c.rows == p.m() &&
                   p.c.cols == p.n() && p.c.order == p.d.order && p.m() > 0;
  const bool batches = p.a.batch == p.d.batch && p.b.batch == p.d.batch && p.c.batch == p.d.batch;
  return fit && batches ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t check_types(const Product& p) {
  if (p.c.type != p.d.type) return CUBLAS_STATUS_INVALID_VALUE;
  if (!takes(p.desc.compute, p.a.type, p.d.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const int32_t scale = p.desc.compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F;
  if (p.a.type != p.b.type || p.desc.scale != scale) return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

// Returns whether an H100 was recorded to compute this bias gradient
// (tools/gpu_lab/records/h100/cublaslt_epilogues.txt).
bool has_recorded_form(const Product& p) {
  const bool ta = p.desc.op_a != CUBLAS_OP_N, tb = p.desc.op_b != CUBLAS_OP_N;
  return !ta && (tb || p.desc.epilogue == CUBLASLT_EPILOGUE_BGRADA) && p.d.batch == 1;
}

cublasStatus_t check_epilogue(const Product& p) {
  const uint32_t f = p.desc.epilogue & ~uint32_t(CUBLASLT_EPILOGUE_BIAS);
  const bool known = f == CUBLASLT_EPILOGUE_RELU || f == CUBLASLT_EPILOGUE_GELU ||
                     f == (p.desc.adds_bias() ? 0u : uint32_t(CUBLASLT_EPILOGUE_DEFAULT)) ||
                     (p.desc.has_bias_gradient() && has_recorded_form(p));
  if (!known || (p.desc.uses_bias() && p.d.order != CUBLASLT_ORDER_COL)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.desc.uses_bias() && p.desc.bias_type >= 0 && static_cast<uint32_t>(p.desc.bias_type) != p.d.type)
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

// ---- elements

DType dtype_of(uint32_t type) {
  return type == CUDA_R_64F   ? DType::kF64
         : type == CUDA_R_32F ? DType::kF32
         : type == CUDA_R_16F ? DType::kF16
                              : DType::kBF16;
}

// All matrices of a batch: [batch, rows, cols].
Operand operand(const char* name, const void* p, const MatrixLayout& x) {
  const bool by_columns = x.order == CUBLASLT_ORDER_COL;
  return {name,
          p,
          dtype_of(x.type),
          {x.batch, static_cast<int64_t>(x.rows), static_cast<int64_t>(x.cols)},
          {x.batch > 1 ? x.stride : 0, by_columns ? 1 : x.ld, by_columns ? x.ld : 1}};
}
// Matrix i of a batch.
Operand matrix(const Operand& x, int64_t i, bool transposed = false) {
  const size_t row = transposed ? 2 : 1, column = transposed ? 1 : 2;
  return {x.name,
          x.begin_address() + i * x.strides[0] * x.element_size(),
          x.type,
          {x.sizes[row], x.sizes[column]},
          {x.strides[row], x.strides[column]}};
}

// Returns the bias gradient of BGRADA, sum_k a[m, k], or of BGRADB, sum_k b[k, n].
template <class T>
std::vector<T> sums_over_k(uint32_t epilogue, const std::vector<T>& a, const std::vector<T>& b, size_t m,
                           size_t n, size_t k) {
  const bool of_a = epilogue == CUBLASLT_EPILOGUE_BGRADA;
  std::vector<T> sums(of_a ? m : n);
  for (size_t i = 0; i < sums.size(); ++i)
    for (size_t at = 0; at < k; ++at) sums[i] += of_a ? a[i * k + at] : b[at * n + i];
  return sums;
}

// sums[m, n] += a[m, k] b[k, n] for k in [from, to).
template <class T>
void add_products(std::vector<T>& sums, const std::vector<T>& a, const std::vector<T>& b, size_t n, size_t k,
                  size_t from, size_t to) {
  for (size_t i = 0; i < sums.size() / n; ++i) {
    T* const row = &sums[i * n];
    for (size_t at = from; at < to; ++at) {
      const T x = a[i * k + at];
      const T* const y = &b[at * n];
      for (size_t j = 0; j < n; ++j) row[j] += x * y[j];
    }
  }
}

template <class T> T activate(uint32_t epilogue, T x) {
  if (epilogue & CUBLASLT_EPILOGUE_RELU) return x > 0 ? x : x != x ? x : T(0);
  if (epilogue & CUBLASLT_EPILOGUE_GELU)  // the tanh formula, as recorded, in f64 too
    return T(0.5) * x * (1 + std::tanh(T(0.79788456080286536) * (x + T(0.044715) * x * x * x)));
  return x;
}

LibraryCall call_of(const QueuedProduct& q) { return {"cublasLtMatmul", q.op}; }

template <class T> void compute(const QueuedProduct& q) {
  const Product& p = q.product;
  const LibraryCall call = call_of(q);
  const Operand a = operand("A", q.a, p.a), b = operand("B", q.b, p.b), c = operand("C", q.c, p.c),
                d = operand("D", q.d, p.d);
  const auto bias_size = static_cast<int64_t>(p.desc.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n() : p.m());
  const Operand bias{"bias", p.desc.bias, d.type, {bias_size}, {1}};
  std::vector<const Operand*> sources;
  if (p.k() > 0) sources = {&a, &b};
  if (p.desc.adds_bias()) sources.push_back(&bias);
  std::vector<const Operand*> all = sources;
  if (p.desc.has_bias_gradient()) all.push_back(&bias);
  if (q.beta != 0) all.push_back(&c);
  all.push_back(&d);
  for (const Operand* x : all) {
    if (x->strides[0] < 0)
      stop(call, FaultKind::kOutOfBounds,
           std::string("operand ") + x->name + " has a negative batch stride, which loses the device in f16",
           x->p);
    check_place(call, *x);
  }
  if (q.beta != 0 && q.c != q.d) sources.push_back(&c);
  check_apart(call, d, sources);
  if (p.desc.has_bias_gradient()) {
    sources.push_back(&d);
    check_apart(call, bias, sources);
  }

  const size_t m = p.m(), n = p.n(), k = p.k();
  const bool tf32 = p.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const std::vector<T> shift = p.desc.adds_bias() ? read<T>(call, bias) : std::vector<T>(m);
  for (int64_t g = 0; g < p.d.batch; ++g) {
    std::vector<T> sums(m * n), more(m * n), left, right;
    if (k > 0) {
      left = read<T>(call, matrix(a, g, p.desc.op_a != CUBLAS_OP_N), tf32);
      right = read<T>(call, matrix(b, g, p.desc.op_b != CUBLAS_OP_N), tf32);
      const size_t part = q.algo.rounds_parts ? k / 2 : k;
      add_products(sums, left, right, n, k, 0, part);
      add_products(more, left, right, n, k, part, k);
    }
    const std::vector<T> old = q.beta != 0 ? read<T>(call, matrix(c, g)) : std::vector<T>();
    for (size_t e = 0; e < m * n; ++e) {
      T v = sums[e];
      if (q.algo.rounds_parts) v = rounded(v, d.type) + rounded(more[e], d.type);
      v *= static_cast<T>(q.alpha);
      if (q.beta != 0) v += static_cast<T>(q.beta) * old[e];
      sums[e] = activate(p.desc.epilogue, v + shift[e / n]);
    }
    if (p.desc.has_bias_gradient()) write(bias, sums_over_k(p.desc.epilogue, left, right, m, n, k));
    write(matrix(d, g), sums);
  }
}

// Returns the workspace of a product with a pattern that differs from those of other products.
LibraryWorkspace workspace_of(const QueuedProduct& q) {
  return {q.workspace, q.workspace_bytes, q.algo.workspace,
          q.product.hash() ^ reinterpret_cast<uintptr_t>(q.d) * 0x9E3779B97F4A7C15u};
}

}  // namespace

uint64_t Product::hash() const {
  uint64_t h = 1469598103934665603u;
  const auto add = [&](auto... values) { ((h = (h ^ static_cast<uint64_t>(values)) * 1099511628211u), ...); };
  add(desc.compute, desc.scale, desc.op_a, desc.op_b, desc.epilogue, desc.bias_type);
  for (const MatrixLayout* x : {&a, &b, &c, &d})
    add(x->type, x->order, x->rows, x->cols, x->ld, x->batch, x->stride);
  return h;
}

cublasStatus_t check_product(const Product& p) {
  if (!is_operation(p.desc.op_a) || !is_operation(p.desc.op_b)) return CUBLAS_STATUS_INVALID_VALUE;
  for (const MatrixLayout* x : {&p.a, &p.b, &p.c, &p.d})
    if (const cublasStatus_t status = check_layout(*x); status != CUBLAS_STATUS_SUCCESS) return status;
  for (const auto check : {&check_shapes, &check_types, &check_epilogue})
    if (const cublasStatus_t status = check(p); status != CUBLAS_STATUS_SUCCESS) return status;
  return CUBLAS_STATUS_SUCCESS;
}

void begin_product(const QueuedProduct& q) { fill(call_of(q), workspace_of(q)); }

void end_product(const QueuedProduct& q) {
  try {
    if (q.algo.workspace > 0 && !check_unchanged(call_of(q), workspace_of(q))) return;
    q.product.d.type == CUDA_R_64F ? compute<double>(q) : compute<float>(q);
  } catch (const Stop&) {
  }
}

}  // namespace gradus::cuda::emulated
