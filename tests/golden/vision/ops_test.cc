// The ops of vision/ against torchvision (ops.py): values, gradients and second derivatives in f64; errors.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/golden/golden.h"
#include "gradus/tests/golden/uniform.h"
#include "gradus/tests/support/error.h"
#include "gradus/vision/boxes.h"
#include "gradus/vision/detection.h"
#include "gradus/vision/draw.h"

namespace gradus::vision {
namespace {

using Tensors = std::vector<Tensor>;
using Op = std::function<Tensor(const Tensors&)>;

const io::SafetensorsFile& file() {
  static const io::SafetensorsFile f = golden::load("vision/ops");
  return f;
}

Op roi_align_op(int64_t sampling_ratio, bool aligned) {
  return [=](const Tensors& x) {
    return roi_align(
        x[0], file().at("rois"),
        {.output_size = {3, 2}, .spatial_scale = 0.5, .sampling_ratio = sampling_ratio, .aligned = aligned});
  };
}
Op focal(SigmoidFocalLossOptions o) {
  return [=](const Tensors& x) { return sigmoid_focal_loss(x[0], x[1], o); };
}

std::map<std::string, Op> cases() {
  std::map<std::string, Op> all = {
      {"iou_batches", [](const Tensors& x) { return box_iou(x[0], x[1]); }},
      {"generalized_iou", [](const Tensors& x) { return generalized_box_iou(x[0], x[1]); }},
      {"clip",
       [](const Tensors& x) {
         return clip_boxes_to_image(x[0], {6, 5});
       }},
      {"roi_align_-1_0", roi_align_op(-1, false)},
      {"roi_align_-1_1", roi_align_op(-1, true)},
      {"roi_align_1_0", roi_align_op(1, false)},
      {"roi_align_1_1", roi_align_op(1, true)},
      {"roi_align_2_0", roi_align_op(2, false)},
      {"roi_align_2_1", roi_align_op(2, true)},
      {"roi_align_pixel",
       [](const Tensors& x) {
         return roi_align(x[0], file().at("rois"), {.output_size = 2, .sampling_ratio = 2, .aligned = true});
       }},
      {"focal_default", focal({})},
      {"focal_soft", focal({.alpha = 0.6, .gamma = 1.5})},
      {"focal_mean", focal({.alpha = -1, .reduction = Reduction::kMean})},
      {"focal_sum", focal({.gamma = 0, .reduction = Reduction::kSum})},
  };
  const std::map<std::string, BoxFormat> formats = {
      {"xyxy", BoxFormat::kXyxy}, {"xywh", BoxFormat::kXywh}, {"cxcywh", BoxFormat::kCxcywh}};
  for (const auto& [name, fmt] : formats) {
    all["area_" + name] = [fmt](const Tensors& x) { return box_area(x[0], fmt); };
    all["iou_" + name] = [fmt](const Tensors& x) { return box_iou(x[0], x[1], fmt); };
    for (const auto& [to, to_fmt] : formats)
      all[name + "_to_" + to] = [fmt, to_fmt](const Tensors& x) { return box_convert(x[0], fmt, to_fmt); };
  }
  return all;
}

class VisionOp : public testing::TestWithParam<std::string> {};

TEST_P(VisionOp, ComputesTorchvisionsValuesAndDerivatives) {
  const std::string name = GetParam();
  const Op op = cases().at(name);
  const auto expected = [&](const std::string& what, size_t i) {
    return file().at(name + "/" + what + std::to_string(i));
  };
  const auto random = [&](const std::string& what, const Shape& shape) {
    return tensor(golden::uniform(name + "/" + what, shape.product()), shape);
  };
  Tensors xs, vs;
  while (file().tensors.contains(name + "/x" + std::to_string(xs.size()))) {
    xs.push_back(expected("x", xs.size()));
    vs.push_back(random("v" + std::to_string(vs.size()), xs.back().shape()));
  }
  const Tensor y = op(xs), dy = random("dy", y.shape());
  golden::expect_near(y, file().at(name + "/y"), 1e-10, "result");
  const auto loss = [&](const Tensors& x) { return sum(op(x) * dy); };
  const Tensors grads = autograd::grad(loss, xs), hvps = autograd::hvp(loss, xs, vs).second;
  for (size_t i = 0; i < xs.size(); ++i) {
    golden::expect_near(grads[i], expected("grad", i), 1e-10, "gradient");
    // torchvision has no second derivatives of ops that are linear: they are 0.
    const std::string key = name + "/hvp" + std::to_string(i);
    golden::expect_near(hvps[i], file().tensors.contains(key) ? file().at(key) : zeros_like(xs[i]), 1e-10,
                        "second derivative");
  }
}

INSTANTIATE_TEST_SUITE_P(, VisionOp, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& c : cases()) names.push_back(c.first);
                           return names;
                         }()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             if (c == '-') c = 'm';
                           return name;
                         });

