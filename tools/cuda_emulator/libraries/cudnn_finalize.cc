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
    case CUDNN_DATA_INT32:
      return 4;
    case CUDNN_DATA_BOOLEAN:
      return 1;
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
          d.value(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false),
          d.value(CUDNN_ATTR_TENSOR_IS_BY_VALUE, false)};
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

// Returns the number of operands of a point-wise operation; 0 if it is not emulated.
int64_t count_operands(cudnnPointwiseMode_t mode) {
  switch (mode) {
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_IDENTITY:
    case CUDNN_POINTWISE_GEN_INDEX:
      return 1;
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_CMP_GE:
      return 2;
    case CUDNN_POINTWISE_BINARY_SELECT:
      return 3;
    default:
      return 0;
  }
}

cudnnStatus_t finalize_pointwise(const Descriptor& d) {
  // Others are not emulated.
  const auto mode = d.value(CUDNN_ATTR_POINTWISE_MODE, cudnnPointwiseMode_t(-1));
  GRADUS_NEED(mode == CUDNN_POINTWISE_RELU_FWD || count_operands(mode) > 0);
  GRADUS_NEED((mode == CUDNN_POINTWISE_GEN_INDEX) == d.has(CUDNN_ATTR_POINTWISE_AXIS));
  GRADUS_NEED(d.has(CUDNN_ATTR_POINTWISE_MATH_PREC));
  if (mode == CUDNN_POINTWISE_RELU_FWD)
    GRADUS_NEED(
        std::isinf(d.value(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, std::numeric_limits<double>::max())));
  return CUDNN_STATUS_SUCCESS;
}

cudnnPointwiseMode_t mode_of(const Descriptor& operation) {
  return operation.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
      ->value(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
}
bool is_relu(const Descriptor& operation) { return mode_of(operation) == CUDNN_POINTWISE_RELU_FWD; }

// Whether x has y's sizes, or 1 where it broadcasts.
bool broadcasts_to(const Descriptor& x, const Descriptor& y) {
  const auto from = tensor_of(x).sizes, to = tensor_of(y).sizes;
  if (from.size() != to.size()) return false;
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i] != to[i] && from[i] != 1) return false;
  return true;
}

