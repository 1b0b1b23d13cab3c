// Tensor and Storage: strides and layouts, access to elements, errors, lifetimes of memory, also of memory
// that the caller owns (from_blob).
#include "gradus/tensor/tensor.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "gradus/tensor/runtime/stream.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

const Device kOther = Device::parse("cpu:1");
const Device kMeta = Device::parse("meta");

Tensor strided(const Shape& shape, const Strides& strides) {
  return view_as_strided(empty({1000}), shape, strides, 0);
}

TEST(Storage, CountsInPlaceWrites) {
  Tensor x = empty({4});
  const Tensor view = view_as_strided(x, {2}, {1}, 2);
  const uint32_t before = x.storage()->version();
  x.data<float>();
  EXPECT_EQ(x.storage()->version(), before);
  x.mutable_data<float>();
  EXPECT_EQ(view.storage()->version(), before + 1);
}

TEST(Storage, RunsReleaseOnceWhenTheLastViewIsGone) {
  float memory[6] = {0, 1, 2, 3, 4, 5};
  int released = 0;
  Tensor view;
  {
    const Tensor x = from_blob(memory, {2, 3}, {}, [&] { ++released; });
    EXPECT_EQ(x.data<float>(), memory);
    view = view_as_strided(x, {3}, {1}, 3);
    const Tensor copy = x;
  }
  EXPECT_EQ(released, 0);
  EXPECT_EQ(view.to_vector<float>(), (std::vector<float>{3, 4, 5}));
  view = Tensor();
  EXPECT_EQ(released, 1);
}

TEST(Storage, ReleaseWaitsForQueuedKernels) {
  float memory[1] = {0};
  std::atomic<bool> written{false}, written_at_release{false};
  {
    const Tensor x =
        from_blob(memory, {1}, {DType::kF32, kOther}, [&] { written_at_release = written.load(); });
    Stream::of(kOther).enqueue([x, &written] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      *x.ptr<float>() = 1;
      written = true;
    });
  }
  synchronize(kOther);
  EXPECT_TRUE(written_at_release);
  EXPECT_EQ(memory[0], 1);
}

TEST(FromBlob, ReleaseBelongsToTheCallerWhenItThrows) {
  bool released = false;
  float x = 0;
  EXPECT_THROW(from_blob(&x, {-1}, {}, [&] { released = true; }), ShapeError);
  EXPECT_ERROR(ValueError, from_blob(nullptr, {2}, {}, [&] { released = true; }), "[from_blob] null data",
               "[2]");
  EXPECT_FALSE(released);
  EXPECT_EQ(from_blob(nullptr, {0}).numel(), 0);
}

TEST(SoleOwner, IsFalseForSharedAndForeignMemory) {
  Tensor x = empty({2});
  EXPECT_TRUE(x.is_sole_owner());
  {
    const Tensor copy = x;
    EXPECT_FALSE(x.is_sole_owner());
  }
  {
    const Tensor view = detach(x);
    EXPECT_FALSE(x.is_sole_owner());
  }
  EXPECT_TRUE(x.is_sole_owner());
  float memory[2];
  EXPECT_FALSE(from_blob(memory, {2}).is_sole_owner());
  EXPECT_FALSE(Tensor().is_sole_owner());
}

TEST(Layout, SizeOneDimensionsGetTheStrideOfARowMajorArray) {
  EXPECT_EQ(strided({2, 1, 3}, {3, 77, 1}).strides(), (Strides{3, 3, 1}));
  EXPECT_EQ(strided({1, 2, 3}, {0, 3, 1}).strides(), (Strides{6, 3, 1}));
  EXPECT_EQ(strided({2, 3, 1}, {3, 1, 5}).strides(), (Strides{3, 1, 1}));
  EXPECT_EQ(strided({1, 1}, {9, 9}).strides(), (Strides{1, 1}));
  EXPECT_TRUE(strided({1, 4, 1}, {50, 1, 60}).is_row_major());
}

TEST(Layout, RowMajorMeansDenseAndInOrder) {
  EXPECT_TRUE(empty({2, 3}).is_row_major());
  EXPECT_TRUE(scalar(1).is_row_major());
  EXPECT_FALSE(strided({2, 3}, {4, 1}).is_row_major());  // a gap
  EXPECT_FALSE(strided({2, 3}, {1, 2}).is_row_major());  // transposed
  EXPECT_FALSE(strided({2, 3}, {0, 1}).is_row_major());  // repeated
}

