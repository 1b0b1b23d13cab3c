// Executor: runs a step's actions on this rank, and exchanges what crosses cuts.
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
#include "gradus/distributed/pipeline/stage_run.h"
#include "gradus/distributed/pipeline/staged_model.h"
#include "gradus/distributed/pipeline/step_recorder.h"

namespace gradus::dist::internal {

// What the program gives for a step.
struct StepWork {
  GradManager* gm = nullptr;                // null: forwards alone
  std::vector<std::vector<Tensor>> inputs;  // per micro-batch
  // Calls the model with a micro-batch's inputs, and what comes after it: returns the weighted loss, of one
  // element, or an undefined tensor when there is none.
  std::function<Tensor(int micro_batch)> compute;
  std::vector<Recompute> recompute = {};  // of each stage; empty: never
  double loss_scale = 1;                  // multiplies gradients, not the losses returned
  PhiloxKey draw;                         // the step's: each micro-batch has a generator of its own
  std::string program;                    // what runs, for errors: all ranks must run the same
  // Of the all-reduce over replicas, null without: all backwards but this rank's last keep gradients back.
  std::shared_ptr<AllReduceCallback> all_reduce = {};
};

class Executor {
 public:
  Executor(StagedModel& model, const Group& group);
  ~Executor();

  // Runs this rank's list. Returns the sum of the losses; every rank has it.
  // Errors: those of the model, with the action; those of Mailbox. The other ranks hear of them: PeerError.
  double run(const ActionLists& lists, const StepWork& work);
  // Gives all ranks the tensors that the last stage's rank has for each micro-batch. Each rank's lists have
  // the same lengths.
  void share(std::vector<std::vector<Tensor>>& of_micro_batch);

  StepRecorder& recorder() { return recorder_; }

 private:
  struct Running;
  struct Step;
  struct Place {
    size_t list, index;  // of an action
  };

  double run_list(Step& step);
  std::vector<Place> order_of(const ActionLists& lists) const;
  std::string odd_inputs(const Step& step, const Action& action) const;
  void forward(Step& step, const Action& action, bool recomputes);
  void run_own_stage(Step& step, const Action& action);
  void backward(Step& step, const Action& action);  // B or I
  void weight_gradient(Step& step, const Action& action);
  void expect(Step& step, const Action& action);
  void send(Step& step, int to_stage, const Address& address, Parcel parcel);
  Parcel take(Step& step, int from_stage, const Address& address, const Action& action);
  double share_loss(Step& step);
  void share_tied_gradients(Step& step, const std::map<std::string, Tensor>& before);

  StagedModel& model_;
  Group group_;
  std::unique_ptr<Mailbox> mailbox_;  // null for a pipeline of one rank
  uint64_t steps_ = 0;
  StepRecorder recorder_;
};

}  // namespace gradus::dist::internal
