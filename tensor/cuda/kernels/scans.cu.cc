// CUDA kernels of scans along a row (row_scan.h, which maps threads to elements): the operations of cumsum,
// cumprod, logcumsumexp, cummax, cummin and linear recurrences, on states of f64 or 64-bit integers.
#include "gradus/tensor/cuda/kernels/scans.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/cuda/kernels/row_scan.h"
#include "gradus/tensor/ops/formulas/scan.h"

namespace gradus::cuda {
namespace {

// Elements x, converted to State and back.
template <class State, class Out, class T> struct ConvertedElements {
  Out* out;
  const T* x;
  __device__ __forceinline__ State load(int64_t at, int64_t) const { return convert<State>(x[at]); }
  __device__ __forceinline__ void store(int64_t at, const State& result) const {
    out[at] = convert<Out>(result);
  }
};

// factor * 2^(512 * exponent), where |factor| is from 2^-256 to 2^256, 0, infinite or NaN: a product of
// finite numbers neither overflows nor underflows before value(), so it is 0 if a factor is 0, in any order
// of multiplication.
struct ScaledDouble {
  double factor = 1;
  int64_t exponent = 0;

  ScaledDouble() = default;
  __device__ __forceinline__ explicit ScaledDouble(double x, int64_t e = 0) : factor(x), exponent(e) {
    while (m::abs(factor) > 0x1p256 && m::abs(factor) <= std::numeric_limits<double>::max())
      factor *= 0x1p-512, ++exponent;
    while (m::abs(factor) < 0x1p-256 && factor != 0) factor *= 0x1p512, --exponent;
  }
  __device__ __forceinline__ double value() const {
    double x = factor;  // exponents beyond 4 overflow, or underflow, as 4 does
    for (int64_t e = std::min<int64_t>(exponent, 4); e > 0; --e) x *= 0x1p512;
    for (int64_t e = std::max<int64_t>(exponent, -4); e < 0; ++e) x *= 0x1p-512;
    return x;
  }
};
__device__ __forceinline__ ScaledDouble operator*(const ScaledDouble& a, const ScaledDouble& b) {
  return ScaledDouble(a.factor * b.factor, a.exponent + b.exponent);
}

template <class S> struct Product {
  using State = S;
  __device__ __forceinline__ S operator()(const S& earlier, const S& later) const { return earlier * later; }
};
template <class T> struct ScaledElements {
  T* out;
  const T* x;
  __device__ __forceinline__ ScaledDouble load(int64_t at, int64_t) const {
    return ScaledDouble(static_cast<double>(x[at]));
  }
  __device__ __forceinline__ void store(int64_t at, const ScaledDouble& result) const {
    out[at] = static_cast<T>(result.value());
  }
};

struct LogAddExp {
  using State = double;
  __device__ __forceinline__ double operator()(double earlier, double later) const {
    return formulas::log_add_exp(earlier, later);
  }
};

// An extremum and its index in the row. V is double or int64_t, which have all values of x's dtype.
template <class V> struct Extremum {
  V value;
  int64_t index;
};
// The larger or smaller value, the later of equal ones. A NaN beats all earlier values and all numbers.
template <class V> struct LaterExtremum {
  using State = Extremum<V>;
  bool largest;
  __device__ __forceinline__ State operator()(const State& earlier, const State& later) const {
    const bool is_better = largest ? later.value >= earlier.value : later.value <= earlier.value;
    return is_better || later.value != later.value ? later : earlier;
  }
};
template <class T, class V> struct ExtremumElements {
  T* values;
  int64_t* indices;
  const T* x;

  __device__ __forceinline__ Extremum<V> load(int64_t at, int64_t i) const { return {convert<V>(x[at]), i}; }
  __device__ __forceinline__ void store(int64_t at, const Extremum<V>& result) const {
    values[at] = convert<T>(result.value);
    indices[at] = result.index;
  }
};

// The function y -> factor * y + term. The factor of later(earlier(y)) is the product of both factors; a
// ScaledDouble represents products that overflow or underflow f64, because products with terms may not.
struct Affine {
  ScaledDouble factor;
  double term = 0;
};
struct Compose {
  using State = Affine;
  __device__ __forceinline__ Affine operator()(const Affine& earlier, const Affine& later) const {
    return {earlier.factor * later.factor, (later.factor * ScaledDouble(earlier.term)).value() + later.term};
  }
};
template <class T> struct AffineElements {
  T* out;
  const T *a, *b;

  // The first element of a row is the constant b: its factor, which may be NaN, is not read.
  __device__ __forceinline__ Affine load(int64_t at, int64_t i) const {
    return {ScaledDouble(i == 0 ? 0 : static_cast<double>(a[at])), static_cast<double>(b[at])};
  }
  __device__ __forceinline__ void store(int64_t at, const Affine& result) const {
    out[at] = static_cast<T>(result.term);
  }
};

template <class F> void with_f32_or_f64(DType dtype, F&& f) {
  dtype == DType::kF64 ? f(double()) : f(float());
}

}  // namespace

int64_t scans_workspace(const ScanShape& scan) { return scan_rows_workspace(scan, sizeof(Affine)); }

void cumsum(const char* op, const View& out, const View& x, const ScanShape& scan, void* workspace,
            cudaStream_t stream) {
  with_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr bool kIsFloat = is_floating(dtype_v<T>);
    using State = std::conditional_t<kIsFloat, double, uint64_t>;
    using Out = std::conditional_t<kIsFloat, T, int64_t>;
    scan_rows(op, scan, PrefixSum<State>(), ConvertedElements<State, Out, T>{out.as<Out>(), x.as<const T>()},
              workspace, stream);
  });
}

