// The layer table: one row per layer with its options (`row`), in the file of its family.
// layer_table_test.cc makes the tests of each row from its columns (`Checks`). PyTorch's values come from
// <family>.py, which writes <family>.safetensors.
//
//   row<nn::Linear>("Linear", {.in = 3, .out = 4}, {.inputs = {{kRows, 3}}, .prints = "Linear(in=3, out=4)"})
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradus/nn/nn.h"
#include "gradus/tests/nn/layers/golden_layers.h"
#include "gradus/tests/support/error.h"

namespace gradus::layers {

using golden::GoldenLayer;
using golden::X;

inline constexpr int64_t kRows = -1;  // the number of samples, which a test chooses
inline const Shape kFlat{kRows, 8}, kLines{kRows, 4, 8}, kImages{kRows, 4, 6, 6}, kVolumes{kRows, 4, 4, 4, 4};

struct Checks {
  // Shapes of the inputs with which every dtype, device and number of rows is compared with f64; none: not
  // compared.
  std::vector<Shape> inputs = {};
  // Tolerance of that comparison: the number of successive roundings on the way to a value or a gradient,
  // each weighted by how much later steps amplify it.
  double roundings = 8;
  bool indices = false;  // the input has integers in [0, 5)
  bool golden = true;    // PyTorch's file has a case of the row's name, to compare with (golden_layers.h)
  // Numeric gradients of both orders, in evaluation, for PyTorch's inputs or one row of `inputs`.
  bool second_order = false;
  bool one_row_trains = true;  // false: one row in training is an error, as in PyTorch
  std::string prints = {};     // its printed type and options without defaults; empty: not tested
  std::vector<std::function<void()>> errors = {};
};

// An entry of `errors`: LAYER_ERROR(ShapeError, nn::PixelNorm()(ones({6})), "[PixelNorm]", "f32[6]").
#define LAYER_ERROR(Type, call, ...) [] { EXPECT_ERROR(Type, call, __VA_ARGS__); }

// The name is the class or function, then the variant: "BatchNorm1d/plain".
struct Row : GoldenLayer {
  Checks checks;
  std::string family = {};
};

// An L with these options, run by call(layer, inputs), which gives one Tensor or a vector; by default
// layer(x[0]).
template <class L, class Call>
Row row(std::string name, typename L::Options options, Call call, Checks checks = {}) {
  return {golden::golden<L>(std::move(name), options, call), std::move(checks)};
}
template <class L> Row row(std::string name, typename L::Options options = {}, Checks checks = {}) {
  return {golden::golden<L>(std::move(name), options), std::move(checks)};
}
// An L after change(layer), as by nn::spectral_norm.
template <class L, class Change>
Row changed(std::string name, typename L::Options options, Change change, Checks checks = {}) {
  Row r{golden::golden<L>(std::move(name), options), std::move(checks)};
  r.make = [options, change] {
    auto layer = std::make_unique<L>(options);
    change(*layer);
    return layer;
  };
  return r;
}

// Adds the rows of a family. Returns true, for static initializers.
bool add_rows(const std::string& family, std::vector<Row> rows);
const std::vector<Row>& all_rows();

// Pseudo-random numbers in [-2, 2] that bf16 and f16 represent exactly; f64, a function of shape and seed.
Tensor pattern(const Shape& shape, uint64_t seed);
// `values` with x's dtype and device.
Tensor like(const Tensor& values, const Tensor& x);
// 1 or -1 by pattern, with x's dtype and device.
Tensor signs(const Tensor& x, const Shape& shape);

}  // namespace gradus::layers
