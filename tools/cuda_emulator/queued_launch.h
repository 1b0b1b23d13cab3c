// A kernel launch with a copy of its arguments, for the queue of a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace gradus::cuda::emulated {

struct QueuedLaunch {
  const char* op;      // the op that launches it, a string literal
  const void* kernel;  // its address, for its name
  void (*call)(const void* arguments);
  std::shared_ptr<void> arguments;
  size_t argument_bytes;
  int64_t blocks, threads, shared_bytes;
};

// Queues a launch. Returns the status that a real device returns for it. Faults are reported when the kernel
// runs.
cudaError_t enqueue_launch(QueuedLaunch launch, cudaStream_t stream);

// Among the 8-byte words of n bytes, replaces host addresses of device memory with the kernels' addresses.
void show_to_kernels(void* bytes, size_t n);

}  // namespace gradus::cuda::emulated
