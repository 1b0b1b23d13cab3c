// IdxFile, the reader of MNIST's IDX format, plain and gzip: all element types, truncated, malformed and
// hostile files.
#include "gradus/data/files/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cmath>

#include "gradus/tensor/runtime/random.h"
#include "gradus/tensor/tensor.h"
#include "gradus/tests/support/scratch.h"

namespace gradus::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string be32(uint32_t v) { return {char(v >> 24), char(v >> 16), char(v >> 8), char(v)}; }

// Type codes: 08 u8, 09 i8, 0B i16, 0C i32, 0D f32, 0E f64.
std::string header(char type, std::vector<uint32_t> dims) {
  std::string h{0, 0, type, char(dims.size())};
  for (uint32_t d : dims) h += be32(d);
  return h;
}

// 3 images of 4x5, pixels 0, 1, 2, ...
std::string small_file() {
  std::string bytes = header(0x08, {3, 4, 5});
  for (int i = 0; i < 60; ++i) bytes += char(i);
  return bytes;
}

std::string gzip(const std::string& bytes) {
  z_stream z{};
  if (deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflateInit2");
  std::string out(deflateBound(&z, bytes.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = uInt(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = uInt(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

Tensor read_idx(const std::filesystem::path& path, IdxOptions options = {}) {
  IdxFile file(path, options);
  Tensor x = empty(file.shape(), {.dtype = file.dtype()});
  file.read(x.raw_ptr());
  return x;
}

// Returns the text of the FileError, which must name the file.
std::string refusal(const std::filesystem::path& path, IdxOptions options = {}) {
  try {
    const Tensor x = read_idx(path, options);
    return "was read as " + describe(x);
  } catch (const FileError& e) {
    EXPECT_THAT(e.what(), HasSubstr(path.string()));
    return e.what();
  }
}

TEST(ReadIdx, ReadsPlainAndGzipAlike) {
  Scratch s;
  for (const auto& path : {s.write("a", small_file()), s.write("b", gzip(small_file()))}) {
    const Tensor x = read_idx(path);
    EXPECT_EQ(describe(x), "u8[3,4,5] cpu");
    EXPECT_EQ(x.data<uint8_t>()[59], 59);
  }
}

TEST(ReadIdx, ReadsEveryElementType) {
  Scratch s;
  const std::string neg(1, '\xfe');
  const Tensor bytes = read_idx(s.write("i8", header(0x09, {2}) + neg + '\x05'));
  EXPECT_EQ(bytes.dtype(), DType::kI8);
  EXPECT_THAT(bytes.to_vector<int>(), ElementsAre(-2, 5));
  const Tensor words = read_idx(s.write("i16", header(0x0B, {2}) + "\xff\xfe\x01\x02"));
  EXPECT_EQ(words.dtype(), DType::kI16);
  EXPECT_THAT(words.to_vector<int>(), ElementsAre(-2, 258));
  EXPECT_THAT(read_idx(s.write("i32", header(0x0C, {2}) + be32(0xfffffffe) + be32(70000))).to_vector<int>(),
              ElementsAre(-2, 70000));
  const Tensor f = read_idx(s.write("f32", header(0x0D, {1}) + be32(0x3fc00000)));
  EXPECT_EQ(f.dtype(), DType::kF32);
  EXPECT_EQ(f.item<float>(), 1.5f);
  const Tensor d = read_idx(s.write("f64", header(0x0E, {1}) + be32(0xbff80000) + be32(0)));
  EXPECT_EQ(d.dtype(), DType::kF64);
  EXPECT_EQ(d.item<double>(), -1.5);
}

TEST(ReadIdx, ReadsMoreThanAChunkOfWideElements) {
  Scratch s;
  std::string bytes = header(0x0C, {40'000});
  for (uint32_t i = 0; i < 40'000; ++i) bytes += be32(i);
  for (const auto& path : {s.write("a", bytes), s.write("b", gzip(bytes))}) {
    const Tensor x = read_idx(path);
    for (int32_t i = 0; i < 40'000; ++i) ASSERT_EQ(x.data<int32_t>()[i], i);
  }
}

TEST(ReadIdx, ReadsAGzipFileOfSeveralMembers) {
  Scratch s;
  const std::string bytes = small_file(), packed = gzip(bytes.substr(0, 30)) + gzip(bytes.substr(30));
  EXPECT_EQ(describe(read_idx(s.write("a", packed))), "u8[3,4,5] cpu");
  const size_t size = packed.size() - 20;
  EXPECT_THAT(refusal(s.write("b", packed.substr(0, size))),
              HasSubstr("cut short after " + std::to_string(size) + " of its bytes"));
}

TEST(ReadIdx, AnEmptyDimensionIsAnEmptyArray) {
  Scratch s;
  EXPECT_EQ(read_idx(s.write("a", header(0x08, {0, 28, 28}))).shape(), Shape({0, 28, 28}));
}

TEST(ReadIdx, EveryTruncationIsAnErrorThatNamesTheFile) {
  Scratch s;
  const std::string plain = small_file(), packed = gzip(plain);
  for (const std::string& whole : {plain, packed}) {
    for (size_t n = 0; n < whole.size(); ++n)
      EXPECT_THAT(refusal(s.write("cut", whole.substr(0, n))), HasSubstr("[IdxFile]"))
          << n << " of " << whole.size();
  }
  EXPECT_THAT(refusal(s.write("cut", plain.substr(0, 70))),
              AllOf(HasSubstr("[3,4,5]"), HasSubstr("60"), HasSubstr("70")));
}

TEST(ReadIdx, TrailingBytesAreAnError) {
  Scratch s;
  EXPECT_THAT(refusal(s.write("a", small_file() + "x")), HasSubstr("77 bytes long, expected 76"));
  EXPECT_THAT(refusal(s.write("b", gzip(small_file() + "x"))), HasSubstr("goes on after"));
  EXPECT_THAT(refusal(s.write("c", gzip(small_file()) + "x")), HasSubstr("[IdxFile]"));
  EXPECT_THAT(refusal(s.write("d", gzip(small_file()) + gzip("x"))), HasSubstr("goes on after"));
}

TEST(ReadIdx, WrongHeadersAreErrors) {
  Scratch s;
  EXPECT_THAT(refusal(s.write("a", "\x89PNG\r\n\x1a\n")), HasSubstr("89504e47"));
  EXPECT_THAT(refusal(s.write("b", header(0x0A, {3}) + "abc")), HasSubstr("unknown element type 0a"));
  EXPECT_THAT(refusal(s.write("c", header(0x08, {}))), HasSubstr("0 dimensions, expected 1 to 8"));
  EXPECT_THAT(refusal(s.write("d", header(0x08, std::vector<uint32_t>(9, 1)) + "a")),
              HasSubstr("9 dimensions"));
  EXPECT_THAT(refusal(s.write("e", std::string("\0\0\x08\xff", 4))), HasSubstr("255 dimensions"));
}

TEST(ReadIdx, HeadersThatClaimTooMuchTakeNoMemory) {
  Scratch s;
  const int64_t before = memory_stats().allocations;
  // 2^32 - 1 in every dimension: products beyond 64 bits.
  for (size_t n = 1; n <= 8; ++n) {
    const std::string lie = header(0x08, std::vector<uint32_t>(n, 0xffffffff)) + "abc";
    EXPECT_THAT(refusal(s.write("a", lie)), HasSubstr("[IdxFile]"));
    EXPECT_THAT(refusal(s.write("b", gzip(lie))), HasSubstr("[IdxFile]"));
  }
  EXPECT_THAT(refusal(s.write("g", header(0x09, {33554432, 33554673, 0, 175}))), HasSubstr("claims"))
      << "nothing, of a size that no tensor has";
  // Below the limit, above what the file can hold.
  EXPECT_THAT(refusal(s.write("c", header(0x08, {1 << 30}) + "abc")), HasSubstr("cut short"));
  EXPECT_THAT(refusal(s.write("d", gzip(header(0x08, {1 << 30}) + "abc"))), HasSubstr("cannot hold"));
  EXPECT_THAT(refusal(s.write("e", header(0x0E, {1, 1 << 20}) + "abc")), HasSubstr("cut short"));
  EXPECT_THAT(refusal(s.write("f", small_file()), {.max_bytes = 59}), HasSubstr("limit of 59 bytes"));
  EXPECT_EQ(memory_stats().allocations, before);
}

TEST(ReadIdx, AGzipBombIsNotUnpacked) {
  Scratch s;
  // 16 MiB of zeros behind a header that claims 60 bytes.
  std::string bomb = small_file() + std::string(16 << 20, '\0');
  const auto path = s.write("bomb", gzip(bomb));
  reset_peak_memory();
  const int64_t before = memory_stats().peak_bytes;
  EXPECT_THAT(refusal(path), HasSubstr("goes on after the 60 bytes"));
  EXPECT_LT(memory_stats().peak_bytes - before, 1 << 20);
}

TEST(ReadIdx, WhatIsNoFileIsAnError) {
  Scratch s;
  EXPECT_THAT(refusal(s / "absent"), HasSubstr("No such file"));
  EXPECT_THAT(refusal(s.dir()), HasSubstr("expected a regular file, got a folder"));
  const auto fifo = s / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(refusal(fifo), HasSubstr("expected a regular file"));
}

}  // namespace
}  // namespace gradus::data