TEST(Layout, WhatHasNoElementsIsRowMajorWhateverItsStrides) {
  for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}, Shape{2, 0, 3}, Shape{0}}) {
    EXPECT_TRUE(strided(shape, Strides::filled(shape.size(), 7)).is_row_major()) << shape;
    EXPECT_TRUE(empty(shape).is_dense());
  }
  EXPECT_TRUE(empty_channels_last({0, 3, 4, 4}).is_row_major());
  EXPECT_FALSE(empty_channels_last({0, 3, 4, 4}).is_channels_last());
}

TEST(Layout, ChannelsLastIsNeverRowMajorAsWell) {
  EXPECT_TRUE(empty_channels_last({2, 3, 4, 5}).is_channels_last());
  EXPECT_TRUE(empty_channels_last({1, 3, 4, 5}).is_channels_last());
  EXPECT_TRUE(empty_channels_last({2, 3, 1, 5}).is_channels_last());
  EXPECT_TRUE(empty_channels_last({2, 3, 5}).is_channels_last());
  EXPECT_TRUE(empty_channels_last({2, 3, 4, 5, 6}).is_channels_last());
  EXPECT_FALSE(empty_channels_last({2, 1, 4, 5}).is_channels_last());
  EXPECT_FALSE(empty_channels_last({2, 3, 1, 1}).is_channels_last());
  EXPECT_FALSE(empty({2, 3, 4, 5}).is_channels_last());
  EXPECT_FALSE(strided({2, 3, 2, 2}, {24, 1, 12, 6}).is_channels_last());  // every second channel
  EXPECT_FALSE(strided({2, 3}, {1, 2}).is_channels_last());
}

TEST(Layout, DenseMeansNoGapsAndNoOverlapInSomeOrder) {
  EXPECT_TRUE(strided({2, 3, 4}, {1, 8, 2}).is_dense());
  EXPECT_TRUE(strided({3, 1, 2}, {1, 50, 3}).is_dense());
  EXPECT_TRUE(strided({2, 1, 3}, {1, 50, 2}).is_dense());
  EXPECT_FALSE(strided({2, 3, 4}, {1, 9, 2}).is_dense());
  EXPECT_FALSE(strided({2, 3}, {0, 1}).is_dense());
  EXPECT_FALSE(strided({2, 3}, {1, 1}).is_dense());
}

TEST(EmptyLike, KeepsTheOrderOfDimensionsInMemory) {
  EXPECT_EQ(empty_like(empty({2, 3})).strides(), (Strides{3, 1}));
  EXPECT_TRUE(empty_like(empty_channels_last({2, 3, 4, 5})).is_channels_last());
  EXPECT_EQ(empty_like(strided({2, 3, 4}, {1, 8, 2})).strides(), (Strides{1, 8, 2}));
  EXPECT_EQ(empty_like(empty_channels_last({2, 3, 4, 5}), DType::kF64).dtype(), DType::kF64);
}

TEST(EmptyLike, ASizeOneDimensionBetweenTwoOthersDoesNotHideTheirOrder) {
  EXPECT_EQ(empty_like(strided({2, 1, 3}, {1, 50, 2})).strides()[0], 1);
  EXPECT_EQ(empty_like(strided({2, 1, 3}, {1, 50, 2})).strides()[2], 2);
  EXPECT_EQ(empty_like(strided({4, 1, 1, 5}, {1, 9, 9, 4})).strides()[3], 4);
}

TEST(EmptyLike, ClosesGapsAndSeparatesWhatOverlaps) {
  for (const Strides& s :
       {Strides{40, 4, 2}, Strides{0, 4, 1}, Strides{1, 1, 1}, Strides{0, 0, 0}, Strides{2, 40, 8}}) {
    const Tensor y = empty_like(strided({2, 3, 4}, s));
    EXPECT_TRUE(y.is_dense()) << s;
    EXPECT_EQ(y.storage()->bytes(), 24 * 4);
  }
  EXPECT_EQ(empty_like(strided({2, 3, 2, 2}, {24, 1, 12, 6})).strides(), channels_last_strides({2, 3, 2, 2}));
}

TEST(EmptyStrided, RefusesStridesThatLeaveTheBlock) {
  EXPECT_EQ(empty_strided({2, 3}, {1, 2}).strides(), (Strides{1, 2}));
  EXPECT_ERROR(ShapeError, empty_strided({2, 3}, {4, 1}), "[empty_strided]", "[2,3]", "[4,1]");
  EXPECT_ERROR(ShapeError, empty_strided({2, 3}, {0, 1}), "[empty_strided]");
  EXPECT_ERROR(ShapeError, empty_strided({2, 3}, {1}), "one stride per dimension", "[2,3]", "[1]");
}

