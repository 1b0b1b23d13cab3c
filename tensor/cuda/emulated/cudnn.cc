// cuDNN's backend descriptors, heuristic and plans. Answers are those of the documentation and of an H100.
#include "gradus/tensor/cuda/emulated/cudnn.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/cuda/emulated/call.h"
#include "gradus/tensor/cuda/libraries/cudnn_functions.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // attributes for handles

struct cudnnContext {
  int device;
  cudaStream_t stream = nullptr;
};

namespace gradus::cuda::emulated {
namespace {

struct Descriptor;
using Parts = std::vector<std::shared_ptr<const Descriptor>>;

// An attribute that was set.
struct Value {
  std::vector<std::byte> bytes;  // its elements
  Parts parts;                   // those that are descriptors
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Value> values{};
  // What finalizing made of them.
  std::shared_ptr<const ConvGraph> graph{};
  // Of a heuristic, or the one of a configuration, an engine or a plan.
  std::vector<Configuration> configurations{};
  int device = -1;

  bool has(cudnnBackendAttributeName_t name) const { return values.contains(name); }
  template <class T> std::vector<T> list(cudnnBackendAttributeName_t name) const {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    std::vector<T> all(found->second.bytes.size() / sizeof(T));
    std::memcpy(all.data(), found->second.bytes.data(), all.size() * sizeof(T));
    return all;
  }
  template <class T> T value(cudnnBackendAttributeName_t name, T otherwise) const {
    if (const auto found = values.find(name); found != values.end())
      std::memcpy(&otherwise, found->second.bytes.data(), sizeof otherwise);
    return otherwise;
  }
  const Parts& parts(cudnnBackendAttributeName_t name) const {
    static const Parts none;
    const auto found = values.find(name);
    return found == values.end() ? none : found->second.parts;
  }
  template <class T> void put(cudnnBackendAttributeName_t name, const T& value) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
    values[name].bytes.assign(bytes, bytes + sizeof value);
  }
  // Null where it was not set.
  const Descriptor* part(cudnnBackendAttributeName_t name) const {
    return parts(name).empty() ? nullptr : parts(name)[0].get();
  }
};

// ---- statuses, and why

thread_local std::string reason;

cudnnStatus_t refuse(cudnnStatus_t status, const char* why) {
  reason = why;
  return status;
}
#define GRADUS_REFUSE_UNLESS(condition, status) \
  if (!(condition)) return refuse(status, #condition)
#define GRADUS_NEED(condition) GRADUS_REFUSE_UNLESS(condition, CUDNN_STATUS_BAD_PARAM)

// Nothing goes on behind these on a real device.
cudnnStatus_t fault(const char* function, const std::string& what) {
  deliver(library_fault({function, gradus::internal::called_op}, FaultKind::kArgument, what));
  return refuse(CUDNN_STATUS_BAD_PARAM, "a fault");
}

// A call that a test makes fail (fail_call).
template <class F> cudnnStatus_t host_call(F&& f, const char* function = __builtin_FUNCTION()) {
  const auto lock = Runtime::get().lock();
  if (const int status = injected_failure(function, CUDNN_STATUS_INTERNAL_ERROR))
    return refuse(static_cast<cudnnStatus_t>(status), "a test wants it");
  return f();
}
// One that an error of the device makes fail, too.
template <class F>
cudnnStatus_t device_call(cudnnStatus_t failure, F&& f, const char* function = __builtin_FUNCTION()) {
  if (in_host_function) return failure;
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  if (runtime.sticky != cudaSuccess) return refuse(failure, "the device has failed");
  if (const int status = injected_failure(function, failure))
    return refuse(static_cast<cudnnStatus_t>(status), "a test wants it");
  return f(runtime);
}

// ---- descriptors by their addresses

std::unordered_map<const void*, std::shared_ptr<Descriptor>>& descriptors() {
  static auto& all = *new std::unordered_map<const void*, std::shared_ptr<Descriptor>>;
  return all;
}
std::shared_ptr<Descriptor> find(const char* function, const void* p) {
  const auto found = descriptors().find(p);
  if (found != descriptors().end()) return found->second;
  fault(function, "a descriptor that was destroyed, or never made");
  return nullptr;
}

// ---- attributes

struct Attribute {
  cudnnBackendAttributeType_t type;
  int64_t most;  // elements
  bool is_result = false;
};
constexpr int64_t kAny = 64;
// CUDNN_TYPE_FLOAT stands for double too.
using Attributes = std::map<cudnnBackendAttributeName_t, Attribute>;

Attributes convolution_attributes(cudnnBackendAttributeName_t x, cudnnBackendAttributeName_t w,
                                  cudnnBackendAttributeName_t y, cudnnBackendAttributeName_t geometry,
                                  cudnnBackendAttributeName_t alpha, cudnnBackendAttributeName_t beta) {
  const Attribute part{CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}, factor{CUDNN_TYPE_FLOAT, 1};
  return {{x, part}, {w, part}, {y, part}, {geometry, part}, {alpha, factor}, {beta, factor}};
}

// How the library calls the parts of each direction.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t x, w, y, geometry, alpha, beta;
};
constexpr Names kNames[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};

// Null for a type that is not emulated.
const Attributes* attributes_of(cudnnBackendDescriptorType_t type) {
  static const Attribute part{CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}, integer{CUDNN_TYPE_INT64, 1},
      integers{CUDNN_TYPE_INT64, kAny}, dtype{CUDNN_TYPE_DATA_TYPE, 1}, handle{CUDNN_TYPE_HANDLE, 1};
  static const auto all = [] {
    std::map<cudnnBackendDescriptorType_t, Attributes> m;
    m[CUDNN_BACKEND_TENSOR_DESCRIPTOR] = {
        {CUDNN_ATTR_TENSOR_DATA_TYPE, dtype},        {CUDNN_ATTR_TENSOR_DIMENSIONS, integers},
        {CUDNN_ATTR_TENSOR_STRIDES, integers},       {CUDNN_ATTR_TENSOR_UNIQUE_ID, integer},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, integer}, {CUDNN_ATTR_TENSOR_IS_VIRTUAL, {CUDNN_TYPE_BOOLEAN, 1}}};
    m[CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR] = {
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, integer},
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, dtype},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, {CUDNN_TYPE_CONVOLUTION_MODE, 1}},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, integers},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, integers},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, integers},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, integers}};
    m[CUDNN_BACKEND_POINTWISE_DESCRIPTOR] = {{CUDNN_ATTR_POINTWISE_MODE, {CUDNN_TYPE_POINTWISE_MODE, 1}},
                                             {CUDNN_ATTR_POINTWISE_MATH_PREC, dtype}};
    for (const Names& n : kNames)
      m[n.operation] = convolution_attributes(n.x, n.w, n.y, n.geometry, n.alpha, n.beta);
    m[CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR] = {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part},
                                                       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, part},
                                                       {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, part},
                                                       {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, part}};
    m[CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR] = {
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, {CUDNN_TYPE_BACKEND_DESCRIPTOR, kAny}},
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle}};
    m[CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR] = {
        {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, part},
        {CUDNN_ATTR_ENGINEHEUR_MODE, {CUDNN_TYPE_HEUR_MODE, 1}},
        {CUDNN_ATTR_ENGINEHEUR_RESULTS, {CUDNN_TYPE_BACKEND_DESCRIPTOR, kAny, true}}};
    m[CUDNN_BACKEND_ENGINECFG_DESCRIPTOR] = {
        {CUDNN_ATTR_ENGINECFG_ENGINE, part},
        {CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, {CUDNN_TYPE_BACKEND_DESCRIPTOR, kAny}}};
    m[CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR] = {{CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, {CUDNN_TYPE_KNOB_TYPE, 1}},
                                               {CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, integer}};
    m[CUDNN_BACKEND_ENGINE_DESCRIPTOR] = {
        {CUDNN_ATTR_ENGINE_OPERATION_GRAPH, part},
        {CUDNN_ATTR_ENGINE_GLOBAL_INDEX, integer},
        {CUDNN_ATTR_ENGINE_KNOB_INFO, {CUDNN_TYPE_BACKEND_DESCRIPTOR, kAny, true}},
        {CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, {CUDNN_TYPE_NUMERICAL_NOTE, kAny, true}},
        {CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, {CUDNN_TYPE_BEHAVIOR_NOTE, kAny, true}}};
    m[CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR] = {
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, part},
        {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle},
        {CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, {CUDNN_TYPE_INT64, 1, true}}};
    m[CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR] = {
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, integers},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {CUDNN_TYPE_VOID_PTR, kAny}},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {CUDNN_TYPE_VOID_PTR, 1}}};
    return m;
  }();
  const auto found = all.find(type);
  return found == all.end() ? nullptr : &found->second;
}

