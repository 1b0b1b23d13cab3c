// Rows of the layer table (layer_table.h) for unpooling, fractional max pooling, circular padding and upsampling in
// 2d; resampling.py has PyTorch's values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

std::vector<Tensor> both(const std::pair<Tensor, Tensor>& p) { return {p.first, p.second}; }

// Values and indices of fractional_max_pool2d or -3d with the random samples x[1].
template <class F, class O> Row fractional(std::string name, F pool, O options) {
  return row<nn::Identity>(std::move(name), {}, [=](nn::Identity&, X x) {
    O o = options;
    o.random_samples = x[1];
    return both(pool(x[0], o));
  });
}

std::vector<Row> table() {
  using nn::FractionalMaxPool2d;
  return {
      row<nn::LPPool3d>("LPPool3d", {.p = 3, .kernel = 2, .stride = {1, 2, 1}}),
      row<nn::LPPool3d>("LPPool3d/ceil", {.p = 2, .kernel = {2, 1, 3}, .ceil_mode = true},
                        {.prints = "LPPool3d(p=2, kernel=2x1x3, ceil_mode=true)"}),
      row<nn::CircularPad1d>(
          "CircularPad1d", {.padding = {2, 1}},
          {.inputs = {kLines},
           .second_order = true,
           .errors = {LAYER_ERROR(ValueError, nn::CircularPad1d({.padding = 3})(ones({1, 1, 2})), "circular",
                                  "3", "2")}}),
      row<nn::CircularPad2d>(
          "CircularPad2d", {.padding = {1, 2, 3, 0}},
          {.inputs = {kImages},
           .second_order = true,
           .errors = {LAYER_ERROR(ShapeError, nn::CircularPad2d({.padding = 1})(ones({2, 2})),
                                  "[CircularPad2d]", "[2,2]")}}),
      row<nn::CircularPad3d>("CircularPad3d", {.padding = 1}, {.inputs = {kVolumes}}),
      row<nn::UpsamplingNearest2d>(
          "UpsamplingNearest2d", {.size = {5, 4}},
          {.inputs = {kImages},
           .prints = "UpsamplingNearest2d(size=[5,4])",
           .errors = {LAYER_ERROR(ShapeError, nn::UpsamplingNearest2d({.size = {2}})(ones({1, 1, 2})),
                                  "[1,1,2]")}}),
      row<nn::UpsamplingBilinear2d>(
          "UpsamplingBilinear2d", {.scale_factor = {2}},
          {.inputs = {kImages},
           .roundings = 16,
           .errors = {LAYER_ERROR(ValueError, nn::UpsamplingBilinear2d()(ones({1, 1, 2, 2})), "size")}}),
      row<nn::MaxUnpool1d>(
          "MaxUnpool1d", {.kernel = 2},
          [](nn::MaxUnpool1d& m, X x) {
            const auto [y, indices] = max_pool1d_with_indices(x[0], {.kernel = 2});
            return m(y, indices);
          },
          {.inputs = {kLines},
           .errors = {LAYER_ERROR(ShapeError, nn::MaxUnpool1d({.kernel = 2})(ones({2}), tensor({0, 1})),
                                  "[MaxUnpool1d]", "f32[2]")}}),
      row<nn::MaxUnpool2d>(
          "MaxUnpool2d", {.kernel = 3, .stride = 2, .padding = 1},
          [](nn::MaxUnpool2d& m, X x) {
            const auto [y, indices] = max_pool2d_with_indices(x[0], {.kernel = 3, .stride = 2, .padding = 1});
            return m(y, indices, {5, 6});
          },
          {.prints = "MaxUnpool2d(kernel=3x3, stride=2x2, padding=1x1)",
           .errors = {LAYER_ERROR(ValueError,
                                  nn::MaxUnpool2d({.kernel = 2})(
                                      ones({1, 2, 2}), zeros({1, 2, 2}, {.dtype = DType::kI64}), {6, 4}),
                                  "output_size", "4", "[6,4]"),
                      LAYER_ERROR(ValueError,
                                  nn::MaxUnpool2d({.kernel = 2})(
                                      ones({1, 2, 2}), zeros({1, 2, 2}, {.dtype = DType::kI64}), {4}),
                                  "output_size", "2 dims"),
                      LAYER_ERROR(ValueError,
                                  nn::MaxUnpool2d({.kernel = 2, .stride = -1})(
                                      ones({1, 2, 2}), zeros({1, 2, 2}, {.dtype = DType::kI64})),
                                  "stride", "-1")}}),
      row<nn::MaxUnpool2d>("MaxUnpool2d/padding", {.kernel = {3, 2}, .stride = 2, .padding = {1, 0}},
                           [](nn::MaxUnpool2d& m, X x) {
                             const auto [y, indices] = max_pool2d_with_indices(
                                 x[0], {.kernel = {3, 2}, .stride = 2, .padding = {1, 0}});
                             return m(y, indices);
                           }),
      row<nn::MaxUnpool3d>("MaxUnpool3d", {.kernel = {2, 1, 2}},
                           [](nn::MaxUnpool3d& m, X x) {
                             const auto [y, indices] = max_pool3d_with_indices(x[0], {.kernel = {2, 1, 2}});
                             return m(y, indices);
                           }),
      fractional("FractionalMaxPool2d", fractional_max_pool2d_with_indices,
                 FractionalMaxPool2dOptions{.kernel = {2, 3}, .output = {4, 5}}),
      fractional("FractionalMaxPool2d/ratio", fractional_max_pool2d_with_indices,
                 FractionalMaxPool2dOptions{.kernel = 2, .output_ratio = {0.6, 0.5}}),
      fractional("FractionalMaxPool2d/one", fractional_max_pool2d_with_indices,
                 FractionalMaxPool2dOptions{.kernel = 3, .output = {1, 3}}),
      fractional("FractionalMaxPool3d", fractional_max_pool3d_with_indices,
                 FractionalMaxPool3dOptions{.kernel = {2, 1, 3}, .output = {3, 4, 3}}),
      fractional("FractionalMaxPool3d/ratio", fractional_max_pool3d_with_indices,
                 FractionalMaxPool3dOptions{.kernel = 2, .output_ratio = {0.5}}),
      row<FractionalMaxPool2d>(
          "FractionalMaxPool2d/drawn", {.kernel = 2, .output = 3},
          {.inputs = {kImages}, .golden = false, .prints = "FractionalMaxPool2d(kernel=2x2, output=3x3)"}),
      row<nn::FractionalMaxPool3d>("FractionalMaxPool3d/drawn", {.kernel = 2, .output_ratio = {0.5}},
                                   {.inputs = {kVolumes}, .golden = false}),
  };
}

const bool added = add_rows("composite/resampling", table());

}  // namespace
}  // namespace gradus::layers
