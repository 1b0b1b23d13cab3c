// MultiheadAttention, as torch.nn.MultiheadAttention: projects query, key and value, splits them into heads,
// applies scaled_dot_product_attention with the combined masks, joins the heads and applies out_proj.
// Internally all sequences are time-first with a batch: [L,N,E], [S,N,E]; operator() converts batch_first and
// unbatched inputs. N: batch, L: queries, S: keys, E: embed_dim, heads: num_heads.
#include "gradus/nn/layers/attention.h"

#include <cmath>

#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/init.h"
#include "gradus/nn/placement.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::nn {
namespace {

// Converts a mask of MultiheadAttention, where true excludes a key, to a mask of
// scaled_dot_product_attention, where true includes a key. Floating-point masks are the same for both.
Tensor to_op_mask(const Tensor& mask) { return mask.dtype() == DType::kBool ? logical_not(mask) : mask; }

// Combines two masks of scaled_dot_product_attention, which broadcast. Either may be undefined. Two bool
// masks are and-ed. Otherwise the result is the sum of the masks, with false as -infinity, in `dtype`.
Tensor combine_masks(const Tensor& a, const Tensor& b, DType dtype) {
  if (!a.defined() || !b.defined()) return a.defined() ? a : b;
  if (a.dtype() == DType::kBool && b.dtype() == DType::kBool) return logical_and(a, b);
  const auto added = [&](const Tensor& m) {
    return m.dtype() == DType::kBool ? where(m, zeros({}, {dtype, m.device()}), -INFINITY) : m;
  };
  return added(a) + added(b);
}

// Appends one key or value to x [S,N,E] along dim 0: `row` [1,1,E], expanded, or zeros if it is undefined.
Tensor append_row(const Tensor& x, const Tensor& row) {
  const Tensor expanded = row.defined() ? expand(row, {1, x.size(1), x.size(2)})
                                        : zeros({1, x.size(1), x.size(2)}, {x.dtype(), x.device()});
  return cat({x, expanded}, 0);
}

// Reshapes [L,N,heads*d] -> [N,heads,L,d].
Tensor split_heads(const Tensor& x, int64_t heads) {
  return permute(reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads}), {1, 2, 0, 3});
}

}  // namespace

// Returns whether keys and values have embed_dim features. All projections are then one parameter,
// in_proj_weight [3E,E]; otherwise q_proj_weight [E,E], k_proj_weight [E,kdim] and v_proj_weight [E,vdim].
bool MultiheadAttention::same_sizes() const {
  const auto same = [&](int64_t n) { return n == 0 || n == options().embed_dim; };
  return same(options().kdim) && same(options().vdim);
}

// Checks the options. Returns weights [rows * E, in] (0: E), Xavier-uniform; undefined unless `enabled`.
Tensor MultiheadAttention::initial_projection(int64_t rows, int64_t in, bool enabled) const {
  const Options& o = options();
  if (o.embed_dim < 1 || o.num_heads < 1 || o.embed_dim % o.num_heads != 0)
    throw ValueError("MultiheadAttention", "expected embed_dim >= 1, a multiple of num_heads >= 1, got ",
                     *o.embed_dim, " and ", *o.num_heads);
  if (o.kdim < 0 || o.vdim < 0)
    throw ValueError("MultiheadAttention", "expected kdim, vdim >= 0, got ", o.kdim, " and ", o.vdim);
  if (!(o.dropout >= 0 && o.dropout <= 1))
    throw ValueError("MultiheadAttention", "expected dropout in [0, 1], got ", o.dropout);
  if (!enabled) return {};
  return init::xavier_uniform_(
      empty({rows * o.embed_dim, in ? in : *o.embed_dim}, {.device = internal::initial_device()}));
}

Tensor MultiheadAttention::initial_bias() const {
  if (!options().bias) return {};
  return init::zeros_(empty({3 * options().embed_dim}, {.device = internal::initial_device()}));
}

Tensor MultiheadAttention::initial_bias_kv() const {
  if (!options().add_bias_kv) return {};
  return init::xavier_normal_(empty({1, 1, *options().embed_dim}, {.device = internal::initial_device()}));
}

void MultiheadAttention::zero_biases() {
  if (options().bias) init::zeros_(out_proj.bias);
}

// Returns the projected query [L,N,E], key and value [S,N,E]. Self-attention is one matrix product.
std::vector<Tensor> MultiheadAttention::project(const Tensor& query, const Tensor& key,
                                                const Tensor& value) const {
  if (in_proj_weight.defined() && query.is_same(key) && key.is_same(value))
    return chunk(linear(query, in_proj_weight, in_proj_bias), 3, -1);
  const int64_t e = options().embed_dim;
  std::vector<Tensor> w{q_proj_weight, k_proj_weight, v_proj_weight}, b(3);
  if (in_proj_weight.defined()) w = split(in_proj_weight, e, 0);
  if (in_proj_bias.defined()) b = split(in_proj_bias, e, 0);
  return {linear(query, w[0], b[0]), linear(key, w[1], b[1]), linear(value, w[2], b[2])};
}

// Returns the hint in errors about arguments whose shapes are valid for the opposite batch_first.
std::string MultiheadAttention::batch_first_hint() const {
  return options().batch_first ? "; they fit with batch_first = false, which reads them as [L,N,embed_dim]"
                               : "; they fit with batch_first = true, which reads them as [N,L,embed_dim]";
}

