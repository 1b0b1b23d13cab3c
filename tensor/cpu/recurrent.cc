// CPU kernels of one time step of LSTM and GRU, forward and backward. The gates of a sample are adjacent:
// [N, 4 * H] = i, f, g, o (LSTM) or [N, 3 * H] = r, z, n (GRU), as in PyTorch's torch.nn.LSTMCell and GRUCell.
// States are [N, H]. tensor/ops/recurrent.cc passes row-major f32 or f64 tensors, none undefined or empty,
// and results that alias no input.
#include "gradus/tensor/ops/recurrent.h"
#include "gradus/tensor/kernel.h"

#include "gradus/tensor/ops/scalar_math.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

constexpr int64_t kGrain = 4096;  // minimum number of state elements per thread

// Calls f.operator()<T>(n, H) for each row n of the state [N,H].
template <class F> void for_rows(const char* op, const Tensor& state, F f) {
  dispatch_floating(state.dtype(), op, [&]<class T>() {
    const int64_t H = state.size(1);
    parallel_for(0, state.size(0), 1 + kGrain / H, [&](int64_t first, int64_t end) {
      for (int64_t n = first; n < end; ++n) f.template operator()<T>(n, H);
    });
  });
}

// c' = sigmoid(f) * c + sigmoid(i) * tanh(g), h = sigmoid(o) * tanh(c'). `next` is c', `g` the gates.
template <class T>
void lstm_row(T* __restrict h, T* __restrict next, const T* __restrict g, const T* __restrict c, int64_t H) {
  for (int64_t j = 0; j < H; ++j) {
    const T cell = m::sigmoid(g[H + j]) * c[j] + m::sigmoid(g[j]) * m::tanh(g[2 * H + j]);
    next[j] = cell;
    h[j] = m::sigmoid(g[3 * H + j]) * m::tanh(cell);
  }
}

void lstm_cell_cpu(const Tensor& h, const Tensor& next, const Tensor& gates, const Tensor& c) {
  for_rows("lstm_cell", c, [&]<class T>(int64_t n, int64_t H) {
    lstm_row(h.ptr<T>() + n * H, next.ptr<T>() + n * H, gates.ptr<T>() + n * 4 * H, c.ptr<T>() + n * H, H);
  });
}

// Gradients of lstm_row: dh and dnext are the gradients of h and c', dg and dc those of the gates and of c.
template <class T>
void lstm_backward_row(T* __restrict dg, T* __restrict dc, const T* __restrict dh, const T* __restrict dnext,
                       const T* __restrict g, const T* __restrict c, int64_t H) {
  for (int64_t j = 0; j < H; ++j) {
    const T i = m::sigmoid(g[j]), f = m::sigmoid(g[H + j]), u = m::tanh(g[2 * H + j]),
            o = m::sigmoid(g[3 * H + j]);
    const T t = m::tanh(f * c[j] + i * u);
    const T d = dnext[j] + dh[j] * o * (T(1) - t * t);
    dg[j] = d * u * i * (T(1) - i);
    dg[H + j] = d * c[j] * f * (T(1) - f);
    dg[2 * H + j] = d * i * (T(1) - u * u);
    dg[3 * H + j] = dh[j] * t * o * (T(1) - o);
    dc[j] = d * f;
  }
}

void lstm_cell_backward_cpu(const Tensor& dgates, const Tensor& dc, const Tensor& dh, const Tensor& dnext,
                            const Tensor& gates, const Tensor& c) {
  for_rows("lstm_cell_backward", c, [&]<class T>(int64_t n, int64_t H) {
    lstm_backward_row(dgates.ptr<T>() + n * 4 * H, dc.ptr<T>() + n * H, dh.ptr<T>() + n * H,
                      dnext.ptr<T>() + n * H, gates.ptr<T>() + n * 4 * H, c.ptr<T>() + n * H, H);
  });
}

// h' = (1 - z) * n + z * h with r = sigmoid(x_r + s_r), z = sigmoid(x_z + s_z), n = tanh(x_n + r * s_n). x are the
// gates from the input, s those from the state.
template <class T>
void gru_row(T* __restrict y, const T* __restrict x, const T* __restrict s, const T* __restrict h,
             int64_t H) {
  for (int64_t j = 0; j < H; ++j) {
    const T r = m::sigmoid(x[j] + s[j]), z = m::sigmoid(x[H + j] + s[H + j]),
            n = m::tanh(x[2 * H + j] + r * s[2 * H + j]);
    y[j] = n + z * (h[j] - n);
  }
}

void gru_cell_cpu(const Tensor& y, const Tensor& x_gates, const Tensor& h_gates, const Tensor& h) {
  for_rows("gru_cell", h, [&]<class T>(int64_t n, int64_t H) {
    gru_row(y.ptr<T>() + n * H, x_gates.ptr<T>() + n * 3 * H, h_gates.ptr<T>() + n * 3 * H,
            h.ptr<T>() + n * H, H);
  });
}

// Gradients of gru_row from dy, the gradient of h': dx and ds of the gates, dh of h without its part through s.
template <class T>
void gru_backward_row(T* __restrict dx, T* __restrict ds, T* __restrict dh, const T* __restrict dy,
                      const T* __restrict x, const T* __restrict s, const T* __restrict h, int64_t H) {
  for (int64_t j = 0; j < H; ++j) {
    const T r = m::sigmoid(x[j] + s[j]), z = m::sigmoid(x[H + j] + s[H + j]),
            n = m::tanh(x[2 * H + j] + r * s[2 * H + j]);
    const T dn = dy[j] * (T(1) - z) * (T(1) - n * n), dz = dy[j] * (h[j] - n) * z * (T(1) - z),
            dr = dn * s[2 * H + j] * r * (T(1) - r);
    dx[j] = ds[j] = dr;
    dx[H + j] = ds[H + j] = dz;
    dx[2 * H + j] = dn;
    ds[2 * H + j] = dn * r;
    dh[j] = dy[j] * z;
  }
}

void gru_cell_backward_cpu(const Tensor& dx, const Tensor& ds, const Tensor& dh, const Tensor& dy,
                           const Tensor& x_gates, const Tensor& h_gates, const Tensor& h) {
  for_rows("gru_cell_backward", h, [&]<class T>(int64_t n, int64_t H) {
    gru_backward_row(dx.ptr<T>() + n * 3 * H, ds.ptr<T>() + n * 3 * H, dh.ptr<T>() + n * H,
                     dy.ptr<T>() + n * H, x_gates.ptr<T>() + n * 3 * H, h_gates.ptr<T>() + n * 3 * H,
                     h.ptr<T>() + n * H, H);
  });
}

}  // namespace

constinit decltype(lstm_cell_kernel) lstm_cell_kernel{"lstm_cell", &lstm_cell_cpu};
constinit decltype(lstm_cell_backward_kernel) lstm_cell_backward_kernel{"lstm_cell_backward",
                                                                        &lstm_cell_backward_cpu};
constinit decltype(gru_cell_kernel) gru_cell_kernel{"gru_cell", &gru_cell_cpu};
constinit decltype(gru_cell_backward_kernel) gru_cell_backward_kernel{"gru_cell_backward",
                                                                      &gru_cell_backward_cpu};

}  // namespace gradus::raw
