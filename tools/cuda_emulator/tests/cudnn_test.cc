// Tests of the emulated cuDNN: statuses equal those of an H100 (cudnn_answers.txt) except for a list of
// differences, results equal a direct convolution of small integers, and memory errors are faults.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/fault.h"
#include "gradus/tools/cuda_emulator/libraries/cudnn.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/order.h"
#include "gradus/tools/gpu_lab/recorders/cudnn_calls.h"

namespace {

using namespace gradus::cuda::emulated;  // NOLINT
using Handle = cudnnHandle_t;
using graph::Descriptor;

char* allocate(size_t bytes, bool written = true) {
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, bytes), cudaSuccess);
  if (written) {
    EXPECT_EQ(cudaMemset(p, 0, bytes), cudaSuccess);
  }
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return static_cast<char*>(p);
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAnyEnum = false;  // sanitizers refuse values outside of an enum
#else
constexpr bool kAnyEnum = true;
#endif

// ---- answers

// The recorded answers to each call in their order, by group and by what was asked.
std::map<std::pair<std::string, std::string>, std::deque<std::string>> record() {
  std::map<std::pair<std::string, std::string>, std::deque<std::string>> answers;
  std::ifstream file("tools/cuda_emulator/tests/cudnn_answers.txt");
  EXPECT_TRUE(file) << "the record is not there";
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find('\t'), second = line.find('\t', first + 1);
    if (first != std::string::npos && first > 0)
      answers[{line.substr(0, first), line.substr(first + 1, second - first - 1)}].push_back(
          line.substr(second + 1));
  }
  return answers;
}

// Calls in which the emulation is stricter than the recorded library, or supports less.
const std::set<std::string>& differences() {
  static const std::set<std::string> list = {
      // Missing attributes.
      "cudnnBackendFinalize(raw_tensor({.type = false}))",
      "cudnnBackendFinalize(raw_tensor({.id = false}))",
      "without compute type",
      "without mode",
      "without pre paddings",
      "without post paddings",
      // Two tensors with one id; ids that are not in the graph; a pack that is not finalized.
      "x and w with one id: then",
      "f32: an id too many",
      "f32: one id twice",
      "f32: pack not finalized",
      "bf16: an id too many",
      "bf16: one id twice",
      "bf16: pack not finalized",
      // A result over an operand; the workspace's alignment.
      "f32: y is x",
      "bf16: y is x",
      "f32: plan with workspace: 1 byte off",
      // Not emulated.
      "f16 with compute f16: then",
      "f32: x in pinned memory",
      "bf16: x in pinned memory",
      "from ''",
      "from '{}'",
      "from '{\"deviceVer\": 900}'",
      "from 'nonsense'",
  };
  return list;
}

// Returns how far the recorder came with a graph: "refused", "no engines" or "engines"; otherwise the answer
// itself.
std::string progress(const std::string& answer) {
  if (answer.find("graph refused") != std::string::npos) return "refused";
  if (answer.find(" 0 configurations") != std::string::npos) return "no engines";
  return answer.find("graph taken") != std::string::npos ? "engines" : answer;
}

TEST(EmulatedCudnn, AnswersAsRecorded) {
  auto answers = record();
  Handle handle = nullptr;
  ASSERT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
  int compared = 0;
  std::set<std::string> differ;
  const auto compare = [&](const std::string& asked, const std::string& said, const std::string& want) {
    ++compared;
    if (said == want) {
      EXPECT_FALSE(differences().contains(asked)) << "a difference no more: " << asked;
      return;
    }
    differ.insert(asked);
    EXPECT_TRUE(differences().contains(asked)) << asked << ": " << said << ", recorded " << want;
  };
  const auto recorded = [&](const char* asked) {
    std::deque<std::string>& list = answers[{record::group, asked}];
    if (list.empty()) return std::string();
    const std::string answer = list.front();
    list.pop_front();
    return answer;
  };
  calls::ask = [&](const char* asked, const std::function<cudnnStatus_t()>& call) {
    const bool made_up = std::strstr(asked, "Type_t(999)") || std::strstr(asked, "(99999)");
    if (made_up && !kAnyEnum) return;
    FaultScope faults;
    std::string said = cudnnGetErrorString(call());
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    if (!faults.take().empty()) said = "crash";
    std::string want = recorded(asked);
    if (std::strstr(asked, "Descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, nullptr)")) want = "; the device";
    if (want.empty()) return;  // there was no plan with workspace in bf16
    want = want.find("; the device") != std::string::npos ? "crash" : want.substr(0, want.find(';'));
    compare(asked, said, want);
  };
  calls::is_asking = [] { return true; };
  calls::tell = [&](const char* asked, const std::string& answer) {
    if (std::strcmp(asked, "f32") == 0 || std::strcmp(asked, "bf16") == 0) return;  // names of engines
    compare(asked, progress(answer), progress(recorded(asked)));
  };
  calls::attributes();
  calls::tensors();
  calls::operations_and_graphs(handle);
  calls::executions(handle, [](const char*, Descriptor, Descriptor) {});
  EXPECT_EQ(compared, 174 + 2 * kAnyEnum);
  EXPECT_EQ(differ.size(), differences().size());
  cudnnDestroy(handle);
}

