// Valid and invalid calls of cuDNN's backend API. cudnn_answers.cu records the statuses of a real GPU;
// cudnn_test.cc in tools/cuda_emulator/tests compares the emulated library with the record. Graphs are the
// helpers of cudnn_graph.h.
#pragma once

#include <functional>

#include "cudnn_graph.h"

namespace calls {

using namespace graph;  // NOLINT

// The three hooks are set by the recorder or the test. ask() makes a call and records or compares its status,
// or skips it.
inline std::function<void(const char* asked, const std::function<cudnnStatus_t()>& call)> ask;
// Returns whether ask() made the latest call. tell() records or compares further results.
inline std::function<bool()> is_asking;
inline std::function<void(const char* asked, const std::string& answer)> tell;
#define CUDNN_ASK(...) ask(#__VA_ARGS__, [&]() -> cudnnStatus_t { return __VA_ARGS__; })

inline const std::vector<int64_t> dims = {2, 8, 10, 10}, strides = {800, 1, 80, 8};

// The attributes of a tensor that are set.
struct TensorParts {
  bool type = true, dims = true, strides = true, id = true, alignment = true;
};
inline Descriptor raw_tensor(TensorParts parts, std::vector<int64_t> d = dims,
                             std::vector<int64_t> st = strides, int64_t alignment = 16) {
  Descriptor t = nullptr;
  cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &t);
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  const int64_t id = 'x';
  if (parts.type) cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  if (parts.dims)
    cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, int64_t(d.size()), d.data());
  if (parts.strides)
    cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, int64_t(st.size()), st.data());
  if (parts.id) cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
  if (parts.alignment)
    cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  return t;
}

inline void attributes() {
  record::group = "attributes";
  Descriptor t = nullptr;
  const int64_t one = 1;
  int64_t got[8], n = 0;
  CUDNN_ASK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, nullptr));
  CUDNN_ASK(cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t(999), &t));
  CUDNN_ASK(cudnnBackendDestroyDescriptor(nullptr));
  CUDNN_ASK(cudnnBackendFinalize(nullptr));
  cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &t);
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  CUDNN_ASK(cudnnBackendSetAttribute(nullptr, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, nullptr));
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_INT64, 1, &type));
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 0, &type));
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 2, &type));
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, -1, &type));
  const cudnnDataType_t unknown = cudnnDataType_t(777);
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &unknown));
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &one));
  CUDNN_ASK(cudnnBackendSetAttribute(t, cudnnBackendAttributeName_t(99999), CUDNN_TYPE_INT64, 1, &one));
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT32, 4, dims.data()));
  const std::vector<int64_t> nine(9, 2);
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 9, nine.data()));
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims.data()));
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, nine.data()));
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT32, 1, &one));
  const bool yes = true;
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_INT64, 1, &one));
  CUDNN_ASK(cudnnBackendSetAttribute(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes));
  CUDNN_ASK(cudnnBackendGetAttribute(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8, &n, got));
  Descriptor whole = raw_tensor({});
  CUDNN_ASK(cudnnBackendFinalize(whole));
  CUDNN_ASK(cudnnBackendFinalize(whole));
  CUDNN_ASK(cudnnBackendSetAttribute(whole, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &one));
  CUDNN_ASK(cudnnBackendGetAttribute(whole, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8, &n, got));
  tell("count that came back for 4 dimensions with room for 8", std::to_string(n));
  CUDNN_ASK(cudnnBackendGetAttribute(whole, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 2, &n, got));
  tell("count with room for 2", std::to_string(n));
  CUDNN_ASK(cudnnBackendGetAttribute(whole, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0, &n, nullptr));
  CUDNN_ASK(cudnnBackendGetAttribute(whole, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8, nullptr, got));
  CUDNN_ASK(cudnnBackendGetAttribute(whole, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_FLOAT, 8, &n, got));
  CUDNN_ASK(
      cudnnBackendGetAttribute(whole, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 8, &n, got));
}

