// The CUDA runtime's captures and graphs. Answers are those recorded of a real device.
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
// Ends the capture, whatever it answers.
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
// The graph cannot be changed while it is captured: handles of it and of its nodes are not given away.
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
// Writes as many nodes as there is room for, and null behind them. Without room for any it counts them.
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
    // There are no nodes that allocate, and no priorities within a graph.
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
// Returns at once; what is queued still runs.
cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return call_to_destroy([&](Runtime& runtime) {
    return runtime.executable_graphs.erase(graph) ? cudaSuccess : cudaErrorInvalidValue;
  });
}

}  // extern "C"
