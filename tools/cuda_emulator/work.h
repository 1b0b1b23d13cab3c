// A unit of work (kernel, copy, fill, host function, library call) in the queue of a stream or in a node of a
// graph. The types are global because the types behind CUDA's handles contain them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

// The completion of queued work.
struct GradusEmulatedEnd {
  bool reached = false;
  double seconds = 0;  // the time of completion
};

// Memory that a copy or a fill reads or writes.
struct GradusEmulatedRange {
  const void* p;
  size_t bytes;
  bool is_written;
  bool is_pinned;
};

struct GradusEmulatedWork {
  std::function<void()> run;  // null: only waits
  bool is_host_function = false;
  std::vector<GradusEmulatedRange> ranges{};                // must not be freed before the work runs
  std::vector<std::shared_ptr<GradusEmulatedEnd>> after{};  // the work runs after all of them
  std::function<bool()> is_ready{};    // whether other ranks have sent what the work needs; null: always
  std::function<void()> on_launch{};   // of a graph's node: called by each launch, in the order of the nodes
  const void* communicator = nullptr;  // of a call of NCCL
  std::shared_ptr<GradusEmulatedEnd> end{};
};