// The gradient dx of roi_align is linear in dy: the derivative of <dx, v> with respect to dy is roi_align(v).
TEST(RoiAlign, DifferentiatesItsGradient) {
  const Tensor v = file().at("roi_align_2_1/x0"), y = file().at("roi_align_2_1/y");
  const auto of_dy = [&](const Tensor& dy) {
    return sum(autograd::grad([](const Tensor& x) { return roi_align_op(2, true)({x}); }, zeros_like(v), dy) *
               v);
  };
  golden::expect_near(autograd::grad(of_dy, ones_like(y)), y, 1e-10, "derivative of the gradient");
}

TEST(RoiAlign, TakesNoBoxesAndOtherDtypes) {
  const Tensor x = randn({1, 2, 5, 5});
  EXPECT_EQ(roi_align(x, zeros({0, 5}), {.output_size = {2, 3}}).shape(), (Shape{0, 2, 2, 3}));
  const Tensor boxes = tensor({{0.f, 1.f, 1.f, 4.f, 3.5f}});
  const Tensor y = roi_align(x, boxes, {.output_size = 2});
  const Tensor half = roi_align(to(x, DType::kF16), to(boxes, DType::kF16), {.output_size = 2});
  EXPECT_EQ(half.dtype(), DType::kF16);
  golden::expect_near(half, y, 2e-3, "f16");
}

TEST(Nms, KeepsTorchvisionsBoxes) {
  const Tensor boxes = file().at("nms/boxes"), scores = file().at("nms/scores"), idxs = file().at("nms/idxs");
  for (const auto& [text, threshold] : {std::pair("0.2", 0.2), {"0.5", 0.5}, {"0.7", 0.7}}) {
    const auto expected = [&, text = text](const char* op) {
      return file().at(concat(op, '/', text)).to_vector<int64_t>();
    };
    EXPECT_EQ(nms(boxes, scores, threshold).to_vector<int64_t>(), expected("nms"));
    EXPECT_EQ(nms(to(boxes, DType::kF32), to(scores, DType::kF32), threshold).to_vector<int64_t>(),
              expected("nms_f32"));
    EXPECT_EQ(batched_nms(boxes, scores, idxs, threshold).to_vector<int64_t>(), expected("batched_nms"));
  }
  EXPECT_EQ(nms(zeros({0, 4}), zeros({0}), 0.5).shape(), Shape{0});
}

TEST(BoxArea, ComputesSmallTypesInLargerOnes) {
  const Tensor boxes = tensor({{0, 0, 100, 100}});
  const Tensor area = box_area(to(boxes, DType::kU8));
  EXPECT_EQ(area.dtype(), DType::kI32);
  EXPECT_EQ(area.item<int64_t>(), 10000);
  EXPECT_EQ(box_area(to(boxes, DType::kF16)).dtype(), DType::kF32);
  EXPECT_EQ(box_iou(boxes, boxes).item<double>(), 1);
  const Tensor apart = tensor({{150, 150, 250, 250}});
  EXPECT_EQ(box_iou(to(boxes, DType::kU8), to(apart, DType::kU8)).item<double>(), 0);
}

TEST(DrawBoundingBoxes, SetsTorchvisionsPixels) {
  const Tensor image = to(file().at("draw/image"), DType::kU8), boxes = file().at("draw/boxes");
  const auto expect_same = [&](const std::string& name, const DrawBoundingBoxesOptions& o) {
    const Tensor y = draw_bounding_boxes(image, boxes, o);
    EXPECT_EQ(y.dtype(), DType::kU8);
    EXPECT_EQ(y.to_vector<int64_t>(), file().at("draw/" + name).to_vector<int64_t>()) << name;
  };
  const std::vector<int64_t> rgb = file().at("draw/colors").to_vector<int64_t>();
  std::vector<std::array<uint8_t, 3>> colors;
  for (size_t i = 0; i < rgb.size(); i += 3)
    colors.push_back({uint8_t(rgb[i]), uint8_t(rgb[i + 1]), uint8_t(rgb[i + 2])});
  for (const int64_t width : {1, 2, 5})
    for (const bool fill : {false, true})
      expect_same(std::to_string(width) + "_" + std::to_string(fill),
                  {.colors = colors, .fill = fill, .width = width});
  expect_same("palette", {});
  expect_same("one", {.colors = {{5, 6, 7}}});
  EXPECT_EQ(image.to_vector<int64_t>(), file().at("draw/image").to_vector<int64_t>());  // it is copied
  EXPECT_EQ(draw_bounding_boxes(image, zeros({0, 4})).to_vector<int64_t>(), image.to_vector<int64_t>());
}

