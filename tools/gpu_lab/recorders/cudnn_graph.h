// Helpers for cuDNN's backend API in the recorders and tests: create tensors, convolutions, graphs,
// configurations and plans. A failed call stores its text in `problem`.
#pragma once

#include <cudnn.h>

#include <vector>

#include "recorder.h"

// Plans are made for a handle.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace graph {

using Descriptor = cudnnBackendDescriptor_t;

// The first failure since the caller last cleared it.
inline std::string problem;

inline bool good(const char* what, cudnnStatus_t s) {
  if (s == CUDNN_STATUS_SUCCESS) return true;
  char message[1200] = "";
  cudnnGetLastErrorString(message, sizeof message);
  for (char& c : message)
    if (c == '\n' || c == '\t') c = ' ';
  if (problem.empty()) problem = record::text("%s: %s (%s)", what, cudnnGetErrorString(s), message);
  return false;
}

inline Descriptor make(cudnnBackendDescriptorType_t type) {
  Descriptor d = nullptr;
  good("create", cudnnBackendCreateDescriptor(type, &d));
  return d;
}
template <class T>
bool set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         const std::vector<T>& v) {
  return good("set", cudnnBackendSetAttribute(d, name, type, int64_t(v.size()), v.data()));
}
template <class T>
bool set(Descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& v) {
  return good("set", cudnnBackendSetAttribute(d, name, type, 1, &v));
}
inline bool finish(Descriptor d) { return good("finalize", cudnnBackendFinalize(d)); }

// Creates a tensor with dims [n,c,h,w] in the channels-last layout, as Gradus stores images on a GPU.
inline Descriptor tensor(int64_t id, cudnnDataType_t type, const std::vector<int64_t>& d,
                         bool is_virtual = false, int64_t alignment = 16) {
  const std::vector<int64_t> strides = {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]};
  Descriptor t = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  set(t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, d);
  set(t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
  set(t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  set(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  if (is_virtual) set(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  finish(t);
  return t;
}

// x[n, c, size, size], w[out, c / groups, kernel, kernel], y[n, out, out_size, out_size].
struct Convolution {
  const char* name;
  int64_t n, c, size, out, kernel, stride, padding, groups;
  int64_t out_size() const { return (size + 2 * padding - kernel) / stride + 1; }
  std::vector<int64_t> x() const { return {n, c, size, size}; }
  std::vector<int64_t> w() const { return {out, c / groups, kernel, kernel}; }
  std::vector<int64_t> y() const { return {n, out, out_size(), out_size()}; }
  double flops() const {
    return 2.0 * double(n) * double(out) * double(out_size() * out_size()) * double(c / groups) *
           double(kernel * kernel);
  }
};

inline Descriptor convolution(const Convolution& c, cudnnDataType_t compute) {
  Descriptor d = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const std::vector<int64_t> pads(2, c.padding), strides(2, c.stride), ones(2, 1);
  set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t(2));
  set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, compute);
  set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, pads);
  set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, pads);
  set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, ones);
  set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, strides);
  finish(d);
  return d;
}

enum Direction { kForward, kData, kFilter };
inline const char* const kDirections[] = {"forward", "dgrad", "wgrad"};

inline Descriptor convolve(Direction way, Descriptor x, Descriptor w, Descriptor y, Descriptor conv,
                           cudnnDataType_t compute) {
  const cudnnBackendDescriptorType_t types[] = {
      CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
      CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
      CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR};
  const cudnnBackendAttributeName_t names[3][6] = {
      {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
      {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
      {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
  Descriptor d = make(types[way]);
  const Descriptor parts[] = {x, w, y, conv};
  for (int i = 0; i < 4; ++i) set(d, names[way][i], CUDNN_TYPE_BACKEND_DESCRIPTOR, parts[i]);
  if (compute == CUDNN_DATA_DOUBLE) {
    set(d, names[way][4], CUDNN_TYPE_DOUBLE, 1.0);
    set(d, names[way][5], CUDNN_TYPE_DOUBLE, 0.0);
  } else {
    set(d, names[way][4], CUDNN_TYPE_FLOAT, 1.f);
    set(d, names[way][5], CUDNN_TYPE_FLOAT, 0.f);
  }
  finish(d);
  return d;
}

inline Descriptor pointwise(cudnnPointwiseMode_t mode, Descriptor x, Descriptor b, Descriptor y,
                            cudnnDataType_t compute = CUDNN_DATA_FLOAT) {
  Descriptor p = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
             d = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  set(p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute);
  finish(p);
  set(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, p);
  set(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, x);
  if (b) set(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, b);
  set(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, y);
  finish(d);
  return d;
}

// Creates a graph of operations. Without a handle, it is for the device that a properties descriptor
// describes.
inline Descriptor operations(const std::vector<Descriptor>& ops, cudnnHandle_t handle) {
  Descriptor d = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ops);
  if (handle) set(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  finish(d);
  return d;
}

inline Descriptor properties(const std::string& json) {
  Descriptor d = make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  good("set JSON", cudnnBackendSetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                            int64_t(json.size()), json.c_str()));
  finish(d);
  return d;
}
inline std::string properties_of(cudnnHandle_t handle) {
  Descriptor d = make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  set(d, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, handle);
  finish(d);
  int64_t size = 0;
  cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &size, nullptr);
  std::string json(size_t(size), '\0');
  cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, size, &size,
                           json.data());
  return json.c_str();
}

inline std::vector<Descriptor> configurations(Descriptor g, cudnnBackendHeurMode_t mode,
                                              Descriptor device = nullptr) {
  Descriptor h = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, g);
  set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (device) set(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, device);
  if (!finish(h)) return {};
  int64_t count = 0;
  cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                           nullptr);
  std::vector<Descriptor> all(static_cast<size_t>(count));
  for (Descriptor& d : all) d = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (count)
    good("results", cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                             count, &count, all.data()));
  all.resize(static_cast<size_t>(count));
  return all;
}

