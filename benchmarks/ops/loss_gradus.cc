// Workloads: losses with their gradients, in Gradus.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in other files of
// this folder (loss_libtorch.cc).
#include "benchmarks/workloads.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

Entry classes(const char* name, int64_t batch, int64_t classes) {
  return {name, [=] {
            const Tensor x = randn({batch, classes}), y = randint(classes, {batch});
            return work([=] { autograd::grad([&](const Tensor& v) { return cross_entropy(v, y); }, x); });
          }};
}
// An element-wise loss of 4M elements with its gradient.
template <class F> Entry points(const char* name, F f) {
  return {name, [=] {
            const Tensor x = rand({1 << 22}), t = rand({1 << 22});
            return work([=] { autograd::grad([&](const Tensor& v) { return f(v, t); }, x); });
          }};
}

}  // namespace

static const AddWorkloads added(
    Side::kGradus, "loss",
    {
        classes("cross_entropy 4096x1000", 4096, 1000),
        classes("cross_entropy 64x10", 64, 10),
        points("binary_cross_entropy_with_logits, 4M",
               [](auto& x, auto& t) { return binary_cross_entropy_with_logits(x, t); }),
        points("binary_cross_entropy, 4M", [](auto& x, auto& t) { return binary_cross_entropy(x, t); }),
        points("mse_loss, 4M", [](auto& x, auto& t) { return mse_loss(x, t); }),
        points("l1_loss, 4M", [](auto& x, auto& t) { return l1_loss(x, t); }),
        points("smooth_l1_loss, 4M", [](auto& x, auto& t) { return smooth_l1_loss(x, t); }),
        points("kl_div, 4M", [](auto& x, auto& t) { return kl_div(x, t); }),
    });

}  // namespace gradus::bench
