// CUDA kernels of one time step of LSTM and GRU, forward and backward. The formulas are in
// tensor/ops/formulas/recurrent.h. One thread per element of the state, with the gates of this element;
// neighboring threads have neighboring elements.
#include "gradus/tensor/cuda/kernels/recurrent.h"

#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/ops/formulas/recurrent.h"

namespace gradus::cuda {
namespace {

constexpr int kThreads = 256;

// Calls f(e, j, H) for the calling thread's element: e = n * H + h is its offset in the state [N, H], and j =
// n * gates * H + h the offset of its gate 0 in the gates [N, gates * H]; gate k is at offset j + k * H.
template <int gates, class F> __device__ __forceinline__ void with_element(const StateShape& s, F&& f) {
  const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (e < s.N * s.H) f(e, e / s.H * (gates - 1) * s.H + e, s.H);
}

template <class T>
__device__ __forceinline__ formulas::LstmCell<T> load_lstm(const T* gates, const T* c, int64_t e, int64_t j,
                                                           int64_t H) {
  return {gates[j], gates[j + H], gates[j + 2 * H], gates[j + 3 * H], c[e]};
}
template <class T>
__device__ __forceinline__ formulas::GruCell<T> load_gru(const T* x_gates, const T* h_gates, const T* h,
                                                         int64_t e, int64_t j, int64_t H) {
  return {x_gates[j], x_gates[j + H], x_gates[j + 2 * H], h_gates[j], h_gates[j + H], h_gates[j + 2 * H],
          h[e]};
}

// h, c_next [N, H] = LstmCell::forward() of gates [N, 4 H] and c [N, H].
template <class T>
__global__ void __launch_bounds__(kThreads)
    lstm_forward(T* h, T* c_next, const T* gates, const T* c, StateShape s) {
  with_element<4>(s, [&](int64_t e, int64_t j, int64_t H) {
    const auto out = load_lstm(gates, c, e, j, H).forward();
    h[e] = out.h;
    c_next[e] = out.c;
  });
}

// dgates [N, 4 H], dc [N, H] = LstmCell::backward() of dh and dc_next [N, H].
template <class T>
__global__ void __launch_bounds__(kThreads)
    lstm_backward(T* dgates, T* dc, const T* dh, const T* dc_next, const T* gates, const T* c, StateShape s) {
  with_element<4>(s, [&](int64_t e, int64_t j, int64_t H) {
    const auto d = load_lstm(gates, c, e, j, H).backward(dh[e], dc_next[e]);
    dgates[j] = d.i;
    dgates[j + H] = d.f;
    dgates[j + 2 * H] = d.u;
    dgates[j + 3 * H] = d.o;
    dc[e] = d.c;
  });
}

// y [N, H] = GruCell::forward() of x_gates, h_gates [N, 3 H] and h [N, H].
template <class T>
__global__ void __launch_bounds__(kThreads)
    gru_forward(T* y, const T* x_gates, const T* h_gates, const T* h, StateShape s) {
  with_element<3>(
      s, [&](int64_t e, int64_t j, int64_t H) { y[e] = load_gru(x_gates, h_gates, h, e, j, H).forward(); });
}

// dx_gates, dh_gates [N, 3 H], dh [N, H] = GruCell::backward() of dy [N, H].
template <class T>
__global__ void __launch_bounds__(kThreads)
    gru_backward(T* dx_gates, T* dh_gates, T* dh, const T* dy, const T* x_gates, const T* h_gates, const T* h,
                 StateShape s) {
  with_element<3>(s, [&](int64_t e, int64_t j, int64_t H) {
    const auto d = load_gru(x_gates, h_gates, h, e, j, H).backward(dy[e]);
    dx_gates[j] = d.xr;
    dx_gates[j + H] = d.xz;
    dx_gates[j + 2 * H] = d.xn;
    dh_gates[j] = d.sr;
    dh_gates[j + H] = d.sz;
    dh_gates[j + 2 * H] = d.sn;
    dh[e] = d.h;
  });
}

Grid grid_of(const StateShape& s) { return {blocks_for(s.N * s.H, kThreads), kThreads}; }

}  // namespace

template <class T>
void lstm_cell(const char* op, T* h, T* c_next, const T* gates, const T* c, const StateShape& s,
               cudaStream_t stream) {
  launch(op, lstm_forward<T>, grid_of(s), stream, h, c_next, gates, c, s);
}
template <class T>
void lstm_cell_backward(const char* op, T* dgates, T* dc, const T* dh, const T* dc_next, const T* gates,
                        const T* c, const StateShape& s, cudaStream_t stream) {
  launch(op, lstm_backward<T>, grid_of(s), stream, dgates, dc, dh, dc_next, gates, c, s);
}
template <class T>
void gru_cell(const char* op, T* y, const T* x_gates, const T* h_gates, const T* h, const StateShape& s,
              cudaStream_t stream) {
  launch(op, gru_forward<T>, grid_of(s), stream, y, x_gates, h_gates, h, s);
}
template <class T>
void gru_cell_backward(const char* op, T* dx_gates, T* dh_gates, T* dh, const T* dy, const T* x_gates,
                       const T* h_gates, const T* h, const StateShape& s, cudaStream_t stream) {
  launch(op, gru_backward<T>, grid_of(s), stream, dx_gates, dh_gates, dh, dy, x_gates, h_gates, h, s);
}

#define GRADUS_INSTANTIATE(T)                                                                             \
  template void lstm_cell(const char*, T*, T*, const T*, const T*, const StateShape&, cudaStream_t);      \
  template void lstm_cell_backward(const char*, T*, T*, const T*, const T*, const T*, const T*,           \
                                   const StateShape&, cudaStream_t);                                      \
  template void gru_cell(const char*, T*, const T*, const T*, const T*, const StateShape&, cudaStream_t); \
  template void gru_cell_backward(const char*, T*, T*, T*, const T*, const T*, const T*, const T*,        \
                                  const StateShape&, cudaStream_t);
GRADUS_INSTANTIATE(float)
GRADUS_INSTANTIATE(double)
#undef GRADUS_INSTANTIATE

}  // namespace gradus::cuda
