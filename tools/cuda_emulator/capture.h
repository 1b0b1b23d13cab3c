// Capture: work that goes into a graph instead of running, and the calls that may not be made meanwhile.
// Answers are those recorded of a real device, and the manual's where the record is silent.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "gradus/tools/cuda_emulator/work.h"

// The names that cuda_runtime_api.h has for what a graph and its parts point to.
struct CUgraphNode_st {
  GradusEmulatedWork work;
  int device;
  std::vector<cudaGraphNode_t> after;
};
struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;  // each behind those that it comes after
};
struct CUgraphExec_st {
  std::shared_ptr<const CUgraph_st> graph;
  std::shared_ptr<GradusEmulatedEnd> last;  // of its latest launch
};

// From a begin to its end: the streams that work is captured from, and the graph so far.
struct GradusEmulatedCapture {
  uint64_t id;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  std::vector<cudaStream_t> streams;  // that of the begin, and those that waited for its events
  std::shared_ptr<CUgraph_st> graph;  // null: it has ended
  bool is_invalid = false;

  bool has_ended() const { return !graph; }
};

namespace gradus::cuda::emulated {

using Capture = GradusEmulatedCapture;

// What calling threads may do while others capture.
extern thread_local cudaStreamCaptureMode capture_mode;

// The captures that have not ended. All is called with the runtime's lock. A call that may not be made
// invalidates the captures that it disturbs.
class Captures {
 public:
  cudaError_t begin(cudaStream_t stream, cudaStreamCaptureMode mode);
  // Ends the stream's capture, but for one that another stream began. Sets `graph` on success.
  cudaError_t end(cudaStream_t stream, std::shared_ptr<CUgraph_st>* graph);
  // For a stream that is destroyed. With the stream that began it a capture ends.
  void leave(cudaStream_t stream);
  void invalidate(cudaStream_t stream);

  // Before work is put on a stream.
  cudaError_t check_work(cudaStream_t stream);
  // Before the host waits for, or asks about, a stream, an event, a device.
  cudaError_t check_wait(cudaStream_t stream);
  cudaError_t check_wait(cudaEvent_t event);
  cudaError_t check_wait(int device);
  // Before a call that a graph would not repeat, such as cudaMalloc.
  cudaError_t check_unsafe();
  // Whether work on the stream would wait for a stream that is captured: the legacy stream's may.
  bool waits_for_capture(cudaStream_t stream) const;

  // On a stream that is captured.
  void add(cudaStream_t stream, GradusEmulatedWork work);
  void record(cudaEvent_t event, cudaStream_t stream);
  // For a stream that is captured, or an event that was recorded on one: the stream joins its capture.
  cudaError_t wait(cudaStream_t stream, cudaEvent_t event, unsigned flags);

 private:
  void finish(Capture& capture);

  std::vector<std::shared_ptr<Capture>> captures_;
  uint64_t ids_ = 0;
};

}  // namespace gradus::cuda::emulated
