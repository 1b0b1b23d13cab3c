// Makes cuDNN execution plans of a convolution by the backend (graph) API: those that cuDNN's heuristics
// recommend, and those of an engine and knobs that were chosen before (ConvChoice). Engines that reduce the
// precision of operands or sums, compile at run time, or, with Convolution::deterministic, are nondeterministic
// are skipped. A ConvPlan with a null `plan` means no plan.
#include <cstdint>
#include <utility>
#include <vector>

#include "gradus/tensor/cuda/cudnn/conv_graph.h"
#include "gradus/tensor/cuda/cudnn/cudnn.h"
#include "gradus/tensor/cuda/cudnn/cudnn_calls.h"
#include "gradus/tensor/cuda/cudnn/graph_parts.h"

namespace gradus::cuda {
namespace {

// Bytes. A plan with a larger workspace is used only if cuDNN recommends no other.
constexpr int64_t kMaxWorkspace = int64_t(1) << 30;

// Returns whether the engine is as deterministic as c requires, and precise enough: without TF32 for f32,
// unless c.tf32.
bool may_run(const Calls& calls, const Convolution& c, const Descriptor& engine) {
  const bool is_f32 = c.x.dtype() == DType::kF32;
  for (const auto note : calls.list<cudnnBackendNumericalNote_t>(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE))
    if ((note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC && c.deterministic) ||
        note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
        note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
        (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && is_f32 && !c.tf32))
      return false;
  for (const auto note : calls.list<cudnnBackendBehaviorNote_t>(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE))
    if (note == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) return false;
  return true;
}

// Returns whether the status means that cuDNN does not support the request, as opposed to a failure.
bool refuses(cudnnStatus_t status) {
  const int category = CUDNN_STATUS_CATEGORY(status);
  return category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM;
}

// Plans engines for the device of `handle`, or if it is null for the device that `properties` describe.
struct Planned {
  const Calls& calls;
  const Convolution& c;
  cudnnHandle_t handle;
  cudnnBackendDescriptor_t properties;

  // Returns no plan if cuDNN cannot build one.
  ConvPlan plan(const Descriptor& configuration, ConvChoice choice) const {
    ConvPlan p{plan_of_configuration(calls, configuration, handle, properties), 0, std::move(choice)};
    if (!p.plan) return {};
    p.workspace = calls.value<int64_t>(p.plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    return p;
  }

  // Returns no plan if the engine is skipped.
  ConvPlan plan_recommended(const Descriptor& configuration) const {
    const Descriptor engine = engine_of(calls, configuration);
    if (!may_run(calls, c, engine)) return {};
    ConvChoice choice{calls.value<int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX), {}};
    // cuDNN does not report the number of knob choices of a configuration: at most one per knob.
    const int64_t knobs =
        calls.get(engine, CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
    for (const Descriptor& knob : calls.parts(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                              CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, knobs))
      choice.knobs.push_back({calls.value<cudnnBackendKnobType_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE),
                              calls.value<int64_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)});
    return plan(configuration, std::move(choice));
  }

  // Returns no plan if the engine is skipped.
  // Errors: CudnnError if cuDNN rejects the choice.
  ConvPlan plan_chosen(const Descriptor& graph, const ConvChoice& choice) const {
    const Descriptor engine = calls.create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    calls.set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph});
    calls.set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, choice.engine);
    if (properties) calls.set(engine, CUDNN_ATTR_ENGINE_DEVICEPROP, {properties});
    calls.finalize(engine);
    if (!may_run(calls, c, engine)) return {};
    std::vector<Descriptor> knobs;
    for (const ConvChoice::Knob& k : choice.knobs) {
      Descriptor knob = calls.create(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
      calls.set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, static_cast<cudnnBackendKnobType_t>(k.type));
      calls.set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, k.value);
      calls.finalize(knob);
      knobs.push_back(std::move(knob));
    }
    const Descriptor configuration = calls.create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    calls.set(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, {engine});
    if (!knobs.empty()) calls.set(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knobs);
    calls.finalize(configuration);
    return plan(configuration, choice);
  }
};

}  // namespace

std::vector<ConvPlan> recommended_plans(const char* op, const Cudnn& library, const Convolution& c,
                                        cudnnHandle_t handle, cudnnBackendDescriptor_t properties,
                                        size_t most) {
  const Calls calls(op, library, named(c));
  const Descriptor graph = make_graph(calls, c, handle);
  const Planned planned{calls, c, handle, properties};
  std::vector<ConvPlan> plans;
  ConvPlan least;  // of the plans above kMaxWorkspace, the one with the smallest workspace
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Descriptor& configuration : recommended_configurations(calls, graph, mode, properties)) {
      ConvPlan p = planned.plan_recommended(configuration);
      if (!p.plan) continue;
      if (p.workspace <= kMaxWorkspace)
        plans.push_back(std::move(p));
      else if (!least.plan || p.workspace < least.workspace)
        least = std::move(p);
      if (plans.size() == most) return plans;
    }
    if (plans.empty() && least.plan) plans.push_back(std::move(least));
    if (!plans.empty()) break;
  }
  return plans;
}

ConvPlan plan_of_choice(const char* op, const Cudnn& library, const Convolution& c, const ConvChoice& choice,
                        cudnnHandle_t handle, cudnnBackendDescriptor_t properties) {
  const Calls calls(op, library, named(c));
  const Descriptor graph = make_graph(calls, c, handle);
  try {
    ConvPlan p = Planned{calls, c, handle, properties}.plan_chosen(graph, choice);
    if (p.workspace <= kMaxWorkspace) return p;
  } catch (const CudnnError& e) {
    if (!refuses(e.status)) throw;
  }
  return {};
}

}  // namespace gradus::cuda
