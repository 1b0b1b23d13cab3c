// Attention and its gradients as an operation graph of cuDNN, and the ids of the graph's tensors.
#pragma once

#include <cstdint>

#include "gradus/tensor/cuda/cudnn/attention.h"
#include "gradus/tensor/cuda/cudnn/cudnn_calls.h"

namespace gradus::cuda {

// kScale, kMaskedScore and kOne are f32 numbers of the host. kDyDotY [B,H,L,1] and kDqSum [B,H,L,E] are f32 workspace
// of the backward: the sum of dy y of each query, and dq before it is rounded. Ids from kFirstVirtual on name virtual
// tensors, which an engine never stores.
enum AttentionId : int64_t {
  kAttentionQ = 1,
  kAttentionK,
  kAttentionV,
  kAttentionY,
  kLogsumexp,
  kAttentionDy,
  kAttentionDq,
  kAttentionDk,
  kAttentionDv,
  kDyDotY,
  kDqSum,
  kScale,
  kMaskedScore,
  kOne,
  kFirstVirtual
};

// A null handle: the graph has no device, and its plans are not run.
Descriptor make_attention_graph(const Calls& calls, const FusedAttention& a, cudnnHandle_t handle);

}  // namespace gradus::cuda