size_t size_of_element(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return 4;
  }
}

cudnnStatus_t set(Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t count, const void* from) {
  GRADUS_NEED(!d.finalized);
  const Attributes& known = *attributes_of(d.type);
  const auto found = known.find(name);
  GRADUS_NEED(found != known.end() && !found->second.is_result);
  GRADUS_NEED(from != nullptr);
  const Attribute& a = found->second;
  GRADUS_REFUSE_UNLESS(type == a.type || (a.type == CUDNN_TYPE_FLOAT && type == CUDNN_TYPE_DOUBLE),
                       CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  GRADUS_NEED(count >= 1 && count <= a.most);
  Value value;
  value.bytes.resize(static_cast<size_t>(count) * size_of_element(type));
  std::memcpy(value.bytes.data(), from, value.bytes.size());
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (int64_t i = 0; i < count; ++i) {
      const std::shared_ptr<Descriptor> part =
          find("cudnnBackendSetAttribute", static_cast<void* const*>(from)[i]);
      GRADUS_REFUSE_UNLESS(part && part->finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
      value.parts.push_back(part);
    }
  }
  if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) {
    std::set<int> types;
    for (const auto& part : value.parts) {
      const auto type_of_knob = part->value(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_KNOB_TYPE_COUNTS);
      GRADUS_NEED(type_of_knob < CUDNN_KNOB_TYPE_COUNTS && types.insert(type_of_knob).second);
    }
  }
  d.values[name] = std::move(value);
  return CUDNN_STATUS_SUCCESS;
}