inline void tensors() {
  record::group = "finalize a tensor";
  CUDNN_ASK(cudnnBackendFinalize(raw_tensor({.type = false})));
  CUDNN_ASK(cudnnBackendFinalize(raw_tensor({.dims = false})));
  CUDNN_ASK(cudnnBackendFinalize(raw_tensor({.strides = false})));
  CUDNN_ASK(cudnnBackendFinalize(raw_tensor({.id = false})));
  CUDNN_ASK(cudnnBackendFinalize(raw_tensor({.alignment = false})));
  CUDNN_ASK(cudnnBackendFinalize(raw_tensor({}, {2, 8, 10, 10}, {800, 1, 80})));
  CUDNN_ASK(cudnnBackendFinalize(raw_tensor({}, {2, 8, 0, 10}, strides)));
  CUDNN_ASK(cudnnBackendFinalize(raw_tensor({}, {2, 8, -1, 10}, strides)));
  CUDNN_ASK(cudnnBackendFinalize(raw_tensor({}, {2, 8, 10, 10}, {800, -1, 80, 8})));
  CUDNN_ASK(cudnnBackendFinalize(raw_tensor({}, {2, 8, 10, 10}, {800, 0, 80, 8})));
  CUDNN_ASK(cudnnBackendFinalize(raw_tensor({}, {2, 8, 10, 10}, {1, 1, 1, 1})));
  CUDNN_ASK(cudnnBackendFinalize(raw_tensor({}, {2}, {1})));
  CUDNN_ASK(cudnnBackendFinalize(raw_tensor({}, {int64_t(1) << 33, 8, 1, 1}, {8, 1, 8, 8})));
  for (int64_t alignment : {0, 1, 2, 3, 4, 8, 16, 32, 256, -4})
    ask(record::text("alignment %lld", static_cast<long long>(alignment)).c_str(),
        [&] { return cudnnBackendFinalize(raw_tensor({}, dims, strides, alignment)); });
}