// Combines attn_mask, key_padding_mask and, if keys are appended, the causal mask to one mask that broadcasts
// to [N,heads,L,S + appended keys].
Tensor MultiheadAttention::combined_mask(const AttentionCallOptions& o, int64_t n, int64_t l, int64_t s,
                                         DType dtype) const {
  const int64_t extra = options().add_bias_kv + options().add_zero_attn, heads = options().num_heads;
  // Extends a mask by zeros (false) for the keys of add_bias_kv and add_zero_attn, which no mask excludes.
  const auto widened = [&](const Tensor& m) {
    if (extra == 0) return m;
    Shape shape = m.shape();
    shape[shape.size() - 1] = extra;
    return cat({m, zeros(shape, {m.dtype(), m.device()})}, -1);
  };
  Tensor pairs, keys;
  if (o.attn_mask.defined()) {
    const Tensor& m = o.attn_mask;
    if (m.shape() != Shape{l, s} && m.shape() != Shape{n * heads, l, s})
      throw ShapeError("MultiheadAttention", "expected attn_mask [", l, ",", s, "] or [", n * heads, ",", l,
                       ",", s, "], got ", describe(m),
                       l == s && m.shape() == Shape{n, n} ? batch_first_hint() : "");
    pairs = to_op_mask(widened(m));
    if (m.dim() == 3) pairs = reshape(pairs, {n, heads, l, s + extra});
  }
  if (o.key_padding_mask.defined()) {
    if (o.key_padding_mask.shape() != Shape{n, s})
      throw ShapeError("MultiheadAttention", "expected key_padding_mask [", n, ",", s, "], got ",
                       describe(o.key_padding_mask),
                       l == s && o.key_padding_mask.shape() == Shape{s, n} ? batch_first_hint() : "");
    keys = reshape(to_op_mask(widened(o.key_padding_mask)), {n, 1, 1, s + extra});
  }
  if (o.causal && extra > 0) {
    const TensorOptions integers{DType::kI64, out_proj.weight.device()};
    const Tensor query = arange(l, integers), key = arange(s, integers);
    pairs = combine_masks(pairs, to_op_mask(widened(gt(key, unsqueeze(query, 1)))), dtype);
  }
  return combine_masks(pairs, keys, dtype);
}

// Attention for query [L,N,embed_dim], key [S,N,kdim], value [S,N,vdim].
AttentionResult MultiheadAttention::attend(const Tensor& query, const Tensor& key, const Tensor& value,
                                           const AttentionCallOptions& o) {
  const int64_t l = query.size(0), n = query.size(1), s = key.size(0), heads = options().num_heads;
  std::vector<Tensor> qkv = project(query, key, value);
  if (options().add_bias_kv) qkv[1] = append_row(qkv[1], bias_k), qkv[2] = append_row(qkv[2], bias_v);
  if (options().add_zero_attn) qkv[1] = append_row(qkv[1], {}), qkv[2] = append_row(qkv[2], {});
  const Tensor q = split_heads(qkv[0], heads), k = split_heads(qkv[1], heads), v = split_heads(qkv[2], heads);
  // The op's own causal mask would exclude appended keys.
  const AttentionOptions masks{.mask = combined_mask(o, n, l, s, query.dtype()),
                               .causal = o.causal && qkv[1].size(0) == s,
                               .dropout = is_training() ? options().dropout : 0.0};
  const AttentionResult r = o.need_weights
                                ? attention_with_weights(q, k, v, masks)
                                : AttentionResult{scaled_dot_product_attention(q, k, v, masks), {}};
  const Tensor joined = reshape(permute(r.output, {2, 0, 1, 3}), {l, n, *options().embed_dim});
  AttentionResult result{out_proj(joined), {}};
  if (o.need_weights) result.weights = o.average_attn_weights ? mean(r.weights, 1) : r.weights;
  return result;
}

AttentionResult MultiheadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                               const AttentionCallOptions& given) {
  return call([&] {
    const Options& o = options();
    const bool batch = query.dim() == 3;
    const int time_dim = o.batch_first && batch ? 1 : 0, batch_dim = 1 - time_dim;
    const auto sized = [&](const Tensor& x, int64_t size) {
      return x.dim() == query.dim() && x.size(-1) == (size ? size : *o.embed_dim);
    };
    const auto fits = [&](int time, int place) {
      return key.size(time) == value.size(time) &&
             (!batch || (query.size(place) == key.size(place) && query.size(place) == value.size(place)));
    };
    const bool features =
        (query.dim() == 2 || batch) && sized(query, 0) && sized(key, o.kdim) && sized(value, o.vdim);
    if (!features || !fits(time_dim, batch_dim))
      throw ShapeError("MultiheadAttention", "expected query, key, value ",
                       o.batch_first ? "[N,L,embed_dim], [N,S,kdim], [N,S,vdim]"
                                     : "[L,N,embed_dim], [S,N,kdim], [S,N,vdim]",
                       " or without N, got ", describe(query), ", ", describe(key), ", ", describe(value),
                       features && batch && fits(batch_dim, time_dim) ? batch_first_hint() : "");
    // Keeps the identity of a tensor that is passed several times, so that project() computes one product.
    const auto time_first = [&](const Tensor& x) {
      return !batch ? unsqueeze(x, 1) : o.batch_first ? transpose(x, 0, 1) : x;
    };
    const Tensor q = time_first(query), k = key.is_same(query) ? q : time_first(key),
                 v = value.is_same(query) ? q
                     : value.is_same(key) ? k
                                          : time_first(value);
    AttentionCallOptions masks = given;
    if (!batch && masks.key_padding_mask.defined())
      masks.key_padding_mask = unsqueeze(masks.key_padding_mask, 0);
    AttentionResult r = attend(q, k, v, masks);
    r.output = !batch ? squeeze(r.output, 1) : o.batch_first ? transpose(r.output, 0, 1) : r.output;
    if (!batch && r.weights.defined()) r.weights = squeeze(r.weights, 0);
    return r;
  });
}

template class ModuleWith<MultiheadAttentionOptions>;
}  // namespace gradus::nn
