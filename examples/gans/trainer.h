// Trainer: both networks with their GradManagers, optimizers and data parallelism, as the steps of all
// recipes use them.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "gradus/examples/gans/recipe.h"

namespace gradus::examples {

struct TrainerOptions {
  optim::AdamOptions adam;  // of both networks
  double gamma = 0;         // weight of R1: gamma / 2
  int64_t disc_steps = 1;
  double ema_images = 10'000;  // half-life of the generator's average
  // "separate": a wrapper per network; "whole": one wrapper for both; "callbacks": only all-reduce callbacks.
  std::string ddp = "separate";
  bool find_unused_parameters = false;  // of DistributedDataParallel
  bool sync_batch_norm = false;         // over all ranks
  bool joined_forward = false;          // real and generated images pass the discriminator together
  // Steps are captured and replayed. A replay skips no step: NaN in gradients shows in their logged norms, after it.
  bool capture = false;
  std::optional<gan::Growth> growth = {};
};

class Trainer {
 public:
  // The discriminator or the generator, with its optimizer.
  class Side {
   public:
    // Opens a recording of this network's parameters alone.
    Recording record();
    // Computes the gradients of the loss, logs their norm, and makes the optimizer's step. With --on-nan skip
    // it skips the step if gradients are not finite.
    void update(GanStep& s, Recording& recording, const Tensor& loss);
    bool exists() const { return net_; }  // false: the discriminator of a flow
    optim::Adam& optimizer() { return *adam_; }

   private:
    friend class Trainer;
    std::string name_;
    nn::Module* net_ = nullptr;
    GradManager* manager_ = nullptr;
    bool shares_manager_ = false;  // the manager also has the other network's parameters
    std::optional<optim::Adam> adam_;
  };

  // Broadcasts the weights of the first rank. `net` must outlive the Trainer. Collective.
  Trainer(Networks& net, const NetworkOptions& networks, TrainerOptions options);

  Side disc, gen;
  gan::Ema& ema() { return *ema_; }  // of the generator

  // Sets the size and the fade of a growing network. Resets both optimizers, with the learning rate of the
  // size, when a fade begins or ends.
  void begin(const training::Step& s);
  // Runs the recipe's step, and updates the average.
  void step(training::Step& s);
  // Ends a step: broadcasts the running statistics of the first rank.
  void end();

  Networks& networks() { return net_; }
  Tensor generate(const Latents& from) { return net_.generate(from); }
  Tensor discriminate(const Tensor& x, const Tensor& labels = {}) { return net_.discriminate(x, labels); }
  // Returns the scores of the step's real images and of `fake`, with --joined-forward from one forward. Logs
  // "diversity".
  struct Scores {
    Tensor real, fake;
  };
  Scores discriminate(GanStep& s, const Tensor& fake);

  int64_t disc_steps() const { return options_.disc_steps; }
  double gamma() const { return options_.gamma; }
  gan::PathLengthPenalty& path_length() { return path_length_; }
  // Returns the size and the fade after `images` images.
  models::Scale scale(int64_t images) const;
  // Returns sizes, images, batch sizes and learning rates of the phases: "4:20000,8:40000:32,16:0 fade
  // 10000"; "none".
  std::string growth_text() const;
  // Return the bytes that the last step sent for the gradients of a network.
  int64_t bytes_sent_d() const { return net_.disc ? bytes_sent(*net_.disc) : 0; }
  int64_t bytes_sent_g() const { return bytes_sent(*net_.gen); }

 private:
  // A captured step, with the names of its results. Steps that train the generator or compute lazy penalties
  // are captured of their own.
  struct Captured {
    std::optional<CapturedStep> step;
    std::vector<std::string> names;
  };

  void attach();
  // Returns the images of the step, and new random numbers.
  GanStep inputs(training::Step& s) const;
  // Returns new latents with these labels, and what else the generator takes.
  Latents draw(training::Step& s, const Tensor& labels) const;
  // Runs the step of these inputs as a CapturedStep, and logs its results.
  void run_captured(const GanStep& in, training::Step& s);
  void make_optimizers(int64_t images);  // with the learning rate after `images` images
  int64_t bytes_sent(const nn::Module& part) const;

  Networks& net_;
  const NetworkOptions networks_;
  const TrainerOptions options_;
  GradManager managers_[2];  // of the discriminator and the generator; "whole": the first has both
  std::unique_ptr<dist::DistributedDataParallel<Networks>> whole_;
  std::unique_ptr<dist::SeparateDistributedDataParallel<Networks>> separate_;
  std::shared_ptr<dist::AllReduceCallback> callbacks_[2];
  std::optional<gan::Ema> ema_;
  gan::PathLengthPenalty path_length_;
  std::map<std::array<bool, 3>, Captured> captured_;  // by trains_gen, penalizes_disc, penalizes_gen
};

}  // namespace gradus::examples