// Sets each attribute with each type and count. `most`: the maximal count; 0: cannot be set.
TEST(EmulatedCudnn, AttributesHaveATypeAndACount) {
  struct Known {
    cudnnBackendDescriptorType_t descriptor;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int most;
  };
  constexpr int kMany = 8;
  const Known all[] = {
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1},
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, kMany},
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, kMany},
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1},
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1},
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
       1},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, kMany},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, kMany},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, kMany},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, kMany},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_TYPE_FLOAT, 1},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
       kMany},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0},
      {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
      {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
      {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1},
      {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0},
      {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1},
      {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
       0},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, kMany},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
       kMany},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1},
  };
  Descriptor part = calls::raw_tensor({});
  ASSERT_EQ(cudnnBackendFinalize(part), CUDNN_STATUS_SUCCESS);
  const std::vector<Descriptor> parts(kMany + 1, part);
  const std::vector<int64_t> numbers(kMany + 1, 1);
  for (const Known& k : all) {
    Descriptor d = graph::make(k.descriptor);
    const auto set = [&](cudnnBackendAttributeType_t type, int64_t count) {
      const bool is_part = type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
      return cudnnBackendSetAttribute(d, k.name, type, count,
                                      is_part ? static_cast<const void*>(parts.data()) : numbers.data());
    };
    for (int type = CUDNN_TYPE_HANDLE; type <= CUDNN_TYPE_BEHAVIOR_NOTE; ++type) {
      const auto t = static_cast<cudnnBackendAttributeType_t>(type);
      const bool fits = t == k.type || (k.type == CUDNN_TYPE_FLOAT && t == CUDNN_TYPE_DOUBLE);
      EXPECT_EQ(set(t, 1), k.most == 0 ? CUDNN_STATUS_BAD_PARAM
                           : fits      ? CUDNN_STATUS_SUCCESS
                                       : CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE)
          << k.name << " as " << type;
    }
    for (const int64_t count : {-1, 0, 1, 2, kMany})
      EXPECT_EQ(set(k.type, count),
                count >= 1 && count <= k.most ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM)
          << k.name << ' ' << count;
    cudnnBackendDestroyDescriptor(d);
  }
  cudnnBackendDestroyDescriptor(part);
}

// ---- small convolutions

// Allocations exactly as large as their tensors, so that every access beyond is a fault: x[1,2,3,3],
// w[2,2,2,2], y[1,2,2,2] in f32.
struct EmulatedConvolution : testing::Test {
  EmulatedConvolution() {
    EXPECT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    std::vector<float> xs(18), ws(16);
    for (size_t i = 0; i < xs.size(); ++i) xs[i] = static_cast<float>(i) - 8;
    for (size_t i = 0; i < ws.size(); ++i) ws[i] = static_cast<float>(i * 7 % 5) - 2;
    memory = {{'x', allocate(72)}, {'w', allocate(64)}, {'y', allocate(32)}, {'b', allocate(8)}};
    put('x', xs), put('w', ws), put('y', {1, -2, 3, 4, -5, 6, 7, -8}), put('b', {10, 20});
    workspace = allocate(kWorkspace, false);
    for (char& byte : host) byte = 0;
  }
  ~EmulatedConvolution() override {
    for (const auto& [id, p] : memory) cudaFree(p);
    cudaFree(workspace);
    for (Descriptor d : made) cudnnBackendDestroyDescriptor(d);
    cudnnDestroy(handle);
  }
  void put(char id, const std::vector<float>& v) {
    EXPECT_EQ(cudaMemcpy(memory[id], v.data(), v.size() * 4, cudaMemcpyHostToDevice), cudaSuccess);
  }
  std::vector<float> get(char id, size_t n) {
    std::vector<float> v(n);
    EXPECT_EQ(cudaMemcpy(v.data(), memory[id], n * 4, cudaMemcpyDeviceToHost), cudaSuccess);
    return v;
  }

