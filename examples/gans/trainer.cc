// Connects the networks with data parallelism, and changes scale and optimizers of growing networks.
#include "gradus/examples/gans/trainer.h"

#include <cmath>

namespace gradus::examples {

Recording Trainer::Side::record() {
  return shares_manager_ ? manager_->record({.only = net_->parameters()}) : manager_->record();
}

void Trainer::Side::update(training::Step& s, Recording& recording, const Tensor& loss) {
  if (!s.backward(name_, recording, loss)) return;
  if (s.every(log_interval_))
    s.log("grad_norm/" + name_, optim::clip_grad_norm_(net_->parameters(), INFINITY));
  adam_->step().clear_grad();
}

Trainer::Trainer(Networks& net, const NetworkOptions& networks, TrainerOptions options)
    : net_(net), networks_(networks), options_(std::move(options)) {
  if (options_.sync_batch_norm) dist::convert_sync_batchnorm(net_);
  dist::convert_sync_minibatch_stddev(net_);
  attach();
  // Without the ramp-up the initial weights dominate the average at first, and samples are gray.
  ema_.emplace(*net.gen, gan::EmaOptions{.half_life_images = options_.ema_images, .ramp_up = 0.05});
  net_.scale = scale(0);
  make_optimizers(0);
}

void Trainer::attach() {
  const bool whole = options_.ddp == "whole";
  disc.net_ = net_.disc, gen.net_ = net_.gen;
  disc.name_ = "disc", gen.name_ = "gen";
  disc.log_interval_ = gen.log_interval_ = options_.log_interval;
  disc.manager_ = &managers_[0], gen.manager_ = &managers_[whole ? 0 : 1];
  disc.shares_manager_ = gen.shares_manager_ = whole;
  const dist::DistributedDataParallelOptions wrapper = {
      .broadcast_buffers = false,
      .find_unused_parameters = options_.find_unused_parameters,
      .check_finite = true};
  if (whole) {
    whole_ = std::make_unique<dist::DistributedDataParallel<Networks>>(net_, wrapper);
    whole_->attach(managers_[0]);
  } else if (options_.ddp == "separate") {
    separate_ = std::make_unique<dist::SeparateDistributedDataParallel<Networks>>(net_, wrapper);
    separate_->attach(managers_[0], *net_.disc);
    separate_->attach(managers_[1], *net_.gen);
  } else {
    dist::bcast_list_(net_);
    const auto name_of = [this](const Tensor& param) {
      for (const auto& [name, p] : net_.named_parameters())
        if (p.is_same(param)) return name;
      return std::string("a parameter");
    };
    for (auto& callback : callbacks_)
      callback = dist::make_allreduce_cb(dist::ReduceOp::kMean, {.check_finite = true, .name_of = name_of});
    managers_[0].attach(net_.disc->parameters(), callbacks_[0]);
    managers_[1].attach(net_.gen->parameters(), callbacks_[1]);
  }
}

void Trainer::make_optimizers(int64_t images) {
  optim::AdamOptions adam = options_.adam;
  if (options_.growth)
    if (const double lr = options_.growth->at(images).lr; lr > 0) adam.lr = lr;
  disc.adam_.emplace(net_.disc->parameters(), adam);
  gen.adam_.emplace(net_.gen->parameters(), adam);
}

models::Scale Trainer::scale(int64_t images) const {
  if (!options_.growth) return {.size = networks_.size};
  const gan::Growth::State at = options_.growth->at(images);
  return {.size = at.size, .fade = at.fade};
}

void Trainer::begin(const training::Step& s) {
  const models::Scale last = net_.scale;                      // of the step before, also after resuming
  const int64_t before = s.images() - s.batch().global_size;  // images shown
  net_.scale = scale(before);
  if (net_.scale.size != last.size || (last.fade < 1 && net_.scale.fade == 1)) make_optimizers(before);
}

void Trainer::end() {
  const std::vector<Tensor> buffers = net_.buffers();
  if (dist::get_world_size() > 1 && !buffers.empty()) dist::bcast_list_(buffers, {.verify = false});
}

Tensor Trainer::real(const training::Step& s) const {
  const Tensor x = s.batch().input;
  return options_.growth ? gan::scaled_images(x, net_.scale.size, net_.scale.fade) : x;
}

Trainer::Scores Trainer::discriminate(training::Step& s, const Tensor& real, const Tensor& fake,
                                      const Tensor& real_labels, const Tensor& fake_labels) {
  s.log("diversity", gan::diversity(real, fake));
  if (!options_.joined_forward) return {discriminate(real, real_labels), discriminate(fake, fake_labels)};
  const Tensor labels = real_labels.defined() ? cat({real_labels, fake_labels}, 0) : Tensor();
  const Tensor both = discriminate(cat({real, fake}, 0), labels);
  return {slice(both, 0, 0, real.size(0)), slice(both, 0, real.size(0), both.size(0))};
}

Tensor Trainer::labels(const training::Step& s) const {
  return networks_.classes > 0 ? s.batch().target : Tensor();
}

Tensor Trainer::random_labels(training::Step& s) const {
  if (networks_.classes == 0) return {};
  return to(floor(s.rand() * double(networks_.classes)), DType::kI64);
}

std::string Trainer::growth_text() const {
  if (!options_.growth) return "none";
  std::string text;
  for (const gan::GrowthPhase& phase : options_.growth->phases()) {
    text += concat(text.empty() ? "" : ",", phase.size, ':', phase.images);
    if (phase.batch > 0) text += concat(':', phase.batch);
    if (phase.lr > 0) text += concat(':', phase.lr);
  }
  return concat(text, " fade ", options_.growth->options().fade_images);
}

int64_t Trainer::bytes_sent(const nn::Module& part) const {
  if (whole_) return whole_->stats().bytes;
  if (separate_) return separate_->stats(part).bytes;
  return callbacks_[&part == net_.disc ? 0 : 1]->stats().bytes;
}

}  // namespace gradus::examples
