// copy_, to, contiguous, channels_last and fill_ between layouts, dtypes and devices, and their gradients.
#include "gradus/tensor/ops/copy.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/indexing.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

constexpr DType kAllTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                               DType::kI32, DType::kI16, DType::kI8,  DType::kU8,   DType::kBool};

// 0, 1, 2, ... modulo `modulus`, row-major.
Tensor counting(const Shape& shape, DType dtype = DType::kF32, int64_t modulus = 120) {
  std::vector<int64_t> values(static_cast<size_t>(shape.product()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i) % modulus;
  return raw::to(tensor(values, shape), dtype);
}

TEST(Copy, ConvertsSmallIntegersBetweenAllDtypes) {
  const Tensor x = counting({3, 41});
  const auto want = x.to_vector<double>();
  for (DType from : kAllTypes)
    for (DType to : kAllTypes) {
      const Tensor y = raw::to(raw::to(x, from), to);
      ASSERT_EQ(y.dtype(), to);
      const auto got = y.to_vector<double>();
      const bool truth = from == DType::kBool || to == DType::kBool;
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(got[i], truth ? double(want[i] != 0) : want[i]) << name_of(from) << " to " << name_of(to);
    }
}

TEST(Copy, ConversionsTruncateTowardZeroAndKeepNaN) {
  EXPECT_EQ(raw::to(tensor({1.9f, -1.9f, 0.5f}), DType::kI32).to_vector<int32_t>(),
            (std::vector<int32_t>{1, -1, 0}));
  EXPECT_EQ(raw::to(tensor({0.25f, 0.f, -3.f, NAN}), DType::kBool).to_vector<double>(),
            (std::vector<double>{1, 0, 1, 1}));
  for (DType t : {DType::kF16, DType::kBF16, DType::kF64})
    EXPECT_TRUE(std::isnan(raw::to(tensor({NAN}), t).to_vector<double>()[0])) << name_of(t);
  EXPECT_EQ(raw::to(tensor({1e30f}), DType::kF16).to_vector<double>()[0], INFINITY);
}

TEST(Copy, IdentityReturnsTheSameTensor) {
  const Tensor x = counting({2, 3, 4, 5});
  EXPECT_TRUE(raw::contiguous(x).is_same(x));
  EXPECT_TRUE(raw::to(x, DType::kF32).is_same(x));
  EXPECT_TRUE(raw::to(x, kCPU).is_same(x));
  const Tensor image = raw::channels_last(x);
  EXPECT_TRUE(raw::channels_last(image).is_same(image));
  EXPECT_FALSE(raw::clone(x).is_same(x));
  EXPECT_TRUE(raw::clone(image).is_channels_last());
}

// Sizes around the tiles of the blocked transposition, for every size of element.
TEST(Copy, ChannelsLastAndBackKeepsEveryElement) {
  for (DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kU8})
    for (const Shape& s : {Shape{1, 3, 5, 7}, Shape{2, 8, 4, 4}, Shape{2, 17, 3, 11}, Shape{3, 64, 9, 9},
                           Shape{1, 1, 4, 4}, Shape{2, 5, 1, 1}, Shape{2, 33, 40}, Shape{1, 20, 3, 3, 3}}) {
      const Tensor x = counting(s, t);
      const Tensor image = raw::channels_last(x);
      EXPECT_EQ(image.shape(), s);
      EXPECT_EQ(image.to_vector<double>(), x.to_vector<double>()) << describe(x);
      const Tensor back = raw::contiguous(image);
      EXPECT_TRUE(back.is_row_major());
      EXPECT_EQ(back.to_vector<double>(), x.to_vector<double>()) << describe(x);
    }
}

