// CPU kernels of one time step of LSTM and GRU, forward and backward. The gates of a sample are adjacent:
// [N, 4 * H] = i, f, g, o (LSTM) or [N, 3 * H] = r, z, n (GRU), as in PyTorch's torch.nn.LSTMCell and GRUCell.
// States are [N, H]. tensor/ops/recurrent.cc passes row-major f32 or f64 tensors, none undefined or empty,
// and results that alias no input.
#include "gradus/tensor/ops/recurrent.h"
#include "gradus/tensor/kernel.h"

#include "gradus/tensor/ops/formulas/recurrent.h"
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

// `next` is c', `g` the gates.
template <class T>
void lstm_row(T* __restrict h, T* __restrict next, const T* __restrict g, const T* __restrict c, int64_t H) {
  for (int64_t j = 0; j < H; ++j) {
    const auto out = formulas::LstmCell<T>{g[j], g[H + j], g[2 * H + j], g[3 * H + j], c[j]}.forward();
    next[j] = out.c;
    h[j] = out.h;
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
    const auto d =
        formulas::LstmCell<T>{g[j], g[H + j], g[2 * H + j], g[3 * H + j], c[j]}.backward(dh[j], dnext[j]);
    dg[j] = d.i;
    dg[H + j] = d.f;
    dg[2 * H + j] = d.u;
    dg[3 * H + j] = d.o;
    dc[j] = d.c;
  }
}

void lstm_cell_backward_cpu(const Tensor& dgates, const Tensor& dc, const Tensor& dh, const Tensor& dnext,
                            const Tensor& gates, const Tensor& c) {
  for_rows("lstm_cell_backward", c, [&]<class T>(int64_t n, int64_t H) {
    lstm_backward_row(dgates.ptr<T>() + n * 4 * H, dc.ptr<T>() + n * H, dh.ptr<T>() + n * H,
                      dnext.ptr<T>() + n * H, gates.ptr<T>() + n * 4 * H, c.ptr<T>() + n * H, H);
  });
}

// Returns element j of the operands of a row: x are the gates of the input, s those of the state.
template <class T>
GRADUS_HD formulas::GruCell<T> gru_cell_at(int64_t j, const T* x, const T* s, const T* h, int64_t H) {
  return {x[j], x[H + j], x[2 * H + j], s[j], s[H + j], s[2 * H + j], h[j]};
}

template <class T>
void gru_row(T* __restrict y, const T* __restrict x, const T* __restrict s, const T* __restrict h,
             int64_t H) {
  for (int64_t j = 0; j < H; ++j) y[j] = gru_cell_at(j, x, s, h, H).forward();
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
    const formulas::GruCell<T> d = gru_cell_at(j, x, s, h, H).backward(dy[j]);
    dx[j] = d.xr;
    dx[H + j] = d.xz;
    dx[2 * H + j] = d.xn;
    ds[j] = d.sr;
    ds[H + j] = d.sz;
    ds[2 * H + j] = d.sn;
    dh[j] = d.h;
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