inline void operations_and_graphs(cudnnHandle_t handle) {
  record::group = "finalize a convolution";
  for (int left_out = 0; left_out < 8; ++left_out) {
    const char* const names[] = {"nothing left out",  "without spatial dims", "without compute type",
                                 "without mode",      "without pre paddings", "without post paddings",
                                 "without dilations", "without strides"};
    ask(names[left_out], [&] {
      Descriptor d = nullptr;
      cudnnBackendCreateDescriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &d);
      const int64_t two = 2, ones[] = {1, 1};
      const cudnnDataType_t type = CUDNN_DATA_FLOAT;
      const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
      if (left_out != 1)
        cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
      if (left_out != 2)
        cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
      if (left_out != 3)
        cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
      if (left_out != 4)
        cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, ones);
      if (left_out != 5)
        cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, ones);
      if (left_out != 6)
        cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones);
      if (left_out != 7)
        cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, ones);
      return cudnnBackendFinalize(d);
    });
  }
  for (int which = 0; which < 5; ++which) {
    const char* const names[] = {"paddings of 3 for 2 dimensions", "padding -1", "stride 0", "dilation 0",
                                 "stride -1"};
    ask(names[which], [&] {
      Descriptor d = nullptr;
      cudnnBackendCreateDescriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &d);
      const int64_t two = 2, ones[] = {1, 1, 1}, bad[] = {which == 2 || which == 3 ? 0 : -1, 1};
      const cudnnDataType_t type = CUDNN_DATA_FLOAT;
      const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
      cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
      cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
      cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
      cudnnStatus_t s = cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64,
                                                 which == 0 ? 3 : 2, which == 1 ? bad : ones);
      cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, ones);
      cudnnStatus_t u = cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2,
                                                 which == 3 ? bad : ones);
      cudnnStatus_t v = cudnnBackendSetAttribute(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64,
                                                 2, which == 2 || which == 4 ? bad : ones);
      if (s || u || v) return s ? s : u ? u : v;
      return cudnnBackendFinalize(d);
    });
  }
  record::group = "finalize an operation";
  const auto operation = [&](std::vector<int64_t> x, std::vector<int64_t> w, std::vector<int64_t> y,
                             cudnnDataType_t tx = CUDNN_DATA_FLOAT, cudnnDataType_t tw = CUDNN_DATA_FLOAT,
                             cudnnDataType_t ty = CUDNN_DATA_FLOAT,
                             cudnnDataType_t compute = CUDNN_DATA_FLOAT, int leave_out = -1,
                             int64_t idw = 'w') {
    Descriptor d = nullptr;
    cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, &d);
    const Descriptor parts[] = {tensor('x', tx, x), tensor(idw, tw, w), tensor('y', ty, y),
                                convolution({"", 0, 0, 0, 0, 3, 1, 1, 1}, compute)};
    const cudnnBackendAttributeName_t names[] = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC};
    for (int i = 0; i < 4; ++i)
      if (i != leave_out) cudnnBackendSetAttribute(d, names[i], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &parts[i]);
    const float a = 1, b = 0;
    if (leave_out != 4)
      cudnnBackendSetAttribute(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &a);
    if (leave_out != 5)
      cudnnBackendSetAttribute(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &b);
    return d;
  };
  const std::vector<int64_t> x = {2, 8, 10, 10}, w = {16, 8, 3, 3}, y = {2, 16, 10, 10};
  const auto F = CUDNN_DATA_FLOAT, H = CUDNN_DATA_HALF, B = CUDNN_DATA_BFLOAT16, D = CUDNN_DATA_DOUBLE;
  // Finalizes an operation. Also reports whether a graph, configurations and plans can be made of it.
  const auto whole = [&](const char* asked, Descriptor d) {
    ask((std::string(asked) + ": finalize").c_str(), [&] { return cudnnBackendFinalize(d); });
    if (!is_asking()) return;
    problem.clear();
    Descriptor g = operations({d}, handle);
    std::string far = problem.empty() ? "graph taken" : "graph refused: " + problem;
    if (problem.empty()) {
      const auto all = configurations(g, CUDNN_HEUR_MODE_A);
      far +=
          record::text(", %zu configurations%s", all.size(), problem.empty() ? "" : (": " + problem).c_str());
      problem.clear();
      int plans = 0;
      for (size_t i = 0; i < all.size() && i < 4; ++i) plans += plan(all[i], handle) != nullptr;
      far += record::text(", %d of the first 4 planned%s", plans,
                          problem.empty() ? "" : (": " + problem).c_str());
    }
    tell((std::string(asked) + ": then").c_str(), far);
  };
  whole("right", operation(x, w, y));
  whole("y one too high", operation(x, w, {2, 16, 11, 10}));
  whole("y of other n", operation(x, w, {3, 16, 10, 10}));
  whole("y of other channels", operation(x, w, {2, 15, 10, 10}));
  whole("w of other channels", operation(x, {16, 7, 3, 3}, y));
  whole("w of half the channels, a grouped convolution", operation(x, {16, 4, 3, 3}, y));
  whole("w of another kernel size", operation(x, {16, 8, 5, 5}, y));
  whole("x f16, w f32, y f32", operation(x, w, y, H, F, F));
  whole("x f16, w f16, y f32", operation(x, w, y, H, H, F));
  whole("x f16, w bf16, y f16", operation(x, w, y, H, B, H));
  whole("f32 with compute f64", operation(x, w, y, F, F, F, D));
  whole("f32 with compute f16", operation(x, w, y, F, F, F, H));
  whole("f16 with compute f16", operation(x, w, y, H, H, H, H));
  whole("f64 with alpha as float", operation(x, w, y, D, D, D, D));
  whole("without x", operation(x, w, y, F, F, F, F, 0));
  whole("without w", operation(x, w, y, F, F, F, F, 1));
  whole("without y", operation(x, w, y, F, F, F, F, 2));
  whole("without the convolution", operation(x, w, y, F, F, F, F, 3));
  whole("without alpha", operation(x, w, y, F, F, F, F, 4));
  whole("without beta", operation(x, w, y, F, F, F, F, 5));
  whole("x and w with one id", operation(x, w, y, F, F, F, F, -1, 'x'));
  whole("7 channels in f16", operation({2, 7, 10, 10}, {16, 7, 3, 3}, y, H, H, H));
  record::group = "finalize a graph";
  CUDNN_ASK([&] {
    Descriptor g = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    return cudnnBackendFinalize(g);
  }());
  CUDNN_ASK([&] {
    Descriptor g = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), op = operation(x, w, y);
    return cudnnBackendSetAttribute(g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &op);
  }());
  CUDNN_ASK([&] {
    Descriptor g = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), op = operation(x, w, y);
    cudnnBackendFinalize(op);
    cudnnBackendSetAttribute(g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &op);
    return cudnnBackendFinalize(g);
  }());
  CUDNN_ASK([&] {
    Descriptor g = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), t = tensor('x', CUDNN_DATA_FLOAT, x);
    return cudnnBackendSetAttribute(g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t);
  }());
  CUDNN_ASK([&] {
    Descriptor g = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), op = operation(x, w, y);
    cudnnBackendFinalize(op);
    Descriptor two[] = {op, op};
    cudnnBackendSetAttribute(g, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 2, two);
    return cudnnBackendFinalize(g);
  }());
  CUDNN_ASK([&] {
    Descriptor h = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    return cudnnBackendFinalize(h);
  }());
  CUDNN_ASK([&] {
    Descriptor p = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    return cudnnBackendFinalize(p);
  }());
  CUDNN_ASK([&] {
    Descriptor p = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    return cudnnBackendSetAttribute(p, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  }());
  CUDNN_ASK([&] {
    Descriptor e = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR), op = operation(x, w, y);
    cudnnBackendFinalize(op);
    Descriptor g = operations({op}, handle);
    int64_t id = 9999;
    cudnnBackendSetAttribute(e, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g);
    cudnnStatus_t s = cudnnBackendSetAttribute(e, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &id);
    return s ? s : cudnnBackendFinalize(e);
  }());
  record::group = "device properties";
  for (const char* json : {"", "{}", "{\"deviceVer\": 900}", "nonsense"})
    ask(record::text("from '%s'", json).c_str(), [&] {
      Descriptor d = make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
      const cudnnStatus_t s = cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                       CUDNN_TYPE_CHAR, int64_t(std::strlen(json)), json);
      return s ? s : cudnnBackendFinalize(d);
    });
}