TEST(Copy, AnyOrderOfDimensionsGivesTheSameElements) {
  const Tensor x = counting({3, 4, 5, 6});
  int order[] = {0, 1, 2, 3};
  do {
    const Tensor view = raw::permute(x, {order[0], order[1], order[2], order[3]});
    const Tensor dense = raw::contiguous(view);
    ASSERT_TRUE(dense.is_row_major());
    ASSERT_EQ(dense.to_vector<double>(), view.to_vector<double>())
        << order[0] << order[1] << order[2] << order[3];
    ASSERT_EQ(raw::to(view, DType::kF64).to_vector<double>(), view.to_vector<double>());
  } while (std::next_permutation(order, order + 4));
}

TEST(Copy, WritesThroughStridedViewsOnly) {
  const Tensor x = zeros({6, 7});
  const Tensor every_second = view_as_strided(x, {3, 3}, {14, 2}, 8);
  raw::copy_(every_second, tensor({1.f, 2.f, 3.f}));  // broadcast over the rows
  const auto v = x.to_vector<double>();
  for (int r = 0; r < 6; ++r)
    for (int c = 0; c < 7; ++c) {
      const bool hit = r % 2 == 1 && c % 2 == 1;
      EXPECT_EQ(v[size_t(r * 7 + c)], hit ? (c + 1) / 2 : 0) << r << "," << c;
    }
}

TEST(Copy, ElementsThatShareAPlaceAreNotWrittenInto) {
  const Tensor row = expand(zeros({1}), {3}), windows = unfold_dim(zeros({4}), 0, 2, 1);
  for (const Tensor& x :
       {row, windows, as_strided(zeros({9}), {2, 3}, {2, 1}), as_strided(zeros({9}), {3, 3}, {2, 2})}) {
    const Tensor y = ones(x.shape());
    EXPECT_ERROR(ShapeError, add_(x, y), "[add_]", "share places", "clone()");
    EXPECT_ERROR(ShapeError, mul_(x, 2), "[mul_]", "share places");
    EXPECT_ERROR(ShapeError, clamp_(x, 0, 1), "[clamp_]");
    EXPECT_ERROR(ShapeError, copy_(x, y), "[copy_]", "share places");
    EXPECT_ERROR(ShapeError, uniform_(x), "[uniform_]");
    EXPECT_ERROR(ShapeError, normal_(x), "[normal_]");
    EXPECT_ERROR(ShapeError, bernoulli_(x, 0.5), "[bernoulli_]");
    fill_(x, 2);  // the same everywhere
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(size_t(x.numel()), 2));
    copy_(x, scalar(3));
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(size_t(x.numel()), 3));
  }
  EXPECT_ERROR(ShapeError, Tensor(row)[{Slice()}] = ones({3}), "share places");
  // These share none.
  for (const Tensor& x : {expand(zeros({1}), {1}), as_strided(zeros({9}), {2, 2}, {3, 2}),
                          as_strided(zeros({9}), {2, 3}, {3, 2}), transpose(zeros({3, 4}), 0, 1),
                          as_strided(zeros({9}), {3, 3}, {1, 3})}) {
    add_(x, 1);
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(size_t(x.numel()), 1)) << describe(x);
  }
}

TEST(Copy, OverlappingSourceIsReadBeforeItIsOverwritten) {
  const Tensor x = counting({50, 50}, DType::kF32, 5000);
  const auto want = raw::permute(x, {1, 0}).to_vector<double>();
  raw::copy_(x, raw::permute(x, {1, 0}));
  EXPECT_EQ(x.to_vector<double>(), want);
}

TEST(Copy, LargeCopiesDoNotDependOnThreads) {
  Context one = Context::current().snapshot(), many = one;
  one.threads = 1, many.threads = 3;
  const Tensor x = counting({4, 30, 41, 43}, DType::kF32, 100000);
  std::vector<double> single;
  {
    ContextScope scope(one);
    single = raw::channels_last(x).to_vector<double>();
  }
  ContextScope scope(many);
  EXPECT_EQ(raw::channels_last(x).to_vector<double>(), single);
  EXPECT_EQ(raw::to(x, DType::kF64).to_vector<double>(), single);
}

