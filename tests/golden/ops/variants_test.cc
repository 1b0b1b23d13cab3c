// Less common forms of ops against PyTorch's values: inputs without a batch dim ("sample"), rounding modes,
// bicubic sampling, exclusive and reversed scans (inputs: variants.py; tolerances: golden_ops.h).
#include "gradus/tests/golden/ops/golden_ops.h"

namespace gradus::golden {
namespace {

std::vector<Tensor> both(std::pair<Tensor, Tensor> p) { return {p.first, p.second}; }

Tensor unpooled(const Tensor& x) {
  const auto [y, indices] = max_pool2d_with_indices(x, {.kernel = 2});
  return max_unpool(y, indices, {x.size(1), x.size(2)});
}

std::vector<GoldenOp> pooling() {
  return {
      {"adaptive_max_pool1d_with_indices",
       [](X x) { return both(adaptive_max_pool1d_with_indices(x[0], 3)); }},
      {"adaptive_max_pool2d_with_indices",
       [](X x) {
         return both(adaptive_max_pool2d_with_indices(x[0], {3, 4}));
       }},
      {"adaptive_max_pool2d_with_indices/all",
       [](X x) { return both(adaptive_max_pool2d_with_indices(x[0], 1)); }},
      {"adaptive_max_pool3d_with_indices",
       [](X x) {
         return both(adaptive_max_pool3d_with_indices(x[0], {2, 3, 1}));
       }},
      {"adaptive_max_pool2d_with_indices/sample",
       [](X x) {
         return both(adaptive_max_pool2d_with_indices(x[0], {2, 3}));
       }},
      {"max_pool1d/sample",
       [](X x) {
         return max_pool1d(x[0], {.kernel = 3, .stride = 2, .padding = 1, .dilation = 2, .ceil_mode = true});
       }},
      {"max_pool2d/sample", [](X x) { return max_pool2d(x[0], {.kernel = 3, .stride = 2, .padding = 1}); }},
      {"max_pool2d_with_indices/sample",
       [](X x) { return both(max_pool2d_with_indices(x[0], {.kernel = 3, .stride = 2, .padding = 1})); }},
      {"max_pool3d/sample", [](X x) { return max_pool3d(x[0], {.kernel = 2}); }},
      {"avg_pool1d/sample",
       [](X x) {
         return avg_pool1d(
             x[0], {.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false});
       }},
      {"avg_pool2d/sample",
       [](X x) { return avg_pool2d(x[0], {.kernel = 3, .stride = 2, .padding = 1, .divisor_override = 7}); }},
      {"avg_pool3d/sample", [](X x) { return avg_pool3d(x[0], {.kernel = 2}); }},
      {"adaptive_avg_pool1d/sample", [](X x) { return adaptive_avg_pool1d(x[0], 3); }},
      {"adaptive_avg_pool2d/sample",
       [](X x) {
         return adaptive_avg_pool2d(x[0], {3, 2});
       }},
      {"adaptive_avg_pool3d/sample", [](X x) { return adaptive_avg_pool3d(x[0], 2); }},
      {"lp_pool1d/sample", [](X x) { return lp_pool1d(x[0], {.p = 3, .kernel = 3, .stride = 2}); }},
      {"lp_pool2d/sample",
       [](X x) {
         return lp_pool2d(x[0], {.p = 2, .kernel = {2, 3}, .stride = 2, .ceil_mode = true});
       }},
      {"max_unpool/sample", [](X x) { return unpooled(x[0]); }},
  };
}

std::vector<GoldenOp> arithmetic() {
  std::vector<GoldenOp> all = {
      {"add/alpha", [](X x) { return add(x[0], x[1], -0.75); }},
      {"add/alpha number", [](X x) { return add(x[0], 2.5, 3); }},
      {"add/alpha integers", [](X x) { return add(x[0], x[1], -3); }},
      {"sub/alpha", [](X x) { return sub(x[0], x[1], 1.5); }},
      {"softplus/threshold 1", [](X x) { return softplus(x[0], 2, 1); }},
      {"softplus/threshold -5", [](X x) { return softplus(x[0], 2, -5); }},
      {"softplus/threshold 40", [](X x) { return softplus(x[0], 2, 40); }},
  };
  for (const auto& [name, mode] :
       {std::pair("trunc", RoundingMode::kTrunc), {"floor", RoundingMode::kFloor}}) {
    const RoundingMode m = mode;
    const std::string op = std::string("div/") + name;
    all.push_back({op, [m](X x) { return div(x[0], x[1], m); }});
    all.push_back({op + " number", [m](X x) { return div(x[0], -0.7, m); }});
    all.push_back({op + " integers", [m](X x) { return div(x[0], x[1], m); }});
    all.push_back({op + " negative integers", [m](X x) { return div(x[0], x[1], m); }});
  }
  return all;
}

std::vector<GoldenOp> images() {
  std::vector<GoldenOp> all = {
      {"pixel_shuffle/sample", [](X x) { return pixel_shuffle(x[0], 2); }},
      {"pixel_shuffle/videos", [](X x) { return pixel_shuffle(x[0], 3); }},
      {"pixel_unshuffle/sample", [](X x) { return pixel_unshuffle(x[0], 2); }},
      {"pixel_unshuffle/videos", [](X x) { return pixel_unshuffle(x[0], 3); }},
      {"conv1d/valid", [](X x) { return conv1d(x[0], x[1], {}, {.padding = kValidPadding, .dilation = 3}); }},
      {"conv2d/valid",
       [](X x) {
         return conv2d(x[0], x[1], {}, {.padding = kValidPadding, .dilation = {2, 1}});
       }},
      {"conv3d/valid", [](X x) { return conv3d(x[0], x[1], {}, {.padding = kValidPadding}); }},
      {"conv1d/same", [](X x) { return conv1d(x[0], x[1], {}, {.dilation = 3, .same_padding = true}); }},
      {"conv2d/same",
       [](X x) {
         return conv2d(x[0], x[1], {}, {.dilation = {2, 1}, .same_padding = true});
       }},
      {"conv3d/same", [](X x) { return conv3d(x[0], x[1], {}, {.same_padding = true}); }},
      {"grid_sample/bicubic one cell",
       [](X x) { return grid_sample(x[0], x[1], {.mode = SampleMode::kBicubic}); }},
  };
  for (const auto& [padding, p] : {std::pair("zeros", SamplePadding::kZeros),
                                   {"border", SamplePadding::kBorder},
                                   {"reflection", SamplePadding::kReflection}})
    for (bool aligned : {false, true}) {
      const GridSampleOptions o{.mode = SampleMode::kBicubic, .padding = p, .align_corners = aligned};
      all.push_back({std::string("grid_sample/bicubic ") + padding + (aligned ? " aligned" : ""),
                     [o](X x) { return grid_sample(x[0], x[1], o); }});
    }
  return all;
}

std::vector<GoldenOp> lines() {
  return {
      {"cumsum/exclusive", [](X x) { return cumsum(x[0], 1, {.exclusive = true}); }},
      {"cumsum/exclusive reverse", [](X x) { return cumsum(x[0], 1, {.reverse = true, .exclusive = true}); }},
      {"cumsum/exclusive integers", [](X x) { return cumsum(x[0], 0, {.exclusive = true}); }},
      {"cumprod/exclusive", [](X x) { return cumprod(x[0], 1, {.exclusive = true}); }},
      {"cumprod/reverse", [](X x) { return cumprod(x[0], 0, {.reverse = true}); }},
      {"cumprod/exclusive reverse",
       [](X x) { return cumprod(x[0], 0, {.reverse = true, .exclusive = true}); }},
      {"unique/index",
       [](X x) {
         const UniqueResult u = unique(x[0], {.return_index = true});
         return std::vector<Tensor>{u.values, u.index};
       }},
      {"unique/index of columns",
       [](X x) {
         const UniqueResult u = unique(x[0], {.return_index = true, .dim = 1});
         return std::vector<Tensor>{u.values, u.index};
       }},
      {"eye",
       [](X) {
         const TensorOptions f64{DType::kF64};
         return std::vector<Tensor>{eye(3, 5, 1, f64), eye(3, 5, -2, f64), eye(5, 3, -1, f64),
                                    eye(4, 4, 7, f64)};
       }},
  };
}

std::vector<GoldenOp> all() {
  std::vector<GoldenOp> ops;
  for (auto family : {pooling, arithmetic, images, lines})
    for (GoldenOp& op : family()) ops.push_back(std::move(op));
  return ops;
}

}  // namespace

static const bool added = add_golden_ops("variants", all());

}  // namespace gradus::golden
