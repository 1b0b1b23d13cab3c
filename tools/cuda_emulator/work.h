// What is queued on a stream, or kept in a graph.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

// The end of something that was queued.
struct GradusEmulatedEnd {
  bool reached = false;
  double seconds = 0;  // when
};

// Memory that a copy or a fill names.
struct GradusEmulatedRange {
  const void* p;
  size_t bytes;
  bool is_written;
  bool is_pinned;
};

struct GradusEmulatedWork {
  std::function<void()> run;
  bool is_host_function = false;
  std::vector<GradusEmulatedRange> ranges{};  // must be there when it runs
  std::vector<std::shared_ptr<GradusEmulatedEnd>> after{};
  std::shared_ptr<GradusEmulatedEnd> end{};
};
