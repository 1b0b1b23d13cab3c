// Command-line options of pipeline-parallel programs: adds them to a CommandLine, and converts their values
// to dist::PipelineOptions. Texts of --micro-batches and --recompute are parsed and checked at the
// conversion.
#include "gradus/train/pipeline_options.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/base/error.h"

namespace gradus::training {
namespace {

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (int i = 0; i <= int(dist::Schedule::kZeroBubbleV); ++i)
    names.emplace_back(dist::name_of(dist::Schedule(i)));
  return names;
}

// Returns the number of micro-batches of a pipeline's batch; 0 for auto. Default: 2 per rank, 1 without a
// pipeline.
int micro_batches(const PipelineRunOptions& o) {
  if (o.micro_batches == "auto") return 0;
  if (o.micro_batches.empty()) return o.ranks > 1 ? 2 * o.ranks : 1;
  const std::optional<int64_t> count = parse_count(o.micro_batches);
  if (!count || *count < 1 || *count > 1 << 20)
    throw ValueError("pipeline", "--micro-batches: expected auto, or a number from 1 to 2^20, got ",
                     o.micro_batches);
  return int(*count);
}

// Parses --recompute into recompute, recompute_every and memory_limit (bytes per rank).
void set_recompute(dist::PipelineOptions& o, const std::string& text) {
  constexpr int64_t kMaxLayers = 1 << 16;  // of a group
  const auto number_after = [&](const std::string& prefix) -> int64_t {
    const auto n = text.starts_with(prefix) ? parse_count(text.substr(prefix.size())) : std::nullopt;
    return n.value_or(0);
  };
  if (text == "always" || text == "except-last") {
    o.recompute = text == "always" ? dist::Recompute::kAlways : dist::Recompute::kExceptLast;
  } else if (const int64_t layers = number_after("every-"); layers > 0 && layers <= kMaxLayers) {
    o.recompute = dist::Recompute::kExceptLast;
    o.recompute_every = int(layers);
  } else if (const int64_t bytes = number_after("auto-"); bytes > 0) {
    o.recompute = dist::Recompute::kAuto;
    o.memory_limit = bytes;
  } else if (text != "never") {
    throw ValueError("pipeline",
                     "--recompute: expected never, always, except-last, every-N with N from 1 to ",
                     kMaxLayers, ", or auto-BYTES, got ", text);
  }
}

}  // namespace

void add_pipeline(CommandLine& line, PipelineRunOptions& o, const std::string& note) {
  line.add("--pipeline", o.ranks, "ranks that share the network, " + note, {.at_least = 1, .at_most = 16});
  line.add("--interleave", o.interleave, "stages of each of them", {.at_least = 1, .at_most = 256});
  line.add("--schedule", o.schedule, "of the pipeline", {.one_of = schedule_names()});
  line.add("--micro-batches", o.micro_batches,
           "parts of a replica's batch, or auto: by measuring [2 for each rank of a pipeline]",
           {.value = "M"});
  line.add("--recompute", o.recompute,
           "forwards that run again before their backward, to need less memory: never, always, except-last, "
           "every-N (in groups of N layers), auto-BYTES (where a rank would else need more)",
           {.value = "MODE"});
}

void start_ranks_for_pipelines(RunOptions& run, const PipelineRunOptions& o, int pipelines) {
  if (run.nproc == 1) run.nproc = o.ranks * pipelines;
}

void check_pipeline_device(const std::string& program, const RunOptions& run) {
  if (run.device.value_or(kCPU) != kCPU || run.devices.size() > 1)
    throw ValueError(program, "--pipeline trains on CPUs, and does not go with ",
                     run.devices.size() > 1 ? "--devices " : "--device ", devices_text(run));
}

dist::PipelineOptions pipeline_options(const PipelineRunOptions& o) {
  dist::PipelineOptions options = {.stages = o.ranks,
                                   .interleave = o.interleave,
                                   .schedule = dist::parse_schedule_name(o.schedule),
                                   .micro_batches = micro_batches(o)};
  set_recompute(options, o.recompute);
  return options;
}

int64_t micro_batch_rows(const PipelineRunOptions& o, int64_t rows) {
  const int chosen = micro_batches(o);
  const int64_t parts =
      int64_t{chosen > 0 ? chosen : 2 * o.ranks} * std::max(1, dist::get_world_size() / o.ranks);
  return std::max<int64_t>(1, rows / parts);
}

}  // namespace gradus::training
