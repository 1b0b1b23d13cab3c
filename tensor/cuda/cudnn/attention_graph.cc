// Builds the graphs of matrix products, reductions and point-wise operations that cuDNN's engines for fused attention
// recognize: they look for these operations in this order (the graphs of NVIDIA's cudnn-frontend, nodes "SDPA" and
// "SDPA backward", without its options). [B,H,L,S] below is virtual.
#include "gradus/tensor/cuda/cudnn/attention_graph.h"

#include <utility>
#include <vector>

#include "gradus/tensor/cuda/cudnn/graph_parts.h"

namespace gradus::cuda {
namespace {

struct Builder {
  const Calls& calls;
  const FusedAttention& a;
  const int64_t B = a.q.size(0), H = a.q.size(1), L = a.q.size(2), S = a.k.size(2);
  const cudnnDataType_t type = data_type(a.q.dtype());
  std::vector<Descriptor> operations = {};
  int64_t next_virtual = kFirstVirtual;

  // ---- tensors

  Descriptor stored(int64_t id, const Tensor& t) const {
    return make_tensor(calls, {id, data_type(t.dtype()), t.shape(), t.strides()});
  }
  // x with its last two dims exchanged, as the engines want k and v.
  Descriptor transposed(int64_t id, const Tensor& t) const {
    Shape sizes = t.shape();
    Strides strides = t.strides();
    std::swap(sizes[2], sizes[3]), std::swap(strides[2], strides[3]);
    return make_tensor(calls, {id, type, sizes, strides});
  }
  Descriptor row_major(int64_t id, const Shape& sizes) const {  // of f32
    return make_tensor(calls, {id, CUDNN_DATA_FLOAT, sizes, row_major_strides(sizes)});
  }
  Descriptor number(int64_t id) const {
    const Shape sizes{1, 1, 1, 1};
    return make_tensor(calls,
                       {id, CUDNN_DATA_FLOAT, sizes, row_major_strides(sizes), 16, GraphPlace::kByValue});
  }
  Descriptor virtual_tensor(const Shape& sizes, const Strides& strides, cudnnDataType_t t) {
    return make_tensor(calls, {next_virtual++, t, sizes, strides, 16, GraphPlace::kVirtual});
  }
  // [B,H,L,S], and one number for each query.
  Descriptor scores(cudnnDataType_t t = CUDNN_DATA_FLOAT) {
    return virtual_tensor({B, H, L, S}, row_major_strides(Shape{B, H, L, S}), t);
  }
  Descriptor per_query() {
    return virtual_tensor({B, H, L, 1}, row_major_strides(Shape{B, H, L, 1}), CUDNN_DATA_FLOAT);
  }

  // ---- operations: the last argument is the result

  void add(Descriptor operation) {
    calls.finalize(operation);
    operations.push_back(std::move(operation));
  }
  void matmul(const Descriptor& x, const Descriptor& y, const Descriptor& product) {
    const Descriptor how = calls.create(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    calls.set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    calls.finalize(how);
    Descriptor d = calls.create(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    calls.set(d, CUDNN_ATTR_OPERATION_MATMUL_DESC, {how});
    calls.set(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, {x});
    calls.set(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, {y});
    calls.set(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, {product});
    add(std::move(d));
  }
  // Over the last dim.
  void reduce(cudnnReduceTensorOp_t op, const Descriptor& x, const Descriptor& result) {
    const Descriptor how = calls.create(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    calls.set(how, CUDNN_ATTR_REDUCTION_OPERATOR, op);
    calls.set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    calls.finalize(how);
    Descriptor d = calls.create(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    calls.set(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, {how});
    calls.set(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, {x});
    calls.set(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, {result});
    add(std::move(d));
  }
  void transpose(const Descriptor& x, const Descriptor& result) {
    Descriptor d = calls.create(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    calls.set(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, {x});
    calls.set(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, {result});
    add(std::move(d));
  }
  // mode(x), mode(x, y), or x where `condition`, else y. axis: of an index.
  void pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor& y,
                 const Descriptor& result, const Descriptor& condition = {}, int64_t axis = -1,
                 cudnnDataType_t precision = CUDNN_DATA_FLOAT) {
    const Descriptor how = calls.create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    calls.set(how, CUDNN_ATTR_POINTWISE_MODE, mode);
    calls.set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, precision);
    if (axis >= 0) calls.set(how, CUDNN_ATTR_POINTWISE_AXIS, axis);
    calls.finalize(how);
    Descriptor d = calls.create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, {how});
    calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, {x});
    if (y) calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, {y});
    if (condition) calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, {condition});
    calls.set(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, {result});
    add(std::move(d));
  }
  // Returns x with f32's lowest number where the key is after the query; x itself if not causal.
  Descriptor masked(Descriptor x) {
    if (!a.causal) return x;
    const Descriptor query = scores(CUDNN_DATA_INT32), key = scores(CUDNN_DATA_INT32),
                     is_seen = scores(CUDNN_DATA_BOOLEAN);
    Descriptor result = scores();
    pointwise(CUDNN_POINTWISE_GEN_INDEX, x, {}, query, {}, 2, CUDNN_DATA_INT32);
    pointwise(CUDNN_POINTWISE_GEN_INDEX, x, {}, key, {}, 3, CUDNN_DATA_INT32);
    pointwise(CUDNN_POINTWISE_CMP_GE, query, key, is_seen, {}, -1, CUDNN_DATA_BOOLEAN);
    pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, number(kMaskedScore), result, is_seen);
    return result;
  }

