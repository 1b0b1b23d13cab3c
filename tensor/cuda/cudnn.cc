#include "gradus/tensor/cuda/cudnn.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gradus/tensor/cuda/conv_plans.h"
#include "gradus/tensor/cuda/fastest.h"
#include "gradus/tensor/cuda/host_calls.h"
#include "gradus/tensor/cuda/plan_cache.h"

// Plans are made for a handle, as the recorded ones were (tests/cuda/recorded).
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace gradus::cuda {
namespace {

using raw::ConvGeometry;

// A plan that wants more is taken only where no other serves.
constexpr int64_t kMostWorkspace = int64_t(1) << 30;

// Of a device. The training of a ResNet-50 takes some 70.
constexpr size_t kMostPlans = 1024;

// That are measured against each other.
constexpr size_t kMostCandidates = 8;

std::atomic<bool> benchmark{false};

// Tensors of a graph by their numbers.
enum Id : int64_t { kX = 1, kW, kY, kBias, kSum, kBiased };

constexpr cudnnBackendAttributeType_t type_of(int64_t) { return CUDNN_TYPE_INT64; }
constexpr cudnnBackendAttributeType_t type_of(bool) { return CUDNN_TYPE_BOOLEAN; }
constexpr cudnnBackendAttributeType_t type_of(float) { return CUDNN_TYPE_FLOAT; }
constexpr cudnnBackendAttributeType_t type_of(double) { return CUDNN_TYPE_DOUBLE; }
constexpr cudnnBackendAttributeType_t type_of(void*) { return CUDNN_TYPE_VOID_PTR; }
constexpr cudnnBackendAttributeType_t type_of(cudnnHandle_t) { return CUDNN_TYPE_HANDLE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnDataType_t) { return CUDNN_TYPE_DATA_TYPE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnConvolutionMode_t) { return CUDNN_TYPE_CONVOLUTION_MODE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnPointwiseMode_t) { return CUDNN_TYPE_POINTWISE_MODE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnBackendHeurMode_t) { return CUDNN_TYPE_HEUR_MODE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnBackendKnobType_t) { return CUDNN_TYPE_KNOB_TYPE; }
constexpr cudnnBackendAttributeType_t type_of(cudnnBackendNumericalNote_t) {
  return CUDNN_TYPE_NUMERICAL_NOTE;
}
constexpr cudnnBackendAttributeType_t type_of(cudnnBackendBehaviorNote_t) { return CUDNN_TYPE_BEHAVIOR_NOTE; }

// Calls of the library for one convolution.
class Calls {
 public:
  Calls(const char* op, const Cudnn& library, const Convolution& c) : op_(op), library_(library), c_(c) {}

  void check(const char* call, cudnnStatus_t status) const {
    if (status == CUDNN_STATUS_SUCCESS) [[likely]]
      return;
    char reason[256] = "";
    library_.cudnnGetLastErrorString(reason, sizeof reason);
    const std::string operands =
        concat("x ", describe(c_.x), ", weight ", describe(c_.w), ", y ", describe(c_.y));
    throw CudnnError(op_, call, concat(library_.cudnnGetErrorString(status), reason[0] ? ", " : "", reason),
                     operands, status);
  }

  void make_handle(cudnnHandle_t* handle) const {
    if (!*handle) check("cudnnCreate", library_.cudnnCreate(handle));
  }
  Descriptor create(cudnnBackendDescriptorType_t type) const {
    cudnnBackendDescriptor_t made = nullptr;
    check("cudnnBackendCreateDescriptor", library_.cudnnBackendCreateDescriptor(type, &made));
    return Descriptor(library_, made);
  }
  void finalize(const Descriptor& d) const {
    check("cudnnBackendFinalize", library_.cudnnBackendFinalize(d));
  }
  // Returns false where the library does not support what it is asked for.
  bool try_finalize(const Descriptor& d) const {
    const cudnnStatus_t status = library_.cudnnBackendFinalize(d);
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) return false;
    check("cudnnBackendFinalize", status);
    return true;
  }

  template <class T> void set(const Descriptor& d, cudnnBackendAttributeName_t name, const T& value) const {
    set(d, name, type_of(value), 1, &value);
  }
  void set(const Descriptor& d, cudnnBackendAttributeName_t name,
           const std::vector<Descriptor>& parts) const {
    const std::vector<cudnnBackendDescriptor_t> list(parts.begin(), parts.end());
    set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(list.size()), list.data());
  }
  template <class T>
  void set(const Descriptor& d, cudnnBackendAttributeName_t name, std::span<const T> list) const {
    set(d, name, type_of(T()), static_cast<int64_t>(list.size()), list.data());
  }
  void set(const Descriptor& d, cudnnBackendAttributeName_t name, const Dims& list) const {
    set(d, name, CUDNN_TYPE_INT64, list.size(), list.begin());
  }
  void set(const Descriptor& d, cudnnBackendAttributeName_t name,
           std::initializer_list<cudnnBackendDescriptor_t> parts) const {
    set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(parts.size()), parts.begin());
  }

  // Reads at most `room` elements into `to`. Returns how many; with room for 0, how many there are.
  int64_t get(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
              int64_t room, void* to) const {
    int64_t count = 0;
    check("cudnnBackendGetAttribute", library_.cudnnBackendGetAttribute(d, name, type, room, &count, to));
    return count;
  }
  template <class T> T value(const Descriptor& d, cudnnBackendAttributeName_t name) const {
    T v{};
    get(d, name, type_of(v), 1, &v);
    return v;
  }
  // At most `room` parts.
  std::vector<Descriptor> parts(const Descriptor& d, cudnnBackendAttributeName_t name,
                                cudnnBackendDescriptorType_t type, int64_t room) const {
    std::vector<Descriptor> all;
    for (int64_t i = 0; i < room; ++i) all.push_back(create(type));
    std::vector<cudnnBackendDescriptor_t> list(all.begin(), all.end());
    all.resize(static_cast<size_t>(get(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, room, list.data())));
    return all;
  }
  template <class T> std::vector<T> list(const Descriptor& d, cudnnBackendAttributeName_t name) const {
    std::vector<T> all(64);
    all.resize(static_cast<size_t>(get(d, name, type_of(T()), static_cast<int64_t>(all.size()), all.data())));
    return all;
  }

  const Cudnn& library() const { return library_; }

 private:
  void set(const Descriptor& d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           int64_t count, const void* from) const {
    check("cudnnBackendSetAttribute", library_.cudnnBackendSetAttribute(d, name, type, count, from));
  }

  const char* op_;
  const Cudnn& library_;
  const Convolution& c_;
};

