// Command-line options of programs that can train a network as a pipeline (dist::Pipeline): the network is cut
// into stages, the ranks of one pipeline run one or more stages each, and a batch is divided into micro-batches.
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

// The default is no pipeline: one rank runs the whole network.
struct PipelineRunOptions {
  int ranks = 1, interleave = 1;  // --pipeline: ranks of one pipeline; --interleave: stages per rank
  // --schedule: a name of dist::Schedule. --micro-batches: the number of micro-batches of a pipeline's batch;
  // "auto": chosen from measured times; "": 2 per rank of a pipeline, or 1 without one.
  std::string schedule = "1f1b", micro_batches = {};
  // --recompute: which forwards save only their inputs and run again before their backward, to save memory: never,
  // always, except-last (not if the backward follows immediately); every-N: as except-last, in groups of N layers;
  // auto-BYTES: as except-last on a rank that would otherwise need more than BYTES, else never.
  std::string recompute = "never";
  bool operator==(const PipelineRunOptions&) const = default;
};

// Adds the five options to `line`; `options` must outlive `line`. `note` completes the help of --pipeline: "ranks
// that share the network, NOTE".
void add_pipeline(CommandLine& line, PipelineRunOptions& options, const std::string& note);
// Sets run.nproc, the number of ranks that the program starts, to options.ranks * pipelines, if it is 1, the
// default. Starts no ranks. To be called after parsing.
void start_ranks_for_pipelines(RunOptions& run, const PipelineRunOptions& options, int pipelines = 1);

// Errors: ValueError unless --device or --devices is the CPU alone. `program` begins the message.
void check_pipeline_device(const std::string& program, const RunOptions& run);

// Returns the options of a pipeline that chooses the cuts between its stages from measured times.
// Errors: ValueError for an invalid --schedule, --micro-batches or --recompute.
dist::PipelineOptions pipeline_options(const PipelineRunOptions& options);
// Returns the number of rows of a micro-batch, at least 1, where `rows` is the number of rows of the batch of all
// pipelines of the job: rows / (micro-batches * pipelines), rounded down. "auto" counts as 2 micro-batches per
// rank. For the example input that constructs a pipeline; to be called in a rank.
// Errors: ValueError for an invalid --micro-batches.
int64_t micro_batch_rows(const PipelineRunOptions& options, int64_t rows);

}  // namespace gradus::training
