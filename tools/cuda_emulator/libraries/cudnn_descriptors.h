// Backend descriptors of the emulated cuDNN: the attributes that a caller set, and the results of finalizing.
#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "gradus/tools/cuda_emulator/libraries/cudnn.h"

struct cudnnContext {
  int device;
  cudaStream_t stream = nullptr;
};

namespace gradus::cuda::emulated {

struct Descriptor;
using Parts = std::vector<std::shared_ptr<const Descriptor>>;

// The value of an attribute.
struct Value {
  std::vector<std::byte> bytes;  // its elements
  Parts parts;                   // for an attribute of descriptors: the descriptors
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Value> values{};
  // Results of finalizing: the graph, of one kind; all configurations of a heuristic, or the one of a configuration, an
  // engine or a plan.
  std::shared_ptr<const ConvGraph> convolution{};
  std::shared_ptr<const AttentionGraph> attention{};
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
  // Null if the attribute was not set.
  const Descriptor* part(cudnnBackendAttributeName_t name) const {
    return parts(name).empty() ? nullptr : parts(name)[0].get();
  }
};

// ---- failures, with the text for cudnnGetLastErrorString

// The reason of the thread's last failure.
extern thread_local std::string reason;

cudnnStatus_t refuse(cudnnStatus_t status, const char* why);
#define GRADUS_REFUSE_UNLESS(condition, status) \
  if (!(condition)) return refuse(status, #condition)
#define GRADUS_NEED(condition) GRADUS_REFUSE_UNLESS(condition, CUDNN_STATUS_BAD_PARAM)

// Delivers a fault, for arguments with which the real library crashes or loses the device.
cudnnStatus_t fault(const char* function, const std::string& what);

// ---- descriptors by their addresses

std::unordered_map<const void*, std::shared_ptr<Descriptor>>& descriptors();
// Returns null and delivers a fault for a descriptor that was destroyed or never created.
std::shared_ptr<Descriptor> find_descriptor(const char* function, const void* p);

// ---- attributes

// cuDNN's names of a convolution's attributes, one row per GraphPass.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t x, w, y, geometry, alpha, beta;
};
inline constexpr Names kNames[] = {
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

// Whether descriptors of the type are emulated.
bool is_emulated(cudnnBackendDescriptorType_t type);
cudnnStatus_t set(Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t count, const void* from);
cudnnStatus_t get(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  int64_t room, int64_t* count, void* to);

// ---- finalizing

// Checks the attributes, and computes the results of finalizing.
cudnnStatus_t finalize(Descriptor& d);

}  // namespace gradus::cuda::emulated