// ---- graphs

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CUDNN_DATA_DOUBLE;
    case DType::kF16:
      return CUDNN_DATA_HALF;
    case DType::kBF16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}
// In which products are summed.
cudnnDataType_t sum_type(const Convolution& c) {
  return c.x.dtype() == DType::kF64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

// Of the address, in bytes: the library asks no more than 16.
int64_t alignment(const Tensor& t) {
  const auto address = reinterpret_cast<uintptr_t>(t.raw_ptr()) | 16;
  return static_cast<int64_t>(address & -address);
}

struct Layout {
  Id id;
  cudnnDataType_t type;
  Shape sizes;
  Strides strides;
  int64_t alignment;
};
Descriptor make_tensor(const Calls& calls, const Layout& t) {
  Descriptor d = calls.create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  calls.set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, t.type);
  calls.set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, t.sizes);
  calls.set(d, CUDNN_ATTR_TENSOR_STRIDES, t.strides);
  calls.set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t(t.id));
  calls.set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, t.alignment);
  if (t.id == kSum || t.id == kBiased) calls.set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);  // never in memory
  calls.finalize(d);
  return d;
}
Descriptor make_image(const Calls& calls, Id id, const Tensor& t) {
  return make_tensor(calls,
                     {id, data_type(t.dtype()), t.shape(), channels_last_strides(t.shape()), alignment(t)});
}

Descriptor make_geometry(const Calls& calls, const Convolution& c) {
  Descriptor d = calls.create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  calls.set(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t(c.geometry.rank()));
  calls.set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, sum_type(c));
  calls.set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
  calls.set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c.geometry.padding);
  calls.set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, c.geometry.padding);
  calls.set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, c.geometry.dilation);
  calls.set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c.geometry.stride);
  calls.finalize(d);
  return d;
}

