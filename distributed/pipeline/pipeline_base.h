// PipelineBase: what a pipeline does whatever the type of its model.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradus/distributed/group/grid.h"
#include "gradus/distributed/pipeline/auto_micro_batches.h"
#include "gradus/distributed/pipeline/executor.h"
#include "gradus/distributed/pipeline/pipeline_record.h"
#include "gradus/io/checkpoint.h"
#include "gradus/optim/optimizer.h"
#include "gradus/tensor/ops/losses/cross_entropy.h"

namespace gradus::optim {
class GradScaler;
}

namespace gradus::dist {

struct PipelineOptions {
  // Ranks that share the model; 0: all. More ranks than that are replicas: the first `stages` ranks are one
  // pipeline, and so on. Each has samples of its own, of which loaders see to by themselves.
  int stages = 0;
  // Devices of this process that share the model, instead of ranks. `stages` is then their number. Each
  // process of a job has the whole model, and is a replica.
  std::vector<Device> devices = {};
  // Stages per rank or device, for the schedules that interleave. A rank then has several parts of the model.
  int interleave = 1;
  Schedule schedule = Schedule::k1F1B;
  int extra_warmup = 0;  // of Schedule::k1F1BSlowLinks
  // Parts of a batch. A batch of fewer rows has as many micro-batches as rows. 0: as micro_batch_size says.
  int micro_batches = 0;
  // Rows of a micro-batch. 0: the number of micro-batches is chosen by measuring, in the first training
  // steps. Which one is chosen may differ from run to run.
  int64_t micro_batch_size = 0;
  // The user's own lists instead of `schedule`: a text per rank, "0F0 0F1 0B0 0B1". Each rank's stages and
  // the number of micro-batches are as they say; `interleave` and `micro_batches` are not used. Batches must
  // have as many rows or more.
  std::vector<std::string> lists = {};
  // Paths of the modules after which a stage ends: {"layer2", "layer3.1"}. Empty: the cuts are chosen by
  // measuring the model's parts, so that the slowest stage is as fast as can be. The example should then have
  // as many rows as a micro-batch.
  std::vector<std::string> cut_after = {};
  // Bytes per rank that what is chosen by measuring must keep: cuts, numbers of micro-batches, which stages
  // run again. 0: none. Counted are four times the parameters (with gradients and two moments), what stages
  // have received, and what forwards leave behind.
  int64_t memory_limit = 0;
  // Which forwards keep their inputs alone and run again before their backward. Nothing else changes: a step
  // gives the same bits.
  Recompute recompute = Recompute::kNever;
  std::vector<Recompute> recompute_of_stage = {};  // instead, one for each stage
  // Stages that run again do so in groups of so many layers, which keep what crosses from group to group and
  // need the memory of one group. A layer ends where one floating tensor crosses: a block of a transformer or
  // a ResNet. Each group is then a stage of its own, on the same rank. 0: a stage is one group.
  int recompute_every = 0;
  // Batch norms move their running statistics once per step, by all its rows, instead of once per
  // micro-batch. They normalize by the micro-batch all the same.
  bool deferred_batch_norm = false;
};

// What the loss of a step is: a micro-batch's loss is weighted so that all together give the batch's.
struct StepOptions {
  Reduction reduction = Reduction::kMean;  // or kSum
  // The mean is one over the targets that differ from this: cross_entropy's ignore_index. Default: over rows.
  std::optional<int64_t> ignore_index = {};
  // Else the mean is one over what this counts in a micro-batch's targets.
  std::function<double(std::span<const Tensor> targets)> count = {};
  // Multiplies the loss, but not the one that step returns. Gradients count as scaled on all ranks until
  // scaler.unscale_ or scaler.step. The scaler needs `agree`.
  optim::GradScaler* scaler = nullptr;
};

struct ForwardOptions {
  bool everywhere = false;  // all ranks of the pipeline get the result
};

namespace internal {

// What a schedule's stages consist of.
struct StageLayout {
  std::vector<int> groups;           // how many each stage has; empty: one
  std::vector<Recompute> recompute;  // of each group
  std::vector<StageTimes> times;     // of the schedule's stages, if cuts were chosen by them
};

class PipelineBase {
 public:
  // Returns this rank's parameters, in the undivided model's order.
  std::vector<Tensor> parameters() const;
  nn::StateDict named_parameters() const { return model_.named_parameters(); }
  // Attaches this rank's parameters, with replicas also the all-reduce over them. Buffers (running
  // statistics) become the first replica's after every step, as DistributedDataParallel has it.
  void attach(GradManager& gm);
  // Scales the gradients of all stages so that the norm over all of them is at most max_norm. Returns the
  // norm before; all ranks get the same number, whatever the cuts. Collective over the pipeline.
  // Errors: ValueError unless max_norm > 0.
  double clip_grad_norm_(double max_norm);

