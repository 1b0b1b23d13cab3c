// The CUDA kernels of LSTM and GRU cells and of their gradients, for the slots of tensor/ops/recurrent.h,
// which has the formulas: pass pointers and sizes to the launches in kernels/recurrent.h on the current
// stream of the tensors' device. Callers made tensors row-major, of f32 or f64, none empty.
#include "gradus/tensor/ops/recurrent.h"

#include "gradus/tensor/cuda/kernels/recurrent.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

StateShape shape_of(const Tensor& state) { return {state.size(0), state.size(1)}; }

void lstm_cell_cuda(const Tensor& h, const Tensor& c_next, const Tensor& gates, const Tensor& c) {
  const cudaStream_t stream = stream_for({&h, &c_next, &gates, &c});
  dispatch_floating(c.dtype(), "lstm_cell", [&]<class T>() {
    lstm_cell("lstm_cell", h.ptr<T>(), c_next.ptr<T>(), gates.ptr<T>(), c.ptr<T>(), shape_of(c), stream);
  });
}

void lstm_cell_backward_cuda(const Tensor& dgates, const Tensor& dc, const Tensor& dh, const Tensor& dc_next,
                             const Tensor& gates, const Tensor& c) {
  const cudaStream_t stream = stream_for({&dgates, &dc, &dh, &dc_next, &gates, &c});
  dispatch_floating(c.dtype(), "lstm_cell_backward", [&]<class T>() {
    lstm_cell_backward("lstm_cell_backward", dgates.ptr<T>(), dc.ptr<T>(), dh.ptr<T>(), dc_next.ptr<T>(),
                       gates.ptr<T>(), c.ptr<T>(), shape_of(c), stream);
  });
}

void gru_cell_cuda(const Tensor& y, const Tensor& x_gates, const Tensor& h_gates, const Tensor& h) {
  const cudaStream_t stream = stream_for({&y, &x_gates, &h_gates, &h});
  dispatch_floating(h.dtype(), "gru_cell", [&]<class T>() {
    gru_cell("gru_cell", y.ptr<T>(), x_gates.ptr<T>(), h_gates.ptr<T>(), h.ptr<T>(), shape_of(h), stream);
  });
}

void gru_cell_backward_cuda(const Tensor& dx_gates, const Tensor& dh_gates, const Tensor& dh,
                            const Tensor& dy, const Tensor& x_gates, const Tensor& h_gates, const Tensor& h) {
  const cudaStream_t stream = stream_for({&dx_gates, &dh_gates, &dh, &dy, &x_gates, &h_gates, &h});
  dispatch_floating(h.dtype(), "gru_cell_backward", [&]<class T>() {
    gru_cell_backward("gru_cell_backward", dx_gates.ptr<T>(), dh_gates.ptr<T>(), dh.ptr<T>(), dy.ptr<T>(),
                      x_gates.ptr<T>(), h_gates.ptr<T>(), h.ptr<T>(), shape_of(h), stream);
  });
}

[[maybe_unused]] const bool is_set = (raw::lstm_cell_kernel.cuda = &lstm_cell_cuda,
                                      raw::lstm_cell_backward_kernel.cuda = &lstm_cell_backward_cuda,
                                      raw::gru_cell_kernel.cuda = &gru_cell_cuda,
                                      raw::gru_cell_backward_kernel.cuda = &gru_cell_backward_cuda, true);

}  // namespace
}  // namespace gradus::cuda