// How the library calls the parts of each direction.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t x, w, y, geometry, alpha, beta;
};
const Names& names_of(ConvPass pass) {
  static constexpr Names names[] = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
  return names[static_cast<int>(pass)];
}

// y = sum + bias
Descriptor make_addition(const Calls& calls, const Convolution& c, const Descriptor& sum,
                         const Descriptor& y) {
  const Descriptor how = calls.create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  calls.set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
  calls.set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, sum_type(c));
  calls.finalize(how);
  Shape sizes = Dims::filled(c.y.dim(), 1);
  sizes[1] = c.y.size(1);
  const Descriptor bias = make_tensor(
      calls, {kBias, data_type(c.bias.dtype()), sizes, channels_last_strides(sizes), alignment(c.bias)});
  Descriptor d = calls.create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, {how});
  calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, {sum});
  calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, {bias});
  calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, {y});
  calls.finalize(d);
  return d;
}

// y = max(0, biased)
Descriptor make_rectification(const Calls& calls, const Convolution& c, const Descriptor& biased,
                              const Descriptor& y) {
  const Descriptor how = calls.create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  calls.set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_RELU_FWD);
  calls.set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, sum_type(c));
  calls.finalize(how);
  Descriptor d = calls.create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, {how});
  calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, {biased});
  calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, {y});
  calls.finalize(d);
  return d;
}

// Parts may be destroyed when the graph has them.
Descriptor make_graph(const Calls& calls, const Convolution& c, cudnnHandle_t handle) {
  const Descriptor x = make_image(calls, kX, c.x), y = make_image(calls, kY, c.y);
  const Descriptor w = make_tensor(
      calls, {kW, data_type(c.w.dtype()), c.w.shape(), row_major_strides(c.w.shape()), alignment(c.w)});
  const Descriptor geometry = make_geometry(calls, c);
  const auto unstored = [&](Id id) {
    return make_tensor(calls, {id, sum_type(c), c.y.shape(), channels_last_strides(c.y.shape()), 16});
  };
  Descriptor sum, biased, addition, rectification;
  if (c.bias) sum = unstored(kSum);
  if (c.relu) biased = unstored(kBiased), rectification = make_rectification(calls, c, biased, y);
  if (c.bias) addition = make_addition(calls, c, sum, c.relu ? biased : y);
  const Names& names = names_of(c.pass);
  const Descriptor operation = calls.create(names.operation);
  calls.set(operation, names.x, {x});
  calls.set(operation, names.w, {w});
  calls.set(operation, names.y, {c.bias ? sum : y});
  calls.set(operation, names.geometry, {geometry});
  if (sum_type(c) == CUDNN_DATA_DOUBLE) {
    calls.set(operation, names.alpha, 1.0);
    calls.set(operation, names.beta, 0.0);
  } else {
    calls.set(operation, names.alpha, 1.f);
    calls.set(operation, names.beta, 0.f);
  }
  calls.finalize(operation);

  Descriptor graph = calls.create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (c.relu)
    calls.set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, {operation, addition, rectification});
  else if (c.bias)
    calls.set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, {operation, addition});
  else
    calls.set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, {operation});
  if (handle) calls.set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle);
  calls.finalize(graph);
  return graph;
}

// ---- plans

// What the library recommends, the best first.
std::vector<Descriptor> configurations(const Calls& calls, const Descriptor& graph,
                                       cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t properties) {
  const Descriptor heuristic = calls.create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  calls.set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {graph});
  calls.set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (properties) calls.set(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, {properties});
  if (!calls.try_finalize(heuristic)) return {};
  const int64_t count =
      calls.get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  if (count == 0) return {};
  return calls.parts(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
}

bool may_run(const Calls& calls, const Convolution& c, const Descriptor& engine) {
  const bool is_f32 = c.x.dtype() == DType::kF32;
  for (const auto note : calls.list<cudnnBackendNumericalNote_t>(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE))
    if (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC || note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
        note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
        (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && is_f32 && !c.tf32))
      return false;
  for (const auto note : calls.list<cudnnBackendBehaviorNote_t>(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE))
    if (note == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) return false;
  return true;
}

