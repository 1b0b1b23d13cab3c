// run_stage runs the model's whole forward under a CallInterceptor, which follows the calls of the trace. Calls
// of other stages return at once: with the traced results on the meta device, or the tensors that this stage has
// received. Kernels with operands on meta are skipped before and after the stage. Not thread-safe.
#include "gradus/distributed/pipeline/stage_plan.h"

#include <algorithm>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

// Also stores the results that the stage sends, and the state of the random generator at its end. Ops between
// calls that have an operand on meta belong to other stages.
class StageInterceptor final : public nn::internal::CallInterceptor {
 public:
  StageInterceptor(const ModelTrace& trace, const StagePlan& plan, int stage, const StageInput& input)
      : trace_(trace), plan_(plan), stage_(stage), input_(input), sends_(plan.sends(stage)) {
    output_.sent.resize(sends_.size());
    if (stage_ == 0)
      begin();
    else
      context_.skip_meta_kernels = true;
  }
  ~StageInterceptor() {
    context_.skip_meta_kernels = outer_skip_;
    if (has_ended_) context_.recordings.swap(recordings_);
  }

  // Returns the traced result of a call of another stage; null: the module runs.
  // Errors: ValueError if the model calls another module than in the trace.
  const void* before_call(const nn::Module& module) override {
    if (model_returned_) {  // the loss may call modules, which are not part of the model
      open_calls_.push_back(-1);
      return nullptr;
    }
    if (next_call_ == int(trace_.calls.size()) || trace_.calls[next_call_].module != &module)
      throw ValueError(
          "Pipeline", "the model calls ", module.type_name(), " '", module.path(), "' where it called ",
          next_call_ < int(trace_.calls.size()) ? "'" + trace_.calls[next_call_].path + "'" : "nothing more",
          " before: which modules are called may depend on the inputs' shapes alone");
    const int call = next_call_++;
    open_calls_.push_back(call);
    if (!is_skipped(call)) return nullptr;
    next_call_ = trace_.calls[call].end;
    return trace_.calls[call].result.get();
  }

  void after_call(const nn::Module&, std::span<Tensor* const> tensors,
                  const std::function<std::shared_ptr<const void>()>&) override {
    const int call = open_calls_.back();
    open_calls_.pop_back();
    if (call < 0) return;
    model_returned_ = open_calls_.empty();
    if (is_skipped(call))
      replace(call, tensors);
    else if (plan_.calls[call].role == StagePlan::Role::kOneStage)
      store_result(call, tensors);
    if (!plan_.calls[call].ends_stage) return;
    ++reached_stage_;
    if (reached_stage_ == stage_) begin();
    if (reached_stage_ == stage_ + 1) end(call, tensors);
  }

  StageOutput finish() {
    if (has_ended_)
      context_.generator->set_state(output_.generator);
    else
      output_.generator = context_.generator->state();
    return std::move(output_);
  }

 private:
  // The stage begins: kernels compute again, and random numbers continue those of the previous stage.
  void begin() {
    context_.skip_meta_kernels = outer_skip_;
    context_.generator->set_state(input_.generator);
  }
  // After the stage's last call: its results go to another stage, and what follows is not recorded.
  void end(int call, std::span<Tensor* const> tensors) {
    has_ended_ = true;
    output_.generator = context_.generator->state();
    context_.skip_meta_kernels = true;
    context_.recordings.swap(recordings_);
    for (size_t i = 0; i < tensors.size(); ++i) *tensors[i] = trace_.calls[call].results[i];
  }

  bool is_skipped(int call) const {
    return plan_.calls[call].role == StagePlan::Role::kOneStage && plan_.calls[call].stage != stage_;
  }

  // Replaces the meta results of a skipped call by received tensors.
  void replace(int call, std::span<Tensor* const> tensors) const {
    const auto& inputs = plan_.inputs[stage_];
    for (size_t slot = 0; slot < inputs.size(); ++slot)
      if (inputs[slot].call == call) *tensors[inputs[slot].result] = input_.received[slot];
  }

  void store_result(int call, std::span<Tensor* const> tensors) {
    for (size_t i = 0; i < sends_.size(); ++i)
      if (sends_[i].value.call == call) output_.sent[i] = *tensors[sends_[i].value.result];
  }

  const ModelTrace& trace_;
  const StagePlan& plan_;
  const int stage_;
  const StageInput& input_;
  const std::vector<StagePlan::Sent> sends_;
  StageOutput output_;
  Context& context_ = Context::current();
  const bool outer_skip_ = context_.skip_meta_kernels;
  bool has_ended_ = false;
  std::vector<Ref<Counted>> recordings_;  // the open recordings, after the end of the stage
  std::vector<int> open_calls_;  // indices in the trace, outermost first; -1: not a call of the model
  bool model_returned_ = false;
  int next_call_ = 0;      // expected next call of the trace
  int reached_stage_ = 0;  // stage of the current position in the forward
};

}  // namespace

StageOutput run_stage(const ModelTrace& trace, const StagePlan& plan, int stage, const StageInput& input,
                      const std::function<void()>& forward) {
  StageInterceptor interceptor(trace, plan, stage, input);
  const nn::internal::CallInterceptorScope scope(&interceptor);
  forward();
  return interceptor.finish();
}

}  // namespace gradus::dist::internal
