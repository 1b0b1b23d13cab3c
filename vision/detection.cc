// roi_align is a weighted sum of pixels, whose numbers and weights the host computes for each cell (embedding_bag).
#include "gradus/vision/detection.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/op_call.h"

namespace gradus::vision {
namespace {

constexpr const char* kRoiAlign = "roi_align";

// Weights of pixels along an axis, for each cell of a box.
using Weights = std::vector<std::map<int64_t, double>>;

// Returns the weights of the `n` pixels for cells that divide [low, high].
Weights weights_of(double low, double high, int64_t cells, int64_t n, const RoiAlignOptions& o) {
  const double offset = o.aligned ? 0.5 : 0, start = low * o.spatial_scale - offset;
  const double extent = high * o.spatial_scale - offset - start;
  const double cell = (o.aligned ? extent : std::max(extent, 1.0)) / double(cells);
  const double samples = o.sampling_ratio > 0 ? double(o.sampling_ratio) : std::ceil(cell);
  if (!std::isfinite(extent) || samples > 65536)
    throw ValueError(kRoiAlign, "expected finite boxes of at most 65536 samples per cell, got sides at ", low,
                     " and ", high);
  Weights weights(static_cast<size_t>(cells));
  for (int64_t i = 0; i < cells; ++i)
    for (double s = 0; s < samples; ++s) {
      double at = start + double(i) * cell + (s + 0.5) * cell / samples;
      if (at < -1 || at > double(n)) continue;
      at = std::clamp(at, 0.0, double(n - 1));
      const auto pixel = static_cast<int64_t>(at);
      const double rest = at - double(pixel);
      weights[size_t(i)][pixel] += (1 - rest) / samples;
      if (rest > 0) weights[size_t(i)][pixel + 1] += rest / samples;
    }
  return weights;
}

}  // namespace

Tensor roi_align(const Tensor& x, const Tensor& boxes, const RoiAlignOptions& o) {
  const OpCall call(kRoiAlign, {{"x", x}, {"boxes", boxes}});
  if (x.dim() != 4 || x.size(2) < 1 || x.size(3) < 1 || boxes.dim() != 2 || boxes.size(1) != 5)
    throw ShapeError(kRoiAlign, "expected x [N,C,H,W] and boxes [K,5], got ", describe(x), " and ",
                     describe(boxes));
  if (!is_floating(x.dtype()) || !is_floating(boxes.dtype()))
    throw DTypeError(kRoiAlign, "expected floating-point numbers, got ", describe(x), " and ",
                     describe(boxes));
  if (x.device() != boxes.device())
    throw DeviceError(kRoiAlign, "expected one device, got ", describe(x), " and ", describe(boxes));
  const Size2 out = *o.output_size;
  if (std::min(out.h, out.w) < 1 || std::max(out.h, out.w) > 1024)
    throw ValueError(kRoiAlign, "expected an output_size from 1 to 1024, got ", out);
  const int64_t height = x.size(2), width = x.size(3), count = boxes.size(0);
  const std::vector<double> all = boxes.to_vector<double>();
  std::vector<int64_t> pixels, offsets;  // of all cells; where each cell begins
  std::vector<double> weights;
  for (size_t k = 0; k < all.size(); k += 5) {
    if (!(all[k] >= 0 && all[k] < double(x.size(0))))
      throw IndexError(kRoiAlign, "expected numbers of images in [0, ", x.size(0), "), got ", all[k]);
    const auto image = static_cast<int64_t>(all[k]);
    const Weights columns = weights_of(all[k + 1], all[k + 3], out.w, width, o);
    for (const auto& row_weights : weights_of(all[k + 2], all[k + 4], out.h, height, o))
      for (const auto& column_weights : columns) {
        offsets.push_back(static_cast<int64_t>(pixels.size()));
        for (const auto& [row, row_weight] : row_weights)
          for (const auto& [column, column_weight] : column_weights) {
            pixels.push_back((image * height + row) * width + column);
            weights.push_back(row_weight * column_weight);
          }
      }
  }
  const Tensor table = reshape(permute(x, {0, 2, 3, 1}), {x.size(0) * height * width, x.size(1)});
  const DType dtype = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const Tensor y = embedding_bag(
      to(tensor(pixels), x.device()), table, to(tensor(offsets), x.device()),
      {.mode = BagMode::kSum, .per_sample_weights = to(to(tensor(weights), dtype), x.device())});
  return permute(reshape(y, {count, out.h, out.w, x.size(1)}), {0, 3, 1, 2});
}

Tensor sigmoid_focal_loss(const Tensor& x, const Tensor& target, const SigmoidFocalLossOptions& o) {
  const OpCall call("sigmoid_focal_loss", {{"x", x}, {"target", target}});
  if (o.alpha != -1 && !(o.alpha >= 0 && o.alpha <= 1))
    throw ValueError("sigmoid_focal_loss", "expected an alpha of -1 or in [0, 1], got ", o.alpha);
  const Tensor bce = binary_cross_entropy_with_logits(x, target, {.reduction = Reduction::kNone});
  const Tensor p = sigmoid(x), other = 1 - target;
  Tensor loss = bce * pow(1 - (p * target + (1 - p) * other), o.gamma);
  if (o.alpha >= 0) loss = loss * (target * o.alpha + other * (1 - o.alpha));
  switch (o.reduction) {
    case Reduction::kNone:
      return loss;
    case Reduction::kMean:
      return mean(loss);
    case Reduction::kSum:
      return sum(loss);
    default:
      throw ValueError("sigmoid_focal_loss", "expected kNone, kMean or kSum as reduction, got kBatchMean");
  }
}

}  // namespace gradus::vision
