// Executor: runs this rank's actions of a schedule, and exchanges activations and gradients with the ranks of
// other stages. An action computes one micro-batch (a part of the batch) on one stage (a part of the model):
// its forward F, its backward B, or the parts of B: input gradient I and weight gradient W. Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/group/mailbox.h"
#include "gradus/distributed/pipeline/recompute.h"
#include "gradus/distributed/pipeline/schedule.h"
#include "gradus/distributed/pipeline/staged_model.h"
#include "gradus/distributed/pipeline/step_recorder.h"

namespace gradus::dist::internal {

// The arguments of one step.
struct StepWork {
  GradManager* gm = nullptr;  // null: the step has forwards only, and so have the lists
  // Per micro-batch (as many as ActionLists::micro_batches): the tensors of the model's input.
  std::vector<std::vector<Tensor>> inputs;
  // Calls the model with a micro-batch's inputs and, on the last stage, computes the loss. Returns the
  // loss, weighted so that the sum over micro-batches is that of the batch, a tensor of one element;
  // undefined on other stages and if the step has no loss.
  std::function<Tensor(int micro_batch, bool is_last_stage)> compute;
  std::vector<Recompute> recompute = {};  // per stage; empty: kNever
  double loss_scale = 1;                  // multiplies gradients, not the returned losses
  PhiloxKey random_key;                   // key from which each micro-batch's generator is derived
  std::string description;                // names the step in errors; a difference between ranks is an error
  // The all-reduce over replicas, which this rank's last backward of the step runs; null without replicas.
  std::shared_ptr<AllReduceCallback> all_reduce = {};
};

class Executor {
 public:
  // `group`: the ranks of the pipeline. The model must outlive the executor. Collective over the group.
  Executor(StagedModel& model, const Group& group);

  // Runs this rank's list of actions; if the model has_devices() (one process runs all stages), all lists,
  // merged. Returns the sum of the micro-batches' losses, on every rank; 0 without losses. Gradients are
  // added to grad() of the parameters that are attached to gm. Collective over the group: all ranks pass the
  // same lists.
  // Errors: the model's exceptions, with the action added; those of Mailbox. Other ranks get a PeerError.
  double run(const ActionLists& lists, const StepWork& work);
  // Broadcasts the tensors of each micro-batch from the last stage's rank to all ranks. All ranks pass lists
  // of the same lengths; on other ranks the tensors may be undefined, and are replaced by tensors on the
  // device of the rank's stages. Collective.
  void broadcast_results(std::vector<std::vector<Tensor>>& of_micro_batch);

  StepRecorder& recorder() { return recorder_; }

 private:
  struct Running;  // a micro-batch on a stage between its forward and the end of its backward
  struct Step;     // the state of one call of run()
  struct ActionPosition {
    size_t list, index;  // position of an action: ActionLists::of_rank[list][index]
  };

  double run_list(Step& step);
  // Returns this rank's list, or with devices all lists merged in the order of a simulation.
  std::vector<ActionPosition> order_of(const ActionLists& lists) const;
  std::string mismatching_inputs(const Step& step, const Action& action) const;
  void forward(Step& step, const Action& action, bool recomputes);
  void run_own_stage(Step& step, const Action& action);
  void backward(Step& step, const Action& action);  // B or I
  void weight_gradient(Step& step, const Action& action);
  void post_receives(Step& step, const Action& action);
  void send(Step& step, int to_stage, const Address& address, Parcel parcel);
  Parcel receive(Step& step, int from_stage, const Address& address, const Action& action);
  Tensor broadcast_from_last(const Address& address, const Tensor& x, const std::string& doing,
                             Device device);
  double broadcast_loss(Step& step);
  void sum_tied_gradients(Step& step, const std::map<std::string, Tensor>& before);

  StagedModel& model_;
  Group group_;
  std::unique_ptr<Mailbox> mailbox_;  // null for a pipeline of one rank
  uint64_t steps_ = 0;
  StepRecorder recorder_;
};

}  // namespace gradus::dist::internal
