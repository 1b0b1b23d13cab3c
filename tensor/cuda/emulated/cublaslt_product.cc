// A matrix product as cuBLASLt computes it, element by element, and what of it no real device would forgive.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/cuda/emulated/cublaslt.h"
#include "gradus/tensor/cuda/emulated/pinned.h"

namespace gradus::cuda::emulated {
namespace {

bool is_operation(int32_t op) { return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C; }

// Whether a sum in `compute` may be of products of A's elements and become D's.
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

constexpr uint64_t kLargest = 0x7fffffff;  // number of rows or columns

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

cublasStatus_t check_epilogue(const Product& p) {
  const uint32_t f = p.desc.epilogue & ~uint32_t(CUBLASLT_EPILOGUE_BIAS);
  const bool adds_bias = p.desc.epilogue & CUBLASLT_EPILOGUE_BIAS;
  const bool known = f == CUBLASLT_EPILOGUE_RELU || f == CUBLASLT_EPILOGUE_GELU ||
                     f == (adds_bias ? 0u : uint32_t(CUBLASLT_EPILOGUE_DEFAULT));
  if (!known || (adds_bias && p.d.order != CUBLASLT_ORDER_COL)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (adds_bias && p.desc.bias_type >= 0 && static_cast<uint32_t>(p.desc.bias_type) != p.d.type)
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

// ---- elements

struct Stop {};

// The bytes of a matrix, and how messages call it.
struct Operand {
  const char* name;
  const void* p;  // as the host sees it
  MatrixLayout layout;

  size_t size() const { return size_of_element(layout.type); }
  // Of the element at (row, column) of one matrix of the batch; in elements.
  int64_t at(int64_t g, int64_t row, int64_t column) const {
    const bool by_columns = layout.order == CUBLASLT_ORDER_COL;
    return g * layout.stride + row * (by_columns ? 1 : layout.ld) + column * (by_columns ? layout.ld : 1);
  }
  int64_t end() const {  // behind the last element
    return at(layout.batch - 1, static_cast<int64_t>(layout.rows) - 1,
              static_cast<int64_t>(layout.cols) - 1) +
           1;
  }
  const char* begin_address() const { return static_cast<const char*>(p); }
  const char* end_address() const { return begin_address() + end() * static_cast<int64_t>(size()); }
};

class Run {
 public:
  explicit Run(const QueuedProduct& q) : q_(q) {}

  [[noreturn]] void stop(FaultKind kind, const std::string& what, const void* p) const {
    const DeviceMemory* memory = device_that_holds(p);
    deliver(library_fault(kind, what, q_.op,
                          memory ? memory->describe(memory->offset(memory->for_kernels(p))) : ""));
    throw Stop();
  }

  // Looks whether a matrix lies in one block and at a multiple of its elements' size.
  DeviceMemory& check_place(const Operand& x) const {
    if (x.layout.batch > 1 && x.layout.stride < 0)
      stop(FaultKind::kOutOfBounds, name(x) + " has a negative batch stride, which loses the device in f16",
           x.p);
    DeviceMemory* const memory = device_that_holds(x.p);
    if (!memory) {
      if (is_pinned(x.p)) stop(FaultKind::kHostMemory, name(x) + " is pinned memory: not emulated", x.p);
      stop(FaultKind::kHostMemory, name(x) + " is not the device's memory", x.p);
    }
    if (!memory->is_within_a_block(x.p, static_cast<size_t>(x.end()) * x.size())) {
      const bool begins = memory->is_within_a_block(x.p, 1);
      stop(FaultKind::kOutOfBounds, name(x) + " reaches beyond its memory",
           begins ? x.end_address() - 1 : x.p);
    }
    if (reinterpret_cast<uintptr_t>(x.p) % x.size() != 0)
      stop(FaultKind::kMisaligned, name(x) + " is at no multiple of " + std::to_string(x.size()), x.p);
    return *memory;
  }

  // The elements of op(x) of one matrix, row by row.
  template <class T> std::vector<T> read(const Operand& x, int64_t g, bool transposed) const {
    DeviceMemory& memory = *device_that_holds(x.p);
    const auto rows = static_cast<int64_t>(transposed ? x.layout.cols : x.layout.rows);
    const auto cols = static_cast<int64_t>(transposed ? x.layout.rows : x.layout.cols);
    std::vector<T> elements(static_cast<size_t>(rows * cols));
    const char* const bytes = memory.for_kernels(x.p);
    const Byte* const known = memory.state(memory.offset(bytes));
    const bool tf32 = q_.product.desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        const int64_t at = (transposed ? x.at(g, j, i) : x.at(g, i, j)) * static_cast<int64_t>(x.size());
        for (size_t byte = 0; byte < x.size(); ++byte)
          if (known[at + static_cast<int64_t>(byte)] != Byte::kWritten)
            stop(FaultKind::kUnwritten, name(x) + " was not written", x.begin_address() + at);
        const T v = load<T>(bytes + at, x.layout.type);
        elements[static_cast<size_t>(i * cols + j)] = tf32 ? as_tf32(v) : v;
      }
    }
    return elements;
  }

  template <class T> static T load(const char* p, uint32_t type) {
    return with_element(type, [&](auto v) {
      std::memcpy(&v, p, sizeof v);
      return static_cast<T>(v);
    });
  }
  template <class T> static void store(char* p, uint32_t type, T v) {
    with_element(type, [&](auto zero) {
      const auto element = static_cast<decltype(zero)>(v);
      std::memcpy(p, &element, sizeof element);
      return 0;
    });
  }
  template <class T> static T rounded(T v, uint32_t type) {
    char bytes[8];
    store(bytes, type, v);
    return load<T>(bytes, type);
  }

  static std::string name(const Operand& x) { return std::string("operand ") + x.name; }

 private:
  // Calls f(T()) with an element's type.
  template <class F> static auto with_element(uint32_t type, F&& f) {
    if (type == CUDA_R_64F) return f(double());
    if (type == CUDA_R_32F) return f(float());
    return type == CUDA_R_16F ? f(f16()) : f(bf16());
  }
  // Tensor cores take 10 bits of an f32's mantissa.
  template <class T> static T as_tf32(T v) {
    if (!std::isfinite(v)) return v;
    const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(v));
    return static_cast<T>(std::bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu));
  }

