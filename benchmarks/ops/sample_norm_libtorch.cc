// Workloads: per-sample normalizations (group, instance, layer and local response norm), in LibTorch, with NCHW
// and channels-last layouts.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in
// sample_norm_gradus.cc. Several entries with one name are variants (layouts), of which the fastest counts.
#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

using Norm = torch::Tensor (*)(const torch::Tensor& x, const torch::Tensor& weight,
                               const torch::Tensor& bias);

torch::Tensor layers(const torch::Tensor& x, const torch::Tensor& w, const torch::Tensor& b) {
  return torch::layer_norm(x, w.sizes(), w, b);
}
torch::Tensor groups(const torch::Tensor& x, const torch::Tensor& w, const torch::Tensor& b) {
  return torch::group_norm(x, 32, w, b);
}
torch::Tensor instances(const torch::Tensor& x, const torch::Tensor& w, const torch::Tensor& b) {
  return torch::instance_norm(x, w, b, {}, {}, true, 0.1, 1e-5, true);
}
torch::Tensor neighbors(const torch::Tensor& x, const torch::Tensor&, const torch::Tensor&) {
  return torch::nn::functional::local_response_norm(x,
                                                    torch::nn::functional::LocalResponseNormFuncOptions(5));
}

struct Both {
  std::vector<Entry> all;
  void add(const std::string& name, std::vector<int64_t> shape, int64_t features, Norm f) {
    for (auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      if (layout == at::MemoryFormat::ChannelsLast && shape.size() != 4) continue;
      all.push_back({name, [=] {
                       auto x = torch::randn(shape).contiguous(layout);
                       auto w = torch::ones({features}), b = torch::zeros({features});
                       return work([=] {
                         torch::NoGradGuard off;
                         f(x, w, b);
                       });
                     }});
      all.push_back({name + ", and gradients", [=] {
                       auto x = torch::randn(shape).contiguous(layout).requires_grad_();
                       auto w = torch::ones({features}).requires_grad_(),
                            b = torch::zeros({features}).requires_grad_();
                       auto dy = torch::randn(shape).contiguous(layout);
                       return work([=] { torch::autograd::grad({f(x, w, b)}, {x, w, b}, {dy}); });
                     }});
    }
  }
};

std::vector<Entry> entries() {
  Both both;
  both.add("layer_norm 4096x1024", {4096, 1024}, 1024, layers);
  both.add("layer_norm 128x197x768", {128, 197, 768}, 768, layers);
  both.add("group_norm 16x64x56, 32 groups", {16, 64, 56, 56}, 64, groups);
  both.add("instance_norm 16x64x56", {16, 64, 56, 56}, 64, instances);
  both.add("local_response_norm 16x64x56, 5", {16, 64, 56, 56}, 64, neighbors);
  return both.all;
}

}  // namespace

static const AddWorkloads added(Side::kLibTorch, "norm", entries());

}  // namespace gradus::bench