// Fills descriptors of the caller's: fill(i, part) for each of n.
template <class F>
cudnnStatus_t give_descriptors(size_t n, cudnnBackendDescriptorType_t type, int64_t room, int64_t* count,
                               void* to, F&& fill) {
  *count = std::min(static_cast<int64_t>(n), room);
  for (int64_t i = 0; i < *count; ++i) {
    const std::shared_ptr<Descriptor> part = find("cudnnBackendGetAttribute", static_cast<void**>(to)[i]);
    GRADUS_NEED(part && part->type == type && !part->finalized);
    part->finalized = true;
    fill(static_cast<size_t>(i), *part);
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t room, int64_t* count, void* to) {
  GRADUS_REFUSE_UNLESS(d.finalized, CUDNN_STATUS_NOT_INITIALIZED);
  const Attributes& known = *attributes_of(d.type);
  const auto found = known.find(name);
  GRADUS_NEED(found != known.end());
  GRADUS_REFUSE_UNLESS(type == found->second.type, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  int64_t none = 0;
  if (!count) count = &none;
  GRADUS_NEED(room >= 0 && (to != nullptr || room == 0));
  const auto share = [&](size_t i, Descriptor& part) {
    part.graph = d.graph, part.configurations = {d.configurations[i]};
  };
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && room == 0)
    return *count = static_cast<int64_t>(d.configurations.size()), CUDNN_STATUS_SUCCESS;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
    return give_descriptors(d.configurations.size(), CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, room, count, to,
                            share);
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE)
    return give_descriptors(1, CUDNN_BACKEND_ENGINE_DESCRIPTOR, room, count, to, share);
  if (name == CUDNN_ATTR_ENGINE_KNOB_INFO) {
    GRADUS_NEED(room == 0);  // what each may be is not emulated
    return *count = static_cast<int64_t>(d.configurations[0].engine->knobs.size()), CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) {  // without room the library says 0
    const auto& knobs = d.configurations[0].knobs;
    return give_descriptors(knobs.size(), CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, room, count, to,
                            [&](size_t i, Descriptor& part) {
                              part.put(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, knobs[i].type);
                              part.put(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, knobs[i].value);
                            });
  }
  const auto give = [&](const auto& list) {
    const auto all = static_cast<int64_t>(list.size());
    *count = room == 0 ? all : std::min(all, room);
    if (room > 0 && *count > 0) std::memcpy(to, list.data(), static_cast<size_t>(*count) * sizeof(list[0]));
    return CUDNN_STATUS_SUCCESS;
  };
  if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) return give(d.configurations[0].engine->notes);
  if (name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE) return give(d.configurations[0].engine->behavior);
  GRADUS_NEED(found->second.most > 1 || room == 1);
  if (d.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
    return give(std::vector<int64_t>{d.configurations[0].engine->index});
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
    return give(std::vector<int64_t>{static_cast<int64_t>(d.configurations[0].workspace())});
  if (type == CUDNN_TYPE_KNOB_TYPE) return give(d.list<cudnnBackendKnobType_t>(name));
  GRADUS_NEED(type == CUDNN_TYPE_INT64);  // others are not emulated
  return give(d.list<int64_t>(name));
}

