// Implementation of capture.h: which stream belongs to which capture, and which calls fail with which status.
#include "gradus/tools/cuda_emulator/capture.h"

#include <algorithm>
#include <set>
#include <utility>

#include "gradus/tools/cuda_emulator/streams.h"

namespace gradus::cuda::emulated {
namespace {

// Appends the nodes that `to` does not contain.
void add_each(const std::vector<cudaGraphNode_t>& nodes, std::vector<cudaGraphNode_t>* to) {
  for (const cudaGraphNode_t node : nodes)
    if (std::find(to->begin(), to->end(), node) == to->end()) to->push_back(node);
}

// Returns the number of the nodes `last` and of their direct and indirect predecessors.
size_t count_before(const std::vector<cudaGraphNode_t>& last) {
  std::set<cudaGraphNode_t> seen(last.begin(), last.end());
  std::vector<cudaGraphNode_t> rest(seen.begin(), seen.end());
  while (!rest.empty()) {
    const cudaGraphNode_t node = rest.back();
    rest.pop_back();
    for (const cudaGraphNode_t before : node->after)
      if (seen.insert(before).second) rest.push_back(before);
  }
  return seen.size();
}

}  // namespace

thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

cudaError_t Captures::begin(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (mode > cudaStreamCaptureModeRelaxed) return cudaErrorInvalidValue;
  if (stream->is_legacy()) return cudaErrorStreamCaptureUnsupported;
  if (stream->capture) return cudaErrorIllegalState;
  captures_.push_back(std::make_shared<Capture>(
      Capture{++ids_, mode, std::this_thread::get_id(), {stream}, std::make_shared<CUgraph_st>()}));
  stream->capture = captures_.back();
  return cudaSuccess;
}

cudaError_t Captures::end(cudaStream_t stream, std::shared_ptr<CUgraph_st>* graph) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return cudaErrorIllegalState;
  if (capture->streams[0] != stream) {
    capture->is_invalid = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  const bool is_joined = count_before(stream->last_nodes) == capture->graph->nodes.size();
  std::shared_ptr<CUgraph_st> made = capture->graph;
  finish(*capture);
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  if (capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  if (!is_joined) return cudaErrorStreamCaptureUnjoined;
  *graph = std::move(made);
  return cudaSuccess;
}

void Captures::leave(cudaStream_t stream) {
  const std::shared_ptr<Capture> capture = std::exchange(stream->capture, nullptr);
  if (!capture) return;
  if (capture->streams[0] == stream) return finish(*capture);
  std::erase(capture->streams, stream);
}

void Captures::finish(Capture& capture) {
  for (const cudaStream_t stream : capture.streams) {
    stream->capture = nullptr;
    stream->last_nodes.clear();
  }
  capture.graph = nullptr;
  std::erase_if(captures_, [&](const auto& c) { return c.get() == &capture; });
}

void Captures::invalidate(cudaStream_t stream) {
  if (stream->capture) stream->capture->is_invalid = true;
}

bool Captures::waits_for_capture(cudaStream_t stream) const {
  const auto is_waited_for = [=](cudaStream_t s) { return s->device == stream->device && s->is_blocking(); };
  return stream->is_legacy() && std::any_of(captures_.begin(), captures_.end(), [&](const auto& capture) {
           return std::any_of(capture->streams.begin(), capture->streams.end(), is_waited_for);
         });
}

cudaError_t Captures::check_work(cudaStream_t stream) {
  if (stream->capture) return stream->capture->is_invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  if (!waits_for_capture(stream)) return cudaSuccess;
  for (const auto& capture : captures_)
    for (const cudaStream_t s : capture->streams)
      if (s->device == stream->device && s->is_blocking()) capture->is_invalid = true;
  return cudaErrorStreamCaptureImplicit;
}

cudaError_t Captures::check_wait(cudaStream_t stream) {
  if (const cudaError_t status = check_work(stream); status != cudaSuccess) return status;
  if (!stream->capture) return check_unsafe();
  stream->capture->is_invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t Captures::check_wait(cudaEvent_t event) {
  if (!event->capture) return check_unsafe();
  event->capture->is_invalid = true;
  return cudaErrorCapturedEvent;
}

cudaError_t Captures::check_wait(int device) {
  bool is_captured = false;
  for (const auto& capture : captures_)
    for (const cudaStream_t s : capture->streams)
      if (s->device == device) is_captured = capture->is_invalid = true;
  return is_captured ? cudaErrorStreamCaptureUnsupported : check_unsafe();
}

cudaError_t Captures::check_unsafe() {
  bool is_refused = false;
  for (const auto& capture : captures_) {
    const bool is_own = capture->thread == std::this_thread::get_id();
    const bool is_disturbed =
        is_own ? capture->mode != cudaStreamCaptureModeRelaxed
               : capture_mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (is_disturbed && capture_mode != cudaStreamCaptureModeRelaxed) is_refused = capture->is_invalid = true;
  }
  return is_refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

void Captures::add(cudaStream_t stream, GradusEmulatedWork work) {
  auto& nodes = stream->capture->graph->nodes;
  nodes.push_back(std::make_unique<CUgraphNode_st>(
      CUgraphNode_st{std::move(work), stream->device, std::move(stream->last_nodes)}));
  stream->last_nodes = {nodes.back().get()};
}

void Captures::record(cudaEvent_t event, cudaStream_t stream) {
  event->recorded = nullptr;
  event->capture = stream->capture;
  event->last_nodes = stream->last_nodes;
}

cudaError_t Captures::wait(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  if (stream->capture && stream->capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  const std::shared_ptr<Capture>& capture = event->capture;
  if (!capture) {
    if (!event->recorded) return cudaSuccess;
    if (flags == cudaEventWaitExternal) return cudaErrorNotSupported;
    invalidate(stream);
    return cudaErrorStreamCaptureIsolation;
  }
  if (stream->capture && stream->capture != capture) {
    stream->capture->is_invalid = capture->is_invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (capture->has_ended()) return cudaErrorCapturedEvent;
  if (stream->is_legacy()) {
    capture->is_invalid = true;
    return cudaErrorStreamCaptureImplicit;
  }
  if (capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  if (!stream->capture) {
    stream->capture = capture;
    capture->streams.push_back(stream);
  }
  add_each(event->last_nodes, &stream->last_nodes);
  return cudaSuccess;
}

}  // namespace gradus::cuda::emulated