void cumprod(const char* op, const View& out, const View& x, const ScanShape& scan, void* workspace,
             cudaStream_t stream) {
  if (x.dtype == DType::kI64)
    return scan_rows(op, scan, Product<uint64_t>(),
                     ConvertedElements<uint64_t, int64_t, int64_t>{out.as<int64_t>(), x.as<const int64_t>()},
                     workspace, stream);
  with_f32_or_f64(x.dtype, [&](auto type) {
    using T = decltype(type);
    scan_rows(op, scan, Product<ScaledDouble>(), ScaledElements<T>{out.as<T>(), x.as<const T>()}, workspace,
              stream);
  });
}

void logcumsumexp(const char* op, const View& out, const View& x, const ScanShape& scan, void* workspace,
                  cudaStream_t stream) {
  with_f32_or_f64(x.dtype, [&](auto type) {
    using T = decltype(type);
    scan_rows(op, scan, LogAddExp(), ConvertedElements<double, T, T>{out.as<T>(), x.as<const T>()}, workspace,
              stream);
  });
}

void running_extremes(const char* op, const View& values, int64_t* indices, const View& x,
                      const ScanShape& scan, bool largest, void* workspace, cudaStream_t stream) {
  with_type(x.dtype == DType::kBool ? DType::kU8 : x.dtype, [&](auto type) {
    using T = decltype(type);
    using V = std::conditional_t<is_floating(dtype_v<T>), double, int64_t>;
    scan_rows(op, scan, LaterExtremum<V>{largest},
              ExtremumElements<T, V>{values.as<T>(), indices, x.as<const T>()}, workspace, stream);
  });
}

void linear_recurrence(const char* op, const View& out, const View& a, const View& b, const ScanShape& scan,
                       void* workspace, cudaStream_t stream) {
  with_f32_or_f64(b.dtype, [&](auto type) {
    using T = decltype(type);
    scan_rows(op, scan, Compose(), AffineElements<T>{out.as<T>(), a.as<const T>(), b.as<const T>()},
              workspace, stream);
  });
}

}  // namespace gradus::cuda
