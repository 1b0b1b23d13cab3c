// Element types: the 16-bit floats bit by bit, promotion, dispatch, and the names of devices.
#include "gradus/tensor/base/dtype.h"

#include <limits>

#include "gradus/tensor/base/device.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

constexpr DType kAll[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                          DType::kI32, DType::kI16, DType::kI8,  DType::kU8,   DType::kBool};

uint16_t bf16_bits(float f) { return bf16(f).bits; }
uint16_t f16_bits(float f) { return f16(f).bits; }
float from_bits(uint32_t u) { return std::bit_cast<float>(u); }

TEST(BF16, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(bf16_bits(1.0f), 0x3f80);
  EXPECT_EQ(bf16_bits(from_bits(0x3f808000)), 0x3f80);  // half way, even below
  EXPECT_EQ(bf16_bits(from_bits(0x3f818000)), 0x3f82);  // half way, even above
  EXPECT_EQ(bf16_bits(from_bits(0x3f808001)), 0x3f81);
  EXPECT_EQ(bf16_bits(from_bits(0x3f807fff)), 0x3f80);
  EXPECT_EQ(bf16_bits(-1.0f), 0xbf80);
}

TEST(BF16, KeepsInfinityZeroAndSubnormals) {
  EXPECT_EQ(bf16_bits(INFINITY), 0x7f80);
  EXPECT_EQ(bf16_bits(-INFINITY), 0xff80);
  EXPECT_EQ(bf16_bits(0.0f), 0x0000);
  EXPECT_EQ(bf16_bits(-0.0f), 0x8000);
  EXPECT_EQ(bf16_bits(from_bits(0x00010000)), 0x0001);  // a subnormal of both
  EXPECT_EQ(bf16_bits(from_bits(0x00008000)), 0x0000);  // ties to even: zero
  EXPECT_EQ(bf16_bits(from_bits(0x00008001)), 0x0001);
  EXPECT_EQ(bf16_bits(std::numeric_limits<float>::max()), 0x7f80);  // rounds up to infinity
}

TEST(BF16, NaNStaysNaNWhateverItsPayload) {
  for (uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    const bf16 x(from_bits(bits));
    EXPECT_TRUE(std::isnan(float(x))) << std::hex << bits;
    EXPECT_EQ(x.bits >> 15, bits >> 31) << "sign of " << std::hex << bits;
  }
}

TEST(BF16, EveryValueSurvivesTheWayThroughF32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    bf16 x;
    x.bits = static_cast<uint16_t>(bits);
    const float f = x;
    if (std::isnan(f))
      EXPECT_TRUE(std::isnan(float(bf16(f))));
    else
      ASSERT_EQ(bf16(f).bits, bits);
  }
}

TEST(F16, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(f16_bits(1.0f), 0x3c00);
  EXPECT_EQ(f16_bits(1.0f + 0x1p-11f), 0x3c00);      // half way, even below
  EXPECT_EQ(f16_bits(1.0f + 3 * 0x1p-11f), 0x3c02);  // half way, even above
  EXPECT_EQ(f16_bits(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01);
  EXPECT_EQ(f16_bits(-2.0f), 0xc000);
}

TEST(F16, OverflowsToInfinityFromTheMiddleOfTheLastStep) {
  EXPECT_EQ(f16_bits(65504.0f), 0x7bff);
  EXPECT_EQ(f16_bits(65519.0f), 0x7bff);
  EXPECT_EQ(f16_bits(65520.0f), 0x7c00);
  EXPECT_EQ(f16_bits(-1e30f), 0xfc00);
  EXPECT_TRUE(std::isnan(float(f16(NAN))));
}

TEST(F16, RoundsIntoSubnormalsAndZero) {
  EXPECT_EQ(f16_bits(0x1p-24f), 0x0001);
  EXPECT_EQ(f16_bits(0x1p-25f), 0x0000);  // ties to even: zero
  EXPECT_EQ(f16_bits(0x1p-25f + 0x1p-40f), 0x0001);
  EXPECT_EQ(f16_bits(3 * 0x1p-25f), 0x0002);  // ties to even
  EXPECT_EQ(f16_bits(-0x1p-30f), 0x8000);
  EXPECT_EQ(float(f16(0x1p-14f)), 0x1p-14f);
}

TEST(F16, EveryValueSurvivesTheWayThroughF32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    f16 x;
    x.bits = static_cast<uint16_t>(bits);
    const float f = x;
    if (std::isnan(f))
      EXPECT_TRUE(std::isnan(float(f16(f))));
    else
      ASSERT_EQ(f16(f).bits, bits);
  }
}

