// cudnnBackendFinalize of the emulated cuDNN: checks the attributes of each type of descriptor, and makes
// graphs, lists of engines, configurations and plans.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "gradus/tools/cuda_emulator/libraries/cudnn_descriptors.h"
#include "gradus/tools/cuda_emulator/streams.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // attributes for handles

namespace gradus::cuda::emulated {
namespace {

int64_t size_of_type(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return 8;
    case CUDNN_DATA_FLOAT:
      return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    default:
      return 0;  // not emulated
  }
}

cudnnStatus_t finalize_tensor(const Descriptor& d) {
  const auto sizes = d.list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
             strides = d.list<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  GRADUS_NEED(sizes.size() == strides.size() && !sizes.empty() && sizes.size() <= CUDNN_DIM_MAX);
  for (const int64_t size : sizes) GRADUS_NEED(size >= 0);
  for (const int64_t stride : strides) GRADUS_NEED(stride >= 0);
  const auto element = size_of_type(d.value(CUDNN_ATTR_TENSOR_DATA_TYPE, cudnnDataType_t(-1)));
  GRADUS_NEED(element > 0);
  const auto alignment = d.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
  GRADUS_NEED(alignment > 0 && alignment % element == 0);
  GRADUS_NEED(d.has(CUDNN_ATTR_TENSOR_UNIQUE_ID));
  return CUDNN_STATUS_SUCCESS;
}
GraphTensor tensor_of(const Descriptor& d) {
  return {d.value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, 0),
          d.value(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT),
          d.list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
          d.list<int64_t>(CUDNN_ATTR_TENSOR_STRIDES),
          d.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0),
          d.value(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false)};
}

cudnnStatus_t finalize_convolution(const Descriptor& d) {
  const auto dims = static_cast<size_t>(d.value<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0));
  GRADUS_NEED(dims >= 1 && dims <= CUDNN_DIM_MAX);
  for (const auto& [name, least] : {std::pair(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0),
                                    {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0},
                                    {CUDNN_ATTR_CONVOLUTION_DILATIONS, 1},
                                    {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 1}}) {
    const auto list = d.list<int64_t>(name);
    GRADUS_NEED(list.size() == dims);
    for (const int64_t v : list) GRADUS_NEED(v >= least);
  }
  GRADUS_NEED(d.has(CUDNN_ATTR_CONVOLUTION_COMP_TYPE));
  // Without a mode, filters are flipped, which is not emulated.
  GRADUS_NEED(d.value(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CONVOLUTION) == CUDNN_CROSS_CORRELATION);
  return CUDNN_STATUS_SUCCESS;
}

bool is(const Descriptor* d, cudnnBackendDescriptorType_t type) { return d && d->type == type; }

