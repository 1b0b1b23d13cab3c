// Trainer: what the recipes' steps work with. It holds both networks with their managers and optimizers,
// whatever kind of data parallelism they have.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "gradus/examples/gans/recipe.h"

namespace gradus::examples {

struct TrainerOptions {
  optim::AdamOptions adam;  // of both networks
  int64_t disc_steps = 1;
  double ema_images = 10'000;           // half-life of the generator's average
  std::string ddp = "separate";         // "separate", "whole" or "callbacks"
  bool find_unused_parameters = false;  // of DistributedDataParallel
  bool sync_batch_norm = false;         // over all ranks
  bool joined_forward = false;          // real and generated images pass the discriminator together
  int64_t log_interval = 100;           // steps between two norms of the gradients in the log
  std::optional<gan::Growth> growth = {};
};

class Trainer {
 public:
  // One of the two networks.
  class Side {
   public:
    // Follows the network's parameters.
    Recording record();
    // Computes the gradients of the loss, and makes the optimizer's step. Leaves it out where gradients
    // are not finite and --on-nan says so.
    void update(training::Step& s, Recording& recording, const Tensor& loss);
    optim::Adam& optimizer() { return *adam_; }

   private:
    friend class Trainer;
    std::string name_;
    int64_t log_interval_ = 1;
    nn::Module* net_ = nullptr;
    GradManager* manager_ = nullptr;
    bool narrows_ = false;  // the manager follows both networks
    std::optional<optim::Adam> adam_;
  };

  // Collective: all ranks begin with the first rank's weights. `net` must outlive it.
  Trainer(Networks& net, const NetworkOptions& networks, TrainerOptions options);

  Side disc, gen;
  gan::Ema& ema() { return *ema_; }  // of the generator

  // Sets the size and the fade of a network that grows. Both optimizers begin anew where a fade begins or
  // ends, with the learning rate of the size.
  void begin(const training::Step& s);
  // Ends a step: running statistics, which each rank has of its own images, become the first rank's.
  void end();

  // Returns this rank's images of the step, in the present size.
  Tensor real(const training::Step& s) const;
  // Return labels of classes: those of the images, and random ones. Undefined for networks without labels.
  // Shapes: [N].
  Tensor labels(const training::Step& s) const;
  Tensor random_labels(training::Step& s) const;
  // Returns as many images of fresh latents.
  Tensor generate(training::Step& s, const Tensor& labels = {}) {
    return net_.generate(s.randn({networks_.latent}), labels);
  }
  Tensor judge(const Tensor& x, const Tensor& labels = {}) { return net_.judge(x, labels); }
  // Returns the scores of real images and of fakes, of one batch of both with --joined-forward. Logs how
  // diverse the fakes are.
  struct Scores {
    Tensor real, fake;
  };
  Scores judge(training::Step& s, const Tensor& real, const Tensor& fake, const Tensor& real_labels = {},
               const Tensor& fake_labels = {});

  int64_t disc_steps() const { return options_.disc_steps; }
  // Returns where a training with so many images is: its size and fade.
  models::Scale scale(int64_t images) const;
  // Returns the sizes with their images, batches and learning rates where the plan has them, and the images
  // of a fade: "4:20000,8:40000:32,16:0 fade 10000"; "none".
  std::string growth_text() const;
  // Return the bytes that the last step has sent for the gradients of a network.
  int64_t bytes_sent_d() const { return bytes_sent(*net_.disc); }
  int64_t bytes_sent_g() const { return bytes_sent(*net_.gen); }

 private:
  void attach();
  // After so many images.
  void make_optimizers(int64_t images);
  int64_t bytes_sent(const nn::Module& part) const;

  Networks& net_;
  const NetworkOptions networks_;
  const TrainerOptions options_;
  GradManager managers_[2];  // of the discriminator and the generator; "whole": the first has both
  std::unique_ptr<dist::DistributedDataParallel<Networks>> whole_;
  std::unique_ptr<dist::SeparateDistributedDataParallel<Networks>> separate_;
  std::shared_ptr<dist::AllReduceCallback> callbacks_[2];
  std::optional<gan::Ema> ema_;
};

}  // namespace gradus::examples
