// Workloads: matrix products and convolutions, in Gradus.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in other files of
// this folder (dense_libtorch.cc).
#include "benchmarks/ops/shapes.h"
#include "benchmarks/workloads.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

std::vector<Entry> entries() {
  std::vector<Entry> all;
  for (const GemmShape& s : kGemmShapes) {
    all.push_back({std::string("matmul ") + s.name, [s] {
                     const Tensor a = s.batch > 1 ? randn({s.batch, s.m, s.k}) : randn({s.m, s.k});
                     const Tensor b = s.batch > 1 ? randn({s.batch, s.k, s.n}) : randn({s.k, s.n});
                     return work([=] { matmul(a, b); }, s.flops());
                   }});
  }
  for (const ConvShape& s : kConvShapes) {
    const Conv2dFuncOptions o{
        .stride = s.stride, .padding = s.padding, .dilation = s.dilation, .groups = s.groups};
    const auto x = [s] { return channels_last(randn({s.N, s.C, s.HW, s.HW})); };
    const auto w = [s] { return randn({s.O, s.C / s.groups, s.kernel, s.kernel}); };
    const auto dy = [s] { return channels_last(randn({s.N, s.O, s.out(), s.out()})); };
    const std::string name = std::string("conv ") + s.name;
    all.push_back({name, [=] { return work([=, x = x(), w = w()] { conv2d(x, w, {}, o); }, s.flops()); }});
    all.push_back({name + ", input gradient", [=] {
                     return work([=, x = x(), w = w(), dy = dy()] { conv2d_input_grad(dy, w, x.shape(), o); },
                                 s.flops());
                   }});
    all.push_back({name + ", weight gradient", [=] {
                     return work(
                         [=, x = x(), w = w(), dy = dy()] { conv2d_weight_grad(dy, x, w.shape(), false, o); },
                         s.flops());
                   }});
  }
  for (const ConvShape& s : kTransposedShapes) {
    all.push_back({std::string("conv_transpose ") + s.name, [s] {
                     const Tensor x = channels_last(randn({s.N, s.C, s.HW, s.HW}));
                     const Tensor w = randn({s.C, s.O, s.kernel, s.kernel}), b = randn({s.O});
                     const ConvTranspose2dFuncOptions o{.stride = s.stride, .padding = s.padding};
                     return work([=] { conv_transpose2d(x, w, b, o); },
                                 2.0 * s.N * s.C * s.HW * s.HW * s.O * s.kernel * s.kernel);
                   }});
  }
  return all;
}

}  // namespace

static const AddWorkloads added(Side::kGradus, "dense", entries());

}  // namespace gradus::bench