cudnnStatus_t finalize_pointwise_operation(const Descriptor& d) {
  GRADUS_NEED(is(d.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
  for (const auto name : {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_YDESC})
    GRADUS_NEED(is(d.part(name), CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  const Descriptor& y = *d.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  const cudnnBackendAttributeName_t operands[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                  CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                  CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  for (int64_t i = 0; i < (is_relu(d) ? 1 : count_operands(mode_of(d))); ++i) {
    GRADUS_NEED(is(d.part(operands[i]), CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    GRADUS_NEED(broadcasts_to(*d.part(operands[i]), y));
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_product(const Descriptor& d) {
  GRADUS_NEED(is(d.part(CUDNN_ATTR_OPERATION_MATMUL_DESC), CUDNN_BACKEND_MATMUL_DESCRIPTOR));
  for (const auto name : {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                          CUDNN_ATTR_OPERATION_MATMUL_CDESC})
    GRADUS_NEED(is(d.part(name), CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  const auto a = tensor_of(*d.part(CUDNN_ATTR_OPERATION_MATMUL_ADESC)).sizes,
             b = tensor_of(*d.part(CUDNN_ATTR_OPERATION_MATMUL_BDESC)).sizes,
             c = tensor_of(*d.part(CUDNN_ATTR_OPERATION_MATMUL_CDESC)).sizes;
  GRADUS_NEED(a.size() == 4 && b.size() == 4 && c.size() == 4);
  for (size_t i = 0; i < 2; ++i) GRADUS_NEED(a[i] == c[i] && b[i] == c[i]);
  GRADUS_NEED(a[2] == c[2] && a[3] == b[2] && b[3] == c[3]);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_reduction(const Descriptor& d) {
  GRADUS_NEED(is(d.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC), CUDNN_BACKEND_REDUCTION_DESCRIPTOR));
  for (const auto name : {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_YDESC})
    GRADUS_NEED(is(d.part(name), CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  auto x = tensor_of(*d.part(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)).sizes;
  GRADUS_NEED(x.size() == 4);
  x[3] = 1;  // others are not emulated
  GRADUS_NEED(x == tensor_of(*d.part(CUDNN_ATTR_OPERATION_REDUCTION_YDESC)).sizes);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_transposition(const Descriptor& d) {
  for (const auto name : {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC})
    GRADUS_NEED(is(d.part(name), CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  auto x = tensor_of(*d.part(CUDNN_ATTR_OPERATION_RESHAPE_XDESC)).sizes;
  GRADUS_NEED(x.size() == 4);
  std::swap(x[2], x[3]);  // others are not emulated
  GRADUS_NEED(x == tensor_of(*d.part(CUDNN_ATTR_OPERATION_RESHAPE_YDESC)).sizes);
  return CUDNN_STATUS_SUCCESS;
}

// Returns null if a tensor has not four dims, an operation is no part of attention, or a virtual tensor is read before it
// is computed.
std::shared_ptr<AttentionGraph> attention_of(const Parts& operations) {
  struct Form {
    cudnnBackendDescriptorType_t operation;
    std::vector<cudnnBackendAttributeName_t> sources;
    cudnnBackendAttributeName_t result;
  };
  static const Form forms[] = {{CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                                {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
                                CUDNN_ATTR_OPERATION_MATMUL_CDESC},
                               {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                                {CUDNN_ATTR_OPERATION_REDUCTION_XDESC},
                                CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
                               {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                                {CUDNN_ATTR_OPERATION_RESHAPE_XDESC},
                                CUDNN_ATTR_OPERATION_RESHAPE_YDESC},
                               {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                                {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                 CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
                                CUDNN_ATTR_OPERATION_POINTWISE_YDESC}};
  auto g = std::make_shared<AttentionGraph>();
  std::set<int64_t> computed;
  for (const auto& o : operations) {
    const auto form = std::find_if(std::begin(forms), std::end(forms),
                                   [&](const Form& f) { return f.operation == o->type; });
    if (form == std::end(forms)) return nullptr;
    AttentionGraph::Step step{o->type, {}, 0};
    const auto add = [&](const Descriptor& d) {
      const GraphTensor t = tensor_of(d);
      const auto [known, is_new] = g->all.emplace(t.id, t);
      return t.sizes.size() == 4 && (is_new || known->second == t);
    };
    for (const auto name : form->sources) {
      if (!o->part(name)) continue;
      if (!add(*o->part(name))) return nullptr;
      const GraphTensor source = tensor_of(*o->part(name));
      if (source.is_virtual && !computed.contains(source.id)) return nullptr;
      step.sources.push_back(source.id);
    }
    if (!add(*o->part(form->result))) return nullptr;
    step.result = tensor_of(*o->part(form->result)).id;
    if (!computed.insert(step.result).second) return nullptr;
    if (o->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
      if (is_relu(*o)) return nullptr;
      step.mode = mode_of(*o);
      step.axis =
          o->part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)->value<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, 0);
    }
    if (o->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
      step.reduction = o->part(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
                           ->value(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_ADD);
    g->steps.push_back(std::move(step));
  }
  return g;
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
  if (!graph) {
    d.attention = attention_of(operations);
    GRADUS_NEED(d.attention != nullptr);
    return CUDNN_STATUS_SUCCESS;
  }
  std::set<int64_t> ids;
  for (const GraphTensor* t : graph->tensors()) {
    GRADUS_NEED(ids.insert(t->id).second);
    GRADUS_NEED(!t->is_virtual);
  }
  GRADUS_NEED(!graph->addition || ids.insert(graph->y.id).second);
  GRADUS_NEED(!graph->rectified || ids.insert(graph->addition->sum.id).second);
  d.convolution = graph;
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

// The same for attention. Engines compile their kernels.
const std::vector<Engine>& attention_engines() {
  static const std::vector<Engine> all = {
      {9, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, {}},
      {2, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {}, CUDNN_STATUS_NOT_SUPPORTED_SHAPE},
      {3,
       {CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
       {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION},
       CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED},
      {1,
       {CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
       {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION},
       CUDNN_STATUS_SUCCESS,
       16 << 10}};
  return all;
}

// The operations of attention and of its gradients: point-wise ones by their modes.
std::vector<int> form_of(const AttentionGraph& g) {
  std::vector<int> form;
  for (const auto& step : g.steps)
    form.push_back(step.operation == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ? 1000 + step.mode
                   : step.operation == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR
                       ? 2000 + step.reduction
                       : static_cast<int>(step.operation));
  return form;
}
std::vector<int> known_form(bool is_backward, bool causal) {
  constexpr int kProduct = CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                kTransposition = CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, kPointwise = 1000,
                kReduction = 2000, kMul = kPointwise + CUDNN_POINTWISE_MUL,
                kSub = kPointwise + CUDNN_POINTWISE_SUB, kExp = kPointwise + CUDNN_POINTWISE_EXP,
                kIndex = kPointwise + CUDNN_POINTWISE_GEN_INDEX, kSum = kReduction + CUDNN_REDUCE_TENSOR_ADD;
  std::vector<int> form;
  const auto add = [&](std::initializer_list<int> more) { form.insert(form.end(), more); };
  const auto mask = [&] {
    if (causal)
      add({kIndex, kIndex, kPointwise + CUDNN_POINTWISE_CMP_GE, kPointwise + CUDNN_POINTWISE_BINARY_SELECT});
  };
  if (!is_backward) {
    add({kProduct, kMul});
    mask();
    add({kReduction + CUDNN_REDUCE_TENSOR_MAX, kSub, kExp, kSum, kPointwise + CUDNN_POINTWISE_LOG,
         kPointwise + CUDNN_POINTWISE_ADD, kPointwise + CUDNN_POINTWISE_DIV, kProduct});
    return form;
  }
  add({kMul, kSum, kMul, kProduct, kMul, kSub});
  mask();
  add({kExp, kTransposition, kProduct, kProduct, kSub, kMul, kMul, kTransposition, kProduct, kTransposition,
       kProduct, kPointwise + CUDNN_POINTWISE_IDENTITY});
  return form;
}

// Whether a graph is attention of 16-bit floats or its gradients. Tensors of f32 are packed: of older versions of cuDNN
// than 9.26 it is known that they must be.
bool has_engines(const AttentionGraph& g) {
  const std::vector<int> form = form_of(g);
  bool is_known = false;
  for (const bool is_backward : {false, true})
    for (const bool causal : {false, true}) is_known = is_known || form == known_form(is_backward, causal);
  if (!is_known) return false;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  for (const GraphTensor* t : g.tensors()) {
    if (t->type == CUDNN_DATA_FLOAT) {
      int64_t packed = 1;
      for (size_t d = 4; d-- > 0; packed *= t->sizes[d])
        if (t->strides[d] != packed && t->sizes[d] > 1) return false;
      continue;
    }
    if (size_of_type(t->type) != 2 || (type != CUDNN_DATA_FLOAT && t->type != type)) return false;
    type = t->type;
    const size_t inner = t->strides[3] == 1 ? 3 : 2;  // k and v are transposed
    if (t->strides[inner] != 1 || t->sizes[inner] % 8 != 0 || t->sizes[inner] > 128) return false;
  }
  return type != CUDNN_DATA_FLOAT;
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
  const bool has_relu = graph->convolution && graph->convolution->rectified;
  GRADUS_REFUSE_UNLESS(
      refused_graphs == RefusedGraphs::kNone || (refused_graphs == RefusedGraphs::kWithRelu && !has_relu),
      CUDNN_STATUS_NOT_SUPPORTED);
  d.convolution = graph->convolution, d.attention = graph->attention;
  if (d.attention) {
    if (has_engines(*d.attention))
      for (const Engine& e : attention_engines()) d.configurations.push_back({&e});
    return CUDNN_STATUS_SUCCESS;
  }
  if (!has_engines(*d.convolution)) return CUDNN_STATUS_SUCCESS;
  const bool fallback = d.value(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A) == CUDNN_HEUR_MODE_FALLBACK;
  // As recorded: 1x1 filters with strides have no engines in f64, except in the fallback mode.
  bool is_pointwise =
      d.convolution->x.type == CUDNN_DATA_DOUBLE && d.convolution->pass != GraphPass::kInputGrad && !fallback;
  for (size_t i = 0; i < d.convolution->strides.size(); ++i)
    is_pointwise = is_pointwise && d.convolution->w.sizes[i + 2] == 1 && d.convolution->strides[i] > 1;
  if (is_pointwise) return CUDNN_STATUS_SUCCESS;
  for (const Engine& e : all_engines()) {
    if (!supports(e, *d.convolution)) continue;
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
  GRADUS_REFUSE_UNLESS(graph->convolution != nullptr, CUDNN_STATUS_NOT_SUPPORTED);  // not emulated
  GRADUS_NEED(d.has(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  const auto index = d.value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
  const auto engine = std::find_if(all_engines().begin(), all_engines().end(),
                                   [&](const Engine& e) { return e.index == index; });
  GRADUS_REFUSE_UNLESS(engine != all_engines().end() && has_engines(*graph->convolution) &&
                           supports(*engine, *graph->convolution),
                       CUDNN_STATUS_NOT_SUPPORTED);
  d.convolution = graph->convolution, d.configurations = {{&*engine}};
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
  d.convolution = engine->convolution, d.attention = engine->attention, d.configurations = {std::move(made)};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_plan(Descriptor& d) {
  const Descriptor* const configuration = d.part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  GRADUS_REFUSE_UNLESS(is(configuration, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR),
                       CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  const auto handle = d.value<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, nullptr);
  GRADUS_NEED(handle != nullptr);
  d.convolution = configuration->convolution, d.attention = configuration->attention;
  d.configurations = configuration->configurations;
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
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
      GRADUS_NEED(d.value(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_DOUBLE) == CUDNN_DATA_FLOAT);
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
      GRADUS_NEED(d.value(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_DOUBLE) == CUDNN_DATA_FLOAT);
      GRADUS_NEED(d.has(CUDNN_ATTR_REDUCTION_OPERATOR));
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return finalize_product(d);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return finalize_reduction(d);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return finalize_transposition(d);
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
