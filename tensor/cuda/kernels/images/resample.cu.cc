// CUDA kernel of separable resampling on channels-last tensors. All axes are resampled in one launch: each element of y
// is one sum over all combinations of the entries of its three matrix rows, in a fixed order. The gradient is the
// resampling by the transposed matrices, so there are no atomics.
#include "gradus/tensor/cuda/kernels/images/resample.h"

#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/vector_io.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256;

// The entries of row i of an axis' matrix.
struct Taps {
  const ResampledAxis& axis;
  int64_t first, last;  // of the identity: i, i + 1

  __device__ __forceinline__ Taps(const ResampledAxis& a, int64_t i)
      : axis(a), first(a.start ? a.start[i] : i), last(a.start ? a.start[i + 1] : i + 1) {}
  __device__ __forceinline__ int64_t from(int64_t k) const { return axis.start ? axis.from[k] : k; }
  __device__ __forceinline__ double weight(int64_t k) const { return axis.start ? axis.weight[k] : 1; }
};

// y[n, p, q, r, c] = sum_k w_r[k] sum_i sum_j w_p[i] w_q[j] x[n, from_p[i], from_q[j], from_r[k], c]. A thread has
// `vector` neighboring channels of one position of y. Three blocks fit on a multiprocessor with 80 registers per thread.
template <class T, int vector>
__global__ void __launch_bounds__(kThreads, 3) resample_position(T* y, const T* x, ResampledImages s) {
  const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x, vectors = s.channels / vector;
  const int64_t position = item / vectors, row = position / s.w.out, slice = row / s.h.out,
                image = slice / s.d.out;
  if (image >= s.images) return;
  const T* const from = x + item % vectors * vector;
  const Taps along_d(s.d, slice % s.d.out), along_h(s.h, row % s.h.out), along_w(s.w, position % s.w.out);
  Vector<T, vector> sum{};
#pragma unroll 1
  for (int64_t k = along_w.first; k < along_w.last; ++k) {
    const T w_weight = static_cast<T>(along_w.weight(k));
    Vector<T, vector> column{};
#pragma unroll 1
    for (int64_t i = along_d.first; i < along_d.last; ++i) {
      const int64_t d = image * s.d.in + along_d.from(i);
      for (int64_t j = along_h.first; j < along_h.last; ++j) {
        const T weight = static_cast<T>(along_d.weight(i) * along_h.weight(j));
        const auto v =
            load<vector>(from + ((d * s.h.in + along_h.from(j)) * s.w.in + along_w.from(k)) * s.channels);
#pragma unroll
        for (int c = 0; c < vector; ++c) column.v[c] += weight * v.v[c];
      }
    }
#pragma unroll
    for (int c = 0; c < vector; ++c) sum.v[c] += w_weight * column.v[c];
  }
  store(y + item * vector, sum);
}

}  // namespace

template <class T>
void resample(const char* op, T* y, const T* x, const ResampledImages& s, cudaStream_t stream) {
  const int64_t elements = s.images * s.d.out * s.h.out * s.w.out * s.channels;
  const auto run = [&]<int vector>() {
    launch(op, resample_position<T, vector>, {blocks_for(elements / vector, kThreads), kThreads}, stream, y,
           x, s);
  };
  if (s.channels % kVectorSize<T> == 0 && is_aligned(y, 16) && is_aligned(x, 16))
    return run.template operator()<kVectorSize<T>>();
  run.template operator()<1>();
}

template void resample(const char*, float*, const float*, const ResampledImages&, cudaStream_t);
template void resample(const char*, double*, const double*, const ResampledImages&, cudaStream_t);

}  // namespace gradus::cuda
