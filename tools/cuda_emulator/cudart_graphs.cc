// Stream capture and graphs of the emulated CUDA runtime. Statuses are those recorded on an H100
// (hardware.md).
#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "gradus/tools/cuda_emulator/call.h"

using namespace gradus::cuda::emulated;  // NOLINT

namespace {

cudaStreamCaptureStatus status_of(const CUstream_st& stream) {
  if (!stream.capture) return cudaStreamCaptureStatusNone;
  return stream.capture->is_invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

// Stores a graph in the runtime, and sets *graph to its handle.
cudaError_t own(std::shared_ptr<CUgraph_st> made, cudaGraph_t* graph) {
  *graph = made.get();
  Runtime::get().graphs.emplace(made.get(), std::move(made));
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call([&](Runtime& runtime) { return runtime.captures.begin(runtime.stream(stream), mode); });
}
// Ends the capture even if the call returns an error.
cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  std::shared_ptr<CUgraph_st> made;
  const cudaError_t status =
      call_to_destroy([&](Runtime& runtime) { return runtime.captures.end(runtime.stream(stream), &made); });
  if (!graph) return status;
  *graph = nullptr;
  if (status != cudaSuccess) return status;
  const auto lock = Runtime::get().lock();
  return own(std::move(made), graph);
}
cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call([&](Runtime& runtime) {
    if (!status) return cudaErrorInvalidValue;
    const cudaStream_t s = runtime.stream(stream);
    if (runtime.captures.waits_for_capture(s)) return cudaErrorStreamCaptureImplicit;
    *status = status_of(*s);
    return cudaSuccess;
  });
}
// Handles of the graph and its nodes are not supported, because graphs cannot be changed.
cudaError_t CUDARTAPI cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                               unsigned long long* id, cudaGraph_t* graph,
                                               const cudaGraphNode_t** after, const cudaGraphEdgeData** edges,
                                               size_t* count) {
  return call([&](Runtime& runtime) {
    if (!status || (edges && !after)) return cudaErrorInvalidValue;
    if (graph || after) return cudaErrorNotSupported;
    const cudaStream_t s = runtime.stream(stream);
    if (runtime.captures.waits_for_capture(s)) return cudaErrorStreamCaptureImplicit;
    *status = status_of(*s);
    if (*status != cudaStreamCaptureStatusActive) return cudaSuccess;
    if (id) *id = s->capture->id;
    if (count) *count = s->last_nodes.size();
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call([&](Runtime&) {
    if (!mode || *mode > cudaStreamCaptureModeRelaxed) return cudaErrorInvalidValue;
    std::swap(*mode, capture_mode);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  return call([&](Runtime&) {
    if (!graph || flags != 0) return cudaErrorInvalidValue;
    return own(std::make_shared<CUgraph_st>(), graph);
  });
}
cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph) {
  return call_to_destroy(
      [&](Runtime& runtime) { return runtime.graphs.erase(graph) ? cudaSuccess : cudaErrorInvalidValue; });
}
// Writes up to *count nodes, then nulls, and sets *count to the number of nodes written. If `nodes` is null,
// sets *count to the number of nodes in the graph.
cudaError_t CUDARTAPI cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return call([&](Runtime& runtime) {
    if (!count || !runtime.graphs.contains(graph)) return cudaErrorInvalidValue;
    const auto& all = graph->nodes;
    const size_t there = nodes ? std::min(*count, all.size()) : all.size();
    for (size_t i = 0; nodes && i < *count; ++i) nodes[i] = i < there ? all[i].get() : nullptr;
    *count = there;
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph,
                                           unsigned long long flags) {
  return call([&](Runtime& runtime) {
    const auto found = runtime.graphs.find(graph);
    if (!made || found == runtime.graphs.end()) return cudaErrorInvalidValue;
    // The two allowed flags have no effect: no node allocates memory, and nodes have no priorities.
    if (flags & ~(cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUseNodePriority))
      return flags == cudaGraphInstantiateFlagDeviceLaunch ? cudaErrorNotSupported : cudaErrorInvalidValue;
    for (const auto& node : graph->nodes)
      if (!std::all_of(node->work.ranges.begin(), node->work.ranges.end(), is_there))
        return cudaErrorInvalidValue;
    auto executable = std::make_unique<CUgraphExec_st>(CUgraphExec_st{found->second, nullptr});
    *made = executable.get();
    runtime.executable_graphs.emplace(*made, std::move(executable));
    return cudaSuccess;
  });
}
cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return call([&](Runtime& runtime) {
    if (!runtime.executable_graphs.contains(graph)) return cudaErrorInvalidValue;
    const cudaStream_t s = runtime.stream(stream);
    if (const cudaError_t status = runtime.captures.check_work(s); status != cudaSuccess) return status;
    if (s->capture) return cudaErrorNotSupported;
    runtime.launch(*graph, s);
    return cudaSuccess;
  });
}
// Does not wait: queued launches of the graph still run.
cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return call_to_destroy([&](Runtime& runtime) {
    return runtime.executable_graphs.erase(graph) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

}  // extern "C"
