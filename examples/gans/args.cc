// The options of the gan program, and the options of networks and growth that follow from them.
#include "gradus/examples/gans/args.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "gradus/examples/gans/metrics.h"

namespace gradus::examples {
namespace {

// Returns the parts between separators.
std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Returns the learning rate; 0 for text that is not a finite number.
double rate_of(const std::string& text) {
  double rate = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, rate);
  return error == std::errc() && end == last && std::isfinite(rate) ? rate : 0;
}

// Parses SIZE:IMAGES[:BATCH[:RATE]]; nullopt for invalid text.
std::optional<gan::GrowthPhase> phase_of(const std::string& text) {
  const std::vector<std::string> fields = split(text, ':');
  if (fields.size() < 2 || fields.size() > 4) return {};
  gan::GrowthPhase phase = {.size = training::parse_count(fields[0]).value_or(0),
                            .images = training::parse_count(fields[1]).value_or(0)};
  if (fields.size() > 2) phase.batch = training::parse_count(fields[2]).value_or(0);
  if (fields.size() > 3) phase.lr = rate_of(fields[3]);
  const bool fits = phase.size > 0 && phase.images > 0 && (fields.size() < 3 || phase.batch > 0) &&
                    (fields.size() < 4 || phase.lr > 0);
  return fits ? std::optional(phase) : std::nullopt;
}

// Parses --images-per-scale: phases separated by commas.
std::vector<gan::GrowthPhase> phases_of(const std::string& plan) {
  std::vector<gan::GrowthPhase> phases;
  for (const std::string& part : split(plan, ',')) {
    const std::optional<gan::GrowthPhase> phase = phase_of(part);
    if (!phase)
      throw ValueError("gan", "--images-per-scale: expected SIZE:IMAGES[:BATCH[:RATE]],... as ",
                       "4:20k,8:40k or 4:20k:64,8:40k:32:1e-3, got ", plan);
    phases.push_back(*phase);
  }
  return phases;
}

// Returns phases of the sizes first, 2 first, ..., size, with equal shares of the images.
std::vector<gan::GrowthPhase> equal_phases(int64_t first, int64_t size, int64_t images) {
  std::vector<gan::GrowthPhase> phases;
  for (int64_t s = std::min(first, size); s <= size; s *= 2) phases.push_back({.size = s});
  for (gan::GrowthPhase& phase : phases) phase.images = std::max(images / int64_t(phases.size()), int64_t{2});
  return phases;
}

}  // namespace

Args parse(int argc, char** argv) {
  Args a;
  a.epochs = 0, a.device = kCPU, a.amp = DType::kF32, a.capture = false;
  a.log_interval = 100;
  training::CommandLine line("gan", "Trains a GAN", a);
  line.add("--model", a.model, "what is trained", {.one_of = recipe_names()});
  line.add("--data,--dataroot", a.data, "folder with MNIST, CIFAR-10 or images [generated digits]",
           {.value = "DIR"});
  line.add("--size,--imageSize", a.size, "height and width of images [32; 64 for a folder of images]",
           {.at_least = 4, .at_most = 1024, .value = "N"});
  line.add("--width,--ngf", a.width, "channels where images are largest [the model's]",
           {.at_least = 1, .at_most = 4096, .value = "N"});
  line.add("--disc-width,--ndf", a.disc_width, "dcgan, lsgan: of the discriminator [--width]",
           {.at_least = 1, .at_most = 4096, .value = "N"});
  line.add("--latent,--nz", a.latent, "numbers that an image is generated from [the model's]",
           {.at_least = 1, .at_most = 1 << 16, .value = "N"});
  line.add("--batch,--batchSize", a.batch, "images of a step, of all ranks [the model's]",
           {.at_least = 1, .at_most = 1 << 20, .value = "N"});
  line.add("--disc-steps", a.disc_steps, "the discriminator's steps for each of the generator [the model's]",
           {.at_least = 1, .at_most = 1000, .value = "N"});
  line.add("--lr", a.lr, "learning rate of both networks [the model's]", {.above = 0, .value = "RATE"});
  line.add("--beta1", a.beta1, "Adam's decay of the gradients' mean [the model's]",
           {.at_least = 0, .at_most = 1});
  line.add("--gamma", a.gamma, "stylegan1, stylegan2, r3gan: weight of the gradient penalties [the model's]",
           {.at_least = 0});
  line.add("--ema-images", a.ema_images,
           "half-life of the generator's average, at first 5 % of the images so far", {.above = 0});
  line.add("--images-per-scale", a.images_per_scale,
           "pggan, stylegan1: images to train on at each size, SIZE:IMAGES[:BATCH[:RATE]],... as "
           "4:20k:64,8:40k:32; "
           "batch and learning rate are by default --batch and --lr [equal shares]",
           {.value = "PLAN"});
  line.add("--fade", a.fade, "pggan, stylegan1: images that fade a size in [half of the shortest share]",
           {.at_least = 1, .value = "N"});
  line.add("--conditional", a.conditional,
           "dcgan, stylegan2, sngan, r3gan, flow: generate images of a given class");
  line.add("--augment", a.augment, "changes to the images", {.one_of = {"none", "flip"}});
  line.add("--on-error", a.on_error, "when an image file cannot be read", {.one_of = {"fail", "skip"}});
  line.add("--ddp", a.ddp, "data parallelism of the networks",
           {.one_of = {"separate", "whole", "callbacks"}});
  line.add("--find-unused-parameters", a.find_unused_parameters, "option of the wrapper");
  line.add("--syncbn", a.syncbn, "batch norm over all ranks");
  line.add("--joined-forward", a.joined_forward,
           "the discriminator sees real and generated images as one batch");
  line.add("--on-nan", a.on_nan, "when gradients are not finite", {.one_of = {"stop", "skip"}});
  line.add("--sample-every", a.sample_every, "images between two grids of samples [a tenth of all]",
           {.at_least = 1, .value = "N"});
  line.add("--samples", a.samples, "folder of the grids [below --checkpoint-dir, or samples]",
           {.value = "DIR"});
  line.add("--init", a.init, "begin with these weights of both networks", {.value = "FILE"});
  line.add("--netG", a.init_gen, "begin with these weights of the generator", {.value = "FILE"});
  line.add("--netD", a.init_disc, "begin with these weights of the discriminator", {.value = "FILE"});
  line.add("--export", a.export_file, "write the weights, the generator's averaged", {.value = "FILE"});
  line.add("--metrics", a.metrics, kMetricsHelp, {.value = "LIST"});
  line.add("--metrics-every", a.metrics_every, "images between two looks at the metrics [a tenth of all]",
           {.at_least = 1, .value = "N"});
  line.add("--metrics-samples", a.metrics_samples, "images that are made for them",
           {.at_least = 10, .at_most = 1 << 16, .value = "N"});
  line.add("--classifier", a.classifier, "weights of the metrics' classifier [the cache folder's]",
           {.value = "FILE"});
  line.add("--dataset", a.dataset, "the kind of images that --data must have; fake: generated digits",
           {.one_of = {"mnist", "cifar10", "folder", "imagenet", "lfw", "fake"}});
  // dcgan's names of options of all programs.
  line.add("--niter", a.epochs, "as --epochs", {.at_least = 0});
  line.add("--manualSeed", a.seed, "as --seed");
  line.add("--outf", a.checkpoint_dir, "as --checkpoint-dir", {.value = "DIR"});
  line.add("--ngpu", a.nproc, "as --nproc: a rank on each GPU", {.at_least = 1, .at_most = 256});
  line.parse_or_exit(argc, argv);
  if (!a.images && !a.iterations && !a.epochs) a.images = kImages;
  return a;
}

