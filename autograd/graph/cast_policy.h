// The ops that cast their operands within an autocast scope (autograd/graph/autocast.h), and the dtype to which
// they cast, as in torch.autocast. All other ops take their operands unchanged. Only floating-point operands are
// cast, and f64 operands never are. docs/guide/amp.md has the same list for users.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradus::autograd {

enum class CastPolicy : uint8_t {
  kLow,     // to the scope's dtype, bf16 or f16: products, which are faster in 16 bits and accumulate in f32
  kF32,     // to f32: ops that overflow or lose precision in 16 bits
  kWidest,  // to the promoted (widest) floating dtype of the operands: ops whose operands must have one dtype
};

// An op, by its name in errors and recordings, and its policy.
struct CastRule {
  std::string_view op;
  CastPolicy policy;
};

// Each op at most once, sorted by name within each policy.
inline constexpr CastRule kCastRules[] = {
    {"addmm", CastPolicy::kLow},
    {"addmv", CastPolicy::kLow},
    {"attention_with_weights", CastPolicy::kLow},
    {"baddbmm", CastPolicy::kLow},
    {"bilinear", CastPolicy::kLow},
    {"bmm", CastPolicy::kLow},
    {"chain_matmul", CastPolicy::kLow},
    {"conv1d", CastPolicy::kLow},
    {"conv2d", CastPolicy::kLow},
    {"conv3d", CastPolicy::kLow},
    {"conv_transpose1d", CastPolicy::kLow},
    {"conv_transpose2d", CastPolicy::kLow},
    {"conv_transpose3d", CastPolicy::kLow},
    {"einsum", CastPolicy::kLow},
    {"inner", CastPolicy::kLow},
    {"linear", CastPolicy::kLow},
    {"matmul", CastPolicy::kLow},
    {"mm", CastPolicy::kLow},
    {"mv", CastPolicy::kLow},
    {"prelu", CastPolicy::kLow},
    {"scaled_dot_product_attention", CastPolicy::kLow},
    {"tensordot", CastPolicy::kLow},

    {"acos", CastPolicy::kF32},
    {"affine_grid", CastPolicy::kF32},
    {"asin", CastPolicy::kF32},
    {"binary_cross_entropy", CastPolicy::kF32},
    {"binary_cross_entropy_with_logits", CastPolicy::kF32},
    {"cdist", CastPolicy::kF32},
    {"cosh", CastPolicy::kF32},
    {"cosine_embedding_loss", CastPolicy::kF32},
    {"cosine_similarity", CastPolicy::kF32},
    {"cross_entropy", CastPolicy::kF32},
    {"ctc_loss", CastPolicy::kF32},
    {"cumprod", CastPolicy::kF32},
    {"cumsum", CastPolicy::kF32},
    {"digamma", CastPolicy::kF32},
    {"erfinv", CastPolicy::kF32},
    {"exp", CastPolicy::kF32},
    {"exp2", CastPolicy::kF32},
    {"expm1", CastPolicy::kF32},
    {"gaussian_nll_loss", CastPolicy::kF32},
    {"grid_sample", CastPolicy::kF32},
    {"gumbel_softmax", CastPolicy::kF32},
    {"hinge_embedding_loss", CastPolicy::kF32},
    {"huber_loss", CastPolicy::kF32},
    {"kl_div", CastPolicy::kF32},
    {"l1_loss", CastPolicy::kF32},
    {"lgamma", CastPolicy::kF32},
    {"log", CastPolicy::kF32},
    {"log10", CastPolicy::kF32},
    {"log1p", CastPolicy::kF32},
    {"log2", CastPolicy::kF32},
    {"log_softmax", CastPolicy::kF32},
    {"logaddexp", CastPolicy::kF32},
    {"logcumsumexp", CastPolicy::kF32},
    {"logit", CastPolicy::kF32},
    {"logsumexp", CastPolicy::kF32},
    {"lp_pool1d", CastPolicy::kF32},
    {"lp_pool2d", CastPolicy::kF32},
    {"lp_pool3d", CastPolicy::kF32},
    {"margin_ranking_loss", CastPolicy::kF32},
    {"matrix_power", CastPolicy::kF32},
    {"mse_loss", CastPolicy::kF32},
    {"multi_margin_loss", CastPolicy::kF32},
    {"multilabel_margin_loss", CastPolicy::kF32},
    {"multilabel_soft_margin_loss", CastPolicy::kF32},
    {"nansum", CastPolicy::kF32},
    {"nll_loss", CastPolicy::kF32},
    {"norm", CastPolicy::kF32},
    {"normalize", CastPolicy::kF32},
    {"pairwise_distance", CastPolicy::kF32},
    {"poisson_nll_loss", CastPolicy::kF32},
    {"polygamma", CastPolicy::kF32},
    {"pow", CastPolicy::kF32},
    {"prod", CastPolicy::kF32},
    {"reciprocal", CastPolicy::kF32},
    {"rsqrt", CastPolicy::kF32},
    {"sinc", CastPolicy::kF32},
    {"sinh", CastPolicy::kF32},
    {"smooth_l1_loss", CastPolicy::kF32},
    {"soft_margin_loss", CastPolicy::kF32},
    {"softmax", CastPolicy::kF32},
    {"softmin", CastPolicy::kF32},
    {"softplus", CastPolicy::kF32},
    {"square", CastPolicy::kF32},
    {"sum", CastPolicy::kF32},
    {"tan", CastPolicy::kF32},
    {"triplet_margin_loss", CastPolicy::kF32},
    {"triplet_margin_with_distance_loss", CastPolicy::kF32},
    {"vector_norm", CastPolicy::kF32},
    {"xlogy", CastPolicy::kF32},

    {"cat", CastPolicy::kWidest},
    {"cross", CastPolicy::kWidest},
    {"dot", CastPolicy::kWidest},
    {"gru_cell", CastPolicy::kWidest},
    {"index_add", CastPolicy::kWidest},
    {"index_copy", CastPolicy::kWidest},
    {"kron", CastPolicy::kWidest},
    {"linear_recurrence", CastPolicy::kWidest},
    {"lstm_cell", CastPolicy::kWidest},
    {"masked_scatter", CastPolicy::kWidest},
    {"meshgrid", CastPolicy::kWidest},
    {"outer", CastPolicy::kWidest},
    {"put", CastPolicy::kWidest},
    {"scatter", CastPolicy::kWidest},
    {"scatter_add", CastPolicy::kWidest},
    {"scatter_reduce", CastPolicy::kWidest},
    {"stack", CastPolicy::kWidest},
    {"upfirdn2d", CastPolicy::kWidest},
};

// An op's policy, looked up in kCastRules at compile time: converts from the op's name as a string literal. A name
// that is not in the table is a compile error.
class CastOp {
 public:
  consteval CastOp(const char* name) : policy_(find(name)) {}
  constexpr CastPolicy policy() const { return policy_; }

 private:
  static consteval CastPolicy find(std::string_view name) {
    for (const CastRule& rule : kCastRules)
      if (rule.op == name) return rule.policy;
    throw "kCastRules does not name this op";
  }
  CastPolicy policy_;
};

}  // namespace gradus::autograd
