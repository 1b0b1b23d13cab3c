// Workloads: pooling, resizing, padding and pixel rearrangement of images, in Gradus.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in other files of
// this folder (image_libtorch.cc).
#include "benchmarks/workloads.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

using Op = Tensor (*)(const Tensor& x);

Tensor max3x3(const Tensor& x) { return max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1}); }
Tensor avg3x3(const Tensor& x) { return avg_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1}); }
Tensor whole(const Tensor& x) { return adaptive_avg_pool2d(x, 1); }
Tensor max_volume(const Tensor& x) { return max_pool3d(x, {.kernel = 2}); }
Tensor nearest(const Tensor& x) { return interpolate(x, {.scale_factor = {2}}); }
Tensor bilinear(const Tensor& x) {
  return interpolate(x, {.scale_factor = {2}, .mode = Interpolation::kBilinear});
}
Tensor bicubic(const Tensor& x) {
  return interpolate(x, {.scale_factor = {2}, .mode = Interpolation::kBicubic});
}
Tensor zeros_around(const Tensor& x) { return pad(x, {1, 1, 1, 1}); }
Tensor reflected(const Tensor& x) { return pad(x, {1, 1, 1, 1}, {.mode = PadMode::kReflect}); }
Tensor shuffled(const Tensor& x) { return pixel_shuffle(x, 2); }
Tensor unfolded(const Tensor& x) { return unfold(x, {.kernel = 3, .padding = 1}); }

// Adds f, and f with its gradient. Images are channels-last unless `row_major`.
void add(std::vector<Entry>& all, const std::string& name, const Shape& shape, Op f, bool row_major = false) {
  const auto laid_out = [=](const Tensor& x) { return row_major || x.dim() == 3 ? x : channels_last(x); };
  all.push_back({name, [=] {
                   const Tensor x = laid_out(randn(shape));
                   return work([=] { f(x); });
                 }});
  all.push_back(
      {name + ", and gradient", [=] {
         const Tensor x = laid_out(randn(shape));
         const Tensor dy = laid_out(randn(f(x).shape()));
         return work([=] { autograd::grad([&](const std::vector<Tensor>& v) { return f(v[0]); }, {x}, dy); });
       }});
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
  add(all, "unfold 8x64x32, 3", {8, 64, 32, 32}, unfolded, true);
  return all;
}

}  // namespace

static const AddWorkloads added(Side::kGradus, "image", entries());

}  // namespace gradus::bench