  const QueuedProduct& q_;
};

// Which bytes of a range of memory the result takes.
class Written {
 public:
  Written(const Run& run, const Operand& d) : begin_(d.begin_address()) {
    bytes_.resize(static_cast<size_t>(d.end()) * d.size());
    for_each(d, [&](const char* p) {
      if (holds(p)) run.stop(FaultKind::kRace, "matrices of the result overlap", p);
      for (size_t i = 0; i < d.size(); ++i) bytes_[static_cast<size_t>(p - begin_) + i] = true;
    });
  }
  bool holds(const char* p) const {
    return p >= begin_ && static_cast<size_t>(p - begin_) < bytes_.size() &&
           bytes_[static_cast<size_t>(p - begin_)];
  }
  void check_apart(const Run& run, const Operand& x) const {
    if (x.end_address() <= begin_ || x.begin_address() >= begin_ + bytes_.size()) return;
    for_each(x, [&](const char* p) {
      if (holds(p)) run.stop(FaultKind::kRace, Run::name(x) + " is overwritten while it is read", p);
    });
  }

 private:
  template <class F> static void for_each(const Operand& x, F&& f) {
    for (int64_t g = 0; g < x.layout.batch; ++g)
      for (int64_t i = 0; i < static_cast<int64_t>(x.layout.rows); ++i)
        for (int64_t j = 0; j < static_cast<int64_t>(x.layout.cols); ++j)
          f(x.begin_address() + x.at(g, i, j) * static_cast<int64_t>(x.size()));
  }

  const char* begin_;
  std::vector<bool> bytes_;
};

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

