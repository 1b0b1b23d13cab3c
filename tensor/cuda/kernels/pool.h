// Pooling of dense tensors with channels innermost, as slots of tensor/ops/images/pool.h want it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/kernels/strided_index.h"
#include "gradus/tensor/ops/images/pool_axis.h"

namespace gradus::cuda {

struct Pooling {
  int64_t images, channels;
  PoolAxis<int32_t> d, h, w;
  bool count_include_pad;
  int64_t divisor;  // 0: the number of cells
};

// f64, f32, f16, bf16; index is u8 or i32. index.data may be null in max_pool.
void max_pool(const char* op, const View& y, const View& index, const View& x, const Pooling& p,
              cudaStream_t stream);
void max_pool_scatter(const char* op, const View& dx, const View& dy, const View& index, const Pooling& p,
                      cudaStream_t stream);
// Windows are disjoint.
void max_pool_relu_grad(const char* op, const View& x, const View& dy, const Pooling& p, cudaStream_t stream);

// f64 and f32.
void max_pool_gather(const char* op, const View& y, const View& x, const View& index, const Pooling& p,
                     cudaStream_t stream);
void max_pool_positions(const char* op, int64_t* positions, const View& index, const Pooling& p,
                        cudaStream_t stream);
void avg_pool(const char* op, const View& y, const View& x, const Pooling& p, cudaStream_t stream);
void avg_pool_spread(const char* op, const View& dx, const View& dy, const Pooling& p, cudaStream_t stream);

}  // namespace gradus::cuda
