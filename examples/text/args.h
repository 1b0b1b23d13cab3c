// The command line of the gpt program.
#pragma once

#include <string>

#include "gradus/gradus.h"

namespace gradus::examples {

constexpr int64_t kMostLayers = 1024, kMostWidth = 1 << 16, kMostContext = 1 << 20;

// The defaults are nanoGPT's small network for CPUs, and its training.
struct TextArgs : training::RunOptions {
  std::string data;
  int64_t layers = 4, heads = 4, width = 128, context = 64;
  double dropout = 0;
  int64_t batch = 16, warmup = 100, validation_interval = 250;
  double lr = 1e-3, weight_decay = 0.1, clip = 1;
  training::PipelineRunOptions pipeline;
  int replicas = 1;
  int64_t sample = 0;
};

// Reads the options of a training, or ends the program.
TextArgs parse_text_args(int argc, char** argv);

// Returns the options of the model, for so many characters.
models::GPTOptions model_options(const TextArgs& a, int64_t characters);
// Returns how the model is cut: into stages of equally many blocks, as far as they can be.
// Errors: ValueError for more stages than blocks, and for other ranks than are needed.
dist::PipelineOptions pipeline_options(const TextArgs& a);

}  // namespace gradus::examples
