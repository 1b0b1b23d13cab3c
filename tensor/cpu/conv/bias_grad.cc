// Column sums of the [pixels, O] matrix dy, with per-part partial sums in f64.
#include "gradus/tensor/cpu/conv/bias_grad.h"

#include <algorithm>
#include <vector>

#include "gradus/tensor/cpu/convert.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus {
namespace {

constexpr int64_t kRows = 64;         // pixels that are summed in f32
constexpr int64_t kPart = 64 * 1024;  // approximate elements per partial sum

template <class T> void sum_pixels(const Tensor& db, const Tensor& dy) {
  const int64_t O = dy.size(1), pixels = dy.numel() / O;
  const int64_t part = std::max<int64_t>(1, kPart / (kRows * O)) * kRows, parts = (pixels + part - 1) / part;
  const Tensor sums = empty({parts, O}, {DType::kF64});
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    std::vector<float> rows(static_cast<size_t>(O));
    for (int64_t i = first; i < last; ++i) {
      double* __restrict sum = sums.ptr<double>() + i * O;
      std::fill(sum, sum + O, 0.0);
      const int64_t end = std::min(pixels, (i + 1) * part);
      for (int64_t p = i * part; p < end;) {
        float* __restrict partial = rows.data();
        std::fill(partial, partial + O, 0.0f);
        for (const int64_t block = std::min(end, p + kRows); p < block; ++p) {
          const T* __restrict row = dy.ptr<T>() + p * O;
          for (int64_t o = 0; o < O; ++o) partial[o] += float(row[o]);
        }
        for (int64_t o = 0; o < O; ++o) sum[o] += partial[o];
      }
    }
  });
  double* total = sums.ptr<double>();
  for (int64_t i = 1; i < parts; ++i)
    for (int64_t o = 0; o < O; ++o) total[o] += total[i * O + o];
  cpu::converter(db.dtype(), DType::kF64)(O, db.raw_ptr(), 1, total, 1);
}

}  // namespace

void bias_grad(const Tensor& db, const Tensor& dy) {
  dy.dtype() == DType::kBF16 ? sum_pixels<bf16>(db, dy) : sum_pixels<float>(db, dy);
}

}  // namespace gradus
