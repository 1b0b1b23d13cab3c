// Calls of cuDNN's backend (graph) API: creates descriptors, sets and reads their attributes by their C++
// types, and throws CudnnError for a failed call.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "gradus/tensor/cuda/cudnn/cudnn.h"

namespace gradus::cuda {

// Returns cuDNN's type of an attribute whose value has the argument's C++ type.
constexpr cudnnBackendAttributeType_t type_of(int64_t) { return CUDNN_TYPE_INT64; }
constexpr cudnnBackendAttributeType_t type_of(bool) { return CUDNN_TYPE_BOOLEAN; }
constexpr cudnnBackendAttributeType_t type_of(float) { return CUDNN_TYPE_FLOAT; }
constexpr cudnnBackendAttributeType_t type_of(double) { return CUDNN_TYPE_DOUBLE; }
constexpr cudnnBackendAttributeType_t type_of(void*) { return CUDNN_TYPE_VOID_PTR; }
constexpr cudnnBackendAttributeType_t type_of(cudnnHandle_t) { return CUDNN_TYPE_HANDLE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnDataType_t) { return CUDNN_TYPE_DATA_TYPE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnConvolutionMode_t) { return CUDNN_TYPE_CONVOLUTION_MODE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnPointwiseMode_t) { return CUDNN_TYPE_POINTWISE_MODE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnReduceTensorOp_t) {
  return CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
}
constexpr cudnnBackendAttributeType_t type_of(cudnnNanPropagation_t) { return CUDNN_TYPE_NAN_PROPOGATION; }
constexpr cudnnBackendAttributeType_t type_of(cudnnBackendHeurMode_t) { return CUDNN_TYPE_HEUR_MODE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnBackendKnobType_t) { return CUDNN_TYPE_KNOB_TYPE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnBackendNumericalNote_t) {
  return CUDNN_TYPE_NUMERICAL_NOTE;
}
constexpr cudnnBackendAttributeType_t type_of(cudnnBackendBehaviorNote_t) { return CUDNN_TYPE_BEHAVIOR_NOTE; }

// The tensors of a call, for error messages.
struct NamedTensor {
  const char* name = nullptr;  // null: none
  const Tensor* tensor = nullptr;
};
using NamedTensors = std::array<NamedTensor, 4>;

// Calls of the library for one op. Holds references: `library` and the tensors must outlive it. All functions throw
// CudnnError with `op`, the call, cuDNN's reason and the tensors.
class Calls {
 public:
  Calls(const char* op, const Cudnn& library, const NamedTensors& tensors)
      : op_(op), library_(library), tensors_(tensors) {}

  void check(const char* call, cudnnStatus_t status) const {
    if (status == CUDNN_STATUS_SUCCESS) [[likely]]
      return;
    char reason[256] = "";
    library_.cudnnGetLastErrorString(reason, sizeof reason);
    std::string operands;
    for (const NamedTensor& t : tensors_)
      if (t.name) operands += concat(operands.empty() ? "" : ", ", t.name, " ", describe(*t.tensor));
    throw CudnnError(op_, call, concat(library_.cudnnGetErrorString(status), reason[0] ? ", " : "", reason),
                     operands, status);
  }

  // Creates *handle, for the calling thread's device, if it is null. The caller owns the handle.
  void make_handle(cudnnHandle_t* handle) const {
    if (!*handle) check("cudnnCreate", library_.cudnnCreate(handle));
  }
  Descriptor create(cudnnBackendDescriptorType_t type) const {
    cudnnBackendDescriptor_t made = nullptr;
    check("cudnnBackendCreateDescriptor", library_.cudnnBackendCreateDescriptor(type, &made));
    return Descriptor(library_, made);
  }
  void finalize(const Descriptor& d) const {
    check("cudnnBackendFinalize", library_.cudnnBackendFinalize(d));
  }
  // Returns false if the library does not support what the descriptor describes.
  bool try_finalize(const Descriptor& d) const {
    const cudnnStatus_t status = library_.cudnnBackendFinalize(d);
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) return false;
    check("cudnnBackendFinalize", status);
    return true;
  }

  template <class T> void set(const Descriptor& d, cudnnBackendAttributeName_t name, const T& value) const {
    set(d, name, type_of(value), 1, &value);
  }
  void set(const Descriptor& d, cudnnBackendAttributeName_t name,
           const std::vector<Descriptor>& parts) const {
    const std::vector<cudnnBackendDescriptor_t> list(parts.begin(), parts.end());
    set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(list.size()), list.data());
  }
  template <class T>
  void set(const Descriptor& d, cudnnBackendAttributeName_t name, std::span<const T> list) const {
    set(d, name, type_of(T()), static_cast<int64_t>(list.size()), list.data());
  }
  void set(const Descriptor& d, cudnnBackendAttributeName_t name, const Dims& list) const {
    set(d, name, CUDNN_TYPE_INT64, list.size(), list.begin());
  }
  void set(const Descriptor& d, cudnnBackendAttributeName_t name,
           std::initializer_list<cudnnBackendDescriptor_t> parts) const {
    set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(parts.size()), parts.begin());
  }

  // Reads at most `room` elements into `to`. Returns their number; for room 0 that of all elements.
  int64_t get(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
              int64_t room, void* to) const {
    int64_t count = 0;
    check("cudnnBackendGetAttribute", library_.cudnnBackendGetAttribute(d, name, type, room, &count, to));
    return count;
  }
  template <class T> T value(const Descriptor& d, cudnnBackendAttributeName_t name) const {
    T v{};
    get(d, name, type_of(v), 1, &v);
    return v;
  }
  // Returns an attribute that is a list of descriptors of this type, at most `room` of them.
  std::vector<Descriptor> parts(const Descriptor& d, cudnnBackendAttributeName_t name,
                                cudnnBackendDescriptorType_t type, int64_t room) const {
    std::vector<Descriptor> all;
    for (int64_t i = 0; i < room; ++i) all.push_back(create(type));
    std::vector<cudnnBackendDescriptor_t> list(all.begin(), all.end());
    all.resize(static_cast<size_t>(get(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, room, list.data())));
    return all;
  }
  // Returns an attribute that is a list, at most 64 elements.
  template <class T> std::vector<T> list(const Descriptor& d, cudnnBackendAttributeName_t name) const {
    std::vector<T> all(64);
    all.resize(static_cast<size_t>(get(d, name, type_of(T()), static_cast<int64_t>(all.size()), all.data())));
    return all;
  }

  const Cudnn& library() const { return library_; }

 private:
  void set(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           int64_t count, const void* from) const {
    check("cudnnBackendSetAttribute", library_.cudnnBackendSetAttribute(d, name, type, count, from));
  }

  const char* op_;
  const Cudnn& library_;
  const NamedTensors tensors_;
};

}  // namespace gradus::cuda
