// CapturedStep: a training step that is recorded once and then replayed, as by CUDA graphs. A replay calls the
// recorded kernels. It builds no graph of gradients, and its intermediate results have the memory of the recording.
//
//   CapturedStep step([&](const CapturedStep::Tensors& in) -> CapturedStep::Tensors {
//     auto recording = gm.record();
//     const Tensor loss = nn::cross_entropy(net(in[0]), in[1]);
//     gm.backward(loss);
//     opt.step().clear_grad();
//     return {loss};
//   });
//   for (const data::Batch& b : loader) total += step({b.input, b.target})[0];
//
// Each call is one step. For inputs of new shapes, dtypes or strides the first calls run the function as it is, so
// that optimizers create their states; the next one records. Later calls do not run the function: its host code has
// no effect in them, and numbers of the host (a momentum, `training`) keep the values of the recording. Random
// numbers go on, and so do learning rates, step counts, the scale of a GradScaler and the counts of an AveragedModel.
// Call schedules, change options and read values (item(), print) outside of the function.
//
// On GPUs that NCCL connects the function may call collectives (DistributedDataParallel, SyncBatchNorm, all_reduce). All
// ranks then call the step together: a replay is a call that the ranks match. If a rank has no recording for its inputs, all
// run the function.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

class ReplayHook;

struct CapturedStepOptions {
  int warm_up = 3;         // calls before the recording, for inputs of new shapes
  int max_recordings = 8;  // further shapes, dtypes and strides run the function as it is
  Device device = kCPU;    // of a step without inputs
};

// Not thread-safe.
class CapturedStep {
 public:
  using Tensors = std::vector<Tensor>;
  using Function = std::function<Tensors(const Tensors& inputs)>;

  // What the function uses must outlive the step. Errors: ValueError for a negative option.
  explicit CapturedStep(Function step, CapturedStepOptions options = {});
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  // Runs a step. Returns copies of the function's results, without history. They equal the function's bit for bit;
  // on a GPU only with Context::deterministic. On a GPU the host does not wait, and errors about values are thrown
  // when it synchronizes.
  // Errors: those of the function and of its kernels; StateError "[op] cannot be captured" for an op that needs
  // values on the host, such as item() or nonzero, for messages, and for collectives through host memory or of groups
  // with different members; those of a collective; DeviceError unless all inputs are on cpu:0 or on one GPU. After an
  // error, parameters may have been changed, as by the function.
  Tensors operator()(const Tensors& inputs);

  // Returns the number of shapes that are recorded, and the size of the memory that intermediate results of the
  // recordings share on the CPU, in bytes.
  size_t num_recordings() const;
  int64_t memory_bytes() const;

 private:
  struct Entry;
  Device checked_device(const Tensors& inputs) const;
  Entry* find(const Tensors& inputs, Device device);

  Function step_;
  const CapturedStepOptions options_;
  std::vector<std::unique_ptr<Entry>> entries_;
  Ref<ReplayHook> hook_;  // of the last recording that has collectives
};

}  // namespace gradus
