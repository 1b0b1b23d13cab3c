// The options of the gpt program, and their conversion to options of the network and of the pipeline.
#include "gradus/examples/text/args.h"

namespace gradus::examples {
namespace {

// minGPT's sizes of the network.
struct ModelType {
  const char* name;
  int64_t layers, heads, width;
};
constexpr ModelType kModelTypes[] = {
    {"openai-gpt", 12, 12, 768},  {"gpt2", 12, 12, 768},     {"gpt2-medium", 24, 16, 1024},
    {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}, {"gopher-44m", 8, 16, 512},
    {"gpt-mini", 6, 6, 192},      {"gpt-micro", 4, 4, 128},  {"gpt-nano", 3, 3, 48}};

}  // namespace

TextArgs parse_text_args(int argc, char** argv) {
  constexpr int64_t kIterations = 2000;  // by default
  TextArgs a;
  a.epochs = 0, a.device = kCPU, a.amp = DType::kF32, a.capture = false;
  a.log_interval = 100;
  training::CommandLine line("gpt", "Trains a transformer to predict the next character of a text", a);
  line.add("--data", a.data, "a text, also .gz [generated text]", {.value = "FILE"});
  line.add("--layers,--n_layer,--model.n_layer", a.layers, "blocks of the network",
           {.at_least = 1, .at_most = kMaxLayers});
  line.add("--heads,--n_head,--model.n_head", a.heads, "heads of attention",
           {.at_least = 1, .at_most = kMaxWidth});
  line.add("--width,--n_embd,--model.n_embd", a.width, "width of the network, a multiple of the heads",
           {.at_least = 1, .at_most = kMaxWidth});
  line.add("--context,--block_size,--data.block_size", a.context, "characters that it sees",
           {.at_least = 1, .at_most = kMaxContext});
  line.add("--dropout", a.dropout, "probability of dropping an element", {.at_least = 0, .at_most = 1});
  line.add("--batch,--batch_size,--trainer.batch_size", a.batch,
           "sequences of a step, of all replicas together", {.at_least = 1, .at_most = 1 << 20});
  line.add("--lr,--learning_rate,--trainer.learning_rate", a.lr,
           "learning rate at its highest; it falls to a tenth", {.above = 0});
  line.add("--warmup,--warmup_iters", a.warmup, "steps in which it rises", {.at_least = 0});
  line.add("--weight-decay,--weight_decay,--trainer.weight_decay", a.weight_decay, "weight decay of matrices",
           {.at_least = 0});
  line.add("--clip,--grad_clip,--grad_norm_clip,--trainer.grad_norm_clip", a.clip,
           "norm above which gradients are scaled down", {.above = 0});
  line.add("--validation-interval,--eval_interval", a.validation_interval, "steps between two validations",
           {.at_least = 1});
  training::add_pipeline(line, a.pipeline, "which is cut between blocks");
  line.add("--replicas", a.replicas, "pipelines that share the batch", {.at_least = 1, .at_most = 16});
  line.add("--sample", a.sample, "characters to write at the end",
           {.at_least = 1, .at_most = 1 << 24, .value = "N"});
  line.add("--beta1", a.beta1, "AdamW's decay of the gradients' mean", {.at_least = 0, .at_most = 1});
  line.add("--beta2", a.beta2, "of the mean of their squares", {.at_least = 0, .at_most = 1});
  std::string type;
  std::vector<std::string> types;
  for (const ModelType& t : kModelTypes) types.emplace_back(t.name);
  line.add("--model-type,--model_type,--model.model_type", type,
           "instead of --layers, --heads and --width: minGPT's sizes of this name",
           {.one_of = types, .value = "NAME"});
  // minGPT's and nanoGPT's names of options of all programs.
  line.add("--max_iters,--trainer.max_iters", a.iterations, "as --iterations", {.at_least = 1});
  line.add("--max_epochs", a.epochs, "as --epochs", {.at_least = 0});
  line.add("--out_dir,--system.work_dir", a.checkpoint_dir, "as --checkpoint-dir", {.value = "DIR"});
  line.add("--log_interval", a.log_interval, "as --log-interval", {.at_least = 1});
  line.add("--system.seed", a.seed, "as --seed");
  line.add("--trainer.num_workers", a.workers, "as --workers", {.at_least = 0, .at_most = 256});
  line.parse_or_exit(argc, argv);
  for (const ModelType& t : kModelTypes)
    if (type == t.name) a.layers = t.layers, a.heads = t.heads, a.width = t.width;
  if (!a.iterations && !a.images && !a.epochs) a.iterations = kIterations;
  training::start_ranks_for_pipelines(a, a.pipeline, a.replicas);
  return a;
}

models::GPTOptions model_options(const TextArgs& a, int64_t characters) {
  return {.vocabulary = characters,
          .context = a.context,
          .layers = a.layers,
          .heads = a.heads,
          .width = a.width,
          .dropout = a.dropout};
}

bool is_undivided(const TextArgs& a) {
  return a.pipeline == training::PipelineRunOptions() && dist::get_world_size() == 1;
}

dist::PipelineOptions pipeline_options(const TextArgs& a) {
  if (a.capture.value_or(false) && !is_undivided(a))
    throw ValueError("gpt", "--capture does not go with --pipeline, --interleave, --schedule, ",
                     "--micro-batches, --recompute or several ranks: a replay runs no schedule");
  const int64_t stages = int64_t{a.pipeline.ranks} * a.pipeline.interleave;
  if (stages > a.layers)
    throw ValueError("gpt", "--pipeline, --interleave: expected at most as many stages as the ", a.layers,
                     " blocks of --layers, got ", stages);
  const int ranks = dist::get_world_size(), expected = a.pipeline.ranks * a.replicas;
  if (a.replicas > 1 && ranks != expected)
    throw ValueError("gpt", "--pipeline ", a.pipeline.ranks, ", --replicas ", a.replicas, ": expected ",
                     expected, " ranks, got ", ranks);
  dist::PipelineOptions o = training::pipeline_options(a.pipeline);
  if (*a.device != kCPU) {
    if (a.pipeline.ranks > 1)
      throw ValueError("gpt", "--pipeline trains on CPUs, and does not go with --device ", *a.device);
    o.devices = {*a.device};
  }
  for (int64_t s = 1; s < stages; ++s) o.cut_after.push_back(concat("h.", s * a.layers / stages - 1));
  return o;
}

}  // namespace gradus::examples
