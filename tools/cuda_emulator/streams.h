// Streams of the emulated devices. What is queued runs as late as the rules allow, in an order between
// streams that the seed gives: a program that forgot to wait gets wrong numbers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gradus/tools/cuda_emulator/capture.h"
#include "gradus/tools/cuda_emulator/work.h"

// The names that cuda_runtime_api.h has for what a stream and an event point to.
struct CUstream_st {
  static constexpr uint64_t kLegacy = 7;  // as recorded
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  bool running = false;    // a host function of it is
  bool destroyed = false;  // freed when its work has ended
  std::deque<GradusEmulatedWork> queue{};
  std::shared_ptr<GradusEmulatedEnd> last{};  // the end of the latest work
  std::shared_ptr<GradusEmulatedCapture> capture{};
  std::vector<cudaGraphNode_t> last_nodes{};  // what is captured next comes after them

  bool is_legacy() const { return id == kLegacy; }
  // Whether the legacy stream waits for it, and it for that one.
  bool is_blocking() const { return !(flags & cudaStreamNonBlocking); }
};
struct CUevent_st {
  unsigned flags = 0;
  int device = 0;
  std::shared_ptr<GradusEmulatedEnd> recorded{};
  // Where it was recorded on a stream that was captured.
  std::shared_ptr<GradusEmulatedCapture> capture{};
  std::vector<cudaGraphNode_t> last_nodes{};
};

namespace gradus::cuda::emulated {

using End = GradusEmulatedEnd;
using Work = GradusEmulatedWork;

// All that the runtime holds is behind one lock. Functions below are called with it.
class Runtime {
 public:
  static Runtime& get();

  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  // The stream that a handle names on the calling thread's device. Null is the legacy one.
  cudaStream_t stream(cudaStream_t handle);
  cudaStream_t create_stream(unsigned flags, int priority);
  void destroy_stream(cudaStream_t stream);

  // Queues work. The legacy stream's comes after what the device's blocking streams have, theirs after it.
  // While a stream is captured the work goes to the graph, and no end is returned. captures.check_work() allows it.
  std::shared_ptr<End> enqueue(cudaStream_t stream, Work work);
  // Queues the work of a graph. It begins after what the stream has, and after the graph's last launch; what
  // the stream gets later comes after all of it.
  void launch(CUgraphExec_st& graph, cudaStream_t stream);
  // Lets what is queued from now on wait for `end`.
  void wait_for(cudaStream_t stream, const std::shared_ptr<End>& end);
  // An end that is reached when all that is queued on the stream now has run.
  std::shared_ptr<End> end_of(cudaStream_t stream);

  // Runs queued work until `end` is reached.
  void run_until(const std::shared_ptr<End>& end);
  void run_until_idle(int device);
  bool is_idle(cudaStream_t stream) const { return stream->queue.empty() && !stream->running; }
  // Runs one piece of work that may run, of any stream. Returns whether there was one.
  bool step();
  // For set_devices(): no stream is left, and errors are forgotten.
  void reset();

  Captures captures;
  // By their handles.
  std::map<cudaGraph_t, std::shared_ptr<CUgraph_st>> graphs;
  std::map<cudaGraphExec_t, std::unique_ptr<CUgraphExec_st>> executable_graphs;

  // The error that an earlier kernel left, which every call returns from then on.
  cudaError_t sticky = cudaSuccess;

  // How far the devices' clock is ahead of the host's: tests say how long work takes.
  double seconds_ahead = 0;

  // What there is, beside each device's own streams. For tests: nothing may be left over.
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

// Whether memory that a copy or a fill names has not been freed.
bool is_there(const GradusEmulatedRange& range);

// Whether a host function runs on this thread: it may call nothing of CUDA.
extern thread_local bool in_host_function;
// The calling thread's device.
extern thread_local int current_device;

}  // namespace gradus::cuda::emulated
