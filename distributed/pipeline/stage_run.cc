// Implementation of run_stage: skips module calls of earlier stages, replaces their results, and stops at the
// end of the stage.
#include "gradus/distributed/pipeline/stage_run.h"

#include <algorithm>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

// Thrown to leave the forward after a stage's last call. Not derived from std::exception, so that user code
// does not catch it as an error.
struct EndOfStage {};

// Active while a stage passes the calls of earlier stages, whose results are on meta. Ops between modules
// that mix meta tensors with tensors that have data belong to earlier stages and are skipped.
class SkipMetaObserver final : public Observer {
 public:
  explicit SkipMetaObserver(Ref<Observer> outer) : outer_(std::move(outer)) {
    gradus::internal::observers.fetch_add(1);
  }
  ~SkipMetaObserver() override { gradus::internal::observers.fetch_sub(1); }

  bool leaves_out_meta() const override { return true; }
  void launched(const char* op, std::span<const Tensor* const> tensors) override {
    if (outer_) outer_->launched(op, tensors);
  }
  int64_t announce(const Range& range) override { return outer_ ? outer_->announce(range) : -1; }
  void begin(int64_t range) override { outer_->begin(range); }
  void end(int64_t range) noexcept override { outer_->end(range); }
  void chose(std::string_view kernel) override {
    if (outer_) outer_->chose(kernel);
  }
  void allocated(Device device) override {
    if (outer_) outer_->allocated(device);
  }

 private:
  Ref<Observer> outer_;
};

// Skips the calls of earlier stages, and stores the results that the stage sends.
class StageFilter final : public nn::internal::CallFilter {
 public:
  StageFilter(const ModelTrace& trace, const StagePlan& plan, int stage, const StageInput& input)
      : trace_(trace), plan_(plan), stage_(stage), input_(input), sends_(plan.sends(stage)) {
    output_.sent.resize(sends_.size());
    auto& observer = Context::current().observer;
    outer_observer_ = observer;
    if (stage_ == 0)
      begin();
    else
      observer = make_ref<SkipMetaObserver>(outer_observer_);
  }
  ~StageFilter() { Context::current().observer = outer_observer_; }

  const void* enter(const nn::Module& module) override {
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

  void leave(const nn::Module&, std::span<Tensor* const> tensors,
             const std::function<std::shared_ptr<const void>()>&) override {
    const int call = open_calls_.back();
    open_calls_.pop_back();
    if (call < 0) return;
    model_returned_ = open_calls_.empty();
    if (is_skipped(call))
      replace(call, tensors);
    else if (plan_.calls[call].role == StagePlan::Role::kOwn)
      store_result(call, tensors);
    if (!plan_.calls[call].cut) return;
    if (++reached_stage_ == stage_) begin();
    if (reached_stage_ > stage_) throw EndOfStage();
  }

  StageOutput finish() {
    output_.generator = Context::current().generator->state();
    return std::move(output_);
  }

 private:
  void begin() {
    Context::current().observer = outer_observer_;
    Context::current().generator->set_state(input_.generator);
  }

  bool is_skipped(int call) const {
    return plan_.calls[call].role == StagePlan::Role::kOwn && plan_.calls[call].stage < stage_;
  }

  // Replaces the meta results of a skipped call by received tensors.
  void replace(int call, std::span<Tensor* const> tensors) const {
    const auto& needs = plan_.needs[stage_];
    for (size_t slot = 0; slot < needs.size(); ++slot)
      if (needs[slot].call == call) *tensors[needs[slot].result] = input_.received[slot];
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
  Ref<Observer> outer_observer_;
  std::vector<int> open_calls_;
  bool model_returned_ = false;
  int next_call_ = 0;      // expected next call of the trace
  int reached_stage_ = 0;  // stage of the current position in the forward
};

}  // namespace

StageOutput run_stage(const ModelTrace& trace, const StagePlan& plan, int stage, const StageInput& input,
                      const std::function<void()>& forward) {
  StageFilter filter(trace, plan, stage, input);
  const nn::internal::CallFilterScope scope(&filter);
  try {
    forward();
  } catch (const EndOfStage&) {
  }
  return filter.finish();
}

}  // namespace gradus::dist::internal
