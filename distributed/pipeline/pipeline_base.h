// PipelineBase: the base class of Pipeline<M>, which does not depend on the type of the model; and the
// options of pipelines. Pipeline parallelism: the model is cut into stages, each rank runs its stages for one
// micro-batch after the other, and sends activations and gradients to the ranks of the adjacent stages.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/group/grid.h"
#include "gradus/distributed/pipeline/pipeline_record.h"
#include "gradus/distributed/pipeline/schedule_simulation.h"
#include "gradus/io/checkpoint.h"
#include "gradus/nn/module.h"
#include "gradus/optim/optimizer.h"
#include "gradus/tensor/ops/losses/cross_entropy.h"

namespace gradus::optim {
class GradScaler;
}

namespace gradus::dist {

class AllReduceCallback;

struct PipelineOptions {
  // Number of ranks of one pipeline; 0: all ranks. A job with more ranks has several replicas (data
  // parallelism): ranks [0, stages) are the first pipeline, and so on. Each replica trains on different
  // samples; data loaders shard by replica.
  int stages = 0;
  // Devices of this process that run the stages, instead of ranks. `stages` is then the number of devices.
  // Each process of the job runs the whole model and is a replica.
  std::vector<Device> devices = {};
  // Stages per rank or device, for interleaved schedules (virtual stages).
  int interleave = 1;
  Schedule schedule = Schedule::k1F1B;
  int extra_warmup = 0;  // for Schedule::k1F1BSlowLinks; see ScheduleOptions
  // Number of micro-batches; a batch with fewer rows has as many as rows. 0: determined by micro_batch_size.
  int micro_batches = 0;
  // Rows per micro-batch, instead of micro_batches. If both are 0, the number of micro-batches is chosen from
  // times measured in the first training steps; the choice may differ between runs.
  int64_t micro_batch_size = 0;
  // Paths of the modules after which a stage ends: {"layer2", "layer3.1"}. Empty: the cuts are chosen from
  // measured times to minimize the time of the slowest stage. The example should then have as many rows as a
  // micro-batch.
  std::vector<std::string> cut_after = {};
  // Memory limit in bytes per rank for automatic choices (cuts, number of micro-batches, recomputation); 0:
  // no limit. The estimate is 4 * parameters (with gradients and two moments) + received activations + saved
  // tensors of forwards.
  int64_t memory_limit = 0;
  // Activation recomputation: forwards that save only their inputs and run again before their backward. The
  // results are bit for bit the same. kAuto needs a memory_limit.
  Recompute recompute = Recompute::kNever;
  // Layers per recomputation group; 0: a stage is one group. A recomputed stage saves the activations between
  // its groups, and needs the memory of one group at a time during backward. A layer ends where a single
  // floating-point tensor crosses: a block of a transformer or a ResNet. Each group counts as a stage on the
  // same rank. Not with Recompute::kNever.
  int recompute_every = 0;
  // Updates the running statistics of batch norms once per step, from all rows of the step, instead of once
  // per micro-batch. Normalization uses the micro-batch's statistics in both cases.
  bool deferred_batch_norm = false;
};

// How the losses of micro-batches combine to the batch's loss: each micro-batch's loss gets a weight.
struct StepOptions {
  Reduction reduction = Reduction::kMean;  // or kSum
  // kMean averages over the elements of the first target that differ from this value: cross_entropy's
  // ignore_index. Default: over the rows.
  std::optional<int64_t> ignore_index = {};
  // Returns the number of elements that kMean averages over, of one micro-batch. Overrides ignore_index.
  std::function<double(std::span<const Tensor> targets)> count = {};
  // Scales the gradients, not the returned loss. Gradients are marked as scaled on all ranks until
  // scaler.unscale_ or scaler.step. The scaler must have the option `agree`.
  optim::GradScaler* scaler = nullptr;
};

struct ForwardOptions {
  bool everywhere = false;  // broadcast the result to all ranks of the pipeline
};

namespace internal {

class AutoMicroBatches;
class Executor;
class StagedModel;

// Tensors whose dim 0 is the batch's rows.
struct Batch {
  std::vector<Tensor> inputs, targets;
};

struct StageLayout {
  std::vector<int> groups;        // number of recomputation groups per stage; empty: one each
  std::vector<StageTimes> times;  // per stage, measured; empty unless the cuts were chosen automatically
};

// The model as functions that do not depend on its type.
struct ModelFunctions {
  std::function<std::unique_ptr<nn::Module>()> make;
  // Calls the model and returns its result's tensors.
  std::function<std::vector<Tensor>(nn::Module&, std::span<const Tensor> inputs)> forward;
  std::vector<Tensor> example_inputs;  // for shapes and dtypes
};

// Not thread-safe. "Collective" functions are called by the named ranks in the same order.
class PipelineBase {
 public:
  // Returns this rank's parameters, in the undivided model's order.
  std::vector<Tensor> parameters() const;
  nn::StateDict named_parameters() const;
  // Attaches this rank's parameters and, if there are replicas, the all-reduce over them. Buffers (running
  // statistics) are broadcast from the first replica after every step, as in DistributedDataParallel.
  void attach(GradManager& gm);
  // Scales the gradients of all stages so that their total norm is at most max_norm. Returns the norm before
  // scaling, which is equal on all ranks and does not depend on the cuts. Collective over the pipeline.
  // Errors: ValueError unless max_norm > 0.
  double clip_grad_norm_(double max_norm);

