// FaultyPipeline: a pipeline whose ranks train until one of them does something else.
#pragma once

#include <memory>
#include <string>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/nn/nn.h"

namespace gradus::dist {

// Kinds: pipeline-kill, pipeline-exit, pipeline-stop, pipeline-forward, pipeline-input-gradient,
// pipeline-weight-gradient, pipeline-shape, pipeline-evaluation, pipeline-micro-batches, pipeline-schedule.
class FaultyPipeline {
 public:
  // Every other seed of four ranks makes two pipelines of two stages; else each rank has a stage.
  FaultyPipeline(std::string kind, bool at_fault, int64_t seed);

  void step();
  // What the rank at fault does in place of a step. Returns where the others do not hear of it at once.
  void fault();
  // Returns what an error says of the action in which the fault lies: "in 1W"; "" where it lies in none.
  static std::string action(const std::string& kind, int world, int victim, int64_t seed);
  // Returns the rank that throws: of pipeline-shape the next stage's, which refuses what it is sent.
  static int thrower(const std::string& kind, int world, int victim, int64_t seed);

 private:
  static int stages(int world, int64_t seed) { return world == 4 && seed % 2 == 0 ? 2 : world; }

  // A linear layer that throws, from its next call of that kind on.
  struct Block : nn::Layer {
    using Layer::Layer;
    std::string throws_in;   // "F", "I", "W"
    bool is_narrow = false;  // makes a column less
    nn::Linear fc{this, "fc", {.in = 6, .out = 6}};
    Tensor scale = ones({6});
    Block(Module* parent, std::string name);
    Tensor forward(const Tensor& x) override;
  };
  struct Blocks : nn::Layer {
    explicit Blocks(int count);
    nn::ModuleList<Block> blocks{this, "blocks"};
    Tensor forward(const Tensor& x) override;
  };

  std::string kind_;
  int64_t seed_;
  int rows_ = 16;
  std::unique_ptr<Pipeline<Blocks>> pipe_;
  GradManager gm_;
};

}  // namespace gradus::dist
