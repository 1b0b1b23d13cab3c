// A convolution as a graph of cuDNN's.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>

#include "gradus/tensor/cuda/cudnn/cudnn.h"
#include "gradus/tensor/cuda/cudnn/cudnn_calls.h"

namespace gradus::cuda {

// Tensors of a graph by their numbers.
enum Id : int64_t { kX = 1, kW, kY, kBias, kSum, kBiased };

// Of the address, in bytes: the library asks no more than 16.
int64_t alignment(const Tensor& t);

// A plan of the graph is for the handle's device. The handle may be null.
Descriptor make_graph(const Calls& calls, const Convolution& c, cudnnHandle_t handle);

}  // namespace gradus::cuda