  // Writes the training to one file, as io::save_checkpoint does; makes its folder. The file has the
  // undivided model as "model", the optimizer of all its parameters as "optimizer", random numbers as
  // "generator", and `more`: steps, a schedule, a loader. The job's first rank writes, and what ranks have in
  // common is its own; buffers are the first replica's. Collective over the job.
  // Errors, on all ranks: as io::save_checkpoint; ValueError for a name in `more` that is one of these, for
  // an optimizer with other parameters than this pipeline's, and for one whose state belongs to no parameter.
  void save(const std::filesystem::path& path, const optim::Optimizer& opt, const io::Checkpoint& more = {},
            const io::SaveOptions& options = {});
  // Reads what any number of ranks, in stages or not, has written by save or with these names. Each rank
  // reads its own tensors only, so all must see the file. Returns what else it has. Collective over the job.
  // `check` is called before anything is changed, on each rank, with the file's path and all that it holds,
  // tensors on the meta device. What it throws is thrown on all ranks; it must not communicate.
  // Errors, on all ranks: as io::load_checkpoint; ValueError for what does not fit. Nothing is changed then.
  io::LoadedCheckpoint load(const std::filesystem::path& path, optim::Optimizer& opt,
                            const std::function<void(const io::LoadedCheckpoint&)>& check = {});
  // Reads a safetensors file with the undivided model's names, as io::load_weights does, for example
  // torchvision's. Of the file it takes what lies below `section`: "model" in a checkpoint, whose checksum
  // it does not look at (io::inspect_checkpoint does). Each rank reads its own tensors only. Collective over
  // the whole job.
  // Errors, on all ranks: as io::load_weights. Nothing is changed then.
  nn::LoadReport load_weights(const std::filesystem::path& path, const nn::LoadOptions& options = {},
                              const std::string& section = "");

  // Returns a text: a line per stage with its rank, the module that it ends with, its modules and parameters,
  // what it receives and whether it runs again. Where something was chosen by measuring: the times of each
  // stage, how much slower the slowest is than the mean, what a rank needs of the memory limit, and the
  // number of micro-batches with what was predicted and measured.
  std::string describe();
  // Returns the number of stages. Each group of `recompute_every` is one.
  int stages() const { return model_.stages(); }
  // Returns the job's ranks in rows: along "pipeline" lie those of this pipeline, along "replica" those that
  // hold the same stages.
  const Grid& grid() const { return grid_; }
  // Records from now on what this rank does in a step, and keeps the last `steps` steps. 0 stops that. All
  // ranks of the job do the same.
  // Errors: ValueError unless steps >= 0.
  void record_steps(int steps) { executor_.recorder().keep(steps); }
  // Returns the steps that all ranks have recorded on the job's first rank, and nothing elsewhere. Collective
  // over the job.
  std::optional<PipelineRecord> gather_records();
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

  using Compute = std::function<Tensor(const Batch&)>;

  // Runs a step: forwards and, with a manager, backwards. `compute` runs model and loss on one micro-batch.
  double run(GradManager* gm, const Batch& batch, const Compute& compute, const StepOptions& options);

  // Runs forwards alone. `model` returns a micro-batch's tensors, of which there are `results`. Returns those
  // of the whole batch, undefined on ranks that do not have them.
  Tensors run_forward(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& model,
                      size_t results, const ForwardOptions& options);

  // A batch in micro-batches, and the lists that compute them.
  struct CutBatch {
    int64_t rows = 0;
    std::vector<Batch> parts;
    ActionLists lists;
    StepWork work;
  };
  CutBatch cut(const Batch& batch, const std::string& what) const;
  ActionLists lists_for(int micro_batches) const;
  int micro_batches_for(int64_t rows) const;
  // Chooses the number of micro-batches. Collective over the job.
  void measure(const Batch& batch, const Compute& compute);
  // Takes notice of how long a training step took, for the choice. Collective over the job.
  void note_time(int64_t rows, double seconds);
  // Returns the times of all stages with so many rows of the batch. Collective over the job.
  std::vector<StageTimes> measure_stages(const Batch& batch, const Compute& compute, int64_t rows);
  // Makes buffers (running statistics) those of the first replica. Collective over the replicas.
  void share_buffers();
  // Returns the weight of each micro-batch's loss. Collective over the replicas.
  std::vector<double> weights_of(const std::vector<Batch>& parts, const StepOptions& options) const;

  // Returns which of the stages run again in the next step. kAuto: not chosen yet.
  const std::vector<Recompute>& recompute() const;
  // Chooses that for a number of micro-batches that was given. Collective over the job.
  void choose_recompute(const Batch& batch, const Compute& compute);
  // Returns what each rank or device needs besides micro-batches.
  std::vector<double> rank_bytes();

  PipelineOptions options_;
  Grid grid_;
  Group group_;  // this rank's pipeline
  StageLayout layout_;
  StagedModel model_;
  Executor executor_;
  Tensors example_;
  std::optional<AutoMicroBatches> auto_;           // once it has measured
  std::optional<RecomputeChoice> recompute_;       // the same, of a given number of micro-batches
  std::shared_ptr<AllReduceCallback> all_reduce_;  // over the replicas; null for one
};

}  // namespace internal
}  // namespace gradus::dist
