// Scaled dot-product attention without mask and dropout, and its gradients, by cuDNN's fused kernels for 16-bit floats:
//   w = softmax(scale q k^T), 0 for key s of query l if s > l and `causal`,  y = w v
#pragma once

#include <cuda_runtime_api.h>

#include <cudnn_graph.h>

#include <cstdint>

#include "gradus/tensor/cuda/cudnn/cudnn.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cuda {

// The forward computes y and logsumexp from q, k and v. The backward computes dq, dk and dv from these, y, logsumexp
// and dy. Tensors are 16-bit floats of one dtype but for logsumexp, on one GPU, aligned to 16 bytes; elements of the
// last dim are adjacent.
struct FusedAttention {
  bool is_backward = false, causal = false;
  double scale = 1;
  Tensor q, k, v, y;      // [B,H,L,E], [B,H,S,E], [B,H,S,V], [B,H,L,V]
  Tensor logsumexp;       // [B,H,L,1], f32, row-major: log of the sum of exp(scores) of each query
  Tensor dy, dq, dk, dv;  // those of y, q, k and v; undefined in the forward
};

// Whether cuDNN is asked: E and V are multiples of 8, at most 128; L is at least 64, S a multiple of 128; strides are
// multiples of 8 elements, and no dim broadcasts; B and H are at most 65535; scale is above 0. In other shapes
// backwards of Hopper GPUs gave NaN, where the last tile of keys is not full (cudnn-frontend's pull request 628), and
// plans for large batches failed when they ran (PyTorch's pull request 180718).
bool fits_fused_attention(const FusedAttention& a);

// Returns whether there is cuDNN 9.16 or newer, and has a plan; logsumexp may be undefined. The first question about a
// shape compiles a kernel, which takes up to seconds; the device keeps 256 plans. The tensors' device must be the
// calling thread's CUDA device. Thread-safe.
// Errors: CudnnError.
bool has_attention_plan(const char* op, const FusedAttention& a);

// Queues the attention on `stream`, the current stream of the tensors' device. Requires a plan. The sums of a backward
// may be added in another order in each run. Thread-safe.
// Errors: CudnnError; StateError if cuDNN has no plan.
void attend(const char* op, const FusedAttention& a, cudaStream_t stream);

// Returns how many engines cuDNN recommends on the device that the descriptor `properties` describes. Needs no GPU,
// but a libcuda.so.1; the toolkit's stub suffices.
int64_t count_attention_engines(const char* op, const Cudnn& library, const FusedAttention& a,
                                cudnnBackendDescriptor_t properties);

}  // namespace gradus::cuda
