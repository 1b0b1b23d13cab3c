// Pooling and max_unpool against PyTorch's values (inputs: pool.py; tolerances: golden_ops.h).
#include "gradus/tests/golden/ops/golden_ops.h"

namespace gradus::golden {
namespace {

std::vector<Tensor> both(std::pair<Tensor, Tensor> p) { return {p.first, p.second}; }

Tensor unpooled(const Tensor& x) {
  const auto [y, indices] = max_pool2d_with_indices(x, {.kernel = 2});
  return max_unpool(y, indices, {x.size(2), x.size(3)});
}

}  // namespace

static const bool added = add_golden_ops(
    "pool",
    {
        {"max_pool1d",
         [](X x) {
           return max_pool1d(x[0],
                             {.kernel = 3, .stride = 2, .padding = 1, .dilation = 2, .ceil_mode = true});
         }},
        {"max_pool1d_with_indices",
         [](X x) { return both(max_pool1d_with_indices(x[0], {.kernel = 3, .stride = 2, .padding = 1})); }},
        {"max_pool2d", [](X x) { return max_pool2d(x[0], {.kernel = 2}); }},
        {"max_pool2d/options",
         [](X x) {
           return max_pool2d(x[0], {.kernel = {3, 2},
                                    .stride = {2, 1},
                                    .padding = {1, 0},
                                    .dilation = {1, 2},
                                    .ceil_mode = true});
         }},
        {"max_pool2d/one", [](X x) { return max_pool2d(x[0], {.kernel = 1}); }},
        {"max_pool2d_with_indices",
         [](X x) { return both(max_pool2d_with_indices(x[0], {.kernel = 3, .stride = 2, .padding = 1})); }},
        {"max_pool3d",
         [](X x) {
           return max_pool3d(
               x[0], {.kernel = {2, 3, 2}, .stride = {1, 2, 2}, .padding = {1, 1, 0}, .ceil_mode = true});
         }},
        {"max_pool3d_with_indices", [](X x) { return both(max_pool3d_with_indices(x[0], {.kernel = 2})); }},
        {"avg_pool1d",
         [](X x) {
           return avg_pool1d(
               x[0], {.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false});
         }},
        {"avg_pool2d", [](X x) { return avg_pool2d(x[0], {.kernel = 2}); }},
        {"avg_pool2d/options",
         [](X x) {
           return avg_pool2d(x[0], {.kernel = {3, 2},
                                    .stride = {2, 1},
                                    .padding = 1,
                                    .ceil_mode = true,
                                    .count_include_pad = false});
         }},
        {"avg_pool2d/padding",
         [](X x) { return avg_pool2d(x[0], {.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true}); }},
        {"avg_pool2d/divisor",
         [](X x) {
           return avg_pool2d(x[0], {.kernel = 3, .stride = 2, .padding = 1, .divisor_override = 7});
         }},
        {"avg_pool3d",
         [](X x) {
           return avg_pool3d(x[0], {.kernel = {2, 3, 2},
                                    .stride = {1, 2, 2},
                                    .padding = {1, 1, 0},
                                    .ceil_mode = true,
                                    .count_include_pad = false});
         }},
        {"avg_pool3d/divisor", [](X x) { return avg_pool3d(x[0], {.kernel = 2, .divisor_override = 3}); }},
        {"adaptive_avg_pool1d", [](X x) { return adaptive_avg_pool1d(x[0], 3); }},
        {"adaptive_avg_pool2d",
         [](X x) {
           return adaptive_avg_pool2d(x[0], {3, 9});
         }},
        {"adaptive_avg_pool2d/global", [](X x) { return adaptive_avg_pool2d(x[0], 1); }},
        {"adaptive_avg_pool3d",
         [](X x) {
           return adaptive_avg_pool3d(x[0], {2, 3, 1});
         }},
        {"adaptive_max_pool1d", [](X x) { return adaptive_max_pool1d(x[0], 3); }},
        {"adaptive_max_pool2d",
         [](X x) {
           return adaptive_max_pool2d(x[0], {3, 2});
         }},
        {"adaptive_max_pool3d",
         [](X x) {
           return adaptive_max_pool3d(x[0], {2, 3, 1});
         }},
        {"lp_pool1d", [](X x) { return lp_pool1d(x[0], {.p = 3, .kernel = 3, .stride = 2}); }},
        {"lp_pool2d",
         [](X x) {
           return lp_pool2d(x[0], {.p = 2, .kernel = {2, 3}, .stride = 2, .ceil_mode = true});
         }},
        {"max_unpool", [](X x) { return unpooled(x[0]); }},
    });

}  // namespace gradus::golden
