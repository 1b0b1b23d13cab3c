// Step: one step of a training, in a loop over a Training.
//
//   for (training::Step& s : training) {
//     const Tensor fake = gen(s.randn({512}));           // one latent vector for each of the batch's images
//     Tensor loss = s.log("loss/d", gan::hinge_d(...));  // its mean is in the log, over steps and ranks
//     ...
//     if (s.every(5)) ...                                // in the steps 5, 10, 15, ...
//   }
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/data/dataset.h"
#include "gradus/train/tally.h"

namespace gradus::training {

class Training;

class Step {
 public:
  // This rank's share of the step's global batch. Valid during the step.
  const data::Batch& batch() const { return *batch_; }
  int64_t number() const { return number_; }  // from 1, over all runs of this training
  // Returns the number of images that all ranks together have been shown, with those of this step.
  int64_t images() const { return images_; }
  // Returns whether this is every n-th step.
  // Errors: ValueError for n < 1.
  bool every(int64_t n) const;

  // Return random numbers for each sample of the batch: standard normal, and uniform in [0, 1), in the
  // default dtype, on the device of the batch. The numbers of a sample depend only on the training's seed,
  // the step, the sample's index in the global batch, and the number of these calls before in the step. So
  // they are the same for any number of ranks, and in a resumed training.
  // Shapes: {a,b} -> [batch().size(),a,b].
  Tensor randn(const Shape& sample = {});
  Tensor rand(const Shape& sample = {});

  // Adds a value of this rank to the log, and returns it. The log shows the mean since the line before, over
  // the ranks and steps that logged the name. A NaN or an infinity ends the training with a ValueError after
  // the step, unless backward() has returned false in the step. A value on a GPU is read and checked later:
  // before the next line of the log or checkpoint.
  // Errors: ShapeError unless the value has one element.
  Tensor log(const std::string& name, const Tensor& value);
  double log(const std::string& name, double value);
  // Adds sums over the samples of this rank to the log, once in a step. The log shows their means. They are
  // not checked for NaN.
  //   s.log(training::score(loss, logits, s.batch()));
  void log(const Sums& sums);

  // Computes the gradients of `network` ("disc") as recording.backward(loss), and returns true. If the
  // all-reduce finds NaN or infinity in the gradients (check_finite of the wrapper or callback), the training
  // ends on all ranks. With OnNotFinite::kSkip the call returns false on all ranks instead: no gradient is
  // set, buffers are restored to the beginning of the step, and the optimizer must not step.
  //   if (s.backward("disc", recording, loss)) opt_d.step().clear_grad();
  // Errors: ValueError with the step, the network, the rank, the parameter, the logged values that are not
  // finite, and the last finite ones; those of Recording::backward.
  bool backward(const std::string& network, Recording& recording, const Tensor& loss);

 private:
  friend class Training;
  template <class Fill> Tensor for_each_sample(const Shape& sample, Fill fill);

  Training* training_ = nullptr;
  const data::Batch* batch_ = nullptr;
  int64_t number_ = 0, images_ = 0;
  uint64_t seed_ = 0;
  int rank_ = 0, ranks_ = 1;  // by which the loader shards
  uint64_t calls_ = 0;        // of randn and rand
  std::optional<Sums> sums_;
  std::vector<std::pair<std::string, Tensor>> values_;
};

}  // namespace gradus::training
