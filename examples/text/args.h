// The command line of the gpt program.
#pragma once

#include <string>

#include "gradus/gradus.h"

namespace gradus::examples {

constexpr int64_t kMaxLayers = 1024, kMaxWidth = 1 << 16, kMaxContext = 1 << 20;

// RunOptions: the options of all training programs. The defaults are nanoGPT's small network for CPUs.
struct TextArgs : training::RunOptions {
  std::string data;  // file of the text; "": generated text
  int64_t layers = 4, heads = 4, width = 128, context = 64;
  double dropout = 0;
  int64_t batch = 16, warmup = 100, validation_interval = 250;  // batch: sequences; the others: steps
  double lr = 1e-3, weight_decay = 0.1, clip = 1;               // clip: maximum norm of the gradients
  double beta1 = 0.9, beta2 = 0.99;                             // of AdamW
  training::PipelineRunOptions pipeline;
  int replicas = 1;    // pipelines that share the batch
  int64_t sample = 0;  // characters to generate after the training
};

// Parses the options of a training, and sets nproc to the ranks of all pipelines. Prints errors and exits.
TextArgs parse_text_args(int argc, char** argv);

// Returns the options of a model with this number of characters.
models::GPTOptions model_options(const TextArgs& a, int64_t characters);
// Returns whether this process alone trains the network, with none of the options of pipelines.
bool is_undivided(const TextArgs& a);
// Returns the options of the pipeline, whose stages have equal numbers of blocks, up to one, and are all on
// --device.
// Errors: ValueError for more stages than blocks, for another number of ranks than --pipeline times
// --replicas, for --pipeline on another device than the CPU, and for --capture unless is_undivided().
dist::PipelineOptions pipeline_options(const TextArgs& a);

}  // namespace gradus::examples
