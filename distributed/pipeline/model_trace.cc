// trace_model replaces the model's tensors by meta tensors, runs the forward once in a Context of its own,
// and lets a Tracer record it: as CallInterceptor the entered and left module calls, as Observer each op with
// its operands. A tensor is identified by its storage, numbered in order of first use. See Note [Traces].
#include "gradus/distributed/pipeline/stage_plan.h"

#include <array>
#include <unordered_map>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {
namespace {

constexpr Device kMeta{DeviceType::kMeta};

class Tracer final : public Observer, public nn::internal::CallInterceptor {
 public:
  Tracer(ModelTrace& trace, nn::Module& model, const nn::StateDict& state) : trace_(trace) {
    for (const auto& [path, module] : model.named_modules()) paths_[module] = path;
    for (const auto& [name, tensor] : state) {
      trace_.state.push_back(name);
      trace_.state_storages.push_back(id_of(tensor));
    }
  }

  // Returns the number of the tensor's storage, a new one on first use; -1 for an undefined tensor.
  StorageId id_of(const Tensor& x) {
    if (!x.defined()) return -1;
    const auto [it, is_new] = ids_.try_emplace(x.storage().get(), trace_.num_storages);
    // Kept alive, so that no later storage has the same address.
    if (is_new) kept_alive_.push_back(x), ++trace_.num_storages;
    return it->second;
  }

  // Called for each kernel on the meta device. `tensors` are the op's results, then its inputs.
  void meta_kernel_launched(const char*, std::span<const Tensor* const> tensors) override {
    TracedEvent op{.kind = TracedEvent::kOp, .call = open_call_};
    for (const Tensor* x : tensors) op.storages.push_back(id_of(*x));
    const auto state = Context::current().generator->state();
    op.draws_random = state != std::exchange(generator_state_, state);  // the op advanced the generator
    trace_.events.push_back(std::move(op));
  }

  const void* before_call(const nn::Module& module) override {
    const int call = int(trace_.calls.size());
    const auto path = paths_.find(&module);
    trace_.calls.push_back({.module = &module,
                            .path = path == paths_.end() ? module.type_name() : path->second,
                            .parent = open_call_,
                            // checkpoint() runs its function under other recordings than the forward.
                            .in_checkpoint = recordings_of_thread() != recordings_});
    trace_.events.push_back({.kind = TracedEvent::kEnter, .call = call});
    open_call_ = call;
    return nullptr;  // no result: the module's forward runs
  }

  // `tensors` are those of the returned value; `copy` copies the value.
  void after_call(const nn::Module&, std::span<Tensor* const> tensors,
                  const std::function<std::shared_ptr<const void>()>& copy) override {
    TracedCall& call = trace_.calls[open_call_];
    call.end = int(trace_.calls.size());
    for (const Tensor* x : tensors) {
      call.results.push_back(*x);
      call.storages.push_back(id_of(*x));
    }
    call.result = copy();
    trace_.events.push_back({.kind = TracedEvent::kLeave, .call = open_call_});
    open_call_ = call.parent;
  }

 private:
  static std::vector<const Counted*> recordings_of_thread() {
    std::vector<const Counted*> all;
    for (const Ref<Counted>& r : Context::current().recordings) all.push_back(r.get());
    return all;
  }

  ModelTrace& trace_;
  std::unordered_map<const nn::Module*, std::string> paths_;
  std::unordered_map<const Storage*, StorageId> ids_;
  std::vector<Tensor> kept_alive_;
  std::array<uint64_t, 2> generator_state_ = Context::current().generator->state();
  const std::vector<const Counted*> recordings_ = recordings_of_thread();
  int open_call_ = -1;  // the innermost call that has been entered and not left; -1: none
};

}  // namespace

Tensor on_meta(const Tensor& x) {
  return x.defined() ? empty_strided(x.shape(), x.strides(), {x.dtype(), kMeta}) : Tensor();
}

ModelTrace trace_model(nn::Module& model, const std::vector<Tensor>& inputs,
                       const std::function<std::vector<Tensor>()>& forward) {
  Context context = Context::current().snapshot();
  context.recordings.clear();
  context.autocast = nullptr;  // its cache of casts would look like tensors that modules share
  context.generator = std::make_shared<RandomGenerator>();
  context.device = kMeta;
  const ContextScope in_context(context);
  nn::StateDict state;
  for (const auto& [name, t] : named_tensors(model)) state.emplace_back(name, on_meta(t));
  const nn::ParameterScope substituted(model, state);
  GradManager gm;  // a recording must be open, so that checkpoint() uses others (in_checkpoint)
  gm.attach(model.parameters());
  const auto recording = gm.record();
  ModelTrace trace;
  const auto tracer = make_ref<Tracer>(trace, model, state);
  context.observer = tracer;
  const nn::internal::CallInterceptorScope scope(tracer.get());
  for (const Tensor& x : inputs) trace.inputs.push_back(tracer->id_of(x));
  for (const Tensor& result : forward()) trace.results.push_back(tracer->id_of(result));
  return trace;
}

}  // namespace gradus::dist::internal
