// Workloads: losses with their gradients, in LibTorch.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in
// loss_gradus.cc. Several entries with one name are variants (layouts), of which the fastest counts.
#include <cstdint>

#include <torch/torch.h>

#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

Entry classes(const char* name, int64_t batch, int64_t classes) {
  return {name, [=] {
            auto x = torch::randn({batch, classes}).requires_grad_(),
                 y = torch::randint(classes, {batch}, torch::kLong);
            return work([=] { torch::autograd::grad({torch::cross_entropy_loss(x, y)}, {x}); });
          }};
}
template <class F> Entry points(const char* name, F f) {
  return {name, [=] {
            auto x = torch::rand({1 << 22}).requires_grad_(), t = torch::rand({1 << 22});
            return work([=] { torch::autograd::grad({f(x, t)}, {x}); });
          }};
}

}  // namespace

static const AddWorkloads added(
    Side::kLibTorch, "loss",
    {
        classes("cross_entropy 4096x1000", 4096, 1000),
        classes("cross_entropy 64x10", 64, 10),
        points("binary_cross_entropy_with_logits, 4M",
               [](auto& x, auto& t) { return torch::binary_cross_entropy_with_logits(x, t); }),
        points("binary_cross_entropy, 4M",
               [](auto& x, auto& t) { return torch::binary_cross_entropy(x, t); }),
        points("mse_loss, 4M", [](auto& x, auto& t) { return torch::mse_loss(x, t); }),
        points("l1_loss, 4M", [](auto& x, auto& t) { return torch::l1_loss(x, t); }),
        points("smooth_l1_loss, 4M", [](auto& x, auto& t) { return torch::smooth_l1_loss(x, t); }),
        points("kl_div, 4M", [](auto& x, auto& t) { return torch::kl_div(x, t); }),
    });

}  // namespace gradus::bench
