// Workloads: batch norm in training, alone and followed by relu, with gradients, in LibTorch, with NCHW and
// channels-last layouts.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in
// norm_gradus.cc. Several entries with one name are variants (layouts), of which the fastest counts.
#include <cstdint>
#include <vector>

#include <torch/torch.h>

#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

Entry training(const char* name, std::vector<int64_t> shape, bool rectify, at::MemoryFormat layout) {
  return {name, [=] {
            auto x = torch::randn(shape).contiguous(layout).requires_grad_();
            auto w = torch::ones({shape[1]}).requires_grad_(), b = torch::zeros({shape[1]}).requires_grad_();
            auto dy = torch::randn(shape).contiguous(layout);
            return work([=] {
              auto y = torch::batch_norm(x, w, b, {}, {}, true, 0.1, 1e-5, true);
              if (rectify) y = torch::relu_(y);
              torch::autograd::grad({y}, {x, w, b}, {dy});
            });
          }};
}

Entry forward(at::MemoryFormat layout) {
  return {"batch_norm 16x64x56, training", [=] {
            auto x = torch::randn({16, 64, 56, 56}).contiguous(layout), w = torch::ones({64}),
                 b = torch::zeros({64});
            return work([=] {
              torch::NoGradGuard off;
              torch::batch_norm(x, w, b, {}, {}, true, 0.1, 1e-5, true);
            });
          }};
}

std::vector<Entry> entries() {
  std::vector<Entry> all;
  for (auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    all.push_back(forward(layout));
    all.push_back(training("batch_norm 16x64x56, and gradients", {16, 64, 56, 56}, false, layout));
    all.push_back(training("relu of batch_norm 16x64x56, and gradients", {16, 64, 56, 56}, true, layout));
    all.push_back(training("relu of batch_norm 64x256x56, and gradients", {64, 256, 56, 56}, true, layout));
    all.push_back(training("relu of batch_norm 128x16x32, and gradients", {128, 16, 32, 32}, true, layout));
  }
  return all;
}

}  // namespace

static const AddWorkloads added(Side::kLibTorch, "norm", entries());

}  // namespace gradus::bench
