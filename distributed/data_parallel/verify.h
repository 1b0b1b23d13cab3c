// verify: trains the user's model on W ranks and on one rank with the joined batch, and reports whether
// the results agree.
//
//   auto report = dist::verify([] { return std::make_unique<Net>(); }, train_set, {.world = 4});
//   if (!report) std::cout << report << '\n';          // in a test: EXPECT_TRUE(report) << report;
//   // loss differs in step 0 (equal batches of 8): 2.31 on 4 ranks (mean), 2.29 on one with all samples; ...
//   // Likely cause: batch-norm statistics: in bn1 each rank normalizes by its own batch. ...
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/data/dataset.h"
#include "gradus/nn/layer.h"
#include "gradus/nn/losses.h"

namespace gradus::dist {

struct VerifyOptions {
  int world = 2;           // number of ranks, which run as threads of this process
  int64_t batch_size = 8;  // per rank; samples are taken in the dataset's order and repeat at its end
  int steps = 2;           // number of SGD steps with equal batch sizes
  // Adds a step in which some ranks have one sample more than others, as at the end of an epoch.
  bool unequal = true;
  double lr = 0.1;
  // Maximal relative difference: |x - y| / max(max |tensor|, 1e-3 max |all gradients|), with parameters or
  // buffers in place of gradients if the tensor is one. The second term is for tensors that consist of
  // rounding errors only.
  double tolerance = 1e-9;
  // Called with each newly made model, on every rank and in the run with the joined batch: to switch off
  // dropout, or to convert batch norms.
  std::function<void(nn::Module&)> prepare = {};
  uint64_t seed = 0;
};

struct VerifyReport {
  enum class Cause {
    kNone,
    kRandomness,           // the model draws random numbers
    kDependsOnRank,        // ranks compute different results from the same data
    kSumOverBatch,         // the loss is a sum where a mean is expected
    kBatchNormStatistics,  // each rank normalizes by its own batch
    kUnequalBatches,       // a mean of means over batches of different sizes
    kBuffer,               // a buffer that ranks update from their own data
    kUnknown,
  };
  bool agrees = true;
  std::string tensor;     // the first difference: "loss", "gradient of fc.weight", ...
  int step = 0;           // first step with a difference, from 0
  int rank = -1;          // the rank that differs from rank 0; -1: the ranks agree with each other
  double difference = 0;  // relative difference of `tensor`; if `agrees`, the largest of all
  Cause cause = Cause::kNone;
  std::string text;  // the report with instructions

  explicit operator bool() const { return agrees; }
};
std::ostream& operator<<(std::ostream& out, const VerifyReport& report);

namespace internal {
using MakeModule = std::function<std::unique_ptr<nn::Module>()>;
using LossOf = std::function<Tensor(nn::Module&, const data::Batch&)>;  // a tensor of one element
double weight_of(const data::Batch& batch);  // batch.size() * number of ranks / batch.global_size
VerifyReport verify(const MakeModule& make, const LossOf& loss, data::DatasetArg data,
                    const VerifyOptions& options);
}  // namespace internal

// Compares training on several ranks with training on one rank. make() returns the model as a
// std::unique_ptr. All instances start with the same weights, in f64. The ranks train with
// make_allreduce_cb(kMean); a single rank trains on their joined batches. After every step, verify compares
// the loss (mean over ranks), gradients, parameters and buffers, between the ranks and with the single rank.
// If they differ, further runs search for the cause: another seed, the same batch on all ranks,
// SyncBatchNorm, and a weighted loss.
//
// loss(model, batch) must return the rank's contribution to the mean over the samples of all ranks: mean over
// the batch * batch.size() * dist::get_world_size() / batch.global_size. The factor is 1 for equal batches.
// make, loss and prepare are called on all ranks concurrently, in threads. The caller's Context does not
// change.
// Errors: what the model throws; ValueError for options out of range (world, batch_size and steps are at
// least 1), fewer samples than ranks, a null model, a loss that is not finite, or a model that has other
// tensors in a job of one rank.
template <class Make, class Loss>
  requires std::is_invocable_v<Make>
VerifyReport verify(Make make, data::DatasetArg data, const VerifyOptions& options, Loss loss) {
  using M = std::remove_cvref_t<decltype(*make())>;
  return internal::verify([make]() -> std::unique_ptr<nn::Module> { return make(); },
                          [loss](nn::Module& m, const data::Batch& b) { return loss(static_cast<M&>(m), b); },
                          std::move(data), options);
}
// Uses cross entropy, weighted by batch.size() * dist::get_world_size() / batch.global_size, as the loss.
template <class Make>
VerifyReport verify(Make make, data::DatasetArg data, const VerifyOptions& options = {}) {
  return verify(make, std::move(data), options, [](auto& model, const data::Batch& b) {
    return nn::cross_entropy(model(b.input), b.target) * internal::weight_of(b);
  });
}

}  // namespace gradus::dist
