// Streams of the emulated devices. Queued work runs when the host waits or queries, and now and then earlier,
// in a pseudo-random order between streams, so that a program with a missing wait computes wrong results.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gradus/tools/cuda_emulator/capture.h"
#include "gradus/tools/cuda_emulator/work.h"

// The types behind cudaStream_t and cudaEvent_t.
struct CUstream_st {
  static constexpr uint64_t kLegacy = 7;  // id of the legacy stream, as recorded on an H100
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  bool running = false;    // a host function of this stream is running
  bool destroyed = false;  // deleted when its work has ended
  std::deque<GradusEmulatedWork> queue{};
  std::shared_ptr<GradusEmulatedEnd> last{};  // the end of the latest work
  std::shared_ptr<GradusEmulatedCapture> capture{};
  std::vector<cudaGraphNode_t> last_nodes{};  // predecessors of the next captured node

  bool is_legacy() const { return id == kLegacy; }
  // Whether this stream and the legacy stream wait for each other.
  bool is_blocking() const { return !(flags & cudaStreamNonBlocking); }
};
struct CUevent_st {
  unsigned flags = 0;
  int device = 0;
  std::shared_ptr<GradusEmulatedEnd> recorded{};  // the end of the work before it; null: not recorded
  // Set if the event was recorded on a captured stream.
  std::shared_ptr<GradusEmulatedCapture> capture{};
  std::vector<cudaGraphNode_t> last_nodes{};
};

namespace gradus::cuda::emulated {

using End = GradusEmulatedEnd;
using Work = GradusEmulatedWork;

// The state of the emulated CUDA runtime. Callers of the functions below lock() hold the lock.
class Runtime {
 public:
  static Runtime& get();

  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  // The stream that a handle names on the calling thread's device. Null is the legacy one.
  cudaStream_t stream(cudaStream_t handle);
  cudaStream_t create_stream(unsigned flags, int priority);
  void destroy_stream(cudaStream_t stream);

  // Queues work and returns its end. Work on the legacy stream waits for earlier work on the device's
  // blocking streams, and the reverse. On a captured stream, adds the work to the graph and returns null.
  // Callers check captures.check_work() first.
  std::shared_ptr<End> enqueue(cudaStream_t stream, Work work);
  // Queues the work of a graph. It waits for earlier work on the stream and for the graph's previous launch;
  // later work on the stream waits for all of it.
  void launch(CUgraphExec_st& graph, cudaStream_t stream);
  // Makes work that is queued later on the stream wait for `end`.
  void wait_for(cudaStream_t stream, const std::shared_ptr<End>& end);
  // Returns an end that is reached when all work that is now queued on the stream has run.
  std::shared_ptr<End> end_of(cudaStream_t stream);

  // Runs queued work until `end` is reached. Releases the lock while work waits for other ranks.
  void run_until(const std::shared_ptr<End>& end);
  void run_until_idle(int device);
  bool is_idle(cudaStream_t stream) const { return stream->queue.empty() && !stream->running; }
  // Runs the first work of a random stream that need not wait. Returns false if there is none.
  bool step();
  // Called when no work can run and no host function is running. Returns whether it made some work ready.
  std::function<bool()> on_stall;
  // For tests: removes all streams, graphs and captures, and clears the error.
  void reset();

  Captures captures;
  // Graphs by their handles.
  std::map<cudaGraph_t, std::shared_ptr<CUgraph_st>> graphs;
  std::map<cudaGraphExec_t, std::unique_ptr<CUgraphExec_st>> executable_graphs;

  // The error of an earlier kernel, which all later calls return.
  cudaError_t sticky = cudaSuccess;

  // Offset of the devices' clock from the host's, by which tests set how long work takes.
  double seconds_ahead = 0;

  // The numbers of streams that were created, and of events. For tests, which check for leaks.
  size_t streams() const { return streams_.size(); }
  size_t events = 0;

 private:
  struct Device {
    std::unique_ptr<CUstream_st> legacy, per_thread;
  };
  Device& device(int number);
  std::shared_ptr<End> append(cudaStream_t stream, Work work);
  std::vector<cudaStream_t> all_streams();

  std::mutex mutex_;
  std::vector<Device> devices_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  uint64_t ids_ = 20, choices_ = 0;
};

// Returns whether the memory of a copy or a fill has not been freed.
bool is_there(const GradusEmulatedRange& range);

// Whether the calling thread runs a host function, which may not call CUDA.
extern thread_local bool in_host_function;
// The calling thread's device.
extern thread_local int current_device;

}  // namespace gradus::cuda::emulated
