// Types of the emulated cuDNN: graphs of a convolution and of attention, engines and their configurations, and an
// execution that waits on a stream. Only the graphs that Gradus makes are emulated: a convolution in one of three
// directions; forward, then a bias; forward, then a bias, then relu; attention, and its gradients.
#pragma once

#include <cudnn_graph.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
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
  bool is_virtual = false, is_by_value = false;

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
  // The tensors in memory, in the order of QueuedExecution::pointers.
  std::vector<const GraphTensor*> tensors() const {
    if (addition) return {&x, &w, &addition->bias, &result()};
    return {&x, &w, &y};
  }
};

// A graph of matrix products, reductions over the last dim, transpositions and point-wise operations on tensors of four
// dims, as attention is given to the library. Tensors are named by their ids.
struct AttentionGraph {
  struct Step {
    cudnnBackendDescriptorType_t operation;
    std::vector<int64_t> sources;
    int64_t result;
    cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
    cudnnReduceTensorOp_t reduction = CUDNN_REDUCE_TENSOR_ADD;
    int64_t axis = 0;  // of CUDNN_POINTWISE_GEN_INDEX
  };
  std::map<int64_t, GraphTensor> all;
  std::vector<Step> steps;  // in the order in which they are computed

  // The tensors in memory and those by value, in the order of QueuedExecution::pointers.
  std::vector<const GraphTensor*> tensors() const {
    std::vector<const GraphTensor*> stored;
    for (const auto& [id, t] : all)
      if (!t.is_virtual) stored.push_back(&t);
    return stored;
  }
  int64_t count(cudnnBackendDescriptorType_t operation) const {
    return std::count_if(steps.begin(), steps.end(), [&](const Step& s) { return s.operation == operation; });
  }
  bool is_backward() const { return count(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) == 5; }
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
struct QueuedExecution {
  std::shared_ptr<const ConvGraph> convolution;  // or
  std::shared_ptr<const AttentionGraph> attention;
  const Engine* engine;
  double seconds;  // duration by the device's clock, in addition to the time of the emulation
  LibraryCall call;
  std::vector<void*> pointers;       // of the graph's tensors()
  std::map<int64_t, float> numbers;  // the tensors by value
  LibraryWorkspace workspace;
  bool backwards;  // sums in reverse order: every other execution of a nondeterministic engine
};

// Read and write the tensors in memory. Throw Stop after a fault was delivered.
void compute_convolution(const QueuedExecution& q);
void compute_attention(const QueuedExecution& q);
DType dtype_of(cudnnDataType_t type);  // of a floating type

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