cudnnStatus_t finalize_operation(const Descriptor& d, const Names& names) {
  const Descriptor *x = d.part(names.x), *w = d.part(names.w), *y = d.part(names.y),
                   *conv = d.part(names.geometry);
  for (const Descriptor* t : {x, w, y}) GRADUS_NEED(is(t, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  GRADUS_NEED(is(conv, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
  const auto xs = tensor_of(*x).sizes, ws = tensor_of(*w).sizes, ys = tensor_of(*y).sizes;
  const auto before = conv->list<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
             after = conv->list<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
             dilations = conv->list<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS),
             strides = conv->list<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  GRADUS_NEED(xs.size() == before.size() + 2 && ws.size() == xs.size() && ys.size() == xs.size());
  GRADUS_NEED(ys[0] == xs[0]);
  GRADUS_NEED(ys[1] == ws[0]);
  GRADUS_NEED(ws[1] != 0 && xs[1] != 0 && xs[1] % ws[1] == 0);
  GRADUS_NEED(ws[0] % (xs[1] / ws[1]) == 0);
  for (size_t i = 0; i < before.size(); ++i) {
    const int64_t room = xs[i + 2] + before[i] + after[i] - dilations[i] * (ws[i + 2] - 1) - 1;
    GRADUS_NEED(room >= 0 && ys[i + 2] == room / strides[i] + 1);
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_pointwise(const Descriptor& d) {
  // Others are not emulated.
  const auto mode = d.value(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_MUL);
  GRADUS_NEED(mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_RELU_FWD);
  GRADUS_NEED(d.has(CUDNN_ATTR_POINTWISE_MATH_PREC));
  if (mode == CUDNN_POINTWISE_RELU_FWD)
    GRADUS_NEED(
        std::isinf(d.value(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, std::numeric_limits<double>::max())));
  return CUDNN_STATUS_SUCCESS;
}

bool is_relu(const Descriptor& operation) {
  return operation.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
             ->value(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD) == CUDNN_POINTWISE_RELU_FWD;
}

cudnnStatus_t finalize_pointwise_operation(const Descriptor& d) {
  GRADUS_NEED(is(d.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
  for (const auto name : {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC})
    GRADUS_NEED(is(d.part(name), CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  if (is_relu(d)) {
    GRADUS_NEED(tensor_of(*d.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)).sizes ==
                tensor_of(*d.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)).sizes);
    return CUDNN_STATUS_SUCCESS;
  }
  GRADUS_NEED(is(d.part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  const auto x = tensor_of(*d.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)).sizes,
             b = tensor_of(*d.part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)).sizes,
             y = tensor_of(*d.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)).sizes;
  GRADUS_NEED(x == y && b.size() == y.size());
  for (size_t i = 0; i < b.size(); ++i) GRADUS_NEED(b[i] == y[i] || b[i] == 1);
  return CUDNN_STATUS_SUCCESS;
}

// Returns null for graphs that are not emulated (cudnn.h).
std::shared_ptr<ConvGraph> graph_of(const Parts& operations) {
  const auto names = std::find_if(std::begin(kNames), std::end(kNames),
                                  [&](const Names& n) { return n.operation == operations[0]->type; });
  if (names == std::end(kNames) || operations.size() > 3) return nullptr;
  const Descriptor& op = *operations[0];
  auto g = std::make_shared<ConvGraph>();
  g->pass = static_cast<GraphPass>(names - kNames);
  g->x = tensor_of(*op.part(names->x)), g->w = tensor_of(*op.part(names->w)),
  g->y = tensor_of(*op.part(names->y));
  const Descriptor& conv = *op.part(names->geometry);
  g->compute = conv.value(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  g->before = conv.list<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  g->after = conv.list<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  g->strides = conv.list<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  g->dilations = conv.list<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  if (operations.size() >= 2) {
    const Descriptor& add = *operations[1];
    if (add.type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR || is_relu(add) ||
        g->pass != GraphPass::kForward ||
        tensor_of(*add.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)) != g->y || !g->y.is_virtual)
      return nullptr;
    g->addition = {tensor_of(*add.part(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)),
                   tensor_of(*add.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)),
                   add.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                       ->value(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)};
  }
  if (operations.size() == 3) {
    const Descriptor& relu = *operations[2];
    const GraphTensor& sum = g->addition->sum;
    if (relu.type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR || !is_relu(relu) ||
        tensor_of(*relu.part(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)) != sum || !sum.is_virtual)
      return nullptr;
    g->rectified = tensor_of(*relu.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    g->keeps_nan =
        relu.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
            ->value(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_NOT_PROPAGATE_NAN) == CUDNN_PROPAGATE_NAN;
  }
  return g;
}

cudnnStatus_t finalize_graph(Descriptor& d) {
  const Parts& operations = d.parts(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  GRADUS_NEED(!operations.empty());
  const std::shared_ptr<ConvGraph> graph = graph_of(operations);
  GRADUS_NEED(graph != nullptr);
  std::set<int64_t> ids;
  for (const GraphTensor* t : graph->tensors()) {
    GRADUS_NEED(ids.insert(t->id).second);
    GRADUS_NEED(!t->is_virtual);
  }
  GRADUS_NEED(!graph->addition || ids.insert(graph->y.id).second);
  GRADUS_NEED(!graph->rectified || ids.insert(graph->addition->sum.id).second);
  d.graph = graph;
  return CUDNN_STATUS_SUCCESS;
}

// The engines in the order in which the heuristic recommends them. Gradus may run the last two, engine 6 if f32
// may be rounded and in other types, and engine 1 unless results must repeat. Columns: index, numerical notes,
// behavior notes, status of making a plan, bytes of workspace, knobs.
const std::vector<Engine>& all_engines() {
  static const std::vector<Engine> all = {
      {1, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, {}, {}, 48 << 10},
      {3, {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, {}},
      {2, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, {}},
      {4, {}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED},
      {5, {}, {}, CUDNN_STATUS_NOT_SUPPORTED_SHAPE},
      {8, {}, {}, {}, (1 << 30) + 1},
      {6, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {}, {}, 32 << 10},
      {7, {}, {}, {}, 64 << 10, {{CUDNN_KNOB_TYPE_TILE_SIZE, 0, 3}, {CUDNN_KNOB_TYPE_STAGES, 1, 4}}},
      {0, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, {}}};
  return all;
}

// The nondeterministic engine computes gradients only.
bool supports(const Engine& e, const ConvGraph& g) {
  return g.pass != GraphPass::kForward || !e.has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
}

// As recorded: graphs of mixed types are accepted, but have no engines.
bool has_engines(const ConvGraph& g) {
  const cudnnDataType_t type = g.x.type, sums = type == CUDNN_DATA_DOUBLE ? type : CUDNN_DATA_FLOAT;
  for (const GraphTensor* t : g.tensors()) {
    if (t->type != type) return false;
    for (const int64_t size : t->sizes)
      if (size == 0) return false;
  }
  if (g.compute != sums) return false;
  if (!g.addition) return true;
  std::vector<int64_t> channels(g.y.sizes.size(), 1);  // shape of a bias: [1,C,1,...]
  channels[1] = g.y.sizes[1];
  return g.addition->compute == sums && g.addition->bias.sizes == channels &&
         g.addition->sum.strides == g.y.strides && g.result().strides == g.y.strides;
}

RefusedGraphs refused_graphs = RefusedGraphs::kNone;

cudnnStatus_t finalize_heuristic(Descriptor& d) {
  const Descriptor* const graph = d.part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  GRADUS_NEED(is(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  GRADUS_NEED(d.has(CUDNN_ATTR_ENGINEHEUR_MODE));
  GRADUS_REFUSE_UNLESS(refused_graphs == RefusedGraphs::kNone ||
                           (refused_graphs == RefusedGraphs::kWithRelu && !graph->graph->rectified),
                       CUDNN_STATUS_NOT_SUPPORTED);
  d.graph = graph->graph;
  if (!has_engines(*d.graph)) return CUDNN_STATUS_SUCCESS;
  const bool fallback = d.value(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A) == CUDNN_HEUR_MODE_FALLBACK;
  // As recorded: 1x1 filters with strides have no engines in f64, except in the fallback mode.
  bool is_pointwise =
      d.graph->x.type == CUDNN_DATA_DOUBLE && d.graph->pass != GraphPass::kInputGrad && !fallback;
  for (size_t i = 0; i < d.graph->strides.size(); ++i)
    is_pointwise = is_pointwise && d.graph->w.sizes[i + 2] == 1 && d.graph->strides[i] > 1;
  if (is_pointwise) return CUDNN_STATUS_SUCCESS;
  for (const Engine& e : all_engines()) {
    if (!supports(e, *d.graph)) continue;
    if (e.knobs.empty()) {
      d.configurations.push_back({&e});
      continue;
    }
    for (int64_t tile = 0; tile < 3; ++tile)
      d.configurations.push_back(
          {&e, {{CUDNN_KNOB_TYPE_TILE_SIZE, tile}, {CUDNN_KNOB_TYPE_STAGES, 4 - tile}}});
  }
  return CUDNN_STATUS_SUCCESS;
}

// An engine that the caller selects by its index.
cudnnStatus_t finalize_engine(Descriptor& d) {
  const Descriptor* const graph = d.part(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  GRADUS_NEED(is(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  GRADUS_NEED(d.has(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  const auto index = d.value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
  const auto engine = std::find_if(all_engines().begin(), all_engines().end(),
                                   [&](const Engine& e) { return e.index == index; });
  GRADUS_REFUSE_UNLESS(
      engine != all_engines().end() && has_engines(*graph->graph) && supports(*engine, *graph->graph),
      CUDNN_STATUS_NOT_SUPPORTED);
  d.graph = graph->graph, d.configurations = {{&*engine}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_knob(const Descriptor& d) {
  GRADUS_NEED(d.has(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) && d.has(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_configuration(Descriptor& d) {
  const Descriptor* const engine = d.part(CUDNN_ATTR_ENGINECFG_ENGINE);
  GRADUS_NEED(is(engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  Configuration made = engine->configurations[0];
  const std::vector<Knob>& known = made.engine->knobs;
  for (const auto& part : d.parts(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) {
    GRADUS_NEED(is(part.get(), CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    const auto type = part->value(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_KNOB_TYPE_COUNTS);
    const auto value = part->value<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 0);
    const auto knob = std::find_if(known.begin(), known.end(), [&](const Knob& k) { return k.type == type; });
    GRADUS_REFUSE_UNLESS(knob != known.end() && value >= knob->least && value <= knob->most,
                         CUDNN_STATUS_NOT_SUPPORTED);
    made.knobs.push_back({type, value});
  }
  d.graph = engine->graph, d.configurations = {std::move(made)};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_plan(Descriptor& d) {
  const Descriptor* const configuration = d.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  GRADUS_REFUSE_UNLESS(is(configuration, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
                       CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  const auto handle = d.value<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, nullptr);
  GRADUS_NEED(handle != nullptr);
  d.graph = configuration->graph, d.configurations = configuration->configurations;
  d.device = handle->device;
  const cudnnStatus_t said = d.configurations[0].engine->plans;
  GRADUS_REFUSE_UNLESS(said == CUDNN_STATUS_SUCCESS, said);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_pack(const Descriptor& d) {
  const auto ids = d.list<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  GRADUS_NEED(ids.size() == d.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size());
  GRADUS_NEED(std::set<int64_t>(ids.begin(), ids.end()).size() == ids.size());
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

cudnnStatus_t finalize(Descriptor& d) {
  GRADUS_NEED(!d.finalized);
  for (const Names& names : kNames)
    if (names.operation == d.type) return finalize_operation(d, names);
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return finalize_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return finalize_convolution(d);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
      return finalize_pointwise(d);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return finalize_pointwise_operation(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return finalize_graph(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return finalize_heuristic(d);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
      return finalize_engine(d);
    case CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR:
      return finalize_knob(d);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
      return finalize_configuration(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return finalize_plan(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return finalize_pack(d);
    default:
      return refuse(CUDNN_STATUS_NOT_SUPPORTED, "not emulated");
  }
}

void refuse_graphs(RefusedGraphs which) {
  const auto lock = Runtime::get().lock();
  refused_graphs = which;
}

}  // namespace gradus::cuda::emulated
