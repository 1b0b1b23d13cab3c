// verify: runs a model of the user's on W ranks and on one joined batch, and says whether they agree.
//
//   dist::VerifyReport report = dist::verify([] { return std::make_unique<Net>(); }, train_set, {.world = 4});
//   if (!report) std::cout << report << '\n';
//   // gradient of bn1.weight differs: 0.31 on 4 ranks, 0.29 on one (relative 7e-2, expected 1e-9).
//   // Likely cause: batch-norm statistics: each rank normalises by its own batch; convert_sync_batchnorm makes ...
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "gradus/data/dataset.h"
#include "gradus/nn/layer.h"
#include "gradus/nn/losses.h"

namespace gradus::dist {

struct VerifyOptions {
  int world = 2;            // ranks, as threads
  int64_t batch_size = 8;   // per rank
  int steps = 2;            // of SGD
  double lr = 0.1;
  double tolerance = 1e-9;  // relative to the tensor's largest element, in f64
  // Called on each rank after the model is made: convert_sync_batchnorm, a change of the model for several ranks.
  std::function<void(nn::Module&)> prepare = {};
  uint64_t seed = 0;
};

struct VerifyReport {
  enum class Cause {
    kNone,
    kBatchNormStatistics,  // each rank normalises by its own batch
    kUnequalBatches,       // a mean of means over batches of different sizes
    kBuffer,               // a buffer that ranks update from their own data
    kRandomness,           // ranks draw different numbers, or the one process others than they
    kUnknown,
  };
  bool agrees = true;
  std::string tensor;      // the first that differs: "loss", "gradient of conv1.weight", "buffer bn1.running_mean"
  int step = 0;            // in which it did, from 0
  int rank = -1;           // whose value differs from rank 0's; -1: the ranks agree with each other
  double difference = 0;   // largest, relative
  Cause cause = Cause::kNone;
  std::string text;        // all of it, in sentences; what to do

  explicit operator bool() const { return agrees; }
};
std::ostream& operator<<(std::ostream& out, const VerifyReport& report);

namespace internal {
using MakeModule = std::function<std::unique_ptr<nn::Module>()>;
using LossOf = std::function<Tensor(nn::Module&, const data::Batch&)>;
VerifyReport verify(const MakeModule& make, const LossOf& loss, data::DatasetRef data, const VerifyOptions& options);
}  // namespace internal

// make() builds the model; all weights are then made those of one instance. loss(model, batch) is the mean over the
// batch. Errors: what the model throws; ValueError for fewer samples than ranks.
template <class Make, class Loss>
  requires std::is_invocable_v<Make>
VerifyReport verify(Make make, data::DatasetRef data, const VerifyOptions& options, Loss loss) {
  using M = std::remove_cvref_t<decltype(*make())>;
  return internal::verify([make]() -> std::unique_ptr<nn::Module> { return make(); },
                          [loss](nn::Module& m, const data::Batch& b) { return loss(static_cast<M&>(m), b); },
                          std::move(data), options);
}
// The same with cross entropy.
template <class Make>
VerifyReport verify(Make make, data::DatasetRef data, const VerifyOptions& options = {}) {
  return verify(make, std::move(data), options,
                [](auto& model, const data::Batch& b) { return nn::cross_entropy(model(b.input), b.target); });
}

}  // namespace gradus::dist
