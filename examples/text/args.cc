#include "gradus/examples/text/args.h"

namespace gradus::examples {
namespace {

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (int i = 0; i <= int(dist::Schedule::kZeroBubbleV); ++i)
    names.emplace_back(dist::name_of(dist::Schedule(i)));
  return names;
}

// 0: chosen by measuring.
int micro_batches(const TextArgs& a) {
  if (a.micro_batches == "auto") return 0;
  if (a.micro_batches.empty()) return a.pipeline > 1 ? 2 * a.pipeline : 1;
  const std::optional<int64_t> count = train::count_of(a.micro_batches);
  if (!count || *count < 1 || *count > 1 << 20)
    throw ValueError("gpt", "--micro-batches: expected auto, or a number from 1 to 2^20, given ",
                     a.micro_batches);
  return int(*count);
}

// Sets which forwards run again: "never", "always", "except-last", "every-N" layers, "auto-BYTES" of a rank.
void set_recompute(dist::PipelineOptions& o, const std::string& text) {
  const auto number_after = [&](const std::string& prefix) -> int64_t {
    const auto n = text.starts_with(prefix) ? train::count_of(text.substr(prefix.size())) : std::nullopt;
    return n.value_or(0);
  };
  if (text == "always" || text == "except-last") {
    o.recompute = text == "always" ? dist::Recompute::kAlways : dist::Recompute::kExceptLast;
  } else if (const int64_t layers = number_after("every-"); layers > 0 && layers <= kMostLayers) {
    o.recompute = dist::Recompute::kExceptLast;
    o.recompute_every = int(layers);
  } else if (const int64_t bytes = number_after("auto-"); bytes > 0) {
    o.recompute = dist::Recompute::kAuto;
    o.memory_limit = bytes;
  } else if (text != "never") {
    throw ValueError("gpt", "--recompute: expected never, always, except-last, every-N with N from 1 to ",
                     kMostLayers, ", or auto-BYTES, given ", text);
  }
}

}  // namespace

TextArgs parse_text_args(int argc, char** argv) {
  constexpr int64_t kIterations = 2000;  // of a training that is given no other end
  TextArgs a;
  a.epochs = 0;
  a.log_interval = 100;
  train::CommandLine line("gpt", "Trains a transformer to predict the next character of a text", a);
  line.add("--data", a.data, "a text, also .gz [generated text]", {.value = "FILE"});
  line.add("--layers", a.layers, "blocks of the network", {.at_least = 1, .at_most = kMostLayers});
  line.add("--heads", a.heads, "heads of attention", {.at_least = 1, .at_most = kMostWidth});
  line.add("--width", a.width, "width of the network, a multiple of the heads",
           {.at_least = 1, .at_most = kMostWidth});
  line.add("--context", a.context, "characters that it sees", {.at_least = 1, .at_most = kMostContext});
  line.add("--dropout", a.dropout, "probability of dropping an element", {.at_least = 0, .at_most = 1});
  line.add("--batch", a.batch, "sequences of a step, of all replicas together",
           {.at_least = 1, .at_most = 1 << 20});
  line.add("--lr", a.lr, "learning rate at its highest; it falls to a tenth", {.above = 0});
  line.add("--warmup", a.warmup, "steps in which it rises", {.at_least = 0});
  line.add("--weight-decay", a.weight_decay, "weight decay of matrices", {.at_least = 0});
  line.add("--clip", a.clip, "norm above which gradients are scaled down", {.above = 0});
  line.add("--validation-interval", a.validation_interval, "steps between two validations", {.at_least = 1});
  line.add("--amp", a.amp, "compute products in this dtype: bf16", {.one_of = {"bf16"}, .value = "DTYPE"});
  line.add("--pipeline", a.pipeline, "ranks that share the network", {.at_least = 1, .at_most = 16});
  line.add("--interleave", a.interleave, "stages of each of them", {.at_least = 1, .at_most = 256});
  line.add("--schedule", a.schedule, "of the pipeline", {.one_of = schedule_names()});
  line.add("--micro-batches", a.micro_batches,
           "parts of a replica's batch, or auto: by measuring [2 for each rank of a pipeline]",
           {.value = "M"});
  line.add("--recompute", a.recompute,
           "forwards that run again before their backward, to need less memory: never, always, except-last, "
           "every-N (in groups of N layers), auto-BYTES (where a rank would else need more)",
           {.value = "MODE"});
  line.add("--replicas", a.replicas, "pipelines that share the batch", {.at_least = 1, .at_most = 16});
  line.add("--sample", a.sample, "characters to write at the end",
           {.at_least = 1, .at_most = 1 << 24, .value = "N"});
  line.parse_or_exit(argc, argv);
  if (!a.iterations && !a.images && !a.epochs) a.iterations = kIterations;
  if (a.nproc == 1) a.nproc = a.pipeline * a.replicas;
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

dist::PipelineOptions pipeline_options(const TextArgs& a) {
  const int64_t stages = int64_t{a.pipeline} * a.interleave;
  if (stages > a.layers)
    throw ValueError("gpt", "--pipeline, --interleave: expected at most as many stages as the ", a.layers,
                     " blocks of --layers, given ", stages);
  if (a.pipeline > 1 && (!a.checkpoint_dir.empty() || !a.resume.empty() || a.sample > 0))
    throw ValueError("gpt", "--checkpoint-dir, --resume and --sample need the whole network on a rank: ",
                     "they do not go with --pipeline");
  if (const int ranks = dist::get_world_size(); a.replicas > 1 && ranks != a.pipeline * a.replicas)
    throw ValueError("gpt", "--pipeline ", a.pipeline, ", --replicas ", a.replicas, ": expected ",
                     a.pipeline * a.replicas, " ranks, given ", ranks);
  dist::PipelineOptions o = {.stages = a.pipeline,
                             .interleave = a.interleave,
                             .schedule = dist::parse_schedule_name(a.schedule),
                             .micro_batches = micro_batches(a)};
  set_recompute(o, a.recompute);
  for (int64_t s = 1; s < stages; ++s) o.cut_after.push_back(concat("h.", s * a.layers / stages - 1));
  return o;
}

}  // namespace gradus::examples