// ---- finalizing

int64_t size_of_type(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return 8;
    case CUDNN_DATA_FLOAT:
      return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    default:
      return 0;  // not emulated
  }
}

cudnnStatus_t finalize_tensor(const Descriptor& d) {
  const auto sizes = d.list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
             strides = d.list<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  GRADUS_NEED(sizes.size() == strides.size() && !sizes.empty() && sizes.size() <= CUDNN_DIM_MAX);
  for (const int64_t size : sizes) GRADUS_NEED(size >= 0);
  for (const int64_t stride : strides) GRADUS_NEED(stride >= 0);
  const auto element = size_of_type(d.value(CUDNN_ATTR_TENSOR_DATA_TYPE, cudnnDataType_t(-1)));
  GRADUS_NEED(element > 0);
  const auto alignment = d.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
  GRADUS_NEED(alignment > 0 && alignment % element == 0);
  GRADUS_NEED(d.has(CUDNN_ATTR_TENSOR_UNIQUE_ID));
  return CUDNN_STATUS_SUCCESS;
}
GraphTensor tensor_of(const Descriptor& d) {
  return {d.value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, 0),
          d.value(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT),
          d.list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
          d.list<int64_t>(CUDNN_ATTR_TENSOR_STRIDES),
          d.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0),
          d.value(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false)};
}

cudnnStatus_t finalize_convolution(const Descriptor& d) {
  const auto dims = static_cast<size_t>(d.value<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0));
  GRADUS_NEED(dims >= 1 && dims <= CUDNN_DIM_MAX);
  for (const auto& [name, least] : {std::pair(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0),
                                    {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0},
                                    {CUDNN_ATTR_CONVOLUTION_DILATIONS, 1},
                                    {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1}}) {
    const auto list = d.list<int64_t>(name);
    GRADUS_NEED(list.size() == dims);
    for (const int64_t v : list) GRADUS_NEED(v >= least);
  }
  GRADUS_NEED(d.has(CUDNN_ATTR_CONVOLUTION_COMP_TYPE));
  // Without a mode, filters are flipped, which is not emulated.
  GRADUS_NEED(d.value(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CONVOLUTION) == CUDNN_CROSS_CORRELATION);
  return CUDNN_STATUS_SUCCESS;
}

bool is(const Descriptor* d, cudnnBackendDescriptorType_t type) { return d && d->type == type; }

