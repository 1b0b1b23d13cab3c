// Ops of vision/ on cuda:0 against the CPU: results, gradients, device of the results, mixed devices.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/vision/boxes.h"
#include "gradus/vision/detection.h"

namespace gradus::vision {
namespace {

const Device kCuda = Device::parse("cuda:0");

Tensor random_boxes(int64_t n) {
  const Tensor start = rand({n, 2}) * 8;
  return cat({start, start + rand({n, 2}) * 6 + 0.5}, -1);
}

void expect_same(const Tensor& cuda, const Tensor& cpu, const std::string& what) {
  EXPECT_EQ(cuda.device(), kCuda) << what;
  EXPECT_EQ(cuda.dtype(), cpu.dtype()) << what;
  ASSERT_EQ(cuda.shape(), cpu.shape()) << what;
  EXPECT_TRUE(allclose(to(cuda, kCPU), cpu, {.rtol = 1e-4, .atol = 1e-5})) << what << cuda << cpu;
}

TEST(VisionOnCuda, ComputesTheCpusResults) {
  manual_seed(1);
  const Tensor boxes = random_boxes(20), others = random_boxes(7), maps = randn({2, 3, 8, 6}),
               logits = randn({4, 5});
  const Tensor rois = cat({floor(rand({20, 1}) * 2), boxes}, 1);
  const auto moved = [](const Tensor& x, const Tensor& like) { return to(x, like.device()); };
  struct Case {
    const char* name;
    Tensor x;
    std::function<Tensor(const Tensor&)> f;
  };
  const std::vector<Case> cases = {
      {"box_iou", boxes, [&](const Tensor& x) { return box_iou(x, moved(others, x)); }},
      {"generalized_box_iou", boxes,
       [&](const Tensor& x) { return generalized_box_iou(x, moved(others, x)); }},
      {"box_convert", boxes,
       [](const Tensor& x) { return box_convert(x, BoxFormat::kXyxy, BoxFormat::kCxcywh); }},
      {"clip_boxes_to_image", boxes,
       [](const Tensor& x) {
         return clip_boxes_to_image(x, {7, 5});
       }},
      {"roi_align", maps,
       [&](const Tensor& x) { return roi_align(x, moved(rois, x), {.output_size = 3, .aligned = true}); }},
      {"sigmoid_focal_loss", logits,
       [](const Tensor& x) { return sigmoid_focal_loss(x, ones_like(x), {.reduction = Reduction::kMean}); }},
  };
  for (const Case& c : cases) {
    const Tensor x = to(c.x, kCuda);
    expect_same(c.f(x), c.f(c.x), c.name);
    const auto squares = [&](const Tensor& t) { return sum(square(c.f(t))); };
    expect_same(autograd::grad(squares, x), autograd::grad(squares, c.x), c.name + std::string(", gradient"));
  }
}

TEST(VisionOnCuda, SuppressesTheCpusBoxes) {
  manual_seed(2);
  const Tensor boxes = random_boxes(40), scores = rand({40}), idxs = randint(3, {40});
  const Tensor kept = nms(boxes, scores, 0.3);
  EXPECT_LT(kept.size(0), 40);
  expect_same(nms(to(boxes, kCuda), to(scores, kCuda), 0.3), kept, "nms");
  expect_same(batched_nms(to(boxes, kCuda), to(scores, kCuda), to(idxs, kCuda), 0.3),
              batched_nms(boxes, scores, idxs, 0.3), "batched_nms");
}

TEST(VisionOnCuda, RefusesTensorsOnTwoDevices) {
  const Tensor boxes = random_boxes(3);
  EXPECT_THROW(nms(to(boxes, kCuda), rand({3}), 0.3), DeviceError);
  EXPECT_THROW(batched_nms(to(boxes, kCuda), to(rand({3}), kCuda), zeros({3}, {.dtype = DType::kI64}), 0.3),
               DeviceError);
  EXPECT_THROW(box_iou(to(boxes, kCuda), boxes), DeviceError);
  EXPECT_THROW(roi_align(to(rand({1, 2, 4, 4}), kCuda), rand({3, 5}), {.output_size = 2}), DeviceError);
}

}  // namespace
}  // namespace gradus::vision
