#include "gradus/tensor/cuda/kernels/creation.h"

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256;

// Values before `middle` count from the start, others from the end.
struct Line {
  double start, end, step;
  int64_t middle;
};

// out[i] = start + i * step before `middle`, end - (n - 1 - i) * step from there on. A thread has one
// element. The multiply-adds are fused on the CPU too, by its compiler.
__global__ void __launch_bounds__(kThreads) fill_line(void* out, DType dtype, int64_t n, Line line) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const double value = i < line.middle ? m::fma(static_cast<double>(i), line.step, line.start)
                                       : m::fma(-static_cast<double>(n - 1 - i), line.step, line.end);
  store_as(out, dtype, i, value);
}

void run(const char* op, const View& out, int64_t n, const Line& line, cudaStream_t stream) {
  if (n > 0) launch(op, fill_line, {blocks_for(n, kThreads), kThreads}, stream, out.data, out.dtype, n, line);
}

}  // namespace

void arange(const char* op, const View& out, int64_t n, double start, double step, cudaStream_t stream) {
  run(op, out, n, {start, 0, step, n}, stream);
}

void linspace(const char* op, const View& out, int64_t n, double start, double end, cudaStream_t stream) {
  run(op, out, n, {start, end, n > 1 ? (end - start) / static_cast<double>(n - 1) : 0, (n + 1) / 2}, stream);
}

}  // namespace gradus::cuda
