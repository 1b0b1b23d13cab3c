// copy_filters, which writes filters in the blocked layouts of oneDNN, equals oneDNN's reorder byte for byte.
#include "gradus/tensor/cpu/onednn/onednn.h"

#include <gtest/gtest.h>

#include <cstring>

#include "gradus/tensor/runtime/processor.h"

namespace gradus::onednn {
namespace {

using tag = dnnl::memory::format_tag;

// Whether copy_filters supports a layout: always, only without AVX-512 (blocks or channels that are multiples
// of 8 but not of 16), never.
enum Served { kAlways, kByFewLanes, kNever };

struct Case {
  const char* name;
  int64_t A, B, KH, KW;  // filters, input channels, taps
  tag layout;
  Served served = kAlways;
  DType dtype = DType::kF32;
};

class WeightLayout : public testing::TestWithParam<Case> {};

const Case kCases[] = {
    {"RowsOf64", 128, 96, 1, 1, tag::Acdb64a},
    {"RowsOf48WithZerosAfter", 64, 80, 1, 1, tag::Acdb48a},
    {"RowsOf32", 96, 48, 1, 1, tag::Acdb32a},
    {"ColumnsInside", 48, 112, 1, 1, tag::ABcd16a16b},
    {"ColumnsFirst", 112, 48, 1, 1, tag::BAcd16a16b},
    {"RowsInside", 112, 48, 1, 1, tag::ABcd16b16a},
    {"TapsOfRows", 64, 32, 3, 3, tag::Acdb32a},
    {"TapsOfColumns", 32, 64, 3, 3, tag::ABcd16a16b},
    {"OblongTaps", 32, 32, 2, 5, tag::ABcd16b16a},
    {"TapsWithZerosAfter", 64, 32, 3, 3, tag::Acdb48a, kNever},
    {"TooManyTaps", 64, 32, 5, 5, tag::Acdb32a, kNever},
    {"FewChannels", 64, 3, 7, 7, tag::Acdb16a, kNever},
    {"OddChannels", 40, 32, 1, 1, tag::ABcd16b16a, kByFewLanes},
    {"SmallBlocks", 32, 32, 1, 1, tag::ABcd8b8a, kByFewLanes},
    {"NoBlocks", 32, 32, 3, 3, tag::acdb, kNever},
    {"PairsOfColumns", 96, 48, 3, 3, tag::AcdB32a2b, kAlways, DType::kBF16},
    {"PairsOfColumnsIn64", 128, 16, 3, 3, tag::AcdB64a2b, kAlways, DType::kBF16},
    {"PairsOfRows", 48, 96, 3, 3, tag::ABcd8a16b2a, kAlways, DType::kBF16},
    {"PairsOfRowsColumnsFirst", 48, 96, 2, 4, tag::BAcd8a16b2a, kAlways, DType::kBF16},
    {"PairsOfOneTap", 48, 96, 1, 1, tag::ABcd8a16b2a, kNever, DType::kBF16},
    {"NoPairs", 48, 96, 3, 3, tag::ABcd16a16b, kNever, DType::kBF16},
};
INSTANTIATE_TEST_SUITE_P(Cases, WeightLayout, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(WeightLayout, IsThatOfOneDnn) {
  const Case& c = GetParam();
  const dnnl::memory::dims dims{c.A, c.B, c.KH, c.KW};
  const Desc plain(dims, type_of(c.dtype), tag::abcd), want(dims, type_of(c.dtype), c.layout);
  const Tensor w = empty({c.A, c.B, c.KH, c.KW}, {c.dtype});
  for (int64_t i = 0; i < w.numel(); ++i)
    if (c.dtype == DType::kF32)
      w.ptr<float>()[i] = float(i);
    else
      // Normal numbers: oneDNN's reorder for AVX2 turns subnormal ones into zeros.
      w.ptr<bf16>()[i].bits = uint16_t(0x80 + i * 40503 % 0x7f00);
  const Tensor expected = scratch(want), got = scratch(want);
  std::memset(got.raw_ptr(), 0xee, got.nbytes());
  const bool served = copy_filters(w, want, got);
  ASSERT_EQ(served, c.served == kAlways || (c.served == kByFewLanes && !cpu::has_avx512()));
  if (!served) return;
  reorder(memory(plain, w), memory(want, expected));
  EXPECT_EQ(std::memcmp(got.raw_ptr(), expected.raw_ptr(), expected.nbytes()), 0);
}

}  // namespace
}  // namespace gradus::onednn