  Descriptor tensor(char id, std::vector<int64_t> sizes, std::vector<int64_t> strides,
                    bool is_virtual = false) {
    Descriptor t = graph::make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    graph::set(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    graph::set(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, sizes);
    graph::set(t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
    graph::set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, int64_t(id));
    graph::set(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t(alignment));
    if (is_virtual) graph::set(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true);
    EXPECT_TRUE(graph::finish(t)) << graph::problem;
    made.push_back(t);
    return t;
  }
  Descriptor graph_of(graph::Direction way, bool with_bias = false) {
    graph::problem.clear();
    Descriptor x = tensor('x', sizes_x, strides_x), w = tensor('w', sizes_w, strides_w);
    Descriptor y = tensor('y', sizes_y, strides_y),
               to = with_bias ? tensor('s', sizes_y, strides_y, true) : y;
    Descriptor conv = graph::make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const auto rank = static_cast<int64_t>(padding.size());
    graph::set(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, rank);
    graph::set(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    graph::set(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
    graph::set(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, padding);
    graph::set(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, padding);
    graph::set(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dilations);
    graph::set(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, strides);
    graph::finish(conv);
    std::vector<Descriptor> ops{graph::convolve(way, x, w, to, conv, CUDNN_DATA_FLOAT)};
    if (with_bias)
      ops.push_back(graph::pointwise(CUDNN_POINTWISE_ADD, to, tensor('b', {1, 2, 1, 1}, {2, 1, 2, 2}), y));
    Descriptor g = graph::operations(ops, handle);
    EXPECT_EQ(graph::problem, "");
    made.insert(made.end(), ops.begin(), ops.end());
    made.insert(made.end(), {conv, g});
    return g;
  }
  // Returns the plan of the engine with an index; null if it has none. Engine 0 is the last one of the
  // heuristic.
  Descriptor plan_of(Descriptor g, int64_t index = 0) {
    for (Descriptor c : graph::configurations(g, CUDNN_HEUR_MODE_A)) {
      made.push_back(c);
      if (graph::describe(c, false).starts_with("engine " + std::to_string(index) + " ")) {
        made.push_back(graph::plan(c, handle));
        return made.back();
      }
    }
    return nullptr;
  }
  cudnnStatus_t execute(Descriptor plan, const std::string& ids = "xwy", cudaStream_t stream = nullptr) {
    std::vector<int64_t> numbers(ids.begin(), ids.end());
    std::vector<void*> pointers;
    for (const char id : ids) pointers.push_back(memory[id]);
    Descriptor pack = graph::pack(numbers, pointers, workspace);
    made.push_back(pack);
    EXPECT_EQ(cudnnSetStream(handle, stream), CUDNN_STATUS_SUCCESS);
    return cudnnBackendExecute(handle, plan, pack);
  }
  // Executes. Returns the FaultKind of the fault, or -1.
  int fault(Descriptor plan, const std::string& ids = "xwy") {
    FaultScope faults;
    EXPECT_EQ(execute(plan, ids), CUDNN_STATUS_SUCCESS);
    cudaDeviceSynchronize();
    const std::vector<Fault> found = faults.take();
    EXPECT_LE(found.size(), 1u);
    if (found.empty()) return -1;
    text = found[0].text;
    return static_cast<int>(found[0].kind);
  }
  void expect_fault(Descriptor plan, FaultKind kind, const std::string& words,
                    const std::string& ids = "xwy") {
    EXPECT_EQ(fault(plan, ids), static_cast<int>(kind)) << text;
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
  void resize(char id, size_t bytes, bool written = true) {
    cudaFree(memory[id]);
    memory[id] = allocate(bytes, written);
  }

  static constexpr size_t kWorkspace = 64 << 10;
  Handle handle = nullptr;
  std::map<char, char*> memory;
  char* workspace = nullptr;
  std::vector<Descriptor> made;
  std::string text;
  alignas(16) char host[128];
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int64_t alignment = 4;
  // Channels innermost; filters row-major.
  std::vector<int64_t> sizes_x{1, 2, 3, 3}, strides_x{18, 1, 6, 2}, sizes_w{2, 2, 2, 2},
      strides_w{8, 4, 2, 1}, sizes_y{1, 2, 2, 2}, strides_y{8, 1, 4, 2};
  std::vector<int64_t> padding{0, 0}, strides{1, 1}, dilations{1, 1};
};

// Sums as the definition has them: y[o,p] = sum x[c, p stride - padding + k dilation] w[o,c,k].
TEST_F(EmulatedConvolution, IsRight) {
  struct Form {
    std::vector<int64_t> x, w, y, padding, strides, dilations;
  };
  const Form forms[] = {{{1, 2, 3, 3}, {2, 2, 2, 2}, {1, 2, 2, 2}, {0, 0}, {1, 1}, {1, 1}},
                        {{1, 2, 3, 3}, {4, 1, 2, 2}, {1, 4, 2, 1}, {0, 1}, {1, 3}, {1, 2}},  // two groups
                        {{1, 1, 6, 3}, {2, 1, 3, 2}, {1, 2, 2, 2}, {1, 0}, {3, 1}, {2, 1}}};
  for (const Form& f : forms) {
    sizes_x = f.x, sizes_w = f.w, sizes_y = f.y, padding = f.padding, strides = f.strides,
    dilations = f.dilations;
    strides_x = {18, 1, f.x[1] * f.x[3], f.x[1]}, strides_y = {8, 1, f.y[1] * f.y[3], f.y[1]};
    strides_w = {f.w[1] * f.w[2] * f.w[3], f.w[2] * f.w[3], f.w[3], 1};
    const auto xs = get('x', 18), ws = get('w', static_cast<size_t>(f.w[0] * strides_w[0])), ys = get('y', 8);
    std::vector<float> dx(18), dw(ws.size()), y(8);
    const int64_t per_group = f.w[0] / (f.x[1] / f.w[1]);
    for (int64_t o = 0; o < f.w[0]; ++o)
      for (int64_t c = 0; c < f.w[1]; ++c)
        for (int64_t i = 0; i < f.y[2] * f.y[3]; ++i)
          for (int64_t k = 0; k < f.w[2] * f.w[3]; ++k) {
            const int64_t row = i / f.y[3] * strides[0] - padding[0] + k / f.w[3] * dilations[0];
            const int64_t column = i % f.y[3] * strides[1] - padding[1] + k % f.w[3] * dilations[1];
            if (row < 0 || column < 0 || row >= f.x[2] || column >= f.x[3]) continue;
            const auto a = static_cast<size_t>((row * f.x[3] + column) * f.x[1] + o / per_group * f.w[1] + c);
            const auto b = static_cast<size_t>(o * strides_w[0] + c * strides_w[1] + k);
            const auto e = static_cast<size_t>(i * f.y[1] + o);
            y[e] += xs[a] * ws[b], dx[a] += ys[e] * ws[b], dw[b] += ys[e] * xs[a];
          }
    for (const int64_t engine : {0, 1, 2, 3, 6, 7}) {  // of small integers all sums are exact
      ASSERT_EQ(execute(plan_of(graph_of(graph::kData), engine)), CUDNN_STATUS_SUCCESS);
      EXPECT_EQ(get('x', 18), dx) << engine;
      put('x', xs);
      ASSERT_EQ(execute(plan_of(graph_of(graph::kFilter), engine)), CUDNN_STATUS_SUCCESS);
      EXPECT_EQ(get('w', ws.size()), dw) << engine;
      put('w', ws);
      if (engine == 1) continue;  // for gradients only
      ASSERT_EQ(execute(plan_of(graph_of(graph::kForward), engine)), CUDNN_STATUS_SUCCESS);
      EXPECT_EQ(get('y', 8), y) << engine;
      put('y', ys);
    }
  }
}

TEST_F(EmulatedConvolution, AddsABias) {
  ASSERT_EQ(execute(plan_of(graph_of(graph::kForward))), CUDNN_STATUS_SUCCESS);
  std::vector<float> want = get('y', 8);
  for (size_t i = 0; i < 8; ++i) want[i] += i % 2 ? 20 : 10;
  ASSERT_EQ(execute(plan_of(graph_of(graph::kForward, true)), "xwyb"), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(get('y', 8), want);
  EXPECT_EQ(execute(plan_of(graph_of(graph::kForward, true)), "xwy"), CUDNN_STATUS_BAD_PARAM);
}

// What the notes of engines say.
TEST_F(EmulatedConvolution, EnginesAreAsTheirNotesSay) {
  const auto run = [&](int64_t engine) {
    EXPECT_EQ(execute(plan_of(graph_of(graph::kForward), engine)), CUDNN_STATUS_SUCCESS);
    return get('y', 8);
  };
  put('x', {1e8f, -1e8f, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  put('w', std::vector<float>(16, 1));
  // The order of summation decides whether 1 is lost beside 1e8.
  EXPECT_EQ(run(0), run(7));
  EXPECT_EQ(plan_of(graph_of(graph::kForward), 1), nullptr);
  put('y', std::vector<float>(8, 1));
  put('x', {1e8f, 0, -1e8f, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  const auto gradient = [&](int64_t engine) {
    EXPECT_EQ(execute(plan_of(graph_of(graph::kFilter), engine)), CUDNN_STATUS_SUCCESS);
    return get('w', 16);
  };
  EXPECT_EQ(gradient(0), gradient(7));
  const std::vector<float> once = gradient(1), twice = gradient(1);
  EXPECT_NE(once, twice);
  put('w', std::vector<float>(16, 1));
  put('x', {1 + 0x1p-11f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(run(0)[0], 1 + 0x1p-11f);
  for (const int64_t engine : {2, 3, 6}) EXPECT_EQ(run(engine)[0], 1) << engine;
  for (const int64_t engine : {4, 5}) EXPECT_EQ(plan_of(graph_of(graph::kForward), engine), nullptr);
  EXPECT_EQ(graph::workspace_of(plan_of(graph_of(graph::kForward), 8)), (int64_t(1) << 30) + 1);
}

// Engines that are selected by index, with knobs. Statuses are those of cuDNN 9.19.
TEST_F(EmulatedConvolution, EnginesHaveNumbersAndKnobs) {
  Descriptor g = graph_of(graph::kForward);
  using Knobs = std::vector<std::pair<int, int64_t>>;
  const auto configure = [&](int64_t index, const Knobs& knobs) -> std::pair<cudnnStatus_t, Descriptor> {
    Descriptor engine = graph::make(CUDNN_BACKEND_ENGINE_DESCRIPTOR),
               configuration = graph::make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    made.insert(made.end(), {engine, configuration});
    graph::set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, g);
    graph::set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, index);
    if (const cudnnStatus_t s = cudnnBackendFinalize(engine); s != CUDNN_STATUS_SUCCESS) return {s, nullptr};
    std::vector<Descriptor> list;
    for (const auto& [type, value] : knobs) {
      Descriptor k = graph::make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
      graph::set(k, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, type);
      graph::set(k, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, value);
      EXPECT_EQ(cudnnBackendFinalize(k), CUDNN_STATUS_SUCCESS);
      list.push_back(k), made.push_back(k);
    }
    graph::set(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, engine);
    if (!list.empty())
      if (const cudnnStatus_t s = cudnnBackendSetAttribute(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                                           CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                           static_cast<int64_t>(list.size()), list.data());
          s != CUDNN_STATUS_SUCCESS)
        return {s, nullptr};
    return {cudnnBackendFinalize(configuration), configuration};
  };
  const auto status = [&](int64_t index, const Knobs& knobs) { return configure(index, knobs).first; };
  constexpr int kTile = CUDNN_KNOB_TYPE_TILE_SIZE, kStages = CUDNN_KNOB_TYPE_STAGES;
  EXPECT_EQ(status(0, {}), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(status(7, {}), CUDNN_STATUS_SUCCESS);
  for (const int64_t index : {int64_t(-1), int64_t(9), int64_t(1) << 40})
    EXPECT_EQ(status(index, {}), CUDNN_STATUS_NOT_SUPPORTED) << index;
  for (const int64_t value : {-5, 4, 9999})
    EXPECT_EQ(status(7, {{kTile, value}}), CUDNN_STATUS_NOT_SUPPORTED) << value;
  EXPECT_EQ(status(0, {{kTile, 1}}), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status(7, {{CUDNN_KNOB_TYPE_SWAP_AB, 1}}), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(status(7, {{CUDNN_KNOB_TYPE_COUNTS, 1}}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status(7, {{kTile, 1}, {kTile, 1}}), CUDNN_STATUS_BAD_PARAM);
  const auto [done, configuration] = configure(7, {{kStages, 2}, {kTile, 1}});
  EXPECT_EQ(done, CUDNN_STATUS_SUCCESS);
  EXPECT_TRUE(graph::describe(configuration, false).starts_with("engine 7 knobs 14=2,2=1"));
  Descriptor plan = graph::plan(configuration, handle);
  made.push_back(plan);
  EXPECT_EQ(graph::workspace_of(plan), int64_t(kWorkspace) / 2);
  int64_t n = -1;
  EXPECT_EQ(cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, nullptr),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(n, 0);
  for (const auto& [index, knobs] : {std::pair(0, 0), {7, 2}}) {
    Descriptor engine = graph::make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    made.push_back(engine);
    graph::set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, g);
    graph::set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, int64_t(index));
    EXPECT_EQ(cudnnBackendFinalize(engine), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                       &n, nullptr),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(n, knobs) << index;
  }
  const std::vector<float> before = get('y', 8);
  ASSERT_EQ(execute(plan), CUDNN_STATUS_SUCCESS);
  const std::vector<float> y = get('y', 8);
  EXPECT_NE(y, before);
  ASSERT_EQ(execute(plan_of(g)), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(get('y', 8), y);
}

// Tests say how long an engine takes.
TEST_F(EmulatedConvolution, TakesTheTimeThatATestSays) {
  set_times([](const Configuration& c) { return c.engine->index == 7 ? 3.0 : 1.0; });
  cudaEvent_t events[3];
  for (cudaEvent_t& e : events) EXPECT_EQ(cudaEventCreate(&e), cudaSuccess);
  Descriptor slow = plan_of(graph_of(graph::kForward), 7), fast = plan_of(graph_of(graph::kForward), 0);
  cudaEventRecord(events[0], nullptr);
  ASSERT_EQ(execute(slow), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(last_executed().engine->index, 7);
  cudaEventRecord(events[1], nullptr);
  ASSERT_EQ(execute(fast), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(last_executed().engine->index, 0);
  cudaEventRecord(events[2], nullptr);
  set_times(nullptr);
  EXPECT_EQ(cudaEventSynchronize(events[2]), cudaSuccess);
  float first = 0, second = 0;
  EXPECT_EQ(cudaEventElapsedTime(&first, events[0], events[1]), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&second, events[1], events[2]), cudaSuccess);
  EXPECT_NEAR(first, 3000, 900);  // and the emulation's own time
  EXPECT_NEAR(second, 1000, 900);
  for (const cudaEvent_t e : events) cudaEventDestroy(e);
}

// ---- errors that a real device does not report

TEST_F(EmulatedConvolution, ReadsOnlyWhatWasWritten) {
  if (kFresh == Byte::kWritten) GTEST_SKIP() << "a sanitizer took the place of the checker";
  Descriptor forward = plan_of(graph_of(graph::kForward)), biased = plan_of(graph_of(graph::kForward, true));
  Descriptor data = plan_of(graph_of(graph::kData)), filter = plan_of(graph_of(graph::kFilter));
  EXPECT_EQ(fault(forward), -1) << text;
  resize('y', 32, false);
  EXPECT_EQ(fault(forward), -1) << text;
  resize('y', 32, false);
  expect_fault(data, FaultKind::kUnwritten, "operand y");
  expect_fault(filter, FaultKind::kUnwritten, "operand y");
  resize('b', 8, false);
  expect_fault(biased, FaultKind::kUnwritten, "operand bias", "xwyb");
  resize('w', 64, false);
  expect_fault(forward, FaultKind::kUnwritten, "operand w");
  resize('y', 32);
  EXPECT_EQ(fault(filter), -1) << text;
  EXPECT_EQ(fault(forward), -1) << text;  // the filter's gradient was written
  resize('x', 72, false);
  cudaMemset(memory['x'], 0, 71);
  expect_fault(forward, FaultKind::kUnwritten, "operand x");
  EXPECT_EQ(fault(data), -1) << text;
}

TEST_F(EmulatedConvolution, StaysWithinItsBlocks) {
  Descriptor plans[] = {plan_of(graph_of(graph::kForward)), plan_of(graph_of(graph::kData)),
                        plan_of(graph_of(graph::kFilter))};
  for (Descriptor p : plans) {
    resize('x', 71), expect_fault(p, FaultKind::kOutOfBounds, "operand x"), resize('x', 72);
    resize('w', 63), expect_fault(p, FaultKind::kOutOfBounds, "operand w"), resize('w', 64);
    resize('y', 31), expect_fault(p, FaultKind::kOutOfBounds, "operand y"), resize('y', 32);
    EXPECT_EQ(fault(p), -1) << text;
  }
  Descriptor biased = plan_of(graph_of(graph::kForward, true));
  resize('b', 7), expect_fault(biased, FaultKind::kOutOfBounds, "operand bias", "xwyb"), resize('b', 8);
  Descriptor with_workspace = plan_of(graph_of(graph::kForward), 7);
  EXPECT_EQ(fault(with_workspace), -1) << text;
  cudaFree(workspace);
  workspace = allocate(kWorkspace - 1, false);
  expect_fault(with_workspace, FaultKind::kOutOfBounds, "the workspace");
  cudaFree(memory['x']);
  expect_fault(plans[0], FaultKind::kOutOfBounds, "freed");
  memory['x'] = allocate(72);
}

TEST_F(EmulatedConvolution, TakesNoHostMemory) {
  Descriptor p = plan_of(graph_of(graph::kForward)), with_workspace = plan_of(graph_of(graph::kForward), 7);
  for (const char id : {'x', 'w', 'y'}) {
    char* const device = memory[id];
    memory[id] = host;
    expect_fault(p, FaultKind::kHostMemory, std::string("operand ") + id);
    memory[id] = device;
  }
  char* const device = workspace;
  workspace = host;
  expect_fault(with_workspace, FaultKind::kHostMemory, "the workspace");
  workspace = device;
}

TEST_F(EmulatedConvolution, WritesNothingThatItReads) {
  std::map<char, char*> apart = memory;
  char* const block = allocate(160);
  const auto place = [&](char id, int64_t at) { memory[id] = block + at; };
  Descriptor forward = plan_of(graph_of(graph::kForward)), biased = plan_of(graph_of(graph::kForward, true));
  place('x', 0), place('y', 72);
  EXPECT_EQ(fault(forward), -1) << text;
  place('y', 68);
  expect_fault(forward, FaultKind::kRace, "operand x");
  memory = apart, place('w', 0), place('y', 60);
  expect_fault(forward, FaultKind::kRace, "operand w");
  memory = apart, place('b', 0), place('y', 4);
  expect_fault(biased, FaultKind::kRace, "operand bias", "xwyb");
  memory = apart;
  strides_y = {8, 1, 2, 2};
  expect_fault(plan_of(graph_of(graph::kForward)), FaultKind::kRace, "overlap");
  cudaFree(block);
}

TEST_F(EmulatedConvolution, AsksForAlignment) {
  alignment = 16;
  Descriptor p = plan_of(graph_of(graph::kForward)), with_workspace = plan_of(graph_of(graph::kForward), 7);
  for (const char id : {'x', 'w', 'y'}) {
    memory[id] += 4;
    EXPECT_EQ(execute(p), CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER) << id;
    memory[id] -= 4;
  }
  workspace += 4;
  EXPECT_EQ(execute(p), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(execute(with_workspace), CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  workspace -= 4;
  cudaDeviceSynchronize();
}

// Another stream's convolution uses the same workspace at the same time.
TEST_F(EmulatedConvolution, OwnsItsWorkspace) {
  Descriptor p = plan_of(graph_of(graph::kForward), 7);
  cudaStream_t two[2];
  for (cudaStream_t& s : two) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  char *const first = workspace, *const second = allocate(kWorkspace, false);
  char *const y = memory['y'], *const other = allocate(32, false);
  const uint64_t seed_before = seed();
  int found_shared = 0, found_own = 0;
  for (uint64_t number = 1; number <= 50; ++number) {
    set_seed(number);
    for (const bool shared : {true, false}) {
      FaultScope faults;
      for (int i = 0; i < 2; ++i) {
        memory['y'] = i ? other : y;
        workspace = i && !shared ? second : first;
        EXPECT_EQ(execute(p, "xwy", two[i]), CUDNN_STATUS_SUCCESS);
      }
      cudaDeviceSynchronize();
      (shared ? found_shared : found_own) += !faults.take().empty();
    }
  }
  set_seed(seed_before);
  memory['y'] = y, workspace = first;
  cudaFree(second), cudaFree(other);
  for (const cudaStream_t s : two) cudaStreamDestroy(s);
  EXPECT_GT(found_shared, 10);
  EXPECT_EQ(found_own, 0);
}

TEST_F(EmulatedConvolution, WaitsInItsStream) {
  Descriptor p = plan_of(graph_of(graph::kForward));
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  resize('x', 72, false);
  cudaMemsetAsync(memory['x'], 0, 72, stream);
  FaultScope faults;
  EXPECT_EQ(execute(p, "xwy", stream), CUDNN_STATUS_SUCCESS);
  cudaStreamSynchronize(stream);
  EXPECT_TRUE(faults.take().empty());
  EXPECT_EQ(get('y', 8), std::vector<float>(8, 0));
  cudaStreamDestroy(stream);
}

TEST_F(EmulatedConvolution, IsCaptured) {
  Descriptor p = plan_of(graph_of(graph::kForward), 7);  // with a workspace
  EXPECT_EQ(execute(p), CUDNN_STATUS_SUCCESS);
  const std::vector<float> want = get('y', 8), zeros(8, 0);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaGraph_t captured;
  cudaGraphExec_t executable;
  put('y', zeros);
  cudaDeviceSynchronize();
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(execute(p, "xwy", stream), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamEndCapture(stream, &captured), cudaSuccess);
  EXPECT_EQ(get('y', 8), zeros) << "nothing has run";
  ASSERT_EQ(cudaGraphInstantiate(&executable, captured, 0), cudaSuccess);
  cudaGraphDestroy(captured);
  for (int launch = 0; launch < 2; ++launch) {
    put('y', zeros);
    cudaDeviceSynchronize();
    EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    cudaStreamSynchronize(stream);
    EXPECT_EQ(get('y', 8), want);
  }
  resize('w', 64);
  FaultScope faults;
  EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  cudaStreamSynchronize(stream);
  const std::vector<Fault> found = faults.take();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].text.find("freed"), std::string::npos) << found[0].text;
  // A capture that is no longer valid takes none.
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(execute(p, "xwy", stream), CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(cudaStreamEndCapture(stream, &captured), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
  cudaGraphExecDestroy(executable);
  cudaStreamDestroy(stream);
}

// ---- crashing and failing calls

TEST_F(EmulatedConvolution, RefusesWhatCrashes) {
  const auto crashes = [](auto call) {
    FaultScope faults;
    EXPECT_NE(call(), CUDNN_STATUS_SUCCESS);
    const std::vector<Fault> found = faults.take();
    return found.size() == 1 && found[0].kind == FaultKind::kArgument;
  };
  Descriptor p = plan_of(graph_of(graph::kForward));
  Descriptor gone = graph::make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  EXPECT_EQ(cudnnBackendDestroyDescriptor(gone), CUDNN_STATUS_SUCCESS);
  const int64_t one = 1;
  int64_t n = 0, got = 0;
  EXPECT_TRUE(crashes([&] { return cudnnBackendDestroyDescriptor(gone); }));
  EXPECT_TRUE(crashes([&] { return cudnnBackendFinalize(gone); }));
  EXPECT_TRUE(crashes([&] {
    return cudnnBackendSetAttribute(gone, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &one);
  }));
  EXPECT_TRUE(crashes([&] {
    return cudnnBackendGetAttribute(gone, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &n, &got);
  }));
  cudaStream_t stream;
  cudaSetDevice(1);
  cudaStreamCreate(&stream);
  EXPECT_TRUE(crashes([&] { return execute(p); }));
  cudaSetDevice(0);
  EXPECT_TRUE(crashes([&] { return cudnnSetStream(handle, stream); }));
  cudaStreamDestroy(stream);
  EXPECT_EQ(cudnnCreate(nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST_F(EmulatedConvolution, FailsAsTheDeviceDoes) {
  Descriptor p = plan_of(graph_of(graph::kForward));
  cudnnHandle_t another;
  Descriptor d = nullptr;
  const auto fails = [](auto call) {
    fail_call(0, cudaErrorMemoryAllocation);
    const cudnnStatus_t status = call();
    fail_call(-1, cudaSuccess);
    return status;
  };
  EXPECT_EQ(fails([&] { return cudnnCreate(&another); }), CUDNN_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(fails([&] { return cudnnSetStream(handle, nullptr); }), CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(fails([&] { return cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &d); }),
            CUDNN_STATUS_INTERNAL_ERROR);
  EXPECT_EQ(fails([&] { return cudnnBackendFinalize(p); }), CUDNN_STATUS_INTERNAL_ERROR);
  Descriptor pack = graph::pack({'x', 'w', 'y'}, {memory['x'], memory['w'], memory['y']}, workspace);
  made.push_back(pack);
  EXPECT_EQ(fails([&] { return cudnnBackendExecute(handle, p, pack); }), CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(cudnnBackendExecute(handle, p, pack), CUDNN_STATUS_SUCCESS);
  cudaDeviceSynchronize();
  {
    const auto lock = Runtime::get().lock();
    Runtime::get().sticky = cudaErrorIllegalAddress;
  }
  EXPECT_EQ(cudnnBackendExecute(handle, p, pack), CUDNN_STATUS_EXECUTION_FAILED);
  {
    const auto lock = Runtime::get().lock();
    Runtime::get().sticky = cudaSuccess;
  }
}

TEST_F(EmulatedConvolution, CountsDescriptors) {
  const size_t so_far = count_descriptors();
  Descriptor d = graph::make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  EXPECT_EQ(count_descriptors(), so_far + 1);
  cudnnBackendDestroyDescriptor(d);
  EXPECT_EQ(count_descriptors(), so_far);
}

}  // namespace
