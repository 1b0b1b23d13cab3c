// A launch with its arguments, as it waits on a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace gradus::cuda::emulated {

struct QueuedLaunch {
  const char* op;  // a literal
  const void* kernel;
  void (*call)(const void* arguments);
  std::shared_ptr<void> arguments;
  size_t argument_bytes;
  int64_t blocks, threads, shared_bytes;
};

// Answers what a real device answers to the launch, and queues it. Faults show when it runs.
cudaError_t enqueue_launch(QueuedLaunch launch, cudaStream_t stream);

// Rewrites the host's addresses of device memory to the kernels', among the 8-byte words of n bytes.
void show_to_kernels(void* bytes, size_t n);

}  // namespace gradus::cuda::emulated