TEST(DrawBoundingBoxes, ThrowsTypedErrors) {
  const Tensor image = zeros({3, 4, 5}, {.dtype = DType::kU8}),
               boxes = tensor({{0.f, 0.f, 2.f, 2.f}, {1.f, 1.f, 3.f, 3.f}});
  EXPECT_ERROR(ShapeError, draw_bounding_boxes(select(image, 0, 0), boxes), "[draw_bounding_boxes]",
               "[3,H,W]", "u8[4,5]");
  EXPECT_THROW(draw_bounding_boxes(image, zeros({2, 5})), ShapeError);
  EXPECT_THROW(draw_bounding_boxes(zeros({3, 4, 5}), boxes), DTypeError);
  EXPECT_THROW(draw_bounding_boxes(image, boxes, {.width = 0}), ValueError);
  EXPECT_THROW(draw_bounding_boxes(image, boxes * NAN), ValueError);
  EXPECT_ERROR(ValueError, draw_bounding_boxes(image, -boxes), "left, top, right, bottom", "-2");
  EXPECT_THROW(draw_bounding_boxes(image, cat({boxes, boxes}, 0), {.colors = {{1, 2, 3}, {4, 5, 6}}}),
               ValueError);
  draw_bounding_boxes(image, boxes * 1e30, {.width = int64_t{1} << 62});  // outside; nothing overflows
}

TEST(VisionOps, ThrowTypedErrors) {
  const Tensor boxes = rand({3, 4}), scores = rand({3}), idxs = zeros({3}, {.dtype = DType::kI64});
  EXPECT_ERROR(ShapeError, box_area(rand({3, 5})), "[box_area]", "[...,4]", "f32[3,5]");
  EXPECT_THROW(box_area(scalar(1)), ShapeError);
  EXPECT_THROW(box_iou(boxes, rand({3, 2})), ShapeError);
  EXPECT_THROW(generalized_box_iou(rand({2, 5, 4}), rand({3, 5, 4})), ShapeError);
  EXPECT_THROW(box_convert(Tensor(), BoxFormat::kXyxy, BoxFormat::kXywh), StateError);
  EXPECT_THROW(box_area(to(boxes, DType::kBool)), DTypeError);
  EXPECT_ERROR(ShapeError, nms(boxes, rand({2}), 0.5), "[nms]", "f32[3,4]", "f32[2]");
  EXPECT_THROW(nms(rand({1, 3, 4}), scores, 0.5), ShapeError);
  EXPECT_THROW(nms(to(boxes, DType::kI64), scores, 0.5), DTypeError);
  EXPECT_THROW(nms(boxes, scores, NAN), ValueError);
  EXPECT_THROW(batched_nms(boxes, scores, rand({3}), 0.5), DTypeError);
  EXPECT_THROW(batched_nms(boxes, scores, zeros({2}, {.dtype = DType::kI64}), 0.5), ShapeError);
  EXPECT_THROW(sigmoid_focal_loss(boxes, boxes, {.alpha = 2}), ValueError);
  EXPECT_THROW(sigmoid_focal_loss(boxes, boxes, {.reduction = Reduction::kBatchMean}), ValueError);
  EXPECT_THROW(sigmoid_focal_loss(boxes, scores), ShapeError);
}

TEST(RoiAlign, ThrowsTypedErrors) {
  const Tensor x = rand({2, 3, 4, 4});
  const auto align = [&](std::vector<double> box, RoiAlignOptions o = {.output_size = 2}) {
    return roi_align(x, tensor(box, {1, 5}), o);
  };
  EXPECT_ERROR(IndexError, align({2, 0, 0, 1, 1}), "[roi_align]", "[0, 2)", "2");
  EXPECT_THROW(align({-0.5, 0, 0, 1, 1}), IndexError);
  EXPECT_THROW(align({NAN, 0, 0, 1, 1}), IndexError);
  EXPECT_THROW(align({0, 0, 0, INFINITY, 1}), ValueError);
  EXPECT_THROW(align({0, 0, NAN, 1, 1}), ValueError);
  EXPECT_THROW(align({0, 0, 0, 1e30, 1}), ValueError);
  EXPECT_THROW(align({0, 0, 0, 1, 1}, {.output_size = 2, .sampling_ratio = int64_t{1} << 40}), ValueError);
  EXPECT_THROW(align({0, 0, 0, 1, 1}, {.output_size = {0, 2}}), ValueError);
  EXPECT_THROW(align({0, 0, 0, 1, 1}, {.output_size = {2, int64_t{1} << 60}}), ValueError);
  EXPECT_THROW(roi_align(x, rand({3, 4}), {.output_size = 2}), ShapeError);
  EXPECT_THROW(roi_align(rand({2, 3, 0, 4}), rand({3, 5}), {.output_size = 2}), ShapeError);
  EXPECT_THROW(roi_align(to(x, DType::kI64), rand({3, 5}), {.output_size = 2}), DTypeError);
}

}  // namespace
}  // namespace gradus::vision
