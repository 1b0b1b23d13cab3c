#include "gradus/distributed/pipeline/stage_run.h"

#include <algorithm>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

// Leaves the forward after a stage's last call. It is no error, and not caught as one.
struct EndOfStage {};

// While a stage runs over the calls of earlier ones, their results are on meta. Ops between modules may meet
// them beside tensors that are there: such ops belong to earlier stages, and are left out.
class LeavesOutMeta final : public Observer {
 public:
  explicit LeavesOutMeta(Ref<Observer> outer) : outer_(std::move(outer)) {
    gradus::internal::observers.fetch_add(1);
  }
  ~LeavesOutMeta() override { gradus::internal::observers.fetch_sub(1); }

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
      observer = make_ref<LeavesOutMeta>(outer_observer_);
  }
  ~StageFilter() { Context::current().observer = outer_observer_; }

  const void* enter(const nn::Module& module) override {
    if (ended_) {  // what comes after the model: the loss may call modules
      open_.push_back(-1);
      return nullptr;
    }
    if (next_ == int(trace_.calls.size()) || trace_.calls[next_].module != &module)
      throw ValueError(
          "Pipeline", "the model calls ", module.type_name(), " '", module.path(), "' where it called ",
          next_ < int(trace_.calls.size()) ? "'" + trace_.calls[next_].path + "'" : "nothing more",
          " before: which modules are called may depend on the inputs' shapes alone");
    const int call = next_++;
    open_.push_back(call);
    if (!is_skipped(call)) return nullptr;
    next_ = trace_.calls[call].end;
    return trace_.calls[call].result.get();
  }

  void leave(const nn::Module&, std::span<Tensor* const> tensors,
             const std::function<std::shared_ptr<const void>()>&) override {
    const int call = open_.back();
    open_.pop_back();
    if (call < 0) return;
    ended_ = open_.empty();
    if (is_skipped(call))
      replace(call, tensors);
    else if (plan_.calls[call].role == StagePlan::Role::kOwn)
      keep(call, tensors);
    if (!plan_.calls[call].cut) return;
    if (++reached_ == stage_) begin();
    if (reached_ > stage_) throw EndOfStage();
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

  // Puts received tensors in the place of those on meta.
  void replace(int call, std::span<Tensor* const> tensors) const {
    const auto& needs = plan_.needs[stage_];
    for (size_t slot = 0; slot < needs.size(); ++slot)
      if (needs[slot].call == call) *tensors[needs[slot].result] = input_.received[slot];
  }

  void keep(int call, std::span<Tensor* const> tensors) {
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
  std::vector<int> open_;
  bool ended_ = false;
  int next_ = 0;     // call
  int reached_ = 0;  // stage
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
