// Types of the emulated cuDNN: the graph of a convolution, engines and their configurations, and an execution
// that waits on a stream. Only the graphs that Gradus makes are emulated: a convolution in one of three
// directions; forward, then a bias; forward, then a bias, then relu.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gradus/tools/cuda_emulator/libraries/library_operand.h"

namespace gradus::cuda::emulated {

struct GraphTensor {
  int64_t id = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int64_t> sizes, strides;
  int64_t alignment = 0;  // bytes
  bool is_virtual = false;

  bool operator==(const GraphTensor&) const = default;
};

enum class GraphPass : uint8_t { kForward, kInputGrad, kWeightGrad };

struct ConvGraph {
  GraphPass pass = GraphPass::kForward;
  GraphTensor x, w, y;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  std::vector<int64_t> before, after, strides, dilations;  // before, after: padding at both ends of each dim

  // `y` is virtual, and sum = y + bias the result.
  struct Addition {
    GraphTensor bias, sum;
    cudnnDataType_t compute;
  };
  std::optional<Addition> addition;
  // `addition->sum` is virtual, and relu of it the result.
  std::optional<GraphTensor> rectified;
  bool keeps_nan = false;  // relu of NaN is NaN; otherwise 0, as on an H200

  const GraphTensor& result() const {
    if (rectified) return *rectified;
    if (addition) return addition->sum;
    return pass == GraphPass::kForward ? y : pass == GraphPass::kInputGrad ? x : w;
  }
  // The tensors in memory, in the order of QueuedConvolution::pointers.
  std::vector<const GraphTensor*> tensors() const {
    if (addition) return {&x, &w, &addition->bias, &result()};
    return {&x, &w, &y};
  }
};

// A knob of an engine with the range of its values. The default is `least`.
struct Knob {
  cudnnBackendKnobType_t type;
  int64_t least, most;
};

// An engine, with the properties for which Gradus may have to reject it.
struct Engine {
  int64_t index;
  std::vector<cudnnBackendNumericalNote_t> notes;
  std::vector<cudnnBackendBehaviorNote_t> behavior;
  cudnnStatus_t plans = CUDNN_STATUS_SUCCESS;  // status of making a plan
  uint64_t workspace = 0;                      // maximal bytes
  std::vector<Knob> knobs{};

  bool has(cudnnBackendNumericalNote_t note) const {
    for (const auto n : notes)
      if (n == note) return true;
    return false;
  }
};

// An engine with values of its knobs.
struct Configuration {
  struct Choice {
    cudnnBackendKnobType_t type;
    int64_t value;
    bool operator==(const Choice&) const = default;
  };
  const Engine* engine = nullptr;
  std::vector<Choice> knobs{};

  // Each step of the tile size halves the workspace.
  uint64_t workspace() const {
    uint64_t bytes = engine->workspace;
    for (const Choice& k : knobs)
      if (k.type == CUDNN_KNOB_TYPE_TILE_SIZE) bytes >>= k.value;
    return bytes;
  }
};

// An execution of a plan whose arguments were checked, for the queue of a stream.
struct QueuedConvolution {
  std::shared_ptr<const ConvGraph> graph;
  const Engine* engine;
  double seconds;  // duration by the device's clock, in addition to the time of the emulation
  LibraryCall call;
  std::vector<void*> pointers;  // of graph->tensors()
  LibraryWorkspace workspace;
  bool backwards;  // sums in reverse order: every other execution of a nondeterministic engine
};

// The two halves of an execution: the first fills the workspace; the second checks that the workspace is
// unchanged, and computes. A fault is delivered and ends the execution.
void begin_convolution(const QueuedConvolution& q);
void end_convolution(const QueuedConvolution& q);

// ---- for tests

// Returns the number of living descriptors, which tests check for leaks.
size_t count_descriptors();
// Makes the heuristic refuse these graphs from now on.
enum class RefusedGraphs { kNone, kWithRelu, kAll };
void refuse_graphs(RefusedGraphs which);
// Sets the duration of each execution by the device's clock from now on. Null: only the time of the
// emulation.
void set_times(std::function<double(const Configuration&)> seconds_of);
// Returns the configuration of the last execution.
Configuration last_executed();

}  // namespace gradus::cuda::emulated
