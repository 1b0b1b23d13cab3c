// Workloads: element-wise ops on arrays that exceed the last-level cache, in Gradus.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in other files of
// this folder (pointwise_libtorch.cc).
#include "benchmarks/workloads.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

// A memory-bound op.
template <class F> Entry unary(const char* name, F f) {
  return {name, [f] {
            const Tensor x = rand({k32M});
            return streaming([=] { f(x); }, double(x.nbytes()), double(x.nbytes()));
          }};
}
// A compute-bound op.
template <class F> Entry costly(const char* name, F f) {
  return {name, [f] {
            const Tensor x = rand({k32M});
            return work([=] { f(x); });
          }};
}
template <class F> Entry costly_pair(const char* name, F f) {
  return {name, [f] {
            const Tensor a = rand({k32M}), b = rand({k32M});
            return work([=] { f(a, b); });
          }};
}
template <class F> Entry binary(const char* name, F f) {
  return {name, [f] {
            const Tensor a = rand({k32M}), b = rand({k32M});
            return streaming([=] { f(a, b); }, 2.0 * a.nbytes(), double(a.nbytes()));
          }};
}

}  // namespace

static const AddWorkloads added(
    Side::kGradus, "pointwise",
    {
        binary("add, 32M", [](auto& a, auto& b) { return add(a, b); }),
        binary("mul, 32M", [](auto& a, auto& b) { return mul(a, b); }),
        unary("relu, 32M", [](auto& x) { return relu(x); }),
        unary("mul by a number, 32M", [](auto& x) { return x * 2.0; }),
        unary("clamp, 32M", [](auto& x) { return clamp(x, 0.2, 0.8); }),
        unary("leaky_relu, 32M", [](auto& x) { return leaky_relu(x, 0.2); }),
        unary("sqrt, 32M", [](auto& x) { return sqrt(x); }),
        costly("sigmoid, 32M", [](auto& x) { return sigmoid(x); }),
        costly("silu, 32M", [](auto& x) { return silu(x); }),
        costly("softplus, 32M", [](auto& x) { return softplus(x); }),
        costly("mish, 32M", [](auto& x) { return mish(x); }),
        costly("elu, 32M", [](auto& x) { return elu(x); }),
        unary("hardswish, 32M", [](auto& x) { return hardswish(x); }),
        costly("log, 32M", [](auto& x) { return log(x); }),
        costly("log1p, 32M", [](auto& x) { return log1p(x); }),
        costly("sin, 32M", [](auto& x) { return sin(x); }),
        costly("cos, 32M", [](auto& x) { return cos(x); }),
        costly("tan, 32M", [](auto& x) { return tan(x); }),
        costly("atan, 32M", [](auto& x) { return atan(x); }),
        costly("asin, 32M", [](auto& x) { return asin(x); }),
        costly("sinh, 32M", [](auto& x) { return sinh(x); }),
        costly("erf, 32M", [](auto& x) { return erf(x); }),
        costly("erfc, 32M", [](auto& x) { return erfc(x); }),
        costly("erfinv, 32M", [](auto& x) { return erfinv(x); }),
        costly("lgamma, 32M", [](auto& x) { return lgamma(x); }),
        costly("digamma, 32M", [](auto& x) { return digamma(x); }),
        unary("floor, 32M", [](auto& x) { return floor(x); }),
        binary("div, 32M", [](auto& a, auto& b) { return div(a, b); }),
        costly_pair("pow, 32M", [](auto& a, auto& b) { return pow(a, b); }),
        costly_pair("atan2, 32M", [](auto& a, auto& b) { return atan2(a, b); }),
        costly_pair("remainder, 32M", [](auto& a, auto& b) { return remainder(a, b); }),
        costly_pair("hypot, 32M", [](auto& a, auto& b) { return hypot(a, b); }),
        binary("maximum, 32M", [](auto& a, auto& b) { return maximum(a, b); }),
        {"where, 32M",
         [] {
           const Tensor a = rand({k32M}), b = rand({k32M}), c = gt(a, 0.5);
           return streaming([=] { where(c, a, b); }, 2.25 * a.nbytes(), double(a.nbytes()));
         }},
        {"gt, 32M",
         [] {
           const Tensor a = rand({k32M}), b = rand({k32M});
           return streaming([=] { gt(a, b); }, 2.0 * a.nbytes(), a.nbytes() / 4.0);
         }},
        {"exp of bf16, 32M",
         [] {
           const Tensor x = to(rand({k32M}), DType::kBF16);
           return work([=] { exp(x); });
         }},
        costly("exp, 32M", [](auto& x) { return exp(x); }),
        costly("tanh, 32M", [](auto& x) { return tanh(x); }),
        costly("gelu, 32M", [](auto& x) { return gelu(x); }),
    });

}  // namespace gradus::bench
