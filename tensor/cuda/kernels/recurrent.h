// Launches of one time step of LSTM and GRU, forward and backward, for the slots of tensor/ops/recurrent.h,
// which has the formulas. T is float or double. Arrays are row-major, in device memory: states [N, H], the
// gates of LSTM [N, 4 H] = i, f, u, o, those of GRU [N, 3 H] = r, z, n. N and H are at least 1. No result
// overlaps an input. `op` is named in a CudaError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gradus::cuda {

// The shape of the states.
struct StateShape {
  int64_t N, H;
};

// h and c_next from gates and c.
template <class T>
void lstm_cell(const char* op, T* h, T* c_next, const T* gates, const T* c, const StateShape& s,
               cudaStream_t stream);
// The gradients dgates and dc for the gradients dh and dc_next.
template <class T>
void lstm_cell_backward(const char* op, T* dgates, T* dc, const T* dh, const T* dc_next, const T* gates,
                        const T* c, const StateShape& s, cudaStream_t stream);
// y, the next state, from the gates of the input (x) and of the state, and from the state h.
template <class T>
void gru_cell(const char* op, T* y, const T* x_gates, const T* h_gates, const T* h, const StateShape& s,
              cudaStream_t stream);
// The gradients for the gradient dy of y; dh is that of h, without the part through h_gates.
template <class T>
void gru_cell_backward(const char* op, T* dx_gates, T* dh_gates, T* dh, const T* dy, const T* x_gates,
                       const T* h_gates, const T* h, const StateShape& s, cudaStream_t stream);

}  // namespace gradus::cuda