TEST(Copy, BumpsTheVersionOfTheDestination) {
  const Tensor x = zeros({2, 2});
  const uint32_t before = x.storage()->version();
  raw::copy_(x, ones({2, 2}));
  raw::fill_(x, 3);
  EXPECT_EQ(x.storage()->version(), before + 2);
}

TEST(Copy, EmptyTensorsAreFine) {
  const Tensor x = empty({0, 3, 4, 5});
  EXPECT_EQ(raw::clone(x).shape(), x.shape());
  EXPECT_EQ(raw::to(x, DType::kI64).numel(), 0);
  EXPECT_EQ(raw::channels_last(x).shape(), x.shape());
  raw::copy_(x, x);
  raw::fill_(x, 1);
}

TEST(Copy, FillsStridedViewsInEveryDtype) {
  for (DType t : kAllTypes) {
    const Tensor x = zeros({5, 6}, {.dtype = t});
    raw::fill_(raw::permute(x, {1, 0}), 1);
    for (double v : x.to_vector<double>()) ASSERT_EQ(v, 1) << name_of(t);
  }
}

// cpu:1 and cpu:2 have queues: work on them runs in order, but after the call returns.
TEST(Copy, CrossesDevicesInBothDirections) {
  const Device other = Device::parse("cpu:1"), third = Device::parse("cpu:2");
  const Tensor x = counting({3, 40, 50}, DType::kF32, 7000);
  const auto want = x.to_vector<double>();
  const Tensor there = raw::to(x, other);
  raw::fill_(x, -1);  // the copy has its own elements already
  EXPECT_EQ(there.device(), other);
  EXPECT_EQ(there.to_vector<double>(), want);
  const Tensor across = raw::to(there, third);
  raw::fill_(there, -2);  // comes after the copy has read
  EXPECT_EQ(raw::to(across, kCPU).to_vector<double>(), want);
  EXPECT_EQ(raw::to(there, kCPU).to_vector<double>()[5], -2);
}

TEST(Copy, MetaTensorsHaveShapesOnly) {
  const Device meta = Device::parse("meta");
  const Tensor m = raw::to(counting({2, 3}), meta);
  EXPECT_EQ(m.shape(), (Shape{2, 3}));
  EXPECT_ERROR(DeviceError, raw::to(m, kCPU), "meta", "f32[2,3]");
}

TEST(Copy, ErrorsNameOpAndShapes) {
  EXPECT_ERROR(ShapeError, copy_(zeros({2, 3}), zeros({4})), "[copy_]", "f32[2,3]", "f32[4]");
  EXPECT_ERROR(ShapeError, copy_(zeros({3}), zeros({1, 3})), "f32[1,3]");
  EXPECT_ERROR(ShapeError, channels_last(zeros({3})), "[channels_last]", "f32[3]");
}

TEST(Copy, GradientReturnsInTheSourcesDtypeAndLayout) {
  const Tensor x = random_tensor({2, 3, 4, 4}, DType::kF64);
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  gm.backward(sum(to(channels_last(x), DType::kF32) * 2));
  EXPECT_EQ(x.grad().dtype(), DType::kF64);
  EXPECT_TRUE(x.grad().is_row_major());
  for (double v : x.grad().to_vector<double>()) EXPECT_EQ(v, 2);
}

TEST(Copy, GradientCrossesBackToTheSourcesDevice) {
  const Tensor x = random_tensor({3, 4});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  gm.backward(sum(square(to(x, Device::parse("cpu:1")))));
  EXPECT_EQ(x.grad().device(), kCPU);
  expect_near(x.grad(), raw::clone(x * 2), 1e-6);
}

TEST(Copy, WritingIntoATrackedTensorIsAnError) {
  const Tensor x = zeros({2});
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  EXPECT_ERROR(StateError, copy_(x, ones({2})), "[copy_]", "recording");
  EXPECT_ERROR(StateError, fill_(x, 1), "[fill_]");
  EXPECT_EQ(x.to_vector<double>(), (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace gradus
