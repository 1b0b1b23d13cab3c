// Launches of pooling and its gradients, for the slots of tensor/ops/images/pool.h. x and dx are dense
// [images, d.in, h.in, w.in, channels]; y, dy and index [images, d.out, h.out, w.out, channels]. An index is
// the row-major number of a cell within its window. Views are device memory; `op` is named in errors.
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
  int64_t divisor;  // of averages; 0: the number of cells, with those in the padding if count_include_pad
};

// y = maximum of each window, index = its first cell with the maximum; not written if index.data is null.
// Types of x here and below: f64, f32, f16, bf16; of index: i32, or u8 up to 256 cells.
void max_pool(const char* op, const View& y, const View& index, const View& x, const Pooling& p,
              cudaStream_t stream);
// Gradient of max_pool: dx = sum of dy over the windows whose index is this element.
void max_pool_scatter(const char* op, const View& dx, const View& dy, const View& index, const Pooling& p,
                      cudaStream_t stream);
// For disjoint windows and x = relu(h): overwrites x with the gradient of max_pool(relu(h)) for h.
void max_pool_relu_grad(const char* op, const View& x, const View& dy, const Pooling& p, cudaStream_t stream);
// y = x at the indices.
void max_pool_gather(const char* op, const View& y, const View& x, const View& index, const Pooling& p,
                     cudaStream_t stream);
// positions = index as row-major positions in [d.in, h.in, w.in].
void max_pool_positions(const char* op, int64_t* positions, const View& index, const Pooling& p,
                        cudaStream_t stream);
// y = sum of each window / divisor; its gradient: dx = sum of dy / divisor over windows with this element.
void avg_pool(const char* op, const View& y, const View& x, const Pooling& p, cudaStream_t stream);
void avg_pool_spread(const char* op, const View& dx, const View& dy, const Pooling& p, cudaStream_t stream);

}  // namespace gradus::cuda
