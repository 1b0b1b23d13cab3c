// CPU kernels of tril, triu and repeat_interleave.
#include "gradus/tensor/ops/arrange.h"
#include "gradus/tensor/kernel.h"

#include <cstring>

#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

// out[.., r, c] = x[.., r, c] on the kept side of the diagonal c - r = `diagonal`, else 0. Works on bytes: 0 has
// all bits 0 in every dtype.
void triangle_cpu(const Tensor& out, const Tensor& x, int64_t diagonal, bool upper) {
  const int64_t cols = out.shape().back(), rows = out.shape()[out.dim() - 2];
  const int64_t size = size_of(out.dtype()), bytes = cols * size;
  char* const to = static_cast<char*>(out.raw_ptr());
  const char* const from = static_cast<const char*>(x.raw_ptr());
  parallel_for(0, out.numel() / cols, std::max<int64_t>(1, 65536 / bytes), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      // The first column to the right of the diagonal (tril), or on it (triu).
      const int64_t boundary = std::clamp<int64_t>(row % rows + diagonal + (upper ? 0 : 1), 0, cols) * size;
      char* const t = to + row * bytes;
      const char* const f = from + row * bytes;
      if (upper) {
        std::memset(t, 0, boundary);
        std::memcpy(t + boundary, f + boundary, bytes - boundary);
      } else {
        std::memcpy(t, f, boundary);
        std::memset(t + boundary, 0, bytes - boundary);
      }
    }
  });
}

// out = index i repeated counts[i] times, for i = 0, 1, ...
void repeat_cpu(const Tensor& out, const Tensor& counts) {
  const int64_t* const count = counts.ptr<int64_t>();
  int64_t total = 0;
  for (int64_t i = 0; i < counts.numel(); ++i) {
    if (count[i] < 0) throw ValueError("repeat_interleave", "count ", i, " is negative: ", count[i]);
    if (__builtin_add_overflow(total, count[i], &total))
      throw ValueError("repeat_interleave", "the counts add up to more than 64 bits hold");
  }
  if (total != out.numel())
    throw ValueError("repeat_interleave", "counts add up to ", total, ", not to the given size ",
                     out.numel());
  int64_t* to = out.ptr<int64_t>();
  for (int64_t i = 0; i < counts.numel(); ++i) to = std::fill_n(to, count[i], i);
}

}  // namespace

constinit decltype(triangle_kernel) triangle_kernel{"tril", &triangle_cpu};
constinit decltype(repeat_kernel) repeat_kernel{"repeat_interleave", &repeat_cpu};

}  // namespace gradus::raw