template <class T> void compute(const QueuedProduct& q) {
  const Product& p = q.product;
  const Run run(q);
  const Operand a{"A", q.a, p.a}, b{"B", q.b, p.b}, c{"C", q.c, p.c}, d{"D", q.d, p.d};
  const bool adds_bias = p.desc.epilogue & CUBLASLT_EPILOGUE_BIAS;
  const Operand bias{
      "bias", p.desc.bias, {.type = p.d.type, .rows = p.m(), .cols = 1, .ld = static_cast<int64_t>(p.m())}};
  std::vector<const Operand*> sources;
  if (p.k() > 0) sources = {&a, &b};
  if (adds_bias) sources.push_back(&bias);
  for (const Operand* x : sources) run.check_place(*x);
  if (q.beta != 0) run.check_place(c);
  DeviceMemory& memory = run.check_place(d);
  const Written written(run, d);
  if (q.beta != 0 && q.c != q.d) sources.push_back(&c);
  for (const Operand* x : sources) written.check_apart(run, *x);

  const size_t m = p.m(), n = p.n(), k = p.k();
  const std::vector<T> shift = adds_bias ? run.read<T>(bias, 0, false) : std::vector<T>(m);
  for (int64_t g = 0; g < p.d.batch; ++g) {
    std::vector<T> sums(m * n), more(m * n);
    if (k > 0) {
      const std::vector<T> left = run.read<T>(a, g, p.desc.op_a != CUBLAS_OP_N);
      const std::vector<T> right = run.read<T>(b, g, p.desc.op_b != CUBLAS_OP_N);
      const size_t part = q.algo.rounds_parts ? k / 2 : k;
      add_products(sums, left, right, n, k, 0, part);
      add_products(more, left, right, n, k, part, k);
    }
    const std::vector<T> old = q.beta != 0 ? run.read<T>(c, g, false) : std::vector<T>();
    char* const to = memory.for_kernels(q.d);
    for (size_t i = 0; i < m; ++i) {
      for (size_t j = 0; j < n; ++j) {
        const size_t e = i * n + j;
        T v = sums[e];
        if (q.algo.rounds_parts) v = Run::rounded(v, p.d.type) + Run::rounded(more[e], p.d.type);
        v *= static_cast<T>(q.alpha);
        if (q.beta != 0) v += static_cast<T>(q.beta) * old[e];
        v = activate(p.desc.epilogue, v + shift[i]);
        char* const at =
            to + d.at(g, static_cast<int64_t>(i), static_cast<int64_t>(j)) * static_cast<int64_t>(d.size());
        Run::store(at, p.d.type, v);
        std::memset(memory.state(memory.offset(at)), static_cast<int>(Byte::kWritten), d.size());
      }
    }
  }
}

// What a product leaves in its workspace.
uint64_t stamp_of(const QueuedProduct& q) {
  return q.product.hash() ^ reinterpret_cast<uintptr_t>(q.d) * 0x9E3779B97F4A7C15u;
}

bool is_in_place(const QueuedProduct& q) {
  const DeviceMemory* const memory = device_that_holds(q.workspace);
  return memory && memory->is_within_a_block(q.workspace, q.workspace_bytes);
}

// Calls f(word) for the 8-byte words of the workspace.
template <class F> void for_each_word(const QueuedProduct& q, F&& f) {
  DeviceMemory& memory = *device_that_holds(q.workspace);
  char* const bytes = memory.for_kernels(q.workspace);
  for (size_t at = 0; at + sizeof(uint64_t) <= q.algo.workspace; at += sizeof(uint64_t)) f(bytes + at);
  std::memset(memory.state(memory.offset(bytes)), static_cast<int>(Byte::kWritten), q.algo.workspace);
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

void begin_product(const QueuedProduct& q) {
  if (!is_in_place(q)) {
    const DeviceMemory* const memory = device_that_holds(q.workspace);
    const FaultKind kind = memory ? FaultKind::kOutOfBounds : FaultKind::kHostMemory;
    return deliver(
        library_fault(kind, "the workspace is no memory of the device, or reaches beyond it", q.op));
  }
  for_each_word(q, [stamp = stamp_of(q)](char* word) { std::memcpy(word, &stamp, sizeof stamp); });
}

void end_product(const QueuedProduct& q) {
  try {
    if (q.algo.workspace > 0) {
      if (!is_in_place(q)) return;  // told
      for_each_word(q, [&, stamp = stamp_of(q)](char* word) {
        if (std::memcmp(word, &stamp, sizeof stamp) != 0)
          Run(q).stop(FaultKind::kRace, "the workspace was changed while the product used it", q.workspace);
      });
    }
    q.product.d.type == CUDA_R_64F ? compute<double>(q) : compute<float>(q);
  } catch (const Stop&) {
  }
}

}  // namespace gradus::cuda::emulated
