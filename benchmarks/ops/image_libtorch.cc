// Workloads: pooling, resizing, padding and pixel rearrangement of images, in LibTorch, with NCHW and
// channels-last layouts.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in
// image_gradus.cc. Several entries with one name are variants (layouts), of which the fastest counts.
#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

namespace F = torch::nn::functional;
using Op = torch::Tensor (*)(const torch::Tensor& x);

torch::Tensor max3x3(const torch::Tensor& x) { return torch::max_pool2d(x, 3, 2, 1); }
torch::Tensor avg3x3(const torch::Tensor& x) { return torch::avg_pool2d(x, 3, 2, 1); }
torch::Tensor whole(const torch::Tensor& x) { return torch::adaptive_avg_pool2d(x, {1, 1}); }
torch::Tensor max_volume(const torch::Tensor& x) { return torch::max_pool3d(x, 2); }

torch::Tensor resized(const torch::Tensor& x, F::InterpolateFuncOptions::mode_t mode) {
  auto options = F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 2}).mode(mode);
  if (!c10::holds_alternative<torch::enumtype::kNearest>(mode)) options.align_corners(false);
  return F::interpolate(x, options);
}
torch::Tensor nearest(const torch::Tensor& x) { return resized(x, torch::kNearest); }
torch::Tensor bilinear(const torch::Tensor& x) { return resized(x, torch::kBilinear); }
torch::Tensor bicubic(const torch::Tensor& x) { return resized(x, torch::kBicubic); }

torch::Tensor zeros_around(const torch::Tensor& x) { return F::pad(x, F::PadFuncOptions({1, 1, 1, 1})); }
torch::Tensor reflected(const torch::Tensor& x) {
  return F::pad(x, F::PadFuncOptions({1, 1, 1, 1}).mode(torch::kReflect));
}
torch::Tensor shuffled(const torch::Tensor& x) { return torch::pixel_shuffle(x, 2); }
torch::Tensor unfolded(const torch::Tensor& x) { return F::unfold(x, F::UnfoldFuncOptions(3).padding(1)); }

void add(std::vector<Entry>& all, const std::string& name, const std::vector<int64_t>& shape, Op f) {
  const auto last = shape.size() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
  for (auto layout : {at::MemoryFormat::Contiguous, last}) {
    all.push_back({name, [=] {
                     auto x = torch::randn(shape).contiguous(layout);
                     return work([=] {
                       torch::NoGradGuard off;
                       f(x);
                     });
                   }});
    all.push_back({name + ", and gradient", [=] {
                     auto x = torch::randn(shape).contiguous(layout).requires_grad_();
                     auto dy = torch::randn_like(f(x));
                     return work([=] { torch::autograd::grad({f(x)}, {x}, {dy}); });
                   }});
  }
}

std::vector<Entry> entries() {
  std::vector<Entry> all;
  add(all, "max_pool2d 16x64x112, 3 s2", {16, 64, 112, 112}, max3x3);
  add(all, "avg_pool2d 16x64x112, 3 s2", {16, 64, 112, 112}, avg3x3);
  add(all, "adaptive_avg_pool2d 16x2048x7, 1", {16, 2048, 7, 7}, whole);
  add(all, "max_pool3d 4x32x16x32x32, 2", {4, 32, 16, 32, 32}, max_volume);
  add(all, "interpolate 8x64x32, nearest 2", {8, 64, 32, 32}, nearest);
  add(all, "interpolate 8x64x32, bilinear 2", {8, 64, 32, 32}, bilinear);
  add(all, "interpolate 8x64x32, bicubic 2", {8, 64, 32, 32}, bicubic);
  add(all, "pad 16x64x56, zeros", {16, 64, 56, 56}, zeros_around);
  add(all, "pad 16x64x56, reflect", {16, 64, 56, 56}, reflected);
  add(all, "pixel_shuffle 8x256x32, 2", {8, 256, 32, 32}, shuffled);
  add(all, "unfold 8x64x32, 3", {8, 64, 32, 32}, unfolded);
  return all;
}

}  // namespace

static const AddWorkloads added(Side::kLibTorch, "image", entries());

}  // namespace gradus::bench