// Executions of plans. in_a_capture(name, plan, pack) makes one more call, for the recorder.
template <class InACapture> void executions(cudnnHandle_t handle, InACapture in_a_capture) {
  record::group = "execute";
  char* memory;
  MUST(cudaMalloc(reinterpret_cast<void**>(&memory), 128 << 20));
  MUST(cudaMemset(memory, 0, 12 << 20));
  char *x = memory, *w = memory + (4 << 20), *y = memory + (8 << 20), *space = memory + (12 << 20);
  for (const auto& [name, type] :
       {std::pair("f32", CUDNN_DATA_FLOAT), std::pair("bf16", CUDNN_DATA_BFLOAT16)}) {
    const Convolution c{"", 8, 32, 26, 64, 3, 1, 1, 1};
    problem.clear();
    Descriptor tx = tensor('x', type, c.x()), tw = tensor('w', type, c.w()), ty = tensor('y', type, c.y());
    Descriptor conv = convolution(c, CUDNN_DATA_FLOAT),
               op = convolve(kForward, tx, tw, ty, conv, CUDNN_DATA_FLOAT), g = operations({op}, handle);
    const auto all = configurations(g, CUDNN_HEUR_MODE_A);
    Descriptor first = nullptr, with_workspace = nullptr, configuration = nullptr;
    for (Descriptor d : all) {
      Descriptor p = plan(d, handle);
      if (!p) continue;
      if (!first) first = p, configuration = d;
      if (workspace_of(p) > 0 && !with_workspace && workspace_of(p) < (100 << 20)) with_workspace = p;
    }
    tell(name, record::text("first plan: %s, workspace %lld; a plan with workspace: %s, %lld",
                            configuration ? describe(configuration).c_str() : "none",
                            static_cast<long long>(first ? workspace_of(first) : -1),
                            with_workspace ? "there is" : "there is none",
                            static_cast<long long>(with_workspace ? workspace_of(with_workspace) : -1)));
    if (!first) continue;
    const auto go = [&](const char* asked, Descriptor p, std::vector<int64_t> ids, std::vector<void*> at,
                        void* ws, cudnnHandle_t h) {
      ask(record::text("%s: %s", name, asked).c_str(), [&] {
        Descriptor d = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
        cudnnStatus_t s = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                                   int64_t(ids.size()), ids.data());
        if (!s)
          s = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                       int64_t(at.size()), at.data());
        if (!s)
          s = cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &ws);
        if (!s) s = cudnnBackendFinalize(d);
        if (s) return s;
        return cudnnBackendExecute(h, p, d);
      });
    };
    const std::vector<int64_t> ids = {'x', 'w', 'y'};
    go("right", first, ids, {x, w, y}, space, handle);
    go("another order of ids", first, {'y', 'x', 'w'}, {y, x, w}, space, handle);
    go("without y", first, {'x', 'w'}, {x, w}, space, handle);
    go("an id too many", first, {'x', 'w', 'y', 'z'}, {x, w, y, y}, space, handle);
    go("one id twice", first, {'x', 'w', 'y', 'x'}, {x, w, y, y}, space, handle);
    go("3 ids, 2 pointers", first, ids, {x, w}, space, handle);
    go("x null", first, ids, {nullptr, w, y}, space, handle);
    go("handle null", first, ids, {x, w, y}, space, nullptr);
    go("plan null", nullptr, ids, {x, w, y}, space, handle);
    go("x 8 bytes off (aligned to 16 in its descriptor)", first, ids, {x + 8, w, y}, space, handle);
    go("x 4 bytes off", first, ids, {x + 4, w, y}, space, handle);
    go("x 2 bytes off", first, ids, {x + 2, w, y}, space, handle);
    go("x 1 byte off", first, ids, {x + 1, w, y}, space, handle);
    go("w 8 bytes off", first, ids, {x, w + 8, y}, space, handle);
    go("y 8 bytes off", first, ids, {x, w, y + 8}, space, handle);
    go("y 4 bytes off", first, ids, {x, w, y + 4}, space, handle);
    go("y is x", first, ids, {x, w, x}, space, handle);
    go("workspace null", first, ids, {x, w, y}, nullptr, handle);
    if (with_workspace) {
      go("plan with workspace: right", with_workspace, ids, {x, w, y}, space, handle);
      go("plan with workspace: null", with_workspace, ids, {x, w, y}, nullptr, handle);
      go("plan with workspace: 1 byte off", with_workspace, ids, {x, w, y}, space + 1, handle);
      go("plan with workspace: 16 bytes off", with_workspace, ids, {x, w, y}, space + 16, handle);
    }
    static char on_host[1 << 20];
    char* pinned;
    MUST(cudaMallocHost(reinterpret_cast<void**>(&pinned), 16 << 20));
    go("x in pinned memory", first, ids, {pinned, w, y}, space, handle);
    ask(record::text("%s: without a workspace set", name).c_str(), [&] {
      Descriptor d = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
      void* at[] = {x, w, y};
      cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids.data());
      cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, at);
      const cudnnStatus_t s = cudnnBackendFinalize(d);
      return s ? s : cudnnBackendExecute(handle, first, d);
    });
    ask(record::text("%s: pack not finalized", name).c_str(), [&] {
      Descriptor d = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
      void* at[] = {x, w, y};
      cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids.data());
      cudnnBackendSetAttribute(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, at);
      return cudnnBackendExecute(handle, first, d);
    });
    in_a_capture(name, first, pack(ids, {x, w, y}, space));
    cudnnBackendDestroyDescriptor(tx);
    cudnnBackendDestroyDescriptor(op);
    cudnnBackendDestroyDescriptor(g);
    for (Descriptor d : all) cudnnBackendDestroyDescriptor(d);
    go("after tensor, operation, graph and configurations were destroyed", first, ids, {x, w, y}, space,
       handle);
    // This one loses the device: last.
    go("x in the host's static memory", first, ids, {on_host, w, y}, space, handle);
  }
}

#undef CUDNN_ASK

}  // namespace calls
