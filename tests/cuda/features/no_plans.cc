// Linked in place of the cuDNN backend (direct_op_table_on_gpu): no convolution and no attention has a plan, so that
// Gradus's own kernels compute those of the op table.
#include "gradus/tensor/cuda/cudnn/attention.h"
#include "gradus/tensor/cuda/cudnn/cudnn.h"

namespace gradus::cuda {

bool convolve(const char*, const Convolution&, cudaStream_t) { return false; }

bool fits_fused_attention(const FusedAttention&) { return false; }
bool has_attention_plan(const char*, const FusedAttention&) { return false; }
void attend(const char*, const FusedAttention&, cudaStream_t) {}

}  // namespace gradus::cuda
