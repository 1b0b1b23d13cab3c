// Computes a graph of the emulated cuDNN that is attention or its gradients: one operation after the other, in f32, each
// tensor rounded to its type.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "gradus/tools/cuda_emulator/libraries/cudnn.h"

namespace gradus::cuda::emulated {
namespace {

using Values = std::vector<float>;  // in row-major order

// Returns the number of the element of t at i, or of the one that broadcasts there.
size_t position(const GraphTensor& t, const int64_t (&i)[4]) {
  int64_t at = 0;
  for (size_t d = 0; d < 4; ++d) at = at * t.sizes[d] + (t.sizes[d] == 1 ? 0 : i[d]);
  return static_cast<size_t>(at);
}
// Calls f(i) for the position of each element.
template <class F> void for_each(const GraphTensor& t, F&& f) {
  int64_t i[4];
  for (i[0] = 0; i[0] < t.sizes[0]; ++i[0])
    for (i[1] = 0; i[1] < t.sizes[1]; ++i[1])
      for (i[2] = 0; i[2] < t.sizes[2]; ++i[2])
        for (i[3] = 0; i[3] < t.sizes[3]; ++i[3]) f(i);
}

float apply(const AttentionGraph::Step& step, const int64_t (&i)[4], const float (&x)[3]) {
  switch (step.mode) {
    case CUDNN_POINTWISE_EXP:
      return std::exp(x[0]);
    case CUDNN_POINTWISE_LOG:
      return std::log(x[0]);
    case CUDNN_POINTWISE_GEN_INDEX:
      return static_cast<float>(i[step.axis]);
    case CUDNN_POINTWISE_ADD:
      return x[0] + x[1];
    case CUDNN_POINTWISE_SUB:
      return x[0] - x[1];
    case CUDNN_POINTWISE_MUL:
      return x[0] * x[1];
    case CUDNN_POINTWISE_DIV:
      return x[0] / x[1];
    case CUDNN_POINTWISE_CMP_GE:
      return x[0] >= x[1];
    case CUDNN_POINTWISE_BINARY_SELECT:
      return x[2] != 0 ? x[0] : x[1];
    default:
      return x[0];
  }
}

class Computation {
 public:
  explicit Computation(const QueuedExecution& q) : q_(q), g_(*q.attention) {}

  void run() {
    std::map<int64_t, Operand> stored;
    const std::vector<const GraphTensor*> tensors = g_.tensors();
    for (size_t i = 0; i < tensors.size(); ++i) {
      const GraphTensor& t = *tensors[i];
      if (t.is_by_value)
        values_[t.id] = {q_.numbers.at(t.id)};
      else
        stored[t.id] = {"of attention", q_.pointers[i], dtype_of(t.type), t.sizes, t.strides};
    }
    std::map<int64_t, const Operand*> results;
    for (const auto& step : g_.steps)
      if (stored.contains(step.result)) results[step.result] = &stored[step.result];
    for (const auto& [id, operand] : stored) {
      check_place(q_.call, operand);
      if (results.contains(id)) continue;
      values_[id] = read<float>(q_.call, operand);
    }
    for (const auto& [id, result] : results) {
      std::vector<const Operand*> others;
      for (const auto& [other, operand] : stored)
        if (other != id) others.push_back(&operand);
      check_apart(q_.call, *result, others);
    }
    for (const auto& step : g_.steps) {
      values_[step.result] = compute(step);
      if (const GraphTensor& t = g_.all.at(step.result);
          t.type == CUDNN_DATA_HALF || t.type == CUDNN_DATA_BFLOAT16)
        for (float& v : values_[step.result]) v = rounded(v, dtype_of(t.type));
    }
    for (const auto& [id, result] : results) write(*result, values_[id]);
  }

 private:
  Values compute(const AttentionGraph::Step& step) const {
    const GraphTensor& y = g_.all.at(step.result);
    std::vector<const GraphTensor*> tensors;
    std::vector<const Values*> values;
    for (const int64_t id : step.sources)
      tensors.push_back(&g_.all.at(id)), values.push_back(&values_.at(id));
    const auto element = [&](size_t source, const int64_t(&i)[4]) {
      return (*values[source])[position(*tensors[source], i)];
    };
    Values result;
    for_each(y, [&](const int64_t(&i)[4]) {
      float v = 0;
      if (step.operation == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
        const int64_t n = tensors[0]->sizes[3];
        for (int64_t at = 0; at < n; ++at) {
          const int64_t k = q_.backwards ? n - 1 - at : at;
          v += element(0, {i[0], i[1], i[2], k}) * element(1, {i[0], i[1], k, i[3]});
        }
      } else if (step.operation == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
        const bool is_max = step.reduction == CUDNN_REDUCE_TENSOR_MAX;
        if (is_max) v = -INFINITY;
        for (int64_t k = 0; k < tensors[0]->sizes[3]; ++k) {
          const float x = element(0, {i[0], i[1], i[2], k});
          v = !is_max ? v + x : x > v || std::isnan(x) ? x : v;
        }
      } else if (step.operation == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
        v = element(0, {i[0], i[1], i[3], i[2]});
      } else {
        float x[3] = {};
        for (size_t s = 0; s < tensors.size(); ++s) x[s] = element(s, i);
        v = apply(step, i, x);
      }
      result.push_back(v);
    });
    return result;
  }

  const QueuedExecution& q_;
  const AttentionGraph& g_;
  std::map<int64_t, Values> values_;
};

}  // namespace

void compute_attention(const QueuedExecution& q) { Computation(q).run(); }

}  // namespace gradus::cuda::emulated
