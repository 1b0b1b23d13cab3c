// Modified Gram-Schmidt, serial and in f64, and a product of a transposed [r, n] and a [r, m] matrix. The
// product is parallel over rows of the result. Each of its elements is a sum over r in ascending order by one
// thread, so no result depends on the number of threads.
#include "gradus/distributed/data_parallel/internal/low_rank.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gradus/tensor/runtime/parallel.h"

namespace gradus::dist::internal {
namespace {

// Dot product in f64 in a fixed order: eight interleaved partial sums, which the compiler vectorizes.
template <class A, class B> double dot(const A* a, const B* b, int64_t n) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int j = 0; j < 8; ++j) sums[j] += double(a[i + j]) * double(b[i + j]);
  for (; i < n; ++i) sums[0] += double(a[i]) * double(b[i]);
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

// x is [r, n], a and b below [r, n] and [r, m], out [n, m]: row-major, on the host, f32 or f64, not checked.
template <class T> void orthonormalize(T* x, int64_t r, int64_t n, double epsilon) {
  // With epsilon, a second pass would divide unit rows by 1 + epsilon.
  const int passes = epsilon == 0 ? 2 : 1;
  std::vector<double> row(n);
  for (int64_t i = 0; i < r; ++i) {
    std::copy_n(x + i * n, n, row.begin());
    for (int pass = 0; pass < passes; ++pass) {
      for (int64_t j = 0; j < i; ++j) {
        const T* const previous = x + j * n;
        const double projection = dot(row.data(), previous, n);
        for (int64_t k = 0; k < n; ++k) row[k] -= projection * double(previous[k]);
      }
      const double norm = std::sqrt(dot(row.data(), row.data(), n)) + epsilon;
      if (norm == 0) break;
      for (double& v : row) v /= norm;
    }
    for (int64_t k = 0; k < n; ++k) x[i * n + k] = T(row[k]);
  }
}

template <class T>
void add_product(T* out, const T* a, const T* b, int64_t r, int64_t n, int64_t m, T scale) {
  parallel_for(0, n, std::max<int64_t>(1, 32768 / std::max<int64_t>(1, r * m)),
               [=](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i)
                   for (int64_t k = 0; k < r; ++k) {
                     const T factor = scale * a[k * n + i];
                     T* const out_row = out + i * m;
                     const T* const b_row = b + k * m;
                     for (int64_t j = 0; j < m; ++j) out_row[j] += factor * b_row[j];
                   }
               });
}

}  // namespace

void orthonormalize(const Tensor& x, double epsilon) {
  if (x.dtype() == DType::kF64)
    orthonormalize(x.ptr<double>(), x.size(0), x.size(1), epsilon);
  else
    orthonormalize(x.ptr<float>(), x.size(0), x.size(1), epsilon);
  x.storage()->bump_version();
}

void add_product(const Tensor& out, const Tensor& a, const Tensor& b, double scale) {
  const int64_t r = a.size(0), n = a.size(1), m = b.size(1);
  if (out.dtype() == DType::kF64)
    add_product(out.ptr<double>(), a.ptr<double>(), b.ptr<double>(), r, n, m, scale);
  else
    add_product(out.ptr<float>(), a.ptr<float>(), b.ptr<float>(), r, n, m, float(scale));
  out.storage()->bump_version();
}

}  // namespace gradus::dist::internal
