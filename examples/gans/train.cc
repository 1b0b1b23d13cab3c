// Opens images, constructs networks and Trainer, and runs the recipe's step until the training ends, with
// grids of samples, metrics, checkpoints and a summary.
#include "gradus/examples/gans/train.h"

#include "gradus/examples/gans/images.h"
#include "gradus/examples/gans/samples.h"
#include "gradus/examples/gans/train_metrics.h"

namespace gradus::examples {
namespace {

// Settings that a checkpoint fixes, and from which `sample` constructs the networks.
std::vector<std::pair<std::string, std::string>> fixed(const NetworkOptions& o, const std::string& growth) {
  std::vector<std::pair<std::string, std::string>> values;
  NetworkOptions::each(
      o, [&](const char* name, const auto& value) { values.emplace_back(name, concat(value)); });
  if (o.disc_width == 0) values.pop_back();  // checkpoints of before the option have none
  values.emplace_back("growth", growth);
  return values;
}

TrainerOptions trainer_options(const Args& a, int64_t size) {
  const Recipe& r = recipe(a.model);
  const int64_t batch = a.batch ? a.batch : r.batch;
  TrainerOptions o = {.adam = r.adam,
                      .gamma = a.gamma >= 0 ? a.gamma
                               : r.gamma    ? r.gamma(size, batch)
                                            : 0,
                      .disc_steps = a.disc_steps ? a.disc_steps : r.disc_steps,
                      .ema_images = a.ema_images,
                      .ddp = a.ddp,
                      .find_unused_parameters = a.find_unused_parameters,
                      .sync_batch_norm = a.syncbn,
                      .joined_forward = a.joined_forward,
                      .capture = a.capture.value_or(false),
                      .growth = growth(a, size)};
  if (a.lr > 0) o.adam.lr = a.lr;
  if (a.beta1 >= 0) o.adam.betas[0] = a.beta1;
  return o;
}

std::filesystem::path samples_folder(const Args& a) {
  if (!a.samples.empty()) return a.samples;
  return a.checkpoint_dir.empty() ? std::filesystem::path("samples")
                                  : std::filesystem::path(a.checkpoint_dir) / "samples";
}

// Returns whether the number of images shown passes a multiple of `interval` in this step.
bool crosses(const training::Step& s, int64_t interval) {
  return s.images() / interval != (s.images() - s.batch().global_size) / interval;
}

// Checks that ranks, and groups of the minibatch standard deviation, get equal parts of a batch.
// Errors: ValueError with the option.
void check_batch(const std::string& option, int64_t batch, int64_t group) {
  const int64_t ranks = dist::get_world_size();
  if (batch % ranks != 0)
    throw ValueError("gan", option, ' ', batch, ": expected a multiple of the ", ranks, " ranks");
  if (batch > group && batch % group != 0)
    throw ValueError("gan", option, ' ', batch, ": expected a multiple of ", group,
                     ", the images of a group of the minibatch standard deviation");
}

// Errors: ValueError unless images of this kind are those of --dataset.
void check_dataset(const std::string& dataset, const std::string& kind) {
  const std::string expected = dataset == "mnist"     ? "MNIST"
                               : dataset == "cifar10" ? "CIFAR10"
                               : dataset == "fake"    ? "GeneratedDigits"
                                                      : "ImageFolder";
  if (!dataset.empty() && kind != expected)
    throw ValueError("gan", "--dataset ", dataset, ": expected --data with images of ", expected, ", got ",
                     kind);
}

// Returns DataLoaderOptions::global_batch_sizes.
// Errors: as check_batch.
std::map<int64_t, int64_t> batch_sizes(const Args& a, const std::optional<gan::Growth>& growth) {
  const int64_t batch = a.batch ? a.batch : recipe(a.model).batch;
  if (!growth) {
    check_batch("--batch", batch, 1);
    return {{0, batch}};
  }
  for (const gan::GrowthPhase& phase : growth->phases())
    if (phase.batch > 0)
      check_batch(concat("--images-per-scale, size ", phase.size, ": batch"), phase.batch, 4);
    else
      check_batch("--batch", batch, 4);
  return growth->batch_sizes(batch);
}

void describe(const training::Training& training, const Networks& net, const Images& images,
              const Trainer& trainer) {
  training::print(concat(training.loader().dataset().size(), " images of ", images.kind, ", ", images.size,
                         "x", images.size, "x", images.channels, "; ",
                         training::machine_text(training.run().device.value_or(kCPU)), "; seed ",
                         training.run().seed, '\n', net));
  if (const auto at = trainer.scale(0); at.size != images.size)
    training::print(concat("Training begins at ", at.size, "x", at.size));
}

// Adds the last means of logged values, and the settings of the training.
void write_summary(const training::Training& t, const Args& a, const Images& images, const Trainer& trainer,
                   const TrainMetrics& metrics) {
  const models::Scale at = trainer.scale(t.images());
  std::vector<std::pair<std::string, training::SummaryValue>> more = {
      {"model", a.model},
      {"size", images.size},
      {"images", t.images()},
      {"scale", at.size},
      {"fade", at.fade},
      {"d_steps", trainer.disc.exists() ? t.steps() : 0},
      {"g_steps", t.steps() / trainer.disc_steps()},
      {"skipped", t.skipped()},
      {"ddp", a.ddp},
      {"bytes_sent_d", trainer.bytes_sent_d()},
      {"bytes_sent_g", trainer.bytes_sent_g()}};
  for (const auto& [name, sum] : t.recent().of) {
    std::string key = name;
    std::ranges::replace(key, '/', '_');
    more.emplace_back(key, t.recent().mean(name));
  }
  for (auto& figure : metrics.summary(t)) more.push_back(std::move(figure));
  training::write_summary(t, more);
}

data::DataLoader image_loader(const Args& a, const Images& images, const std::optional<gan::Growth>& growth) {
  return data::DataLoader(images.set, {.global_batch_sizes = batch_sizes(a, growth),
                                       .shuffle = true,
                                       .num_workers = a.workers,
                                       .drop_last = true,
                                       .seed = a.seed,
                                       .device = a.device});
}

}  // namespace

void train_gan(const Args& a) {
  check_capture(a);
  manual_seed(a.seed);
  const Recipe& r = recipe(a.model);
  const Images images = open_images({.dir = a.dataset == "fake" ? "" : a.data,
                                     .size = a.size,
                                     .flip = a.augment == "flip",
                                     .on_error_skip = a.on_error == "skip"});
  check_dataset(a.dataset, images.kind);
  if (a.data.empty()) training::print("Training on generated digits: --data DIR names a folder of images");
  const NetworkOptions networks = network_options(a, images.size, images.channels, images.classes);
  const std::unique_ptr<Networks> net = r.make(networks);
  net->to(*a.device);
  if (!a.init.empty()) io::load_weights(*net, a.init);
  if (!a.init_gen.empty()) io::load_weights(*net->gen, a.init_gen);
  if (!a.init_disc.empty() && !net->disc)
    throw ValueError("gan", "--netD: ", a.model, " has no discriminator");
  if (!a.init_disc.empty()) io::load_weights(*net->disc, a.init_disc);
  const TrainerOptions trained = trainer_options(a, images.size);
  Trainer trainer(*net, networks, trained);
  gan::Watch watch({.won = r.is_critic ? 0 : 0.99});
  TrainMetrics metrics(a, images, *net, networks, trainer.ema());
  training::TrainingOptions options = {
      .fixed = fixed(networks, trainer.growth_text()),
      .on_not_finite = a.on_nan == "skip" ? training::OnNotFinite::kSkip : training::OnNotFinite::kStop,
      .warnings = [&](const training::Sums& recent, int64_t steps) {
        return watch.update(recent.means(), steps);
      }};
  metrics.add_to(options);
  data::DataLoader loader = image_loader(a, images, trained.growth);
  std::vector<TrainingState::Part> parts = {{"model", *net},
                                            {"optimizer_gen", trainer.gen.optimizer()},
                                            {"ema", trainer.ema()},
                                            {"scale_size", net->scale.size},
                                            {"scale_fade", net->scale.fade}};
  if (r.gen_penalty_every) parts.emplace_back("path_length", trainer.path_length());
  if (net->disc) parts.insert(parts.begin() + 1, {"optimizer_disc", trainer.disc.optimizer()});
  training::Training training("gan", a, loader, parts, options);
  describe(training, *net, images, trainer);
  const Grids grids(samples_folder(a), networks, a.seed);
  const int64_t sample_every =
      a.sample_every ? a.sample_every : tenth(a, loader.global_batch_size(), images.set->size());

  for (training::Step& s : training) {
    trainer.begin(s);
    {
      const auto amp = training::mixed_precision(a);
      trainer.step(s);
    }
    trainer.end();
    if (training.events() && s.every(a.log_interval)) {
      training.events()->add_scalar("scale", double(net->scale.size), s.number());
      training.events()->add_scalar("fade", net->scale.fade, s.number());
    }
    if (crosses(s, sample_every) && training::is_first_rank()) {
      const Tensor grid = grids.write(*net, trainer.ema().weights(), s.images());
      if (training.events()) training.events()->add_image("samples", grid, s.number(), {.nrow = 8});
    }
  }
  if (!a.export_file.empty() && training::is_first_rank()) {
    trainer.ema().copy_to(*net->gen);
    io::save_weights(*net, a.export_file);
  }
  write_summary(training, a, images, trainer, metrics);
}

}  // namespace gradus::examples
