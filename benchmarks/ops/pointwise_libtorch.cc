// Workloads: element-wise ops on arrays that exceed the last-level cache, in LibTorch.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in
// pointwise_gradus.cc. Several entries with one name are variants (layouts), of which the fastest counts.
#include <torch/torch.h>

#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

template <class F> Entry unary(const char* name, F f) {
  return {name, [f] {
            auto x = torch::rand({k32M});
            return work([=] {
              torch::NoGradGuard off;
              f(x);
            });
          }};
}
template <class F> Entry binary(const char* name, F f) {
  return {name, [f] {
            auto a = torch::rand({k32M}), b = torch::rand({k32M});
            return work([=] {
              torch::NoGradGuard off;
              f(a, b);
            });
          }};
}

}  // namespace

static const AddWorkloads added(
    Side::kLibTorch, "pointwise",
    {
        binary("add, 32M", [](auto& a, auto& b) { return a + b; }),
        binary("mul, 32M", [](auto& a, auto& b) { return a * b; }),
        unary("relu, 32M", [](auto& x) { return torch::relu(x); }),
        unary("mul by a number, 32M", [](auto& x) { return x * 2.0; }),
        unary("clamp, 32M", [](auto& x) { return torch::clamp(x, 0.2, 0.8); }),
        unary("leaky_relu, 32M", [](auto& x) { return torch::leaky_relu(x, 0.2); }),
        unary("sqrt, 32M", [](auto& x) { return torch::sqrt(x); }),
        unary("sigmoid, 32M", [](auto& x) { return torch::sigmoid(x); }),
        unary("silu, 32M", [](auto& x) { return torch::silu(x); }),
        unary("softplus, 32M", [](auto& x) { return torch::softplus(x); }),
        unary("mish, 32M", [](auto& x) { return torch::mish(x); }),
        unary("elu, 32M", [](auto& x) { return torch::elu(x); }),
        unary("hardswish, 32M", [](auto& x) { return torch::hardswish(x); }),
        unary("log, 32M", [](auto& x) { return torch::log(x); }),
        unary("log1p, 32M", [](auto& x) { return torch::log1p(x); }),
        unary("sin, 32M", [](auto& x) { return torch::sin(x); }),
        unary("cos, 32M", [](auto& x) { return torch::cos(x); }),
        unary("tan, 32M", [](auto& x) { return torch::tan(x); }),
        unary("atan, 32M", [](auto& x) { return torch::atan(x); }),
        unary("asin, 32M", [](auto& x) { return torch::asin(x); }),
        unary("sinh, 32M", [](auto& x) { return torch::sinh(x); }),
        unary("erf, 32M", [](auto& x) { return torch::erf(x); }),
        unary("erfc, 32M", [](auto& x) { return torch::erfc(x); }),
        unary("erfinv, 32M", [](auto& x) { return torch::erfinv(x); }),
        unary("lgamma, 32M", [](auto& x) { return torch::lgamma(x); }),
        unary("digamma, 32M", [](auto& x) { return torch::digamma(x); }),
        unary("floor, 32M", [](auto& x) { return torch::floor(x); }),
        binary("div, 32M", [](auto& a, auto& b) { return a / b; }),
        binary("pow, 32M", [](auto& a, auto& b) { return torch::pow(a, b); }),
        binary("atan2, 32M", [](auto& a, auto& b) { return torch::atan2(a, b); }),
        binary("remainder, 32M", [](auto& a, auto& b) { return torch::remainder(a, b); }),
        binary("hypot, 32M", [](auto& a, auto& b) { return torch::hypot(a, b); }),
        binary("maximum, 32M", [](auto& a, auto& b) { return torch::maximum(a, b); }),
        {"where, 32M",
         [] {
           auto a = torch::rand({k32M}), b = torch::rand({k32M}), c = a > 0.5;
           return work([=] { torch::where(c, a, b); });
         }},
        {"gt, 32M",
         [] {
           auto a = torch::rand({k32M}), b = torch::rand({k32M});
           return work([=] { torch::gt(a, b); });
         }},
        {"exp of bf16, 32M",
         [] {
           auto x = torch::rand({k32M}).to(torch::kBFloat16);
           return work([=] { torch::exp(x); });
         }},
        unary("exp, 32M", [](auto& x) { return torch::exp(x); }),
        unary("tanh, 32M", [](auto& x) { return torch::tanh(x); }),
        unary("gelu, 32M", [](auto& x) { return torch::gelu(x); }),
    });

}  // namespace gradus::bench
