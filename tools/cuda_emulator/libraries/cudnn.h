// What the emulated entry points of cuDNN share: the graph of a convolution, engines, and a plan that was
// executed. Gradus' graphs are emulated: a convolution in one of three directions; forward, then a bias;
// forward, then a bias, then relu.
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
  std::vector<int64_t> before, after, strides, dilations;  // padding at each end

  // `y` is virtual, and sum = y + bias the result.
  struct Addition {
    GraphTensor bias, sum;
    cudnnDataType_t compute;
  };
  std::optional<Addition> addition;
  // `addition->sum` is virtual, and this the result.
  std::optional<GraphTensor> rectified;
  bool keeps_nan = false;  // that relu; else it makes 0 of NaN, as on an H200

  const GraphTensor& result() const {
    if (rectified) return *rectified;
    if (addition) return addition->sum;
    return pass == GraphPass::kForward ? y : pass == GraphPass::kInputGrad ? x : w;
  }
  // Those in memory.
  std::vector<const GraphTensor*> tensors() const {
    if (addition) return {&x, &w, &addition->bias, &result()};
    return {&x, &w, &y};
  }
};

// What a knob of an engine may be set to. One that is not set is at the least.
struct Knob {
  cudnnBackendKnobType_t type;
  int64_t least, most;
};

// An engine, and what it does worse than it may.
struct Engine {
  int64_t index;
  std::vector<cudnnBackendNumericalNote_t> notes;
  std::vector<cudnnBackendBehaviorNote_t> behavior;
  cudnnStatus_t plans = CUDNN_STATUS_SUCCESS;  // what it says when a plan is made of it
  uint64_t workspace = 0;                      // the most bytes that it wants
  std::vector<Knob> knobs{};

  bool has(cudnnBackendNumericalNote_t note) const {
    for (const auto n : notes)
      if (n == note) return true;
    return false;
  }
};

// An engine whose knobs were set.
struct Configuration {
  struct Choice {
    cudnnBackendKnobType_t type;
    int64_t value;
    bool operator==(const Choice&) const = default;
  };
  const Engine* engine = nullptr;
  std::vector<Choice> knobs{};

  // A larger tile makes do with less.
  uint64_t workspace() const {
    uint64_t bytes = engine->workspace;
    for (const Choice& k : knobs)
      if (k.type == CUDNN_KNOB_TYPE_TILE_SIZE) bytes >>= k.value;
    return bytes;
  }
};

// An executed plan whose arguments were checked, as it waits on a stream.
struct QueuedConvolution {
  std::shared_ptr<const ConvGraph> graph;
  const Engine* engine;
  double seconds;  // that it takes by the device's clock, beside the emulation's own time
  LibraryCall call;
  std::vector<void*> pointers;  // of graph->tensors()
  LibraryWorkspace workspace;
  bool backwards;  // sums in the other order: every other run of an engine that does not repeat
};

// The two halves of its work. A fault is delivered, and ends it.
void begin_convolution(const QueuedConvolution& q);
void end_convolution(const QueuedConvolution& q);

// ---- for tests

// How many descriptors there are: none may be left over.
size_t count_descriptors();
// From now on these graphs have no plans.
enum class RefusedGraphs { kNone, kWithRelu, kAll };
void refuse_graphs(RefusedGraphs which);
// Says how long each execution takes by the device's clock from now on. Null: no longer than it does.
void set_times(std::function<double(const Configuration&)> seconds_of);
// What was executed last.
Configuration last_executed();

}  // namespace gradus::cuda::emulated
