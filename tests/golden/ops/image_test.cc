// Resizing, padding, fold, pixel_shuffle and grid_sample against PyTorch's values (inputs: image.py;
// tolerances: golden_ops.h).
#include "gradus/tests/golden/ops/golden_ops.h"

namespace gradus::golden {
namespace {

using Mode = Interpolation;

GoldenOp resized(const std::string& name, const InterpolateOptions& options) {
  return {"interpolate/" + name, [options](X x) { return interpolate(x[0], options); }};
}

GoldenOp padded(const std::string& name, const std::vector<int64_t>& pads, const PadOptions& options = {}) {
  return {"pad/" + name, [=](X x) { return pad(x[0], pads, options); }};
}

const UnfoldOptions kOptions{.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 2}, .dilation = {2, 1}};
const PadOptions kReflect{.mode = PadMode::kReflect}, kReplicate{.mode = PadMode::kReplicate},
    kCircular{.mode = PadMode::kCircular};

std::vector<GoldenOp> ops() {
  std::vector<GoldenOp> all = {
      resized("nearest 1d", {.size = {8}}),
      resized("nearest 2d", {.scale_factor = {2, 1.7}}),
      resized("nearest 3d", {.size = {5, 2, 7}}),
      resized("nearest-exact 2d", {.size = {9, 3}, .mode = Mode::kNearestExact}),
      resized("linear", {.size = {9}, .mode = Mode::kLinear}),
      resized("linear aligned", {.size = {9}, .mode = Mode::kLinear, .align_corners = true}),
      resized("bilinear up", {.scale_factor = {2}, .mode = Mode::kBilinear}),
      resized("bilinear scale", {.scale_factor = {1.3, 0.6}, .mode = Mode::kBilinear}),
      resized("bilinear aligned", {.size = {3, 9}, .mode = Mode::kBilinear, .align_corners = true}),
      resized("bilinear same", {.size = {5, 4}, .mode = Mode::kBilinear}),
      resized("bilinear one", {.size = {3, 1}, .mode = Mode::kBilinear}),
      resized("bicubic", {.size = {8, 3}, .mode = Mode::kBicubic}),
      resized("bicubic aligned", {.scale_factor = {1.5}, .mode = Mode::kBicubic, .align_corners = true}),
      resized("trilinear", {.size = {5, 2, 7}, .mode = Mode::kTrilinear}),
      resized("trilinear aligned", {.scale_factor = {2}, .mode = Mode::kTrilinear, .align_corners = true}),
      resized("area", {.size = {3, 4}, .mode = Mode::kArea}),
      resized("bilinear antialias", {.size = {4, 5}, .mode = Mode::kBilinear, .antialias = true}),
      resized("bicubic antialias", {.size = {4, 13}, .mode = Mode::kBicubic, .antialias = true}),
      padded("constant", {1, 2, 0, 3, 1, 0}, {.value = 1.5}),
      padded("crop", {-1, 2, 3, -2}),
      padded("integers", {1, 1}, {.value = 7}),
      padded("reflect 1d", {2, 3}, kReflect),
      padded("reflect 2d", {1, 2, 3, 0}, kReflect),
      padded("reflect 3d", {1, 2, 0, 1, 2, 1}, kReflect),
      padded("replicate 1d", {5, 1}, kReplicate),
      padded("replicate 2d", {1, 6, 3, 0}, kReplicate),
      padded("replicate one image", {1, 2, 3, 1}, kReplicate),
      padded("replicate 3d", {1, 2, 0, 1, 2, 1}, kReplicate),
      padded("circular 1d", {4, 1}, kCircular),
      padded("circular 2d", {1, 2, 3, 0}, kCircular),
      padded("circular 3d", {1, 2, 0, 1, 2, 1}, kCircular),
      {"unfold", [](X x) { return unfold(x[0], {.kernel = 2}); }},
      {"unfold/options", [](X x) { return unfold(x[0], kOptions); }},
      {"fold",
       [](X x) {
         return fold(x[0], {4, 5}, {.kernel = 2});
       }},
      {"fold/options",
       [](X x) {
         return fold(x[0], {6, 5}, kOptions);
       }},
      {"pixel_shuffle", [](X x) { return pixel_shuffle(x[0], 2); }},
      {"pixel_unshuffle", [](X x) { return pixel_unshuffle(x[0], 3); }},
      {"channel_shuffle", [](X x) { return channel_shuffle(x[0], 3); }},
      {"affine_grid",
       [](X x) {
         return affine_grid(x[0], {4, 5});
       }},
      {"affine_grid/aligned",
       [](X x) {
         return affine_grid(x[0], {1, 5}, {.align_corners = true});
       }},
  };
  for (const auto& [mode, m] :
       {std::pair("bilinear", SampleMode::kBilinear), {"nearest", SampleMode::kNearest}})
    for (const auto& [padding, p] : {std::pair("zeros", SamplePadding::kZeros),
                                     {"border", SamplePadding::kBorder},
                                     {"reflection", SamplePadding::kReflection}})
      for (bool aligned : {false, true}) {
        const GridSampleOptions o{.mode = m, .padding = p, .align_corners = aligned};
        all.push_back({std::string("grid_sample/") + mode + ' ' + padding + (aligned ? " aligned" : ""),
                       [o](X x) { return grid_sample(x[0], x[1], o); }});
      }
  return all;
}

}  // namespace

static const bool added = add_golden_ops("image", ops());

}  // namespace gradus::golden