NetworkOptions network_options(const Args& a, int64_t size, int64_t channels, int64_t classes) {
  const Recipe& r = recipe(a.model);
  NetworkOptions o = r.networks;
  o.size = size, o.channels = channels;
  if (a.width) o.width = a.width;
  if (a.latent) o.latent = a.latent;
  if (r.is_flow) o.latent = channels * size * size;
  o.disc_width = a.disc_width;
  if (a.disc_width && a.model != "dcgan" && a.model != "lsgan")
    throw ValueError("gan", "--disc-width: the networks of ", a.model,
                     " share a width; those of dcgan and lsgan do not");
  if (r.is_flow && (a.latent || a.disc_steps || a.joined_forward))
    throw ValueError("gan", "--latent, --disc-steps, --joined-forward: ", a.model,
                     " has neither latents of another size than the images' nor a discriminator");
  if (a.gamma >= 0 && !r.gamma)
    throw ValueError("gan", "--gamma: ", a.model, " has no R1 penalty; stylegan1, stylegan2 and r3gan do");
  if (!a.conditional) return o;
  if (!r.takes_labels)
    throw ValueError("gan", "--conditional: ", a.model,
                     " takes no labels; dcgan, stylegan2, sngan, r3gan and flow do");
  if (classes == 0)
    throw ValueError("gan", "--conditional: the images have no labels; make a folder per class");
  o.classes = classes;
  return o;
}

void check_capture(const Args& a) {
  if (!a.capture.value_or(false)) return;
  if (recipe(a.model).grows)
    throw ValueError("gan", "--capture: ", a.model,
                     " grows; a replay keeps the size and the fade of its recording");
  if (a.on_nan == "skip")
    throw ValueError("gan", "--capture does not go with --on-nan skip: a replay skips no steps");
}

std::optional<gan::Growth> growth(const Args& a, int64_t size) {
  if (!recipe(a.model).grows) {
    if (!a.images_per_scale.empty() || a.fade)
      throw ValueError("gan", "--images-per-scale, --fade: ", a.model,
                       " does not grow; pggan and stylegan1 do");
    return {};
  }
  if (a.images_per_scale.empty() && !a.images)
    throw ValueError("gan", "expected --images-per-scale or --images, by which ", a.model, " grows");
  std::vector<gan::GrowthPhase> phases = a.images_per_scale.empty()
                                             ? equal_phases(recipe(a.model).first_size, size, a.images)
                                             : phases_of(a.images_per_scale);
  int64_t shortest = phases.front().images;
  for (const gan::GrowthPhase& phase : phases) shortest = std::min(shortest, phase.images);
  phases.back().images = 0;  // trained to the end
  gan::Growth plan(std::move(phases), {.fade_images = a.fade ? a.fade : shortest / 2});
  if (const int64_t last = plan.phases().back().size; last != size)
    throw ValueError("gan", "--images-per-scale: expected the last size to be that of the images, ", size,
                     ", got ", last);
  return plan;
}

}  // namespace gradus::examples
