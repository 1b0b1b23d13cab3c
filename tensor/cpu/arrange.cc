// CPU kernels of tril and triu (row-wise copies on several threads) and of repeat_interleave (a serial loop).
// Tensors are row-major; callers (tensor/ops/arrange.cc) check shapes and dtypes, and skip empty ones.
#include "gradus/tensor/ops/arrange.h"
#include "gradus/tensor/kernel.h"

#include <cstring>

#include "gradus/tensor/ops/value_errors.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

// out[.., r, c] = x[.., r, c] if c - r <= diagonal (`upper`: c - r >= diagonal), else 0. Copies bytes, because 0
// has all bits 0 in every dtype.
void triangle_cpu(const Tensor& out, const Tensor& x, int64_t diagonal, bool upper) {
  const int64_t cols = out.shape().back(), rows = out.shape()[out.dim() - 2];
  const int64_t size = size_of(out.dtype()), bytes = cols * size;
  char* const to = static_cast<char*>(out.raw_ptr());
  const char* const from = static_cast<const char*>(x.raw_ptr());
  parallel_for(0, out.numel() / cols, std::max<int64_t>(1, 65536 / bytes), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      // In bytes: the first column to the right of the diagonal (tril), or on it (triu).
      const int64_t boundary = std::clamp<int64_t>(row % rows + diagonal + (upper ? 0 : 1), 0, cols) * size;
      char* const out_row = to + row * bytes;
      const char* const x_row = from + row * bytes;
      if (upper) {
        std::memset(out_row, 0, boundary);
        std::memcpy(out_row + boundary, x_row + boundary, bytes - boundary);
      } else {
        std::memcpy(out_row, x_row, boundary);
        std::memset(out_row + boundary, 0, bytes - boundary);
      }
    }
  });
}

// out (i64 [sum of counts]) = index i repeated counts[i] (i64) times, for i = 0, 1, ... Throws ValueError for a
// negative count, and if the counts do not add up to the size of out.
void repeat_cpu(const Tensor& out, const Tensor& counts) {
  const int64_t* const count = counts.ptr<int64_t>();
  int64_t total = 0;
  for (int64_t i = 0; i < counts.numel(); ++i) {
    if (count[i] < 0) throw_negative_count(i, count[i]);
    if (__builtin_add_overflow(total, count[i], &total)) throw_overflowing_counts();
  }
  if (total != out.numel()) throw_other_count_sum(total, out.numel());
  int64_t* to = out.ptr<int64_t>();
  for (int64_t i = 0; i < counts.numel(); ++i) to = std::fill_n(to, count[i], i);
}

}  // namespace

constinit decltype(triangle_kernel) triangle_kernel{"tril", &triangle_cpu};
constinit decltype(repeat_kernel) repeat_kernel{"repeat_interleave", &repeat_cpu};

}  // namespace gradus::raw
