#include "gradus/tensor/cuda/cudnn/graph_parts.h"

#include <utility>

// The attributes that bind a graph or plan to a handle are deprecated, but tools/gpu_lab/records has them.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace gradus::cuda {

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CUDNN_DATA_DOUBLE;
    case DType::kF16:
      return CUDNN_DATA_HALF;
    case DType::kBF16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

Descriptor make_tensor(const Calls& calls, const GraphTensor& t) {
  Descriptor d = calls.create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  calls.set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, t.type);
  calls.set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, t.sizes);
  calls.set(d, CUDNN_ATTR_TENSOR_STRIDES, t.strides);
  calls.set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, t.id);
  calls.set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, t.alignment);
  if (t.place == GraphPlace::kVirtual) calls.set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (t.place == GraphPlace::kByValue) calls.set(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  calls.finalize(d);
  return d;
}

Descriptor make_operation_graph(const Calls& calls, const std::vector<Descriptor>& operations,
                                cudnnHandle_t handle) {
  Descriptor graph = calls.create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  calls.set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  if (handle) calls.set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  calls.finalize(graph);
  return graph;
}

std::vector<Descriptor> recommended_configurations(const Calls& calls, const Descriptor& graph,
                                                   cudnnBackendHeurMode_t mode,
                                                   cudnnBackendDescriptor_t properties) {
  const Descriptor heuristic = calls.create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  calls.set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {graph});
  calls.set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (properties) calls.set(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, {properties});
  if (!calls.try_finalize(heuristic)) return {};
  const int64_t count =
      calls.get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  if (count == 0) return {};
  return calls.parts(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
}

Descriptor engine_of(const Calls& calls, const Descriptor& configuration) {
  return std::move(
      calls.parts(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1).at(0));
}

Descriptor plan_of_configuration(const Calls& calls, const Descriptor& configuration, cudnnHandle_t handle,
                                 cudnnBackendDescriptor_t properties) {
  Descriptor plan = calls.create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  calls.set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {configuration});
  if (handle)
    calls.set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
  else
    calls.set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, {properties});
  if (!calls.try_finalize(plan)) return {};
  return plan;
}

}  // namespace gradus::cuda
