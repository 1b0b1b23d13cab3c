// Attributes of the emulated cuDNN's backend descriptors. A table lists the attributes of each type of descriptor.
// set() checks a call of cudnnBackendSetAttribute against the table and stores the value; get() returns stored
// values, or results that finalizing computed. Both check as cuDNN's documentation says and as an H100 behaves.
//
// A failed check (GRADUS_NEED: CUDNN_STATUS_BAD_PARAM) returns a status and sets the text for
// cudnnGetLastErrorString. Callers hold the lock of the emulated runtime; count_descriptors() takes it.
#include "gradus/tools/cuda_emulator/libraries/cudnn_descriptors.h"

#include <algorithm>
#include <set>

#include "gradus/tensor/base/error.h"
#include "gradus/tools/cuda_emulator/call.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // attributes for handles

namespace gradus::cuda::emulated {

// The text for the thread's next cudnnGetLastErrorString.
thread_local std::string reason;

cudnnStatus_t refuse(cudnnStatus_t status, const char* why) {
  reason = why;
  return status;
}

// Reports a fault, an argument that would crash the real library, to the test (FaultScope); aborts the program
// without one. Returns a status of failure.
cudnnStatus_t fault(const char* function, const std::string& what) {
  deliver(library_fault({function, gradus::internal::called_op}, FaultKind::kArgument, what));
  return refuse(CUDNN_STATUS_BAD_PARAM, "a fault");
}

// All living descriptors by their handles.
std::unordered_map<const void*, std::shared_ptr<Descriptor>>& descriptors() {
  static auto& all = *new std::unordered_map<const void*, std::shared_ptr<Descriptor>>;
  return all;
}
std::shared_ptr<Descriptor> find_descriptor(const char* function, const void* p) {
  const auto found = descriptors().find(p);
  if (found != descriptors().end()) return found->second;
  fault(function, "a descriptor that was destroyed, or never made");
  return nullptr;
}

namespace {

// An attribute that a type of descriptor has.
struct Attribute {
  cudnnBackendAttributeType_t type;
  int64_t most;            // the maximal number of elements
  bool is_result = false;  // can be read, but not set
};
constexpr int64_t kAny = 64;  // the maximum of lists
// An attribute of type CUDNN_TYPE_FLOAT may also be set as CUDNN_TYPE_DOUBLE.
using Attributes = std::map<cudnnBackendAttributeName_t, Attribute>;

// Returns the attributes of a convolution operation; the arguments are their names for one pass.
Attributes convolution_attributes(cudnnBackendAttributeName_t x, cudnnBackendAttributeName_t w,
                                  cudnnBackendAttributeName_t y, cudnnBackendAttributeName_t geometry,
                                  cudnnBackendAttributeName_t alpha, cudnnBackendAttributeName_t beta) {
  const Attribute part{CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}, factor{CUDNN_TYPE_FLOAT, 1};
  return {{x, part}, {w, part}, {y, part}, {geometry, part}, {alpha, factor}, {beta, factor}};
}

// Returns the attributes of a type of descriptor; null if the type is not emulated.
const Attributes* attributes_of(cudnnBackendDescriptorType_t type) {
  static const Attribute part{CUDNN_TYPE_BACKEND_DESCRIPTOR, 1}, integer{CUDNN_TYPE_INT64, 1},
      integers{CUDNN_TYPE_INT64, kAny}, dtype{CUDNN_TYPE_DATA_TYPE, 1}, handle{CUDNN_TYPE_HANDLE, 1};
  static const auto all = [] {
    std::map<cudnnBackendDescriptorType_t, Attributes> m;
    m[CUDNN_BACKEND_TENSOR_DESCRIPTOR] = {{CUDNN_ATTR_TENSOR_DATA_TYPE, dtype},
                                          {CUDNN_ATTR_TENSOR_DIMENSIONS, integers},
                                          {CUDNN_ATTR_TENSOR_STRIDES, integers},
                                          {CUDNN_ATTR_TENSOR_UNIQUE_ID, integer},
                                          {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, integer},
                                          {CUDNN_ATTR_TENSOR_IS_VIRTUAL, {CUDNN_TYPE_BOOLEAN, 1}},
                                          {CUDNN_ATTR_TENSOR_IS_BY_VALUE, {CUDNN_TYPE_BOOLEAN, 1}}};
    m[CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR] = {
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, integer},
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, dtype},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, {CUDNN_TYPE_CONVOLUTION_MODE, 1}},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, integers},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, integers},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, integers},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, integers}};
    m[CUDNN_BACKEND_POINTWISE_DESCRIPTOR] = {
        {CUDNN_ATTR_POINTWISE_MODE, {CUDNN_TYPE_POINTWISE_MODE, 1}},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, dtype},
        {CUDNN_ATTR_POINTWISE_AXIS, integer},
        {CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, {CUDNN_TYPE_NAN_PROPOGATION, 1}},
        {CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, {CUDNN_TYPE_DOUBLE, 1}}};
    for (const Names& n : kNames)
      m[n.operation] = convolution_attributes(n.x, n.w, n.y, n.geometry, n.alpha, n.beta);
    m[CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR] = {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part},
                                                       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, part},
                                                       {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, part},
                                                       {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, part},
                                                       {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, part}};
    m[CUDNN_BACKEND_MATMUL_DESCRIPTOR] = {{CUDNN_ATTR_MATMUL_COMP_TYPE, dtype}};
    m[CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR] = {{CUDNN_ATTR_OPERATION_MATMUL_DESC, part},
                                                    {CUDNN_ATTR_OPERATION_MATMUL_ADESC, part},
                                                    {CUDNN_ATTR_OPERATION_MATMUL_BDESC, part},
                                                    {CUDNN_ATTR_OPERATION_MATMUL_CDESC, part}};
    m[CUDNN_BACKEND_REDUCTION_DESCRIPTOR] = {
        {CUDNN_ATTR_REDUCTION_OPERATOR, {CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1}},
        {CUDNN_ATTR_REDUCTION_COMP_TYPE, dtype}};
    m[CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR] = {{CUDNN_ATTR_OPERATION_REDUCTION_DESC, part},
                                                       {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, part},
                                                       {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, part}};
    m[CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR] = {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, part},
                                                     {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, part}};
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