TEST(Empty, RefusesHostileShapes) {
  EXPECT_ERROR(ShapeError, empty({2, -1}), "[empty] negative size", "[2,-1]");
  EXPECT_ERROR(ShapeError, empty({int64_t{1} << 40, int64_t{1} << 40}), "[empty] shape too large");
  // Fits in 64 bits as a count, not as bytes.
  EXPECT_ERROR(ShapeError, empty({int64_t{1} << 61}, {DType::kF64}), "too large");
  EXPECT_ERROR(ShapeError, empty({int64_t{1} << 61}, {DType::kF64, kMeta}), "too large");
  EXPECT_THROW(empty_channels_last({2, INT64_MAX, INT64_MAX, 2}), ShapeError);
  EXPECT_THROW(empty_channels_last({2, 3}), ShapeError);
}

TEST(Empty, RefusesDevicesThatAreNotThere) {
  EXPECT_ERROR(DeviceError, empty({2}, {DType::kF32, Device::parse("cuda:0")}), "cuda:0",
               "built without CUDA");
  EXPECT_ERROR(DeviceError, empty({2}, {DType::kF32, Device{DeviceType::kCPU, 64}}), "cpu:64", "0 to 63");
  EXPECT_ERROR(DeviceError, empty({2}, {DType::kF32, Device{DeviceType::kCPU, -1}}), "cpu:-1");
}

TEST(Meta, HasShapesAndNoData) {
  const Tensor x = empty({1 << 20, 1 << 20}, {DType::kF32, kMeta});
  EXPECT_EQ(x.numel(), int64_t{1} << 40);
  EXPECT_EQ(x.nbytes(), int64_t{1} << 42);
  EXPECT_ERROR(DeviceError, x.data<float>(), "[data]", "f32[1048576,1048576] meta");
  EXPECT_ERROR(DeviceError, x.to_vector<float>(), "[to_vector]", "meta");
  for (DType t : {DType::kF32, DType::kI64, DType::kBool})
    EXPECT_ERROR(DeviceError, empty({}, {t, kMeta}).item<double>(), "[item]", "meta");
}

TEST(Data, NeedsTheElementTypeAndRowMajorOrder) {
  const Tensor x = empty({2, 3});
  EXPECT_ERROR(DTypeError, x.data<double>(), "[data] asked for f64 elements of f32[2,3] cpu");
  EXPECT_ERROR(ShapeError, strided({2, 3}, {1, 2}).data<float>(), "call contiguous()",
               "f32[2,3] cpu strided");
  EXPECT_NO_THROW(strided({0, 3}, {7, 7}).data<float>());
}

TEST(Data, OfAnUndefinedTensorIsAnError) {
  const Tensor none;
  EXPECT_FALSE(none.defined());
  EXPECT_ERROR(StateError, none.shape(), "[Tensor]", "undefined");
  EXPECT_ERROR(StateError, none.data<float>(), "undefined");
  EXPECT_THROW(none.item<float>(), StateError);
  EXPECT_THROW(none.to_vector<float>(), StateError);
}

TEST(Item, ConvertsTheOnlyElement) {
  EXPECT_EQ(scalar(2.5).item<double>(), 2.5);
  EXPECT_EQ(scalar(2.5).item<int>(), 2);
  EXPECT_EQ(empty({1, 1, 1}).numel(), 1);
  EXPECT_EQ(tensor(std::vector<int64_t>{INT64_MAX}, {1, 1}).item<int64_t>(), INT64_MAX);
  EXPECT_TRUE(tensor(std::vector<bool>{true}, {1}).item<bool>());
  EXPECT_EQ(scalar(0.1, {DType::kF16}).item<float>(), float(f16(0.1f)));
}

TEST(Item, NeedsExactlyOne) {
  EXPECT_ERROR(ShapeError, empty({2}).item<float>(), "[item]", "exactly one", "f32[2] cpu");
  EXPECT_ERROR(ShapeError, empty({0}, {DType::kI64}).item<float>(), "[item]", "i64[0] cpu");
}

