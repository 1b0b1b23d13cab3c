// Convolutions by cuDNN.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn_graph.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gradus/tensor/base/device_failure.h"
#include "gradus/tensor/cuda/cudnn/conv_choice.h"
#include "gradus/tensor/cuda/cudnn/cudnn_functions.h"
#include "gradus/tensor/ops/images/conv.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cuda {

// A call of cuDNN failed.
struct CudnnError : DeviceFailure {
  CudnnError(const char* op, const char* call, const std::string& reason, const std::string& operands,
             cudnnStatus_t status)
      : DeviceFailure(op, call, " failed: ", reason, ": ", operands), status(status) {}
  cudnnStatus_t status;
};

// Two of x, w and y are given, the third is the result. All tensors have one floating dtype.
struct Convolution {
  ConvPass pass;
  Tensor x, y;  // [N,C,...] and [N,O,...]: dense, with channels innermost
  Tensor w;     // [O,C/groups,...]: row-major
  Tensor bias;  // [O]: added to y. May be undefined, and is where y is not the result
  raw::ConvGeometry geometry;
  bool tf32 = false;  // f32 may be computed by tensor cores, which take 10 bits of the operands' mantissas
  bool relu = false;  // of y. The library has plans only where there is a bias, too
};

// Queues a convolution on the current stream of its device, which is `stream`. The device is the calling
// thread's. 16-bit products are summed in f32 and rounded once. Results repeat bit for bit.
// Returns false, and does nothing, where the library has no plan for it.
// Errors: DeviceError without the library; CudnnError.
bool convolve(const char* op, const Convolution& c, cudaStream_t stream);

// A descriptor of the library's, or none.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const Cudnn& library, cudnnBackendDescriptor_t made)
      : made_(made, library.cudnnBackendDestroyDescriptor) {}
  operator cudnnBackendDescriptor_t() const { return made_.get(); }  // NOLINT

 private:
  std::unique_ptr<void, cudnnStatus_t (*)(cudnnBackendDescriptor_t)> made_{nullptr, nullptr};
};

struct ConvPlan {
  Descriptor plan;        // none where the library has none
  int64_t workspace = 0;  // bytes
  ConvChoice choice;      // what it was made of
};

// Plans a convolution for the handle's device. With a null handle it is for one that only `properties`
// describe, and for looking at. Engines are asked in the library's order. Passed over are those whose results
// do not repeat, that take fewer bits of the operands, and that compile a kernel first. Plans that want more
// than 1 GiB of workspace are passed over too, but for the one that wants least where the
// library recommends no other.
// Returns at most `most` plans, the best first.
// Errors: CudnnError.
std::vector<ConvPlan> recommended_plans(const char* op, const Cudnn& library, const Convolution& c,
                                        cudnnHandle_t handle, cudnnBackendDescriptor_t properties,
                                        size_t most);

// Plans by an engine that was chosen before. There is no plan where the library refuses it, or it is one of
// those that are passed over.
// Errors: CudnnError where a call fails for another reason.
ConvPlan plan_of_choice(const char* op, const Cudnn& library, const Convolution& c, const ConvChoice& choice,
                        cudnnHandle_t handle, cudnnBackendDescriptor_t properties);

// Makes all plans anew when they are next asked for, by the choices that are kept then. Waits for threads
// that make one.
void forget_plans();

}  // namespace gradus::cuda
