// PipelineBase: what a pipeline does whatever the type of its model.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradus/distributed/group/grid.h"
#include "gradus/distributed/pipeline/executor.h"

namespace gradus::dist {

struct PipelineOptions {
  // Ranks that share the model; 0: all. More ranks than that are replicas: the first `stages` ranks are one
  // pipeline, and so on. Each has samples of its own, of which loaders see to by themselves.
  int stages = 0;
  // Stages per rank, for the schedules that interleave. A rank then has several parts of the model.
  int interleave = 1;
  Schedule schedule = Schedule::k1F1B;
  int extra_warmup = 0;  // of Schedule::k1F1BSlowLinks
  // Parts of a batch. A batch of fewer rows has as many micro-batches as rows.
  int micro_batches = 1;
  // Paths of the modules after which a stage ends: {"layer2", "layer3.1"}.
  std::vector<std::string> cut_after = {};
};

namespace internal {

class PipelineBase {
 public:
  // Returns this rank's parameters, in the undivided model's order.
  std::vector<Tensor> parameters() const;
  nn::StateDict named_parameters() const { return model_.named_parameters(); }
  // Attaches this rank's parameters, with replicas also the all-reduce over them.
  void attach(GradManager& gm);
  // Scales the gradients of all stages so that the norm over all of them is at most max_norm. Returns the
  // norm before; all ranks get the same number, whatever the cuts. Collective over the pipeline.
  // Errors: ValueError unless max_norm > 0.
  double clip_grad_norm_(double max_norm);
  // Returns a text: a line per stage with its rank, what it ends with, parameters, and what crosses its cut.
  std::string describe();
  int stages() const { return model_.stages(); }
  // Sets the training mode on all modules.
  void train(bool on = true) { model_.module().train(on); }
  void eval() { train(false); }

 protected:
  using Tensors = std::vector<Tensor>;
  struct Batch {
    Tensors inputs, targets;
  };
  PipelineBase(StagedModel::Parts parts, const PipelineOptions& options);
  ~PipelineBase() = default;

  // Runs a step: forwards and, with a manager, backwards. `compute` runs model and loss on one micro-batch.
  double run(GradManager* gm, const Batch& batch, const std::function<Tensor(const Batch&)>& compute);

  PipelineOptions options_;
  Grid grid_;
  Group group_;  // this rank's pipeline
  StagedModel model_;
  Executor executor_;
  Tensors example_;
  std::shared_ptr<AllReduceCallback> all_reduce_;  // over the replicas; null for one
};

}  // namespace internal
}  // namespace gradus::dist
