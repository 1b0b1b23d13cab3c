#include "gradus/tensor/cuda/cudnn.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <span>
#include <vector>

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
  const auto get = [&](int64_t room, void* to) {
    return calls.get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, room, to);
  };
  std::vector<Descriptor> all(static_cast<size_t>(get(0, nullptr)));
  if (all.empty()) return all;
  for (Descriptor& d : all) d = calls.create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  std::vector<cudnnBackendDescriptor_t> list(all.begin(), all.end());
  all.resize(static_cast<size_t>(get(static_cast<int64_t>(list.size()), list.data())));
  return all;
}

bool may_run(const Calls& calls, const Convolution& c, const Descriptor& configuration) {
  const Descriptor engine = calls.create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t list[] = {engine};
  calls.get(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, list);
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

// ---- what a device keeps

// What plans depend on; the rest follows from it.
std::vector<int64_t> key_of(const Convolution& c) {
  std::vector<int64_t> key{int64_t(c.pass), int64_t(c.x.dtype()), c.tf32, bool(c.bias), c.relu};
  for (const Tensor* t : {&c.x, &c.w, &c.y, &c.bias})
    if (*t) key.push_back(alignment(*t));
  const ConvGeometry& g = c.geometry;
  for (const Dims* d : {&c.x.shape(), &c.w.shape(), &g.stride, &g.padding, &g.dilation})
    key.insert(key.end(), d->begin(), d->end());
  return key;
}

// Handles live as long as the program. A handle may be used by one thread at a time, and so may a plan. To
// make a plan takes up to a second: it has a handle of its own, so that other threads run theirs meanwhile.
struct DeviceState {
  std::mutex running;
  cudnnHandle_t runner = nullptr, planner = nullptr;
  PlanCache plans{kMostPlans};
};
DeviceState& state_of(int device) {
  static std::mutex mutex;
  static auto& states = *new std::map<int, DeviceState>;
  const std::lock_guard lock(mutex);
  return states[device];
}

void run(const Calls& calls, const Convolution& c, const ConvPlan& plan, cudnnHandle_t handle,
         cudaStream_t stream) {
  Tensor workspace;
  if (plan.workspace > 0) workspace = empty({plan.workspace}, {DType::kU8, c.x.device()});
  std::vector<int64_t> ids{kX, kW, kY};
  std::vector<void*> pointers{c.x.raw_ptr(), c.w.raw_ptr(), c.y.raw_ptr()};
  if (c.bias) ids.push_back(kBias), pointers.push_back(c.bias.raw_ptr());
  const Descriptor pack = calls.create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  calls.set<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(ids));
  calls.set<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(pointers));
  calls.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
            workspace ? workspace.raw_ptr() : static_cast<void*>(nullptr));
  calls.finalize(pack);
  calls.check("cudnnSetStream", calls.library().cudnnSetStream(handle, stream));
  calls.check("cudnnBackendExecute", calls.library().cudnnBackendExecute(handle, plan.plan, pack));
}

}  // namespace

ConvPlan plan_convolution(const char* op, const Cudnn& library, const Convolution& c, cudnnHandle_t handle,
                          cudnnBackendDescriptor_t properties) {
  const Calls calls(op, library, c);
  const Descriptor graph = make_graph(calls, c, handle);
  ConvPlan least;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Descriptor& configuration : configurations(calls, graph, mode, properties)) {
      if (!may_run(calls, c, configuration)) continue;
      ConvPlan p{calls.create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)};
      calls.set(p.plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {configuration});
      if (handle)
        calls.set(p.plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle);
      else
        calls.set(p.plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, {properties});
      if (!calls.try_finalize(p.plan)) continue;
      calls.get(p.plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &p.workspace);
      if (p.workspace <= kMostWorkspace) return p;
      if (!least.plan || p.workspace < least.workspace) least = std::move(p);
    }
    if (least.plan) break;
  }
  return least;
}

bool convolve(const char* op, const Convolution& c, cudaStream_t stream) {
  const Cudnn& library = cudnn(op);
  const Calls calls(op, library, c);
  DeviceState& state = state_of(c.x.device().index);
  const PlanCache::Plan plan = state.plans.get(key_of(c), [&] {
    calls.make_handle(&state.planner);
    return plan_convolution(op, library, c, state.planner);
  });
  if (!plan->plan) return false;
  const std::lock_guard lock(state.running);
  calls.make_handle(&state.runner);
  run(calls, c, *plan, state.runner, stream);
  count_calls(op, {.library_calls = 1});
  return true;
}

}  // namespace gradus::cuda
