// Pipeline: pipeline parallelism. The model is cut into stages, one or more per rank, and trains with the
// results of the undivided model.
//
//   dist::Pipeline<Net> pipe([] { return std::make_unique<Net>(); }, example,
//                            {.stages = 4, .micro_batches = 8, .cut_after = {"a", "b", "c"}});
//   GradManager gm;
//   pipe.attach(gm);                                                        // this rank's parameters
//   optim::AdamW opt(pipe.parameters(), {.lr = 3e-4});
//   for (const data::Batch& b : loader) {                                   // all ranks run the same loop
//     double loss = pipe.step(gm, b.input, b.target, nn::cross_entropy);    // equal on all ranks
//     pipe.clip_grad_norm_(1.0);                                            // norm over all stages
//     opt.step().clear_grad();
//   }
//   pipe.save("runs/last.ckpt", opt);  // the file does not depend on the number of stages
#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "gradus/distributed/pipeline/pipeline_base.h"

namespace gradus::dist {

namespace internal {

template <class V> std::vector<Tensor> tensors_of(const V& value) {
  std::vector<Tensor> tensors;
  nn::internal::each_tensor(const_cast<V&>(value), [&](Tensor& x) { tensors.push_back(x); });
  return tensors;
}
// Returns a copy of `value` whose tensors are replaced by `tensors`, in order.
template <class V> V with_tensors(V value, std::span<const Tensor> tensors) {
  size_t i = 0;
  nn::internal::each_tensor(value, [&](Tensor& x) { x = tensors[i++]; });
  return value;
}

// Calls a loss function. A third argument (options), if the function has one, is default-constructed.
template <class Loss, class Output, class Target>
Tensor call_loss(const Loss& loss, const Output& output, const Target& target) {
  if constexpr (std::is_invocable_r_v<Tensor, const Loss&, const Output&, const Target&>)
    return loss(output, target);
  else
    return []<class O>(Tensor (*f)(const Tensor&, const Tensor&, const O&), const Output& y,
                       const Target& t) { return f(y, t, O{}); }(+loss, output, target);
}

}  // namespace internal

// `Input` is the type of the model's argument: a tensor, or a vector, pair, tuple or struct of tensors. Dim 0
// of every tensor is the batch's rows.
template <class M, class Input = Tensor> class Pipeline : public internal::PipelineBase {
 public:
  // The type of the model's result: a tensor or a structure of tensors, as `Input`.
  using Output = std::remove_cvref_t<std::invoke_result_t<M&, const Input&>>;

  // Builds this rank's stages, initialized with the same random numbers as the undivided model. `make` is
  // called several times. `example` is an input with the shapes and dtypes of a micro-batch. Collective over
  // the job.
  // Errors: ValueError for contradictory options, for cuts that are not possible (the error lists the
  // possible ones), and if the number of ranks is not a multiple of the number of stages.
  Pipeline(std::function<std::unique_ptr<M>()> make, const Input& example, PipelineOptions options)
      : Pipeline(make, example, options, std::make_shared<std::optional<Output>>()) {}

  // Computes gradients of loss(model(input), target) as the undivided model does, and adds them to grad() of
  // the attached parameters. Every rank passes the whole batch of its replica. Returns the loss, the mean (or
  // sum) over all replicas, equal on all ranks. Collective over the pipeline and over the replicas.
  // Errors: ShapeError for a batch without rows, or with tensors of different numbers of rows; the model's
  // exceptions, with the action added ("in 2F0": stage 2, forward, micro-batch 0); PeerError on others.
  template <class Target, class Loss>
  double step(GradManager& gm, const Input& input, const Target& target, const Loss& loss,
              const StepOptions& options = {}) {
    return compute(&gm, input, target, loss, options);
  }
  // Returns the loss, without computing gradients.
  template <class Target, class Loss>
  double eval_step(const Input& input, const Target& target, const Loss& loss,
                   const StepOptions& options = {}) {
    return compute(nullptr, input, target, loss, options);
  }

  // Returns the model's result for the whole batch, without recording. The tensors are defined on the last
  // stage's rank only, unless `everywhere` is set. Collective over the pipeline, not over the replicas, which
  // may run different numbers of batches.
  // Errors: as for step; ShapeError if dim 0 of a result is not the batch's rows.
  Output forward(const Input& input, const ForwardOptions& options = {}) {
    const auto off = no_record();
    const auto model = [&](const Tensors& part) {
      return internal::tensors_of(module()(internal::with_tensors(input, part)));
    };
    const size_t results = internal::tensors_of(**example_output_).size();
    return internal::with_tensors(**example_output_,
                                  run_forward(internal::tensors_of(input), model, results, options));
  }

  // Returns the model. Tensors of other ranks' stages are on the meta device (shapes without data).
  M& module() { return static_cast<M&>(base_module()); }

 private:
  Pipeline(const std::function<std::unique_ptr<M>()>& make, const Input& example,
           const PipelineOptions& options, const std::shared_ptr<std::optional<Output>>& example_output)
      : PipelineBase({.make = [make] { return std::unique_ptr<nn::Module>(make()); },
                      .forward =
                          [example, example_output](nn::Module& model, std::span<const Tensor> inputs) {
                            *example_output = static_cast<M&>(model)(internal::with_tensors(example, inputs));
                            return internal::tensors_of(**example_output);
                          },
                      .example_inputs = internal::tensors_of(example)},
                     options),
        example_output_(example_output) {}

  template <class Target, class Loss>
  double compute(GradManager* gm, const Input& input, const Target& target, const Loss& loss,
                 const StepOptions& options) {
    return run(
        gm, {internal::tensors_of(input), internal::tensors_of(target)},
        [&](const internal::Batch& part, bool with_loss) {
          const Output output = module()(internal::with_tensors(input, part.inputs));
          return with_loss ? internal::call_loss(loss, output, internal::with_tensors(target, part.targets))
                           : Tensor();
        },
        options);
  }

  std::shared_ptr<std::optional<Output>> example_output_;  // a result on meta, for the structure of Output
};

}  // namespace gradus::dist
