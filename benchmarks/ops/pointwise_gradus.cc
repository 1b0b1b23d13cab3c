// Element-wise ops on arrays of four times the last-level cache.
#include "benchmarks/contest.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

template <class F>
Entry unary(const char* name, F f) {
  return {name, [f] {
            const Tensor x = rand({k32M});
            return streaming([=] { f(x); }, double(x.nbytes()), double(x.nbytes()));
          }};
}
template <class F>
Entry binary(const char* name, F f) {
  return {name, [f] {
            const Tensor a = rand({k32M}), b = rand({k32M});
            return streaming([=] { f(a, b); }, 2.0 * a.nbytes(), double(a.nbytes()));
          }};
}

}  // namespace

static const AddWorkloads added(Side::kGradus, "pointwise",
                                {
                                    binary("add, 32M", [](auto& a, auto& b) { return add(a, b); }),
                                    binary("mul, 32M", [](auto& a, auto& b) { return mul(a, b); }),
                                    unary("relu, 32M", [](auto& x) { return relu(x); }),
                                    unary("mul by a number, 32M", [](auto& x) { return x * 2.0; }),
                                    unary("exp, 32M", [](auto& x) { return exp(x); }),
                                    unary("tanh, 32M", [](auto& x) { return tanh(x); }),
                                    unary("gelu, 32M", [](auto& x) { return gelu(x); }),
                                });

}  // namespace gradus::bench
