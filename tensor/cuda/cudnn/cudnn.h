// Convolutions and their gradients by cuDNN's backend (graph) API: convolve() runs one, from an LRU cache of
// execution plans per device. A plan is an engine (an algorithm of cuDNN), compiled for one ConvKey.
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
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cuda {

// A call of cuDNN failed.
struct CudnnError : DeviceFailure {
  CudnnError(const char* op, const char* call, const std::string& reason, const std::string& operands,
             cudnnStatus_t status)
      : DeviceFailure(op, call, " failed: ", reason, ": ", operands), status(status) {}
  cudnnStatus_t status;
};

// A convolution y = conv(x, w) + bias, or one of its gradients. `pass` determines the result: y (kForward), x
// (kInputGrad, then x is dx and y is dy) or w (kWeightGrad); the other two are inputs. All tensors have one
// floating dtype and are on one GPU.
struct Convolution {
  ConvPass pass;
  Tensor x, y;  // [N,C,...] and [N,O,...]: dense, with channels innermost
  Tensor w;     // [O,C/groups,...]: row-major
  Tensor bias;  // [O]: added to y. Undefined: no bias, always so unless pass is kForward
  raw::ConvGeometry geometry;
  bool relu = false;                    // y = relu(...). cuDNN has plans only for relu with a bias
  bool tf32 = Context::current().tf32;  // f32 may be computed by tensor cores, which round operands to TF32
  bool deterministic = Context::current().deterministic;  // nondeterministic engines are forbidden
};

// Queues a convolution on `stream`, the current stream of the tensors' device, which must be the calling
// thread's CUDA device. Does not wait, except when several new plans are timed (cudnn_benchmark). 16-bit
// products are summed in f32 and rounded once. Thread-safe.
// Returns false, and does nothing, if cuDNN has no plan for this convolution.
// Errors: DeviceError if the cuDNN library is not installed; CudnnError.
bool convolve(const char* op, const Convolution& c, cudaStream_t stream);

// Owns a cuDNN backend descriptor, or none.
class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const Cudnn& library, cudnnBackendDescriptor_t made)
      : made_(made, library.cudnnBackendDestroyDescriptor) {}
  operator cudnnBackendDescriptor_t() const { return made_.get(); }  // NOLINT
  bool exists() const { return made_ != nullptr; }

 private:
  std::unique_ptr<void, cudnnStatus_t (*)(cudnnBackendDescriptor_t)> made_{nullptr, nullptr};
};

struct ConvPlan {
  Descriptor plan;        // none: cuDNN has no plan
  int64_t workspace = 0;  // bytes
  ConvChoice choice;      // the engine and knobs of the plan
};

// Plans a convolution for the handle's device. With a null handle, plans for the device that the descriptor
// `properties` describes; such plans cannot be executed. Engines are tried in the order of cuDNN's
// heuristics. Skips engines that reduce the precision of the operands, that compile a kernel at run time, or,
// with c.deterministic, that are nondeterministic. Skips plans with more than 1 GiB of workspace, unless there
// is no other plan: then returns the one with the least.
// Returns at most `most` plans, the best first; none if cuDNN has none.
// Errors: CudnnError.
std::vector<ConvPlan> recommended_plans(const char* op, const Cudnn& library, const Convolution& c,
                                        cudnnHandle_t handle, cudnnBackendDescriptor_t properties,
                                        size_t most);

// Makes the plan of an engine that was chosen before. The result has no plan if cuDNN refuses the choice, if
// recommended_plans skips the engine, or if the workspace exceeds 1 GiB. `handle` and `properties`: as above.
// Errors: CudnnError if a call fails for another reason.
ConvPlan plan_of_choice(const char* op, const Cudnn& library, const Convolution& c, const ConvChoice& choice,
                        cudnnHandle_t handle, cudnnBackendDescriptor_t properties);

// Clears the plan caches of all devices. The next convolve() of each key makes a new plan, from the choice
// kept at that time (conv_choice.h) if there is one. Waits for threads that are making a plan.
void clear_plan_caches();

}  // namespace gradus::cuda