// Returns the size in bytes of one element. Enums and floats have 4.
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

// Returns n descriptors of `type` by attribute. As in cuDNN, the caller has created them: `to` is an array of
// handles of `room` descriptors that are not finalized. Calls fill(i, descriptor) for the first min(n, room) of
// them, finalizes each, and sets *count to their number.
template <class F>
cudnnStatus_t give_descriptors(size_t n, cudnnBackendDescriptorType_t type, int64_t room, int64_t* count,
                               void* to, F&& fill) {
  *count = std::min(static_cast<int64_t>(n), room);
  for (int64_t i = 0; i < *count; ++i) {
    const std::shared_ptr<Descriptor> part =
        find_descriptor("cudnnBackendGetAttribute", static_cast<void**>(to)[i]);
    GRADUS_NEED(part && part->type == type && !part->finalized);
    part->finalized = true;
    fill(static_cast<size_t>(i), *part);
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

bool is_emulated(cudnnBackendDescriptorType_t type) { return attributes_of(type) != nullptr; }

// Implements cudnnBackendSetAttribute. Referenced descriptors must be finalized; the value keeps them alive.
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
          find_descriptor("cudnnBackendSetAttribute", static_cast<void* const*>(from)[i]);
      GRADUS_REFUSE_UNLESS(part && part->finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
      value.parts.push_back(part);
    }
  }
  if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) {
    std::set<int> types;  // each knob may be set once
    for (const auto& part : value.parts) {
      const auto type_of_knob = part->value(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_KNOB_TYPE_COUNTS);
      GRADUS_NEED(type_of_knob < CUDNN_KNOB_TYPE_COUNTS && types.insert(type_of_knob).second);
    }
  }
  d.values[name] = std::move(value);
  return CUDNN_STATUS_SUCCESS;
}

// Implements cudnnBackendGetAttribute for a finalized descriptor: writes at most `room` elements to `to` and their
// number to *count (may be null). For a list and room 0, *count is the list's size, except for knob choices.
// A single element needs room 1. An attribute that was not set has 0 elements.
cudnnStatus_t get(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t room, int64_t* count, void* to) {
  GRADUS_REFUSE_UNLESS(d.finalized, CUDNN_STATUS_NOT_INITIALIZED);
  const Attributes& known = *attributes_of(d.type);
  const auto found = known.find(name);
  GRADUS_NEED(found != known.end());
  GRADUS_REFUSE_UNLESS(type == found->second.type, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  int64_t none = 0;  // for a caller that does not want the count
  if (!count) count = &none;
  GRADUS_NEED(room >= 0 && (to != nullptr || room == 0));
  // The engine, or the i-th configuration of a heuristic, with the graph of d.
  const auto share = [&](size_t i, Descriptor& part) {
    part.convolution = d.convolution, part.attention = d.attention,
    part.configurations = {d.configurations[i]};
  };
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && room == 0)
    return *count = static_cast<int64_t>(d.configurations.size()), CUDNN_STATUS_SUCCESS;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS)
    return give_descriptors(d.configurations.size(), CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, room, count, to,
                            share);
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE)
    return give_descriptors(1, CUDNN_BACKEND_ENGINE_DESCRIPTOR, room, count, to, share);
  if (name == CUDNN_ATTR_ENGINE_KNOB_INFO) {
    GRADUS_NEED(room == 0);  // only their number: the ranges of knob values are not emulated
    return *count = static_cast<int64_t>(d.configurations[0].engine->knobs.size()), CUDNN_STATUS_SUCCESS;
  }
  if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) {  // with room 0, cuDNN returns a count of 0
    const auto& knobs = d.configurations[0].knobs;
    return give_descriptors(knobs.size(), CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, room, count, to,
                            [&](size_t i, Descriptor& part) {
                              part.put(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, knobs[i].type);
                              part.put(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, knobs[i].value);
                            });
  }
  // Writes the elements of a list, or their number for room 0.
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
  GRADUS_NEED(type == CUDNN_TYPE_INT64);  // reading other types is not emulated
  return give(d.list<int64_t>(name));
}

size_t count_descriptors() {
  const auto lock = Runtime::get().lock();
  return descriptors().size();
}

}  // namespace gradus::cuda::emulated