  // ---- graphs

  void add_forward() {
    Descriptor products = scores(), scaled = scores();
    matmul(stored(kAttentionQ, a.q), transposed(kAttentionK, a.k), products);
    pointwise(CUDNN_POINTWISE_MUL, products, number(kScale), scaled);
    scaled = masked(std::move(scaled));
    const Descriptor max = per_query(), total = per_query(), log_total = per_query();
    const Descriptor shifted = scores(), exps = scores(), weights = scores(type);
    reduce(CUDNN_REDUCE_TENSOR_MAX, scaled, max);
    pointwise(CUDNN_POINTWISE_SUB, scaled, max, shifted);
    pointwise(CUDNN_POINTWISE_EXP, shifted, {}, exps);
    reduce(CUDNN_REDUCE_TENSOR_ADD, exps, total);
    pointwise(CUDNN_POINTWISE_LOG, total, {}, log_total);
    pointwise(CUDNN_POINTWISE_ADD, max, log_total, row_major(kLogsumexp, {B, H, L, 1}));
    pointwise(CUDNN_POINTWISE_DIV, exps, total, weights);
    matmul(weights, stored(kAttentionV, a.v), stored(kAttentionY, a.y));
  }

  // dscores = scale weights (dy v^T - sum of dy y)
  void add_backward() {
    const Descriptor q = stored(kAttentionQ, a.q), k = transposed(kAttentionK, a.k);
    const Descriptor dy = stored(kAttentionDy, a.dy), scale = number(kScale);
    const Descriptor dy_dot_y = row_major(kDyDotY, {B, H, L, 1});
    {
      const Descriptor products =
          virtual_tensor(a.y.shape(), row_major_strides(a.y.shape()), CUDNN_DATA_FLOAT);
      const Descriptor sums = per_query();
      pointwise(CUDNN_POINTWISE_MUL, dy, stored(kAttentionY, a.y), products);
      reduce(CUDNN_REDUCE_TENSOR_ADD, products, sums);
      pointwise(CUDNN_POINTWISE_MUL, sums, number(kOne), dy_dot_y);
    }
    const Shape transposed_scores{B, H, S, L};
    const Strides transposed_strides{H * L * S, L * S, 1, S};
    const Descriptor weights = scores();
    {
      Descriptor products = scores(), scaled = scores(), shifted = scores();
      matmul(q, k, products);
      pointwise(CUDNN_POINTWISE_MUL, products, scale, scaled);
      pointwise(CUDNN_POINTWISE_SUB, scaled, row_major(kLogsumexp, {B, H, L, 1}), shifted);
      pointwise(CUDNN_POINTWISE_EXP, masked(std::move(shifted)), {}, weights);
      const Descriptor by_key = virtual_tensor(transposed_scores, transposed_strides, type);
      transpose(weights, by_key);
      matmul(by_key, dy, stored(kAttentionDv, a.dv));
    }
    const Descriptor dweights = scores(), centered = scores(), weighted = scores(), dscores = scores();
    matmul(dy, transposed(kAttentionV, a.v), dweights);
    pointwise(CUDNN_POINTWISE_SUB, dweights, dy_dot_y, centered);
    pointwise(CUDNN_POINTWISE_MUL, centered, weights, weighted);
    pointwise(CUDNN_POINTWISE_MUL, weighted, scale, dscores);
    const Descriptor by_key = virtual_tensor(transposed_scores, transposed_strides, type);
    transpose(dscores, by_key);
    matmul(by_key, q, stored(kAttentionDk, a.dk));
    const Descriptor rows_of_k = virtual_tensor(a.k.shape(), a.k.strides(), type);
    transpose(k, rows_of_k);
    const Descriptor dq_sum = row_major(kDqSum, a.q.shape());
    matmul(dscores, rows_of_k, dq_sum);
    pointwise(CUDNN_POINTWISE_IDENTITY, dq_sum, {}, stored(kAttentionDq, a.dq));
  }
};

}  // namespace

Descriptor make_attention_graph(const Calls& calls, const FusedAttention& a, cudnnHandle_t handle) {
  Builder builder{calls, a};
  a.is_backward ? builder.add_backward() : builder.add_forward();
  return make_operation_graph(calls, builder.operations, handle);
}

}  // namespace gradus::cuda