bool refuses(cudnnStatus_t status) {
  const int category = CUDNN_STATUS_CATEGORY(status);
  return category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM;
}

// Engines are planned for a handle's device, or for one that properties describe.
struct Planned {
  const Calls& calls;
  const Convolution& c;
  cudnnHandle_t handle;
  cudnnBackendDescriptor_t properties;

  // No plan where the library has none.
  ConvPlan plan(const Descriptor& configuration, ConvChoice choice) const {
    ConvPlan p{calls.create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), 0, std::move(choice)};
    calls.set(p.plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {configuration});
    if (handle)
      calls.set(p.plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
    else
      calls.set(p.plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, {properties});
    if (!calls.try_finalize(p.plan)) return {};
    p.workspace = calls.value<int64_t>(p.plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    return p;
  }

  // No plan where the engine may not run.
  ConvPlan plan_recommended(const Descriptor& configuration) const {
    const Descriptor engine = std::move(
        calls.parts(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1).at(0));
    if (!may_run(calls, c, engine)) return {};
    ConvChoice choice{calls.value<int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX), {}};
    // A configuration does not tell how many choices it has.
    const int64_t knobs =
        calls.get(engine, CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
    for (const Descriptor& knob : calls.parts(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                              CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, knobs))
      choice.knobs.push_back({calls.value<cudnnBackendKnobType_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE),
                              calls.value<int64_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)});
    return plan(configuration, std::move(choice));
  }

  // Errors: CudnnError where the library refuses the choice.
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

// ---- what a device keeps

ConvKey key_of(const Convolution& c) {
  const ConvGeometry& g = c.geometry;
  ConvKey key{.pass = c.pass,
              .dtype = c.x.dtype(),
              .tf32 = c.tf32,
              .relu = c.relu,
              .x = c.x.shape(),
              .w = c.w.shape(),
              .stride = g.stride,
              .padding = g.padding,
              .dilation = g.dilation,
              .alignments = {}};
  for (const Tensor* t : {&c.x, &c.w, &c.y, &c.bias}) key.alignments.push_back(*t ? alignment(*t) : 0);
  return key;
}

// Handles live as long as the program. A handle may be used by one thread at a time, and so may a plan. To
// make a plan takes up to a second: it has a handle of its own, so that other threads run theirs meanwhile.
struct DeviceState {
  std::mutex running;
  cudnnHandle_t runner = nullptr, planner = nullptr;
  std::optional<DeviceModel> model;  // belongs to who plans
  PlanCache plans{kMostPlans};
};
struct States {
  std::mutex mutex;
  std::map<int, DeviceState> by_device;
};
States& states() {
  static auto& all = *new States;
  return all;
}
DeviceState& state_of(int device) {
  const std::lock_guard lock(states().mutex);
  return states().by_device[device];
}

// What a plan is run with.
struct Arguments {
  Tensor workspace;
  Descriptor pack;
};
Arguments make_arguments(const Calls& calls, const Convolution& c, const ConvPlan& plan) {
  Tensor workspace;
  if (plan.workspace > 0) workspace = empty({plan.workspace}, {DType::kU8, c.x.device()});
  std::vector<int64_t> ids{kX, kW, kY};
  std::vector<void*> pointers{c.x.raw_ptr(), c.w.raw_ptr(), c.y.raw_ptr()};
  if (c.bias) ids.push_back(kBias), pointers.push_back(c.bias.raw_ptr());
  Descriptor pack = calls.create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  calls.set<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(ids));
  calls.set<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(pointers));
  calls.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
            workspace ? workspace.raw_ptr() : static_cast<void*>(nullptr));
  calls.finalize(pack);
  return {std::move(workspace), std::move(pack)};
}

