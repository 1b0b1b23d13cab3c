// Streams of the emulated devices. What is queued runs as late as the rules allow, in an order between
// streams that the seed gives: a program that forgot to wait gets wrong numbers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

// The end of something that was queued.
struct GradusEmulatedEnd {
  bool reached = false;
  double seconds = 0;  // when
};

// The names that cuda_runtime_api.h has for what a stream and an event point to.
struct CUstream_st {
  struct Work {
    std::function<void()> run;
    bool is_host_function = false;
    std::vector<std::shared_ptr<GradusEmulatedEnd>> after{};
    std::shared_ptr<GradusEmulatedEnd> end{};
  };
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  bool running = false;    // a host function of it is
  bool destroyed = false;  // freed when its work has ended
  std::deque<Work> queue;
  std::shared_ptr<GradusEmulatedEnd> last;  // the end of the latest work
};
struct CUevent_st {
  unsigned flags = 0;
  int device = 0;
  std::shared_ptr<GradusEmulatedEnd> recorded;
};

namespace gradus::cuda::emulated {

using End = GradusEmulatedEnd;

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
  std::shared_ptr<End> enqueue(cudaStream_t stream, CUstream_st::Work work);
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
  std::vector<cudaStream_t> all_streams();

  std::mutex mutex_;
  std::vector<Device> devices_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  uint64_t ids_ = 20, choices_ = 0;
};

// Whether a host function runs on this thread: it may call nothing of CUDA.
extern thread_local bool in_host_function;
// The calling thread's device.
extern thread_local int current_device;

}  // namespace gradus::cuda::emulated
