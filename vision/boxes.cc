// Ops over boxes, composed of differentiable ops; the loop of non-maximum suppression.
#include "gradus/vision/boxes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/op_call.h"

namespace gradus::vision {
namespace {

void check(const char* op, const Tensor& boxes) {
  if (boxes.dim() < 1 || boxes.size(-1) != 4)
    throw ShapeError(op, "expected boxes [...,4], got ", describe(boxes));
  if (boxes.dtype() == DType::kBool) throw DTypeError(op, "expected numbers as boxes, got ", describe(boxes));
}

// Converts to a dtype in which differences and products are not rounded to 11 bits and do not wrap at 8.
Tensor upcast(const Tensor& x) {
  if (size_of(x.dtype()) >= 4) return x;
  return to(x, is_floating(x.dtype()) ? DType::kF32 : DType::kI32);
}

Tensor first_two(const Tensor& x) { return slice(x, -1, 0, 2); }
Tensor last_two(const Tensor& x) { return slice(x, -1, 2, 4); }

// Returns width * height of sides [...,2], negative ones as 0.
Tensor area_of(const Tensor& sides) {
  const Tensor s = clamp(sides, 0);
  return select(s, -1, 0) * select(s, -1, 1);
}

struct Overlap {
  Tensor inter, both, hull;  // areas of intersection, union and smallest box around each pair, [...,N,M]
};
Overlap overlap(const Tensor& boxes1, const Tensor& boxes2) {
  const Tensor a = unsqueeze(upcast(boxes1), -2), b = unsqueeze(upcast(boxes2), -3);
  const Tensor inter = area_of(minimum(last_two(a), last_two(b)) - maximum(first_two(a), first_two(b)));
  const Tensor hull = area_of(maximum(last_two(a), last_two(b)) - minimum(first_two(a), first_two(b)));
  return {inter, unsqueeze(box_area(boxes1), -1) + unsqueeze(box_area(boxes2), -2) - inter, hull};
}

// T: the type in which overlaps are computed. `group`: boxes of different groups are not compared; may be empty.
template <class T>
std::vector<int64_t> kept(const std::vector<T>& boxes, const std::vector<int64_t>& order,
                          const std::vector<int64_t>& group, double threshold) {
  const auto area = [&](size_t i) { return (boxes[i + 2] - boxes[i]) * (boxes[i + 3] - boxes[i + 1]); };
  std::vector<int64_t> result;
  for (const int64_t candidate : order) {
    const auto suppresses = [&](int64_t other) {
      if (!group.empty() && group[size_t(other)] != group[size_t(candidate)]) return false;
      const size_t a = 4 * size_t(other), b = 4 * size_t(candidate);
      const T w = std::min(boxes[a + 2], boxes[b + 2]) - std::max(boxes[a], boxes[b]);
      const T h = std::min(boxes[a + 3], boxes[b + 3]) - std::max(boxes[a + 1], boxes[b + 1]);
      const T inter = std::max(w, T(0)) * std::max(h, T(0));
      return inter / (area(a) + area(b) - inter) > threshold;
    };
    if (std::ranges::none_of(result, suppresses)) result.push_back(candidate);
  }
  return result;
}

Tensor suppressed(const char* op, const Tensor& boxes, const Tensor& scores, const Tensor& idxs,
                  double threshold) {
  check(op, boxes);
  const std::string given =
      describe(boxes) + ", " + describe(scores) + (idxs.defined() ? ", " + describe(idxs) : "");
  const Shape n{boxes.size(0)};
  if (boxes.dim() != 2 || scores.shape() != n || (idxs.defined() && idxs.shape() != n))
    throw ShapeError(op, "expected boxes [N,4], scores [N] and idxs [N], got ", given);
  if (!is_floating(boxes.dtype()) || !is_floating(scores.dtype()) ||
      (idxs.defined() && is_floating(idxs.dtype())))
    throw DTypeError(op, "expected floating boxes and scores, and integer idxs, got ", given);
  if (scores.device() != boxes.device() || (idxs.defined() && idxs.device() != boxes.device()))
    throw DeviceError(op, "expected one device, got ", given);
  if (std::isnan(threshold)) throw ValueError(op, "expected a number as iou_threshold, got NaN");
  const std::vector<int64_t> order =
      argsort(to(detach(scores), kCPU), {.descending = true}).to_vector<int64_t>();
  const std::vector<int64_t> group = idxs.defined() ? idxs.to_vector<int64_t>() : std::vector<int64_t>();
  const std::vector<int64_t> result = boxes.dtype() == DType::kF64
                                          ? kept(boxes.to_vector<double>(), order, group, threshold)
                                          : kept(boxes.to_vector<float>(), order, group, threshold);
  return to(tensor(result), boxes.device());
}

}  // namespace

Tensor box_convert(const Tensor& boxes, BoxFormat in_fmt, BoxFormat out_fmt) {
  const OpCall call("box_convert", {{"boxes", boxes}});
  check("box_convert", boxes);
  if (in_fmt == out_fmt) return clone(boxes);
  Tensor a = first_two(boxes), b = last_two(boxes);
  if (in_fmt == BoxFormat::kCxcywh) a = a - b * 0.5;
  if (in_fmt != BoxFormat::kXyxy) b = a + b;
  if (out_fmt == BoxFormat::kXyxy) return cat({a, b}, -1);
  return cat({out_fmt == BoxFormat::kXywh ? a : (a + b) / 2, b - a}, -1);
}

Tensor box_area(const Tensor& boxes, BoxFormat fmt) {
  const OpCall call("box_area", {{"boxes", boxes}});
  check("box_area", boxes);
  const Tensor x = upcast(boxes), sides = fmt == BoxFormat::kXyxy ? last_two(x) - first_two(x) : last_two(x);
  return select(sides, -1, 0) * select(sides, -1, 1);
}

Tensor box_iou(const Tensor& boxes1, const Tensor& boxes2, BoxFormat fmt) {
  const OpCall call("box_iou", {{"boxes1", boxes1}, {"boxes2", boxes2}});
  check("box_iou", boxes1), check("box_iou", boxes2);
  if (fmt != BoxFormat::kXyxy)
    return box_iou(box_convert(boxes1, fmt, BoxFormat::kXyxy), box_convert(boxes2, fmt, BoxFormat::kXyxy));
  const Overlap o = overlap(boxes1, boxes2);
  return o.inter / o.both;
}

Tensor generalized_box_iou(const Tensor& boxes1, const Tensor& boxes2) {
  const OpCall call("generalized_box_iou", {{"boxes1", boxes1}, {"boxes2", boxes2}});
  check("generalized_box_iou", boxes1), check("generalized_box_iou", boxes2);
  const Overlap o = overlap(boxes1, boxes2);
  return o.inter / o.both - (o.hull - o.both) / o.hull;
}

Tensor clip_boxes_to_image(const Tensor& boxes, Size2 size) {
  const OpCall call("clip_boxes_to_image", {{"boxes", boxes}});
  check("clip_boxes_to_image", boxes);
  const auto clipped = [&](int64_t coordinate, int64_t n) {
    return clamp(slice(boxes, -1, coordinate, coordinate + 1), 0, n);
  };
  return cat({clipped(0, size.w), clipped(1, size.h), clipped(2, size.w), clipped(3, size.h)}, -1);
}

Tensor nms(const Tensor& boxes, const Tensor& scores, double iou_threshold) {
  const OpCall call("nms", {{"boxes", boxes}, {"scores", scores}});
  return suppressed("nms", boxes, scores, {}, iou_threshold);
}

Tensor batched_nms(const Tensor& boxes, const Tensor& scores, const Tensor& idxs, double iou_threshold) {
  const OpCall call("batched_nms", {{"boxes", boxes}, {"scores", scores}, {"idxs", idxs}});
  return suppressed("batched_nms", boxes, scores, idxs, iou_threshold);
}

}  // namespace gradus::vision
