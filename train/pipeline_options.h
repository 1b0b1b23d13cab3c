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
  // --recompute: never, always, except-last; every-N: in groups of N layers; auto-BYTES: where a rank would
  // else need more.
  std::string recompute = "never";
  bool operator==(const PipelineRunOptions&) const = default;
};

// Adds these options. `note` is what --help says of the program's network.
void add_pipeline(CommandLine& line, PipelineRunOptions& options, const std::string& note);
// Sets --nproc to the ranks of so many pipelines, if it was not given.
void start_ranks_for_pipelines(RunOptions& run, const PipelineRunOptions& options, int pipelines = 1);

// Returns what the options say. Cuts are left to be chosen.
// Errors: ValueError for a number of micro-batches that is none, and for another way to recompute.
dist::PipelineOptions pipeline_options(const PipelineRunOptions& options);
// Returns the rows of a micro-batch where all pipelines share so many rows, one at least: about as many where
// their number is chosen by measuring. For the example that a pipeline is made with.
int64_t micro_batch_rows(const PipelineRunOptions& options, int64_t rows);

}  // namespace gradus::training
