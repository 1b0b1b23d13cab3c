// Workloads: batch norm in training: alone, with gradients, and followed by relu with gradients; in Gradus.
// 16x64x56: N = 16, C = 64, H = W = 56; images are channels-last.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in other files of
// this folder (norm_libtorch.cc).
#include "benchmarks/workloads.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

// Batch norm, followed by relu if `rectify`, and the gradients of x, weight and bias.
Entry training(const char* name, Shape shape, bool rectify) {
  return {name, [=] {
            const Tensor x = channels_last(randn(shape)), w = ones({shape[1]}), b = zeros({shape[1]});
            const Tensor dy = channels_last(randn(shape));
            return work([=] {
              autograd::grad(
                  [&](const std::vector<Tensor>& v) {
                    Tensor y = batch_norm(v[0], v[1], v[2], {}, {}, {.training = true});
                    return rectify ? relu(std::move(y)) : y;
                  },
                  {x, w, b}, dy);
            });
          }};
}

}  // namespace

static const AddWorkloads added(
    Side::kGradus, "norm",
    {
        {"batch_norm 16x64x56, training",
         [] {
           const Tensor x = channels_last(randn({16, 64, 56, 56})), w = ones({64}), b = zeros({64});
           return work([=] { batch_norm(x, w, b, {}, {}, {.training = true}); });
         }},
        training("batch_norm 16x64x56, and gradients", {16, 64, 56, 56}, false),
        training("relu of batch_norm 16x64x56, and gradients", {16, 64, 56, 56}, true),
        training("relu of batch_norm 64x256x56, and gradients", {64, 256, 56, 56}, true),
        training("relu of batch_norm 128x16x32, and gradients", {128, 16, 32, 32}, true),
    });

}  // namespace gradus::bench
