// Step: one step of a training, as the loop over a Training sees it.
//
//   for (training::Step& s : training) {
//     const Tensor fake = gen(s.randn({512}));           // one latent vector for each of the batch's images
//     Tensor loss = s.log("loss/d", gan::hinge_d(...));  // its mean is in the log, over steps and ranks
//     ...
//     if (s.every(5)) ...                                // in the steps 5, 10, 15, ...
//   }
#pragma once

#include <string>

#include "gradus/autograd/grad_manager.h"
#include "gradus/data/dataset.h"
#include "gradus/train/tally.h"

namespace gradus::training {

class Training;

class Step {
 public:
  // This rank's share of the step's global batch.
  const data::Batch& batch() const { return *batch_; }
  int64_t number() const { return number_; }  // from 1, over all runs of this training
  // Returns the images shown so far, on all ranks together, this step's included.
  int64_t images() const { return images_; }
  // Returns whether this is every n-th step.
  // Errors: ValueError for n < 1.
  bool every(int64_t n) const;

  // Return random numbers for each of the batch's samples: standard normal ones, and uniform ones of [0, 1).
  // They have the default dtype and lie on the batch's device. A sample's numbers depend on the training's
  // seed, on the step, on the sample's place in the global batch, and on how many of these calls the step has
  // made before. So any number of ranks draws the same, and so does a resumed training.
  // Shapes: {a,b} -> [batch().size(),a,b].
  Tensor randn(const Shape& sample = {});
  Tensor rand(const Shape& sample = {});

  // Adds a value of this rank to the log, and returns it. The log shows its mean since the line
  // before, over all ranks and over the steps that had it. The step ends with a ValueError if the value is
  // NaN or infinite, unless backward() has returned false in it. Nobody waits for a value on a GPU: it is
  // read, and may end the training, when a line of the log or a checkpoint is due.
  // Errors: ShapeError unless it has one element.
  Tensor log(const std::string& name, const Tensor& value);
  double log(const std::string& name, double value);

  // Computes the gradients as recording.backward(loss), and returns true. `network` names what they are of:
  // "disc". Where the all-reduce finds NaN or infinity in them (check_finite of the wrapper or callback), the
  // training ends on all ranks. Under OnNotFinite::kSkip it goes on without this step: then this returns
  // false on all ranks, no gradient is delivered, and the optimizer must not step. Buffers are again as
  // before the step.
  //   if (s.backward("disc", recording, loss)) opt_d.step().clear_grad();
  // Errors: ValueError with the step, the network, the rank and the parameter, the logged values that are not
  // finite, and the last ones that were; those of Recording::backward.
  bool backward(const std::string& network, Recording& recording, const Tensor& loss);

 private:
  friend class Training;
  template <class Fill> Tensor for_each_sample(const Shape& sample, Fill fill);

  Training* training_ = nullptr;
  const data::Batch* batch_ = nullptr;
  int64_t number_ = 0, images_ = 0;
  uint64_t seed_ = 0;
  int rank_ = 0, ranks_ = 1;  // of the loader's share
  uint64_t calls_ = 0;        // of randn and rand
  std::vector<std::pair<std::string, Tensor>> values_;
};

}  // namespace gradus::training
