// Workloads: per-sample normalizations (group, instance, layer and local response norm), in Gradus.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in other files of
// this folder (sample_norm_libtorch.cc).
#include "benchmarks/workloads.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

using Norm = Tensor (*)(const Tensor& x, const Tensor& weight, const Tensor& bias);

Entry forward(const char* name, Shape shape, int64_t features, Norm f) {
  return {name, [=] {
            const Tensor x = shape.size() == 4 ? channels_last(randn(shape)) : randn(shape);
            const Tensor w = ones({features}), b = zeros({features});
            return work([=] { f(x, w, b); });
          }};
}
Entry gradients(const char* name, Shape shape, int64_t features, Norm f) {
  return {
      name, [=] {
        const auto laid_out = [](const Tensor& x) { return x.dim() == 4 ? channels_last(x) : x; };
        const Tensor x = laid_out(randn(shape)), dy = laid_out(randn(shape));
        const Tensor w = ones({features}), b = zeros({features});
        return work([=] {
          autograd::grad([&](const std::vector<Tensor>& v) { return f(v[0], v[1], v[2]); }, {x, w, b}, dy);
        });
      }};
}

Tensor layers(const Tensor& x, const Tensor& w, const Tensor& b) { return layer_norm(x, w.shape(), w, b); }
Tensor groups(const Tensor& x, const Tensor& w, const Tensor& b) { return group_norm(x, 32, w, b); }
Tensor instances(const Tensor& x, const Tensor& w, const Tensor& b) { return instance_norm(x, {}, {}, w, b); }
Tensor neighbors(const Tensor& x, const Tensor&, const Tensor&) { return local_response_norm(x, 5); }

}  // namespace

static const AddWorkloads added(
    Side::kGradus, "norm",
    {
        forward("layer_norm 4096x1024", {4096, 1024}, 1024, layers),
        gradients("layer_norm 4096x1024, and gradients", {4096, 1024}, 1024, layers),
        forward("layer_norm 128x197x768", {128, 197, 768}, 768, layers),
        gradients("layer_norm 128x197x768, and gradients", {128, 197, 768}, 768, layers),
        forward("group_norm 16x64x56, 32 groups", {16, 64, 56, 56}, 64, groups),
        gradients("group_norm 16x64x56, 32 groups, and gradients", {16, 64, 56, 56}, 64, groups),
        forward("instance_norm 16x64x56", {16, 64, 56, 56}, 64, instances),
        gradients("instance_norm 16x64x56, and gradients", {16, 64, 56, 56}, 64, instances),
        forward("local_response_norm 16x64x56, 5", {16, 64, 56, 56}, 64, neighbors),
    });

}  // namespace gradus::bench