cudnnStatus_t finalize_operation(const Descriptor& d, const Names& names) {
  const Descriptor *x = d.part(names.x), *w = d.part(names.w), *y = d.part(names.y),
                   *conv = d.part(names.geometry);
  for (const Descriptor* t : {x, w, y}) GRADUS_NEED(is(t, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  GRADUS_NEED(is(conv, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
  const auto xs = tensor_of(*x).sizes, ws = tensor_of(*w).sizes, ys = tensor_of(*y).sizes;
  const auto before = conv->list<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
             after = conv->list<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
             dilations = conv->list<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS),
             strides = conv->list<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  GRADUS_NEED(xs.size() == before.size() + 2 && ws.size() == xs.size() && ys.size() == xs.size());
  GRADUS_NEED(ys[0] == xs[0]);
  GRADUS_NEED(ys[1] == ws[0]);
  GRADUS_NEED(ws[1] != 0 && xs[1] != 0 && xs[1] % ws[1] == 0);
  GRADUS_NEED(ws[0] % (xs[1] / ws[1]) == 0);
  for (size_t i = 0; i < before.size(); ++i) {
    const int64_t room = xs[i + 2] + before[i] + after[i] - dilations[i] * (ws[i + 2] - 1) - 1;
    GRADUS_NEED(room >= 0 && ys[i + 2] == room / strides[i] + 1);
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_pointwise(const Descriptor& d) {
  // Others are not emulated.
  const auto mode = d.value(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_MUL);
  GRADUS_NEED(mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_RELU_FWD);
  GRADUS_NEED(d.has(CUDNN_ATTR_POINTWISE_MATH_PREC));
  return CUDNN_STATUS_SUCCESS;
}

bool is_relu(const Descriptor& operation) {
  return operation.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
             ->value(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD) == CUDNN_POINTWISE_RELU_FWD;
}

cudnnStatus_t finalize_pointwise_operation(const Descriptor& d) {
  GRADUS_NEED(is(d.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
  for (const auto name : {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC})
    GRADUS_NEED(is(d.part(name), CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  if (is_relu(d)) {
    GRADUS_NEED(tensor_of(*d.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)).sizes ==
                tensor_of(*d.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)).sizes);
    return CUDNN_STATUS_SUCCESS;
  }
  GRADUS_NEED(is(d.part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  const auto x = tensor_of(*d.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)).sizes,
             b = tensor_of(*d.part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)).sizes,
             y = tensor_of(*d.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)).sizes;
  GRADUS_NEED(x == y && b.size() == y.size());
  for (size_t i = 0; i < b.size(); ++i) GRADUS_NEED(b[i] == y[i] || b[i] == 1);
  return CUDNN_STATUS_SUCCESS;
}

// Null for a graph that is none of ours.
std::shared_ptr<ConvGraph> graph_of(const Parts& operations) {
  const auto names = std::find_if(std::begin(kNames), std::end(kNames),
                                  [&](const Names& n) { return n.operation == operations[0]->type; });
  if (names == std::end(kNames) || operations.size() > 3) return nullptr;
  const Descriptor& op = *operations[0];
  auto g = std::make_shared<ConvGraph>();
  g->pass = static_cast<GraphPass>(names - kNames);
  g->x = tensor_of(*op.part(names->x)), g->w = tensor_of(*op.part(names->w)),
  g->y = tensor_of(*op.part(names->y));
  const Descriptor& conv = *op.part(names->geometry);
  g->compute = conv.value(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  g->before = conv.list<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  g->after = conv.list<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  g->strides = conv.list<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  g->dilations = conv.list<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  if (operations.size() >= 2) {
    const Descriptor& add = *operations[1];
    if (add.type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR || is_relu(add) ||
        g->pass != GraphPass::kForward ||
        tensor_of(*add.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)) != g->y || !g->y.is_virtual)
      return nullptr;
    g->addition = {tensor_of(*add.part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)),
                   tensor_of(*add.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)),
                   add.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                       ->value(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)};
  }
  if (operations.size() == 3) {
    const Descriptor& relu = *operations[2];
    const GraphTensor& sum = g->addition->sum;
    if (relu.type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR || !is_relu(relu) ||
        tensor_of(*relu.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)) != sum || !sum.is_virtual)
      return nullptr;
    g->rectified = tensor_of(*relu.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  }
  return g;
}

cudnnStatus_t finalize_graph(Descriptor& d) {
  const Parts& operations = d.parts(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  GRADUS_NEED(!operations.empty());
  const std::shared_ptr<ConvGraph> graph = graph_of(operations);
  GRADUS_NEED(graph != nullptr);
  std::set<int64_t> ids;
  for (const GraphTensor* t : graph->tensors()) {
    GRADUS_NEED(ids.insert(t->id).second);
    GRADUS_NEED(!t->is_virtual);
  }
  GRADUS_NEED(!graph->addition || ids.insert(graph->y.id).second);
  GRADUS_NEED(!graph->rectified || ids.insert(graph->addition->sum.id).second);
  d.graph = graph;
  return CUDNN_STATUS_SUCCESS;
}

// The least kind first: each is one that Gradus must pass over, but for the last two and, where f32 may be
// rounded or in other types, the one before.
const std::vector<Engine>& all_engines() {
  static const std::vector<Engine> all = {
      {1, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, {}},
      {2, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, {}},
      {3, {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, {}},
      {4, {}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED},
      {5, {}, {}, CUDNN_STATUS_NOT_SUPPORTED_SHAPE},
      {6, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {}, {}, 32 << 10},
      {7, {}, {}, {}, 64 << 10, {{CUDNN_KNOB_TYPE_TILE_SIZE, 0, 3}, {CUDNN_KNOB_TYPE_STAGES, 1, 4}}},
      {0, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, {}}};
  return all;
}

// As recorded: graphs of mixed types are taken, and have no engines.
bool has_engines(const ConvGraph& g) {
  const cudnnDataType_t type = g.x.type, sums = type == CUDNN_DATA_DOUBLE ? type : CUDNN_DATA_FLOAT;
  for (const GraphTensor* t : g.tensors()) {
    if (t->type != type) return false;
    for (const int64_t size : t->sizes)
      if (size == 0) return false;
  }
  if (g.compute != sums) return false;
  if (!g.addition) return true;
  std::vector<int64_t> channels(g.y.sizes.size(), 1);  // one number for each
  channels[1] = g.y.sizes[1];
  return g.addition->compute == sums && g.addition->bias.sizes == channels &&
         g.addition->sum.strides == g.y.strides && g.result().strides == g.y.strides;
}

bool refuses_graphs = false;

cudnnStatus_t finalize_heuristic(Descriptor& d) {
  const Descriptor* const graph = d.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  GRADUS_NEED(is(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  GRADUS_NEED(d.has(CUDNN_ATTR_ENGINEHEUR_MODE));
  GRADUS_REFUSE_UNLESS(!refuses_graphs, CUDNN_STATUS_NOT_SUPPORTED);
  d.graph = graph->graph;
  if (!has_engines(*d.graph)) return CUDNN_STATUS_SUCCESS;
  const bool fallback = d.value(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A) == CUDNN_HEUR_MODE_FALLBACK;
  // As recorded: pointwise filters with a stride have none in f64, but for the engines to fall back to.
  bool is_pointwise =
      d.graph->x.type == CUDNN_DATA_DOUBLE && d.graph->pass != GraphPass::kInputGrad && !fallback;
  for (size_t i = 0; i < d.graph->strides.size(); ++i)
    is_pointwise = is_pointwise && d.graph->w.sizes[i + 2] == 1 && d.graph->strides[i] > 1;
  if (is_pointwise) return CUDNN_STATUS_SUCCESS;
  for (const Engine& e : all_engines()) {
    if (e.knobs.empty()) {
      d.configurations.push_back({&e});
      continue;
    }
    for (int64_t tile = 0; tile < 3; ++tile)
      d.configurations.push_back(
          {&e, {{CUDNN_KNOB_TYPE_TILE_SIZE, tile}, {CUDNN_KNOB_TYPE_STAGES, 4 - tile}}});
  }
  return CUDNN_STATUS_SUCCESS;
}

// One that the caller names by its number.
cudnnStatus_t finalize_engine(Descriptor& d) {
  const Descriptor* const graph = d.part(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  GRADUS_NEED(is(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  GRADUS_NEED(d.has(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  const auto index = d.value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
  const auto engine = std::find_if(all_engines().begin(), all_engines().end(),
                                   [&](const Engine& e) { return e.index == index; });
  GRADUS_REFUSE_UNLESS(engine != all_engines().end() && has_engines(*graph->graph),
                       CUDNN_STATUS_NOT_SUPPORTED);
  d.graph = graph->graph, d.configurations = {{&*engine}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_knob(const Descriptor& d) {
  GRADUS_NEED(d.has(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) && d.has(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_configuration(Descriptor& d) {
  const Descriptor* const engine = d.part(CUDNN_ATTR_ENGINECFG_ENGINE);
  GRADUS_NEED(is(engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  Configuration made = engine->configurations[0];
  const std::vector<Knob>& known = made.engine->knobs;
  for (const auto& part : d.parts(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) {
    GRADUS_NEED(is(part.get(), CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    const auto type = part->value(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_KNOB_TYPE_COUNTS);
    const auto value = part->value<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 0);
    const auto knob = std::find_if(known.begin(), known.end(), [&](const Knob& k) { return k.type == type; });
    GRADUS_REFUSE_UNLESS(knob != known.end() && value >= knob->least && value <= knob->most,
                         CUDNN_STATUS_NOT_SUPPORTED);
    made.knobs.push_back({type, value});
  }
  d.graph = engine->graph, d.configurations = {std::move(made)};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_plan(Descriptor& d) {
  const Descriptor* const configuration = d.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  GRADUS_REFUSE_UNLESS(is(configuration, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
                       CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  const auto handle = d.value<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, nullptr);
  GRADUS_NEED(handle != nullptr);
  d.graph = configuration->graph, d.configurations = configuration->configurations;
  d.device = handle->device;
  const cudnnStatus_t said = d.configurations[0].engine->plans;
  GRADUS_REFUSE_UNLESS(said == CUDNN_STATUS_SUCCESS, said);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_pack(const Descriptor& d) {
  const auto ids = d.list<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  GRADUS_NEED(ids.size() == d.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size());
  GRADUS_NEED(std::set<int64_t>(ids.begin(), ids.end()).size() == ids.size());
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(Descriptor& d) {
  GRADUS_NEED(!d.finalized);
  for (const Names& names : kNames)
    if (names.operation == d.type) return finalize_operation(d, names);
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return finalize_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return finalize_convolution(d);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
      return finalize_pointwise(d);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return finalize_pointwise_operation(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return finalize_graph(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return finalize_heuristic(d);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
      return finalize_engine(d);
    case CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR:
      return finalize_knob(d);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
      return finalize_configuration(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return finalize_plan(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return finalize_pack(d);
    default:
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "not emulated");
  }
}

// ---- executing

bool is_aligned(const void* p, int64_t to) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(to) == 0;
}

constexpr int64_t kWorkspaceAlignment = 16;

// What an execution leaves in its workspace is its own.
uint64_t next_stamp() {
  static uint64_t executions = 0;
  return ++executions * 0x9E3779B97F4A7C15u;
}

// What tests say and ask.
struct Executions {
  std::function<double(const Configuration&)> seconds_of;
  Configuration last;
};
Executions& executions() {
  static auto& all = *new Executions;
  return all;
}

cudnnStatus_t collect(QueuedConvolution& q, const Descriptor& plan, const Descriptor& pack) {
  GRADUS_REFUSE_UNLESS(plan.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && plan.finalized,
                       CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  GRADUS_REFUSE_UNLESS(pack.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR && pack.finalized,
                       CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  const Configuration& configuration = plan.configurations[0];
  q.graph = plan.graph, q.engine = configuration.engine;
  q.call = {"cudnnBackendExecute", gradus::internal::called_op};
  const auto ids = pack.list<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (const GraphTensor* t : q.graph->tensors()) {
    const auto found = std::find(ids.begin(), ids.end(), t->id);
    GRADUS_NEED(found != ids.end());
    void* const p = pointers[static_cast<size_t>(found - ids.begin())];
    GRADUS_NEED(p != nullptr);
    GRADUS_REFUSE_UNLESS(is_aligned(p, t->alignment), CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
    q.pointers.push_back(p);
  }
  GRADUS_NEED(ids.size() == q.pointers.size());
  void* const workspace = pack.value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  const size_t bytes = configuration.workspace();
  GRADUS_NEED(bytes == 0 || workspace != nullptr);
  GRADUS_REFUSE_UNLESS(bytes == 0 || is_aligned(workspace, kWorkspaceAlignment),
                       CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  q.workspace = {workspace, bytes, bytes, next_stamp()};
  q.seconds = executions().seconds_of ? executions().seconds_of(configuration) : 0;
  executions().last = configuration;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

size_t count_descriptors() {
  const auto lock = Runtime::get().lock();
  return descriptors().size();
}
void set_times(std::function<double(const Configuration&)> seconds_of) {
  const auto lock = Runtime::get().lock();
  executions().seconds_of = std::move(seconds_of);
}
Configuration last_executed() {
  const auto lock = Runtime::get().lock();
  return executions().last;
}

void refuse_graphs() {
  const auto lock = Runtime::get().lock();
  refuses_graphs = true;
}

}  // namespace gradus::cuda::emulated

using namespace gradus::cuda::emulated;  // NOLINT

extern "C" {

size_t CUDNNWINAPI cudnnGetVersion() { return 91900; }

const char* CUDNNWINAPI cudnnGetErrorString(cudnnStatus_t status) {
#define GRADUS_STATUS(name) \
  case name:                \
    return #name;
  switch (static_cast<int>(status)) {
    GRADUS_STATUS(CUDNN_STATUS_SUCCESS)
    GRADUS_STATUS(CUDNN_STATUS_NOT_INITIALIZED)
    GRADUS_STATUS(CUDNN_STATUS_BAD_PARAM)
    GRADUS_STATUS(CUDNN_STATUS_BAD_PARAM_NULL_POINTER)
    GRADUS_STATUS(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER)
    GRADUS_STATUS(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED)
    GRADUS_STATUS(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE)
    GRADUS_STATUS(CUDNN_STATUS_NOT_SUPPORTED)
    GRADUS_STATUS(CUDNN_STATUS_NOT_SUPPORTED_SHAPE)
    GRADUS_STATUS(CUDNN_STATUS_INTERNAL_ERROR)
    GRADUS_STATUS(CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED)
    GRADUS_STATUS(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
    GRADUS_STATUS(CUDNN_STATUS_EXECUTION_FAILED)
    default:
      return "CUDNN_STATUS_UNKNOWN";
  }
#undef GRADUS_STATUS
}

// Empties what it tells.
void CUDNNWINAPI cudnnGetLastErrorString(char* to, size_t room) {
  if (room == 0) return;
  to[reason.copy(to, room - 1)] = '\0';
  reason.clear();
}

cudnnStatus_t CUDNNWINAPI cudnnCreate(cudnnHandle_t* handle) {
  return device_call(CUDNN_STATUS_NOT_INITIALIZED, [&](Runtime&) {
    GRADUS_REFUSE_UNLESS(handle != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    *handle = new cudnnContext{current_device};
    return CUDNN_STATUS_SUCCESS;
  });
}
cudnnStatus_t CUDNNWINAPI cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return device_call(CUDNN_STATUS_EXECUTION_FAILED, [&](Runtime& runtime) {
    GRADUS_NEED(handle != nullptr);
    if (stream && runtime.stream(stream)->device != handle->device)
      return fault("cudnnSetStream", "the stream is another device's than the handle");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t CUDNNWINAPI cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                       cudnnBackendDescriptor_t* made) {
  return host_call([&] {
    if (!made) return fault("cudnnBackendCreateDescriptor", "a null result crashes");
    GRADUS_REFUSE_UNLESS(attributes_of(type), CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
    auto d = std::make_shared<Descriptor>(Descriptor{type});
    *made = d.get();
    descriptors().emplace(d.get(), std::move(d));
    return CUDNN_STATUS_SUCCESS;
  });
}
cudnnStatus_t CUDNNWINAPI cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
  const auto lock = Runtime::get().lock();
  GRADUS_REFUSE_UNLESS(d != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  if (descriptors().erase(d) == 0)
    return fault("cudnnBackendDestroyDescriptor", "a descriptor that was destroyed, or never made");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendSetAttribute(cudnnBackendDescriptor_t d,
                                                   cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t count,
                                                   const void* from) {
  return host_call([&] {
    GRADUS_REFUSE_UNLESS(d != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    const auto found = find("cudnnBackendSetAttribute", d);
    return found ? set(*found, name, type, count, from) : CUDNN_STATUS_BAD_PARAM;
  });
}
cudnnStatus_t CUDNNWINAPI cudnnBackendGetAttribute(cudnnBackendDescriptor_t const d,
                                                   cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t room,
                                                   int64_t* count, void* to) {
  return host_call([&] {
    GRADUS_REFUSE_UNLESS(d != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    const auto found = find("cudnnBackendGetAttribute", d);
    return found ? get(*found, name, type, room, count, to) : CUDNN_STATUS_BAD_PARAM;
  });
}
cudnnStatus_t CUDNNWINAPI cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
  return host_call([&] {
    GRADUS_REFUSE_UNLESS(d != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    const auto found = find("cudnnBackendFinalize", d);
    if (!found) return CUDNN_STATUS_BAD_PARAM;
    const cudnnStatus_t status = finalize(*found);
    found->finalized |= status == CUDNN_STATUS_SUCCESS;
    return status;
  });
}

cudnnStatus_t CUDNNWINAPI cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                              cudnnBackendDescriptor_t pack) {
  return device_call(CUDNN_STATUS_EXECUTION_FAILED, [&](Runtime& runtime) {
    GRADUS_NEED(handle != nullptr && plan != nullptr && pack != nullptr);
    const auto p = find("cudnnBackendExecute", plan), arguments = find("cudnnBackendExecute", pack);
    GRADUS_NEED(p && arguments);
    if (handle->device != current_device || (p->finalized && p->device != current_device))
      return fault("cudnnBackendExecute", "the handle or the plan is another device's than the thread's");
    auto q = std::make_shared<QueuedConvolution>();
    if (const cudnnStatus_t status = collect(*q, *p, *arguments); status != CUDNN_STATUS_SUCCESS)
      return status;
    static uint64_t executions = 0;
    q->backwards = q->engine->has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) && ++executions % 2 == 0;
    const cudaStream_t stream = runtime.stream(handle->stream);
    // Other streams' work may run between the two halves.
    if (q->workspace.needed > 0) runtime.enqueue(stream, {[q] { begin_convolution(*q); }});
    runtime.enqueue(stream, {[q, &runtime] {
                      end_convolution(*q);
                      runtime.seconds_ahead += q->seconds;
                    }});
    return CUDNN_STATUS_SUCCESS;
  });
}

}  // extern "C"

namespace gradus::cuda {

const Cudnn& cudnn(const char*) {
#define GRADUS_FUNCTION(name) &::name,
  static constexpr Cudnn functions{GRADUS_CUDNN_FUNCTIONS(GRADUS_FUNCTION)};
#undef GRADUS_FUNCTION
  return functions;
}

}  // namespace gradus::cuda
