// Which ops cast their operands under autocast, and to what. Ops that are not named take their operands as
// they are. docs/amp.md has the same list for users.
#pragma once

#include <cstdint>
#include <string_view>

namespace gradus::autograd {

enum class CastPolicy : uint8_t {
  kLow,     // to the dtype of the scope: products, which are faster so and sum in f32
  kF32,     // to f32: what overflows or loses digits in 16 bits
  kWidest,  // to the widest dtype among the operands: what takes operands of one dtype alone
};

struct CastRule {
  std::string_view op;
  CastPolicy policy;
};

inline constexpr CastRule kCastRules[] = {
    {"addmm", CastPolicy::kLow},
    {"addmv", CastPolicy::kLow},
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
    {"linear", CastPolicy::kLow},
    {"matmul", CastPolicy::kLow},
    {"mm", CastPolicy::kLow},
    {"mv", CastPolicy::kLow},
    {"tensordot", CastPolicy::kLow},

    {"cross_entropy", CastPolicy::kF32},
    {"log_softmax", CastPolicy::kF32},
    {"nll_loss", CastPolicy::kF32},
    {"softmax", CastPolicy::kF32},
    {"sum", CastPolicy::kF32},

    {"cat", CastPolicy::kWidest},
    {"gru_cell", CastPolicy::kWidest},
    {"lstm_cell", CastPolicy::kWidest},
    {"stack", CastPolicy::kWidest},
};

// An op's policy, looked up while compiling: an op that the table does not name does not compile.
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
