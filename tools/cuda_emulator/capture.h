// Stream capture: work that is added to a graph instead of running, and the calls that a capture forbids.
// Statuses are those recorded on an H100 (hardware.md), or, where nothing is recorded, those of CUDA's
// manual.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "gradus/tools/cuda_emulator/work.h"

// The types behind cudaGraphNode_t, cudaGraph_t and cudaGraphExec_t.
struct CUgraphNode_st {
  GradusEmulatedWork work;
  int device;
  std::vector<cudaGraphNode_t> after;  // direct predecessors
};
struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;  // in topological order
};
struct CUgraphExec_st {
  std::shared_ptr<const CUgraph_st> graph;
  std::shared_ptr<GradusEmulatedEnd> last;  // the end of its latest launch
};

// A capture between cudaStreamBeginCapture and cudaStreamEndCapture.
struct GradusEmulatedCapture {
  uint64_t id;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  std::vector<cudaStream_t> streams;  // the stream that began it, then those that waited for its events
  std::shared_ptr<CUgraph_st> graph;  // the captured work so far; null: the capture has ended
  bool is_invalid = false;

  bool has_ended() const { return !graph; }
};

namespace gradus::cuda::emulated {

using Capture = GradusEmulatedCapture;

// The calling thread's mode (cudaThreadExchangeStreamCaptureMode), which restricts its calls during captures.
extern thread_local cudaStreamCaptureMode capture_mode;

// All captures that have not ended. Callers hold the runtime's lock. A check that fails invalidates the
// captures that the call would disturb.
class Captures {
 public:
  cudaError_t begin(cudaStream_t stream, cudaStreamCaptureMode mode);
  // Ends the stream's capture, unless another stream began it. Sets `graph` on success.
  cudaError_t end(cudaStream_t stream, std::shared_ptr<CUgraph_st>* graph);
  // Called when a stream is destroyed. A capture ends if the stream that began it is destroyed.
  void leave(cudaStream_t stream);
  void invalidate(cudaStream_t stream);

  // The status of queuing work on a stream.
  cudaError_t check_work(cudaStream_t stream);
  // The status of a wait for, or a query of, a stream, an event or a device by the host.
  cudaError_t check_wait(cudaStream_t stream);
  cudaError_t check_wait(cudaEvent_t event);
  cudaError_t check_wait(int device);
  // The status of a call that a graph would not repeat, such as cudaMalloc.
  cudaError_t check_unsafe();
  // Whether the stream is the legacy stream, and its work would wait for a captured stream.
  bool waits_for_capture(cudaStream_t stream) const;

  // Add work, or the record of an event, on a stream that is captured.
  void add(cudaStream_t stream, GradusEmulatedWork work);
  void record(cudaEvent_t event, cudaStream_t stream);
  // Makes the stream wait for the event, where at least one of the two belongs to a capture. The stream joins
  // the event's capture.
  cudaError_t wait(cudaStream_t stream, cudaEvent_t event, unsigned flags);

 private:
  void finish(Capture& capture);

  std::vector<std::shared_ptr<Capture>> captures_;
  uint64_t ids_ = 0;
};

}  // namespace gradus::cuda::emulated