// torch.promote_types, written out.
TEST(Promote, GivesPyTorchsTable) {
  using enum DType;
  const DType table[10][10] = {
      //           f64    f32    f16    bf16   i64    i32    i16    i8     u8     bool
      /* f64  */ {kF64, kF64, kF64, kF64, kF64, kF64, kF64, kF64, kF64, kF64},
      /* f32  */ {kF64, kF32, kF32, kF32, kF32, kF32, kF32, kF32, kF32, kF32},
      /* f16  */ {kF64, kF32, kF16, kF32, kF16, kF16, kF16, kF16, kF16, kF16},
      /* bf16 */ {kF64, kF32, kF32, kBF16, kBF16, kBF16, kBF16, kBF16, kBF16, kBF16},
      /* i64  */ {kF64, kF32, kF16, kBF16, kI64, kI64, kI64, kI64, kI64, kI64},
      /* i32  */ {kF64, kF32, kF16, kBF16, kI64, kI32, kI32, kI32, kI32, kI32},
      /* i16  */ {kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI16, kI16, kI16},
      /* i8   */ {kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kI16, kI8},
      /* u8   */ {kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI16, kU8, kU8},
      /* bool */ {kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kBool},
  };
  for (DType a : kAll)
    for (DType b : kAll)
      EXPECT_EQ(promote(a, b), table[int(a)][int(b)]) << name_of(a) << " with " << name_of(b);
}

TEST(DTypes, HaveTheSizesAndNamesOfTheirCppTypes) {
  for (DType t : kAll)
    dispatch_all(t, [&]<class T>() {
      EXPECT_EQ(dtype_v<T>, t);
      EXPECT_EQ(size_of(t), int64_t(sizeof(T)));
      EXPECT_NE(is_floating(t), is_integral(t));
    });
  EXPECT_EQ(concat(DType::kBF16, ' ', DType::kBool, ' ', DType::kI64), "bf16 bool i64");
}

TEST(Dispatch, NamesTheOpAndTheDtypesItTakes) {
  EXPECT_ERROR(DTypeError, dispatch_floating(DType::kI64, "relu", []<class T>() {}),
               "[relu] expected f32 or f64, got i64");
  EXPECT_ERROR(DTypeError, dispatch_numeric(DType::kBool, "sum", []<class T>() {}),
               "[sum] expected f32, f64, i64, i32, i16, i8 or u8, got bool");
  EXPECT_EQ(dispatch_numeric(DType::kU8, "sum", []<class T>() { return sizeof(T); }), 1u);
}

TEST(Device, ParsesItsOwnNames) {
  for (const char* name : {"cpu", "cpu:1", "cpu:63", "cuda:0", "cuda:7", "meta"})
    EXPECT_EQ(to_string(Device::parse(name)), name);
  EXPECT_EQ(Device::parse("cpu:0"), kCPU);
  EXPECT_EQ(to_string(Device::parse("cuda")), "cuda:0");
  EXPECT_NE(Device::parse("cpu:1"), kCPU);
}

TEST(Device, RefusesOtherNames) {
  for (const char* name : {"", "CPU", "gpu", "cpu1", " cpu", "cpu ", ":1"})
    EXPECT_ERROR(ValueError, Device::parse(name), "[Device]", "cpu, cpu:N, cuda:N or meta", name);
  for (const char* name :
       {"cpu:", "cpu:x", "cpu:1x", "cpu:-1", "cpu:64", "cpu:99999999999", "cuda: 1", "meta:0", "cpu:1:2"})
    EXPECT_ERROR(ValueError, Device::parse(name), "[Device]", "0 to 63", name);
}

}  // namespace
}  // namespace gradus
