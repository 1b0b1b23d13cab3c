// The options of the gpt program, and their conversion to options of the network and of the pipeline.
#include "gradus/examples/text/args.h"

namespace gradus::examples {
TextArgs parse_text_args(int argc, char** argv) {
  constexpr int64_t kIterations = 2000;  // by default
  TextArgs a;
  a.epochs = 0, a.device = kCPU, a.amp = DType::kF32, a.capture = false;
  a.log_interval = 100;
  training::CommandLine line("gpt", "Trains a transformer to predict the next character of a text", a);
  line.add("--data", a.data, "a text, also .gz [generated text]", {.value = "FILE"});
  line.add("--layers", a.layers, "blocks of the network", {.at_least = 1, .at_most = kMaxLayers});
  line.add("--heads", a.heads, "heads of attention", {.at_least = 1, .at_most = kMaxWidth});
  line.add("--width", a.width, "width of the network, a multiple of the heads",
           {.at_least = 1, .at_most = kMaxWidth});
  line.add("--context", a.context, "characters that it sees", {.at_least = 1, .at_most = kMaxContext});
  line.add("--dropout", a.dropout, "probability of dropping an element", {.at_least = 0, .at_most = 1});
  line.add("--batch", a.batch, "sequences of a step, of all replicas together",
           {.at_least = 1, .at_most = 1 << 20});
  line.add("--lr", a.lr, "learning rate at its highest; it falls to a tenth", {.above = 0});
  line.add("--warmup", a.warmup, "steps in which it rises", {.at_least = 0});
  line.add("--weight-decay", a.weight_decay, "weight decay of matrices", {.at_least = 0});
  line.add("--clip", a.clip, "norm above which gradients are scaled down", {.above = 0});
  line.add("--validation-interval", a.validation_interval, "steps between two validations", {.at_least = 1});
  training::add_pipeline(line, a.pipeline, "which is cut between blocks");
  line.add("--replicas", a.replicas, "pipelines that share the batch", {.at_least = 1, .at_most = 16});
  line.add("--sample", a.sample, "characters to write at the end",
           {.at_least = 1, .at_most = 1 << 24, .value = "N"});
  line.parse_or_exit(argc, argv);
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
