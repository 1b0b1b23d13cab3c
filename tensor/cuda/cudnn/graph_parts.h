// Parts of cuDNN's operation graphs, for convolutions and for attention.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/tensor/cuda/cudnn/cudnn_calls.h"

namespace gradus::cuda {

cudnnDataType_t data_type(DType dtype);

// Where a graph's tensor is: in device memory, inside the engine alone, or a number that the host gives.
enum class GraphPlace : uint8_t { kMemory, kVirtual, kByValue };

// A tensor of a graph, for its descriptor. Its address is given when a plan is executed.
struct GraphTensor {
  int64_t id;  // unique in the graph
  cudnnDataType_t type;
  Shape sizes;
  Strides strides;         // in elements
  int64_t alignment = 16;  // of the address, in bytes
  GraphPlace place = GraphPlace::kMemory;
};
Descriptor make_tensor(const Calls& calls, const GraphTensor& t);

// Returns the graph of these operations, which keeps its parts: their descriptors may be destroyed. A null handle: the
// graph has no device, and its plans are not run.
Descriptor make_operation_graph(const Calls& calls, const std::vector<Descriptor>& operations,
                                cudnnHandle_t handle);

// Returns the engine configurations that cuDNN recommends for a graph in this mode, the best first; empty if the mode
// has none. `properties` describes the device of a graph without a handle, and is null with one.
std::vector<Descriptor> recommended_configurations(const Calls& calls, const Descriptor& graph,
                                                   cudnnBackendHeurMode_t mode,
                                                   cudnnBackendDescriptor_t properties);
Descriptor engine_of(const Calls& calls, const Descriptor& configuration);

// Returns the plan of a configuration for the handle's device, or for that of `properties` without a handle. None if
// cuDNN cannot make one.
Descriptor plan_of_configuration(const Calls& calls, const Descriptor& configuration, cudnnHandle_t handle,
                                 cudnnBackendDescriptor_t properties);

}  // namespace gradus::cuda