  // Writes a checkpoint of all ranks to one file, as io::save_checkpoint; creates the file's folder. The file
  // contains the undivided model as "model", the optimizer state of all parameters as "optimizer", the
  // generator as "generator", and the entries of `more` (step numbers, a learning-rate schedule, a loader).
  // The job's first rank writes the file, with its own `more` and generator; the model's tensors come from
  // the first replica. Collective over the job.
  // Errors, on all ranks: as io::save_checkpoint; ValueError if `more` contains one of these names, if the
  // optimizer has parameters that are not this pipeline's, or if an entry of its state belongs to no
  // parameter.
  void save(const std::filesystem::path& path, const optim::Optimizer& opt, const io::Checkpoint& more = {},
            const io::SaveOptions& options = {});
  // Loads a checkpoint that save() has written with any number of ranks and stages, or a file with the same
  // names. Each rank reads its own tensors from the file, so all ranks need access to it. Returns the other
  // entries. Collective over the job. Calls `check` on each rank before any state changes, with the file's
  // path and contents (tensors on the meta device). All ranks throw the exception of `check`, which must not
  // communicate.
  // Errors, on all ranks: as io::load_checkpoint; ValueError for contents that do not match model or
  // optimizer. State does not change after an error.
  io::LoadedCheckpoint load(const std::filesystem::path& path, optim::Optimizer& opt,
                            const std::function<void(const io::LoadedCheckpoint&)>& check = {});
  // Loads a safetensors file with the undivided model's names, as io::load_weights. Only names below
  // `section` are used: "model" for a checkpoint. The checksum of a checkpoint is not verified (see
  // io::inspect_checkpoint). Each rank reads only its own tensors. Collective over the job.
  // Errors, on all ranks: as io::load_weights. State does not change after an error.
  nn::LoadReport load_weights(const std::filesystem::path& path, const nn::LoadOptions& options = {},
                              const std::string& section = "");

  // Returns, without communication, a text with one line per stage: rank, last module, numbers of layers and
  // parameters, received bytes, recomputation. After an automatic choice also: the times of each stage, the
  // ratio of the slowest stage to the mean, memory compared to memory_limit, and the candidates for the
  // number of micro-batches with predicted and measured times.
  std::string describe();
  // Returns the number of stages, where each group of `recompute_every` layers counts as a stage.
  int stages() const;
  // Returns the grid of the job's ranks. Dimension "pipeline": the ranks of one pipeline. Dimension
  // "replica": the ranks with the same stages.
  const Grid& grid() const { return grid_; }
  // Starts recording this rank's actions and messages, keeping the last `steps` steps; 0 stops recording. All
  // ranks of the job must make the same call.
  // Errors: ValueError unless steps >= 0.
  void record_steps(int steps);
  // Returns the recorded steps of all ranks on the job's first rank, and nullopt on other ranks. Collective
  // over the job.
  std::optional<PipelineRecord> gather_records();
  // Sets the training mode on all modules.
  void train(bool on = true) { base_module().train(on); }
  void eval() { train(false); }

 protected:
  using Tensors = std::vector<Tensor>;
  PipelineBase(ModelFunctions model, const PipelineOptions& options);
  ~PipelineBase();

  // Returns the model. Tensors of other ranks' stages are on the meta device.
  nn::Module& base_module();

  using Compute = std::function<Tensor(const Batch& part, bool with_loss)>;

  // Runs a step: forwards and, if gm is not null, backwards. `compute` runs the model on one micro-batch and,
  // with `with_loss`, the loss. Returns the batch's loss, averaged over the replicas.
  // Collective over the job.
  double run(GradManager* gm, const Batch& batch, const Compute& compute, const StepOptions& options);

  // Runs only forwards. `model` returns the `results` result tensors of a micro-batch. Returns the results of
  // the whole batch, or undefined tensors on ranks without the last stage.
  Tensors run_forward(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& model,
                      size_t results, const ForwardOptions& options);

  // A batch divided into micro-batches, with the schedule for them.
  struct SplitBatch;
  // `what` names the batch in errors.
  SplitBatch split(const Batch& batch, const std::string& what) const;
  ActionLists lists_for(int micro_batches) const;
  int micro_batches_for(int64_t rows) const;
  // Returns whether the number of micro-batches is chosen from measured times.
  bool chooses_micro_batches() const { return options_.micro_batches == 0 && options_.micro_batch_size == 0; }
  // Measures the stages, and starts the choice of the number of micro-batches and of the stages that are
  // recomputed. Collective over the job.
  void measure(const Batch& batch, const Compute& compute);
  // Returns the times of all stages for the first `rows` rows of the batch. Collective over the job.
  std::vector<StageTimes> measure_stages(const Batch& batch, const Compute& compute, int64_t rows);
  // Returns the weight of each micro-batch's loss. Collective over the replicas.
  std::vector<double> weights_of(const std::vector<Batch>& micro_batches, const StepOptions& options) const;

  // Returns the memory in bytes of each rank or device for parameters, gradients and optimizer state.
  std::vector<double> rank_bytes();

  PipelineOptions options_;
  Grid grid_;
  Group group_;  // the ranks of this pipeline
  StageLayout layout_;
  std::unique_ptr<StagedModel> model_;
  std::unique_ptr<Executor> executor_;
  Tensors example_;                                       // the example inputs
  std::unique_ptr<AutoMicroBatches> auto_micro_batches_;  // set by measure()
  std::shared_ptr<AllReduceCallback> all_reduce_;         // over the replicas; null if there is one replica
};

}  // namespace internal
}  // namespace gradus::dist
