// PipelineRunOptions: the options of programs that can train in a pipeline.
//
//   struct Args : training::RunOptions {
//     training::PipelineRunOptions pipeline;
//   } args;
//   training::CommandLine line("cifar10", "Trains a residual network on CIFAR-10", args);
//   training::add_pipeline(line, args.pipeline, "which is cut where measuring says");
//   line.parse_or_exit(argc, argv);
//   training::start_ranks_for_pipelines(args, args.pipeline);
//   ...
//   dist::Pipeline<Net> pipe(make, example, training::pipeline_options(args.pipeline));
#pragma once

#include <string>

#include "gradus/distributed/pipeline/pipeline_base.h"
#include "gradus/train/command_line.h"

namespace gradus::training {

struct PipelineRunOptions {
  int ranks = 1, interleave = 1;                      // --pipeline, --interleave
  std::string schedule = "1f1b", micro_batches = {};  // --schedule, --micro-batches: a number or "auto"
  // --recompute: never, always, except-last; every-N: in groups of N layers; auto-BYTES: as needed to stay
  // below BYTES on a rank.
  std::string recompute = "never";
  bool operator==(const PipelineRunOptions&) const = default;
};

// Adds these options. `note` describes the program's network in --help.
void add_pipeline(CommandLine& line, PipelineRunOptions& options, const std::string& note);
// Sets --nproc to the ranks of `pipelines` pipelines, unless it was set.
void start_ranks_for_pipelines(RunOptions& run, const PipelineRunOptions& options, int pipelines = 1);

// Returns the options of a pipeline that chooses its cuts.
// Errors: ValueError for an invalid --micro-batches or --recompute.
dist::PipelineOptions pipeline_options(const PipelineRunOptions& options);
// Returns the rows of a micro-batch, at least one, if all pipelines share `rows` rows; an estimate for
// --micro-batches auto. For the example input that constructs a pipeline.
int64_t micro_batch_rows(const PipelineRunOptions& options, int64_t rows);

}  // namespace gradus::training
