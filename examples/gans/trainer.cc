// Connects the networks with data parallelism, runs and captures the steps of recipes, and changes scale and
// optimizers of growing networks.
#include "gradus/examples/gans/trainer.h"

#include <cmath>

#include "gradus/examples/gans/style_networks.h"

namespace gradus::examples {

Recording Trainer::Side::record() {
  return shares_manager_ ? manager_->record({.only = net_->parameters()}) : manager_->record();
}

void Trainer::Side::update(GanStep& s, Recording& recording, const Tensor& loss) {
  if (!s.training)
    recording.backward(loss);
  else if (!s.training->backward(name_, recording, loss))
    return;
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
  disc.manager_ = &managers_[0], gen.manager_ = &managers_[whole ? 0 : 1];
  disc.shares_manager_ = gen.shares_manager_ = whole;
  const dist::DistributedDataParallelOptions wrapper = {
      .broadcast_buffers = false,
      .find_unused_parameters = options_.find_unused_parameters,
      .check_finite = !options_.capture};
  if (whole) {
    whole_ = std::make_unique<dist::DistributedDataParallel<Networks>>(net_, wrapper);
    whole_->attach(managers_[0]);
  } else if (options_.ddp == "separate") {
    separate_ = std::make_unique<dist::SeparateDistributedDataParallel<Networks>>(net_, wrapper);
    if (net_.disc) separate_->attach(managers_[0], *net_.disc);
    separate_->attach(managers_[1], *net_.gen);
  } else {
    dist::bcast_list_(net_);
    const auto name_of = [this](const Tensor& param) {
      for (const auto& [name, p] : net_.named_parameters())
        if (p.is_same(param)) return name;
      return std::string("a parameter");
    };
    for (auto& callback : callbacks_)
      callback = dist::make_allreduce_cb(dist::ReduceOp::kMean,
                                         {.check_finite = !options_.capture, .name_of = name_of});
    if (net_.disc) managers_[0].attach(net_.disc->parameters(), callbacks_[0]);
    managers_[1].attach(net_.gen->parameters(), callbacks_[1]);
  }
}

void Trainer::make_optimizers(int64_t images) {
  optim::AdamOptions adam = options_.adam;
  if (options_.growth)
    if (const double lr = options_.growth->at(images).lr; lr > 0) adam.lr = lr;
  const Recipe& r = recipe(networks_.model);
  const auto lazy = [&](int64_t every) { return every ? gan::lazy_regularization(adam, every) : adam; };
  if (net_.disc) disc.adam_.emplace(net_.disc->parameters(), lazy(r.disc_penalty_every));
  gen.adam_.emplace(net_.gen->parameters(), lazy(r.gen_penalty_every));
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

// Each draw takes the next random numbers of the step: another order of draws would change trainings.
GanStep Trainer::inputs(training::Step& s) const {
  const Recipe& r = recipe(networks_.model);
  // `number`: of the network's steps, from 1.
  const auto is_due = [](int64_t number, int64_t every) { return every > 0 && (number - 1) % every == 0; };
  GanStep in = {.training = options_.capture ? nullptr : &s,
                .trains_gen = s.every(options_.disc_steps),
                .penalizes_disc = is_due(s.number(), r.disc_penalty_every)};
  in.penalizes_gen = in.trains_gen && is_due(s.number() / options_.disc_steps, r.gen_penalty_every);
  const Tensor& x = s.batch().input;
  in.real = options_.growth ? gan::scaled_images(x, net_.scale.size, net_.scale.fade) : x;
  Tensor labels;  // of generated images
  if (networks_.classes > 0) {
    in.real_labels = s.batch().target;
    if (r.is_flow)
      in.dropped = lt(s.rand(), 0.1);
    else
      labels = to(floor(s.rand() * double(networks_.classes)), DType::kI64);
  }
  in.fake = draw(s, labels);
  if (r.is_flow) in.times = flow::logit_normal_times(s.randn());
  if (r.has_penalty) in.alpha = s.rand();
  if (in.trains_gen && !r.reuses_images) in.gen_fake = draw(s, labels);
  if (in.penalizes_gen) {
    in.path = draw(s, labels), in.path_noise = s.randn({x.size(1), net_.scale.size, net_.scale.size});
    const int64_t half = std::max(x.size(0) / 2, int64_t{1});
    const auto cut = [&](Tensor& t) {
      if (t.defined()) t = slice(t, 0, 0, half);
    };
    Latents::each(in.path, cut), cut(in.path_noise);
  }
  return in;
}

Latents Trainer::draw(training::Step& s, const Tensor& labels) const {
  Latents drawn = {.z = s.randn({networks_.latent}), .labels = labels};
  const auto* net = dynamic_cast<const StyleNetworks*>(&net_);
  if (!net) return drawn;
  if (const double mixing = recipe(networks_.model).mixing; mixing > 0) {
    const auto layers = double(net->layers());
    drawn.mixed_z = s.randn({networks_.latent});
    const Tensor cut = 1 + floor(s.rand() * (layers - 1));
    drawn.cut = to(where(lt(s.rand(), mixing), cut, full_like(cut, layers)), DType::kI64);
  }
  for (const int64_t size : net->noise_sizes()) drawn.noise.push_back(s.randn({1, size, size}));
  return drawn;
}

// The average is updated outside of the captured step: its decay depends on a number of the host.
void Trainer::step(training::Step& s) {
  const Recipe& r = recipe(networks_.model);
  GanStep now = inputs(s);
  if (r.ema_first) ema_->update(s.images());
  if (options_.capture)
    run_captured(now, s);
  else
    r.step(now, *this);
  if (!r.ema_first && now.trains_gen) ema_->update(s.images());
}

void Trainer::run_captured(const GanStep& in, training::Step& s) {
  CapturedStep::Tensors inputs;
  GanStep::each(in, [&](const Tensor& x) {
    if (x.defined()) inputs.push_back(x);
  });
  Captured& captured = captured_[{in.trains_gen, in.penalizes_disc, in.penalizes_gen}];
  if (!captured.step)
    captured.step.emplace([this, &captured, in](const auto& xs) {
      GanStep now = in;
      size_t i = 0;
      GanStep::each(now, [&](Tensor& x) {
        if (x.defined()) x = xs[i++];
      });
      recipe(networks_.model).step(now, *this);
      captured.names.clear();
      CapturedStep::Tensors values;
      for (const auto& [name, value] : now.logged) captured.names.push_back(name), values.push_back(value);
      return values;
    });
  const CapturedStep::Tensors values = (*captured.step)(inputs);
  for (size_t i = 0; i < values.size(); ++i) s.log(captured.names[i], values[i]);
}

Trainer::Scores Trainer::discriminate(GanStep& s, const Tensor& fake) {
  s.log("diversity", gan::diversity(s.real, fake));
  if (!options_.joined_forward)
    return {discriminate(s.real, s.real_labels), discriminate(fake, s.fake.labels)};
  const Tensor labels = s.real_labels.defined() ? cat({s.real_labels, s.fake.labels}, 0) : Tensor();
  const Tensor both = discriminate(cat({s.real, fake}, 0), labels);
  return {slice(both, 0, 0, s.real.size(0)), slice(both, 0, s.real.size(0), both.size(0))};
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