// Returns null if the configuration is refused.
inline Descriptor plan(Descriptor configuration, cudnnHandle_t handle, Descriptor device = nullptr) {
  Descriptor d = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  set(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, configuration);
  if (device)
    set(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, device);
  else
    set(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
  return finish(d) ? d : nullptr;
}
inline int64_t workspace_of(Descriptor plan) {
  int64_t bytes = 0, n = 0;
  cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes);
  return bytes;
}
inline std::string json_of(Descriptor plan) {
  int64_t size = 0;
  if (!good("JSON's size", cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                                    CUDNN_TYPE_CHAR, 0, &size, nullptr)))
    return "";
  std::string json(size_t(size), '\0');
  good("JSON", cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                        size, &size, json.data()));
  return json.c_str();
}
inline Descriptor restored(const std::string& json, cudnnHandle_t handle) {
  Descriptor d = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  set(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle);
  good("set plan's JSON", cudnnBackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                                   CUDNN_TYPE_CHAR, int64_t(json.size()), json.c_str()));
  return finish(d) ? d : nullptr;
}

// "engine 7 knobs 2=1,3=0 notes tensor-core behaviour runtime-compilation"
inline std::string describe(Descriptor configuration, bool with_notes = true) {
  Descriptor engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  int64_t n = 0, index = -1;
  cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                           &engine);
  cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &index);
  std::string s = record::text("engine %lld knobs ", static_cast<long long>(index));
  std::vector<Descriptor> knobs(32);
  for (Descriptor& k : knobs) k = make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
  int64_t count = 0;
  cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                           32, &count, knobs.data());
  for (int64_t i = 0; i < count && i < 32; ++i) {
    cudnnBackendKnobType_t type{};
    int64_t value = 0;
    cudnnBackendGetAttribute(knobs[size_t(i)], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &n,
                             &type);
    cudnnBackendGetAttribute(knobs[size_t(i)], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &n,
                             &value);
    s += record::text("%s%d=%lld", i ? "," : "", int(type), static_cast<long long>(value));
  }
  if (count == 0) s += "none";
  if (with_notes) {
    const char* const numeric[] = {"tensor-core",      "down-convert", "reduced-reduction", "fft",
                                   "NONDETERMINISTIC", "winograd",     "winograd4x4",       "winograd6x6",
                                   "winograd13x13",    "strict-nan"};
    const char* const behaviour[] = {"runtime-compilation", "filter-reorder", "bias-reorder",
                                     "cuda-graph-api", "cublaslt"};
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaves[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    count = 0;
    cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                             CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes);
    s += " notes";
    for (int64_t i = 0; i < count; ++i) s += std::string(" ") + numeric[int(notes[i])];
    count = 0;
    cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                             CUDNN_BEHAVIOR_NOTE_TYPE_COUNT, &count, behaves);
    for (int64_t i = 0; i < count; ++i) s += std::string(" ") + behaviour[int(behaves[i])];
  }
  for (Descriptor k : knobs) cudnnBackendDestroyDescriptor(k);
  cudnnBackendDestroyDescriptor(engine);
  return s;
}

inline Descriptor pack(const std::vector<int64_t>& ids, const std::vector<void*>& pointers, void* workspace) {
  Descriptor d = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  set(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
  set(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
  set(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  finish(d);
  return d;
}

}  // namespace graph