void set_stream(const Calls& calls, cudnnHandle_t handle, cudaStream_t stream) {
  calls.check("cudnnSetStream", calls.library().cudnnSetStream(handle, stream));
}
void execute(const char* op, const Calls& calls, const ConvPlan& plan, const Arguments& arguments,
             cudnnHandle_t handle) {
  calls.check("cudnnBackendExecute", calls.library().cudnnBackendExecute(handle, plan.plan, arguments.pack));
  count_calls(op, {.library_calls = 1});
}

// Runs plans on the convolution's operands. The one that is chosen writes the result again.
ConvPlan fastest(const char* op, const Calls& calls, const Convolution& c, std::vector<ConvPlan> plans,
                 cudnnHandle_t handle, cudaStream_t stream) {
  if (plans.size() == 1) return std::move(plans[0]);
  set_stream(calls, handle, stream);
  const auto prepare = [&](size_t i) {
    return [&, i, arguments = std::make_shared<const Arguments>(make_arguments(calls, c, plans[i]))] {
      execute(op, calls, plans[i], *arguments, handle);
    };
  };
  return std::move(plans[find_fastest(c.x.device(), plans.size(), prepare).value_or(0)]);
}

// By the choice that is kept, if it holds; else by a new one, which is kept. No plan: the library has none.
ConvPlan make_plan(const char* op, const Calls& calls, const Convolution& c, const ConvKey& key,
                   DeviceState& state, cudaStream_t stream) {
  calls.make_handle(&state.planner);
  if (!state.model) state.model = model_of(c.x.device());
  const std::optional<ConvChoice> kept = KeptChoices::get().find(*state.model, key);
  if (kept)
    if (ConvPlan p = plan_of_choice(op, calls.library(), c, *kept, state.planner, nullptr); p.plan) return p;
  std::vector<ConvPlan> plans = recommended_plans(op, calls.library(), c, state.planner, nullptr,
                                                  uses_cudnn_benchmark() ? kMostCandidates : 1);
  if (plans.empty()) return {};
  ConvPlan p = fastest(op, calls, c, std::move(plans), state.planner, stream);
  KeptChoices::get().replace(*state.model, key, kept, p.choice);
  return p;
}

}  // namespace

std::vector<ConvPlan> recommended_plans(const char* op, const Cudnn& library, const Convolution& c,
                                        cudnnHandle_t handle, cudnnBackendDescriptor_t properties,
                                        size_t most) {
  const Calls calls(op, library, c);
  const Descriptor graph = make_graph(calls, c, handle);
  const Planned planned{calls, c, handle, properties};
  std::vector<ConvPlan> plans;
  ConvPlan least;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Descriptor& configuration : configurations(calls, graph, mode, properties)) {
      ConvPlan p = planned.plan_recommended(configuration);
      if (!p.plan) continue;
      if (p.workspace <= kMostWorkspace)
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
  const Calls calls(op, library, c);
  const Descriptor graph = make_graph(calls, c, handle);
  try {
    ConvPlan p = Planned{calls, c, handle, properties}.plan_chosen(graph, choice);
    if (p.workspace <= kMostWorkspace) return p;
  } catch (const CudnnError& e) {
    if (!refuses(e.status)) throw;
  }
  return {};
}

void forget_plans() {
  std::vector<DeviceState*> all;
  {
    const std::lock_guard lock(states().mutex);
    for (auto& [device, state] : states().by_device) all.push_back(&state);
  }
  for (DeviceState* state : all) state->plans.clear();
}

void set_cudnn_benchmark(bool on) { benchmark = on; }
bool uses_cudnn_benchmark() { return benchmark; }

bool convolve(const char* op, const Convolution& c, cudaStream_t stream) {
  const Cudnn& library = cudnn(op);
  const Calls calls(op, library, c);
  DeviceState& state = state_of(c.x.device().index);
  const ConvKey key = key_of(c);
  const PlanCache::Plan plan =
      state.plans.get(key, [&] { return make_plan(op, calls, c, key, state, stream); });
  if (!plan->plan) return false;
  const Arguments arguments = make_arguments(calls, c, *plan);
  const std::lock_guard lock(state.running);
  calls.make_handle(&state.runner);
  set_stream(calls, state.runner, stream);
  execute(op, calls, *plan, arguments, state.runner);
  return true;
}

}  // namespace gradus::cuda
