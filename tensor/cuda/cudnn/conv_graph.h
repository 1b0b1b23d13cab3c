// A convolution as an operation graph of cuDNN, and the ids of the graph's tensors.
#pragma once

#include <cstdint>

#include "gradus/tensor/cuda/cudnn/cudnn_calls.h"

namespace gradus::cuda {

inline NamedTensors named(const Convolution& c) { return {{{"x", &c.x}, {"weight", &c.w}, {"y", &c.y}}}; }

// The unique ids of the graph's tensors. kSum (x convolved with w) and kBiased (kSum plus bias, before the
// ReLU) are virtual: they are never stored in memory.
enum Id : int64_t { kX = 1, kW, kY, kBias, kSum, kBiased };

// Returns the alignment of the tensor's address in bytes, at most 16: the library requires no more.
int64_t alignment(const Tensor& t);

// Returns the operation graph of a convolution (or its gradient, Convolution::pass), for plans on the
// handle's device. A null handle: the graph has no device, and its plans are not run.
Descriptor make_graph(const Calls& calls, const Convolution& c, cudnnHandle_t handle);

}  // namespace gradus::cuda
