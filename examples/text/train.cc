// Trains a GPT with AdamW, linear warmup and cosine decay, as nanoGPT. The network is always in a
// dist::Pipeline; without --pipeline it has one stage. A process that trains alone calls the network itself, so that
// --capture can record the step: Pipeline::step reads values on the host.
#include "gradus/examples/text/train.h"

#include <cmath>
#include <iostream>
#include <numbers>

#include "gradus/examples/text/corpus.h"
#include "gradus/examples/text/sample.h"

namespace gradus::examples {
namespace {

using Pipeline = dist::Pipeline<models::GPT>;

// Shapes: logits [N,T,characters], target i64[N,T] -> a scalar.
Tensor loss_of(const Tensor& logits, const Tensor& target) {
  return nn::cross_entropy(flatten(logits, 0, 1), flatten(target));
}

int64_t number_of_steps(const TextArgs& a, const data::DataLoader& loader) {
  if (a.images > 0) return (a.images + a.batch - 1) / a.batch;
  return a.iterations > 0 ? a.iterations : a.epochs * loader.size();
}

// Returns the factor of the learning rate: linear warmup, then cosine decay to 0.1.
double rate_factor(const TextArgs& a, int64_t steps, int64_t step) {
  if (step < a.warmup) return double(step + 1) / double(a.warmup + 1);
  const double progress =
      std::min(1.0, double(step - a.warmup) / double(std::max<int64_t>(1, steps - a.warmup)));
  return 0.1 + 0.45 * (1 + std::cos(std::numbers::pi * progress));
}

// Settings that a checkpoint fixes, and from which `sample` constructs the network.
std::vector<std::pair<std::string, std::string>> fixed(const TextArgs& a, const Corpus& corpus,
                                                       int64_t steps) {
  return {{"layers", concat(a.layers)},       {"heads", concat(a.heads)},
          {"width", concat(a.width)},         {"context", concat(a.context)},
          {"number of steps", concat(steps)}, {"characters", corpus.characters.all()}};
}

training::Sums validate(const TextArgs& a, Pipeline& pipe, data::DataLoader& loader,
                        training::Training& training) {
  const nn::ModeScope mode(pipe.module(), false);
  const auto amp = training::mixed_precision(a);
  training::Tally tally;
  for (const data::Batch& b : loader) {
    // eval_step returns the mean over all replicas.
    const double loss = pipe.eval_step(b.input, b.target, loss_of);
    tally.add({.seen = b.size(), .of = {{"loss", loss * double(b.size())}}});
    if (training.end_test_step()) break;
  }
  return tally.reduce();
}

std::string validation_line(const training::Sums& sums, const Corpus& corpus) {
  std::string text = training::format_text("Validation loss %.4f", sums.mean("loss"));
  if (corpus.entropy)
    text += training::format_text("; the source's entropy is %.4f, the least loss %.4f", *corpus.entropy,
                                  *corpus.least_loss);
  return text;
}

void report(const TextArgs& a, const training::Training& training, Pipeline& pipe, const Corpus& corpus) {
  const double speed = training.images_per_second() * double(a.context);
  training::print(training::format_text("Trained at %.0f characters/s", speed));
  if (a.pipeline.micro_batches == "auto" && training::is_first_rank()) std::cout << pipe.describe();
  const int micro_batches = pipeline_options(a).micro_batches;
  std::vector<std::pair<std::string, training::SummaryValue>> more = {
      {"loss", training.recent().mean("loss")},
      {"parameters", pipe.module().num_parameters()},
      {"characters", corpus.characters.size()},
      {"characters_per_second", speed},
      {"ranks", dist::get_world_size()},
      {"stages", pipe.stages()},
      {"replicas", dist::get_world_size() / a.pipeline.ranks},
      {"micro_batches", micro_batches > 0 ? concat(micro_batches) : "auto"},
      {"schedule", a.pipeline.schedule}};
  if (!training.history().empty()) more.emplace_back("validation_loss", training.last().test.mean("loss"));
  if (corpus.entropy)
    more.insert(more.end(), {{"entropy", *corpus.entropy}, {"least_loss", *corpus.least_loss}});
  training::write_summary(training, more);
}

// The first replica samples.
void print_sample(const TextArgs& a, Pipeline& pipe, const data::Characters& characters) {
  if (pipe.grid().index("replica") > 0) return;
  const nn::ModeScope mode(pipe.module(), false);
  const auto logits_of = [&](const Tensor& x) { return pipe.forward(x, {.everywhere = true}); };
  training::print(write_text(logits_of, a.context, characters, {.length = a.sample}));
}

}  // namespace

void train_gpt(const TextArgs& a) {
  const Corpus corpus = open_corpus(a);
  const models::GPTOptions options = model_options(a, corpus.characters.size());
  manual_seed(a.seed);
  // Without --pipeline each rank is a replica of one stage.
  Pipeline pipe([&] { return std::make_unique<models::GPT>(options); },
                zeros({1, a.context}, {.dtype = DType::kI64}), pipeline_options(a));
  GradManager gm;
  pipe.attach(gm);
  std::vector<Tensor> matrices, vectors;  // only matrices have weight decay
  for (const Tensor& p : pipe.parameters()) (p.dim() > 1 ? matrices : vectors).push_back(p);
  optim::AdamWOptions adam = {.lr = a.lr, .betas = {a.beta1, a.beta2}, .weight_decay = a.weight_decay};
  optim::AdamW opt(matrices, adam);
  adam.weight_decay = 0;
  opt.add_param_group(vectors, adam);

  data::DataLoader loader(corpus.train, {.global_batch_size = a.batch,
                                         .shuffle = true,
                                         .num_workers = a.workers,
                                         .drop_last = true,
                                         .seed = a.seed,
                                         .device = a.device});
  data::DataLoader validation_loader(corpus.validation, {.global_batch_size = a.batch, .device = a.device});
  const int64_t steps = number_of_steps(a, loader);
  optim::LambdaLR schedule(opt, [&](int64_t step) { return rate_factor(a, steps, step); });

  training::Training training(
      "gpt", a, loader, {{pipe, opt}, {"schedule", schedule}},
      {.fixed = fixed(a, corpus, steps),
       .test = [&] { return validate(a, pipe, validation_loader, training); },
       .test_every = a.validation_interval * a.batch,
       .best_by = "loss",
       .lower_is_better = true,
       .unit = "sequences",
       .test_line = [&](const training::Sums& sums) { return validation_line(sums, corpus); }});
  training::print(concat(loader.dataset().size(), " sequences of ", corpus.characters.size(), " characters, ",
                         loader.dataset().name(), "; ", training::machine_text(*a.device), "; seed ", a.seed,
                         '\n', pipe.module().num_parameters(), " parameters"));
  if (a.pipeline.ranks > 1 && training::is_first_rank()) std::cout << pipe.describe();

  using Tensors = std::vector<Tensor>;
  const auto local_step = training::training_step(a, [&](const Tensors& in) -> Tensors {
    auto recording = gm.record();
    const auto amp = training::mixed_precision(a);
    const Tensor loss = loss_of(pipe.module()(in[0]), in[1]);
    gm.backward(loss);
    optim::clip_grad_norm_(pipe.parameters(), a.clip);
    opt.step().clear_grad();
    return {loss};
  });
  const auto pipeline_step = [&](const data::Batch& b) {
    const auto amp = training::mixed_precision(a);
    const double loss = pipe.step(gm, b.input, b.target, loss_of);
    pipe.clip_grad_norm_(a.clip);
    opt.step().clear_grad();
    return loss;
  };
  for (training::Step& s : training) {
    const data::Batch& b = s.batch();
    if (is_undivided(a))
      s.log("loss", local_step({b.input, b.target})[0]);
    else
      s.log("loss", pipeline_step(b));
    schedule.step();
  }
  report(a, training, pipe, corpus);
  if (a.sample > 0) print_sample(a, pipe, corpus.characters);
}

}  // namespace gradus::examples