TEST(ToVector, ReadsAnyStridesAndTypes) {
  const Tensor x = tensor(std::vector<float>{0, 1, 2, 3, 4, 5}, {2, 3});
  EXPECT_EQ(view_as_strided(x, {3, 2}, {1, 3}, 0).to_vector<int64_t>(),
            (std::vector<int64_t>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(view_as_strided(x, {2, 2}, {0, 2}, 1).to_vector<double>(), (std::vector<double>{1, 3, 1, 3}));
  EXPECT_TRUE(empty({3, 0}).to_vector<float>().empty());
  EXPECT_EQ(scalar(7).to_vector<uint8_t>(), (std::vector<uint8_t>{7}));
}

template <class T> class ElementTypes : public testing::Test {};
using AllElementTypes =
    testing::Types<double, float, f16, bf16, int64_t, int32_t, int16_t, int8_t, uint8_t, bool>;
TYPED_TEST_SUITE(ElementTypes, AllElementTypes);

TYPED_TEST(ElementTypes, GoIntoATensorOfOneDimAndBack) {
  const std::vector<TypeParam> values{TypeParam(1), TypeParam(0), TypeParam(1)};
  const Tensor x = tensor(values);
  EXPECT_EQ(x.dtype(), dtype_v<TypeParam>);
  EXPECT_EQ(x.shape(), (Shape{3}));
  EXPECT_EQ(x.to_vector<TypeParam>(), values);
  EXPECT_EQ(tensor({2.f, 0.f, NAN}).to_vector<bool>(), (std::vector<bool>{true, false, true}));
}

template <class T>
concept ReadsIntoVector = requires(const Tensor& x) { x.to_vector<T>(); };
static_assert(ReadsIntoVector<float> && !ReadsIntoVector<unsigned> && !ReadsIntoVector<std::string>);

TEST(TensorOf, NeedsAsManyValuesAsTheShapeHolds) {
  EXPECT_EQ(tensor({1, 2, 3}).dtype(), DType::kI64);
  EXPECT_EQ(tensor({1.0, 2.0}).dtype(), DType::kF64);
  EXPECT_EQ(tensor({1.f}).dtype(), DType::kF32);
  EXPECT_ERROR(ShapeError, tensor(std::vector<float>{1, 2, 3}, {2, 2}), "[tensor] 3 values", "[2,2]");
  EXPECT_EQ(tensor(std::vector<float>{1, 2}, {2}, kMeta).device(), kMeta);
  EXPECT_ERROR(DeviceError, tensor(std::vector<float>{1}, {1}, Device{DeviceType::kCUDA}), "[tensor]",
               "cuda");
}

TEST(Scalar, LandsOnItsDevice) {
  EXPECT_EQ(scalar(4, {DType::kI32, kOther}).item<int>(), 4);
  EXPECT_EQ(scalar(4, {DType::kI32, kOther}).device(), kOther);
  EXPECT_EQ(scalar(4, {DType::kF32, kMeta}).numel(), 1);
}

TEST(Sizes, CountFromTheBackToo) {
  const Tensor x = empty({2, 3, 4});
  EXPECT_EQ(x.size(-1), 4);
  EXPECT_EQ(x.stride(-3), 12);
  EXPECT_ERROR(IndexError, x.size(3), "[size] dimension 3 out of range [-3, 2]");
  EXPECT_ERROR(IndexError, x.stride(-4), "[stride]");
}

TEST(Detach, SharesElementsUnderANewHandle) {
  Tensor x = tensor({1.f, 2.f});
  const Tensor y = detach(x);
  EXPECT_FALSE(y.is_same(x));
  x.mutable_data<float>()[0] = 5;
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{5, 2}));
}

TEST(Counted, ARegistryNeverRevivesWhatIsBeingDestroyed) {
  // dispose() keeps the memory: try_retain() reads the count after the last owner is gone.
  struct Kept final : Counted {
    void dispose() override { ++disposed; }
    std::atomic<int> disposed{0};
  };
  for (int round = 0; round < 2000; ++round) {
    Kept object;
    Ref<Kept> owner(&object);
    std::atomic<bool> start{false};
    int disposed_while_held = 0;
    std::thread registry([&] {
      while (!start) {
      }
      if (!object.try_retain()) return;
      const Ref<Kept> held = Ref<Kept>::adopt(&object);
      disposed_while_held = object.disposed;
    });
    start = true;
    owner = nullptr;
    registry.join();
    ASSERT_EQ(disposed_while_held, 0);
    ASSERT_EQ(object.disposed, 1);
    ASSERT_FALSE(object.try_retain());
  }
}

}  // namespace
}  // namespace gradus
