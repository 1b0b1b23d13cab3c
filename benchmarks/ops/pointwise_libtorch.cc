// Element-wise ops on arrays of four times the last-level cache.
#include <torch/torch.h>

#include "benchmarks/contest.h"

namespace gradus::bench {
namespace {

template <class F>
Entry unary(const char* name, F f) {
  return {name, [f] {
            auto x = torch::rand({k32M});
            return work([=] {
              torch::NoGradGuard off;
              f(x);
            });
          }};
}
template <class F>
Entry binary(const char* name, F f) {
  return {name, [f] {
            auto a = torch::rand({k32M}), b = torch::rand({k32M});
            return work([=] {
              torch::NoGradGuard off;
              f(a, b);
            });
          }};
}

}  // namespace

static const AddWorkloads added(Side::kLibTorch, "pointwise",
                                {
                                    binary("add, 32M", [](auto& a, auto& b) { return a + b; }),
                                    binary("mul, 32M", [](auto& a, auto& b) { return a * b; }),
                                    unary("relu, 32M", [](auto& x) { return torch::relu(x); }),
                                    unary("mul by a number, 32M", [](auto& x) { return x * 2.0; }),
                                    unary("exp, 32M", [](auto& x) { return torch::exp(x); }),
                                    unary("tanh, 32M", [](auto& x) { return torch::tanh(x); }),
                                    unary("gelu, 32M", [](auto& x) { return torch::gelu(x); }),
                                });

}  // namespace gradus::bench
