// decode_image: the pixels have the CRC-32 of those that Pillow decodes (golden/images.txt, written by
// golden/make_images.py), a decoded box equals the crop of the whole image, and damaged or malicious files
// are errors.
#include "gradus/data/images/image_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gradus/data/images/orientation.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tests/support/error.h"
#include "gradus/tests/support/scratch.h"

namespace gradus::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const fs::path kImages = "tests/data/golden/images";
using Bytes = std::vector<uint8_t>;

Bytes read(const std::string& name) {
  std::ifstream in(kImages / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> all_images() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kImages)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

template <class Range> void append(Bytes& to, const Range& what) {
  for (const auto b : what) to.push_back(static_cast<uint8_t>(b));
}

bool is_jpeg(const std::string& name) { return name.ends_with(".jpg"); }

uint32_t checksum(const Image& image) {
  return static_cast<uint32_t>(crc32(0, image.data(), static_cast<uInt>(image.bytes())));
}

// The error of decoding all pixels.
std::string decode_error(const Bytes& content, const DecodeOptions& options = {}) {
  return error_of<FileError>([&] { decode_image(content, "some.file", options).data(); });
}

// A line of images.txt. With scale s, the image is decoded at 1/s of its size.
struct Expected {
  std::string name, mode;
  int scale = 1;
  int64_t height = 0, width = 0, channels = 0;
  uint32_t crc = 0;
};

std::vector<Expected> golden(const std::string& list = "images.txt") {
  std::ifstream in("tests/data/golden/" + list);
  std::vector<Expected> all;
  for (Expected e; in >> e.name >> e.mode >> e.scale >> e.height >> e.width >> e.channels >> e.crc;)
    all.push_back(e);
  return all;
}

TEST(DecodeImage, PixelsArePillows) {
  const std::vector<Expected> all = golden();
  ASSERT_GT(all.size(), 150u);
  for (const Expected& e : all) {
    const ColorMode mode = e.mode == "rgb"    ? ColorMode::kRGB
                           : e.mode == "gray" ? ColorMode::kGray
                                              : ColorMode::kAsIs;
    const Image image = decode_image(kImages / e.name, {.mode = mode});
    const Image pixels = image.decode(image.whole(), image.height() / e.scale, image.width() / e.scale).image;
    EXPECT_EQ(pixels.height(), e.height) << e.name;
    EXPECT_EQ(pixels.width(), e.width) << e.name;
    EXPECT_EQ(pixels.channels(), e.channels) << e.name;
    EXPECT_EQ(image.channels(), e.channels) << e.name;
    EXPECT_EQ(checksum(pixels), e.crc) << e.name << ' ' << e.mode << " 1/" << e.scale;
  }
}

TEST(DecodeImage, PartsArePartsOfTheWhole) {
  std::mt19937 random(1);
  const auto upto = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (const std::string& name : all_images()) {
    const Image image = decode_image(kImages / name);
    for (int i = 0; i < 60; ++i) {
      const int64_t scale = int64_t{1} << upto(4);
      Box box{.width = 1 + upto(image.width()), .height = 1 + upto(image.height())};
      box.left = upto(image.width() - box.width + 1);
      box.top = upto(image.height() - box.height + 1);
      const Region part = image.decode(box, box.height / scale, box.width / scale);
      const double factor = part.width / double(box.width);
      EXPECT_EQ(part.height, double(box.height) * factor);
      const int64_t used = static_cast<int64_t>(1 / factor);
      // The result has at least the requested size, and half of it would not (JPEGs scale to 1/2, 1/4 and
      // 1/8).
      EXPECT_GE(box.height / used, std::max<int64_t>(1, box.height / scale));
      EXPECT_GE(box.width / used, std::max<int64_t>(1, box.width / scale));
      EXPECT_TRUE(!is_jpeg(name) || used == 8 ||
                  box.height / (2 * used) < std::max<int64_t>(1, box.height / scale) ||
                  box.width / (2 * used) < std::max<int64_t>(1, box.width / scale))
          << name << " could be smaller than 1/" << used;
      if (image.height() / used < 1 || image.width() / used < 1) continue;

      const Region whole = image.decode(image.whole(), image.height() / used, image.width() / used);
      ASSERT_EQ(whole.width, double(image.width()) * factor);
      const double x = double(box.left) * factor + whole.left - part.left;
      const double y = double(box.top) * factor + whole.top - part.top;
      ASSERT_EQ(x, std::floor(x)) << name;
      ASSERT_EQ(y, std::floor(y)) << name;
      EXPECT_LT(part.left, 1);
      EXPECT_LT(part.top, 1);
      const Image same = whole.image.crop({int64_t(x), int64_t(y), part.image.width(), part.image.height()});
      EXPECT_EQ(checksum(part.image), checksum(same)) << name << ' ' << box.left << ' ' << box.top << ' '
                                                      << box.width << ' ' << box.height << " 1/" << used;
    }
  }
}

TEST(DecodeImage, OptionsSayWhetherToScaleAndToTurn) {
  const Image scaled = decode_image(kImages / "ycc_420.jpg");
  EXPECT_EQ(scaled.decode(scaled.whole(), 10, 18).image.height(), 11);
  const Image full = decode_image(kImages / "ycc_420.jpg", {.scaled = false});
  EXPECT_EQ(full.decode(full.whole(), 1, 1).image.height(), 21);
  EXPECT_EQ(decode_image(kImages / "exif_6.jpg").height(), 19);
  EXPECT_EQ(decode_image(kImages / "exif_6.jpg", {.exif_orientation = false}).height(), 10);
  EXPECT_EQ(decode_image(kImages / "exif_before.png").height(), 14);
}

TEST(DecodeImage, WebPHasPillowsPixels) {
  const fs::path folder = "tests/data/golden/webp";
  int count = 0;
  for (const Expected& e : golden("webp.txt")) {
    const ColorMode mode = e.mode == "rgb"    ? ColorMode::kRGB
                           : e.mode == "gray" ? ColorMode::kGray
                                              : ColorMode::kAsIs;
    const Image image = decode_image(folder / e.name, {.mode = mode});
    EXPECT_EQ(image.height(), e.height);
    EXPECT_EQ(image.width(), e.width);
    EXPECT_EQ(image.channels(), e.channels);
    EXPECT_EQ(checksum(image), e.crc) << e.name << ' ' << e.mode;
    const Image part = decode_image(folder / e.name, {.mode = mode}).crop({3, 5, 11, 7});
    EXPECT_EQ(checksum(part), checksum(image.crop({3, 5, 11, 7}))) << e.name;
    ++count;
  }
  EXPECT_EQ(count, 12);
  const auto error = [&](const std::string& name, const DecodeOptions& options = {}) {
    return error_of<FileError>([&] { decode_image(folder / name, options); });
  };
  EXPECT_THAT(error("animation.webp"), HasSubstr("animation"));
  EXPECT_THAT(error("lossy.webp", {.mode = ColorMode::kIndices}), HasSubstr("is a WebP"));
  EXPECT_THAT(error("lossy.webp", {.max_pixels = 100}), HasSubstr("more than the limit of 100"));
  for (const char* name : {"lossy.webp", "lossless_alpha.webp"}) {
    std::ifstream in(folder / name, std::ios::binary);
    const Bytes whole{std::istreambuf_iterator<char>(in), {}};
    for (size_t size = 0; size < whole.size(); ++size) {
      const Bytes cut(whole.begin(), whole.begin() + int64_t(size));
      EXPECT_NE(decode_error(cut), "") << name << ' ' << size;
    }
  }
}

TEST(DecodeImage, TheFileIsNamed) {
  Scratch s;
  const auto error = [](const fs::path& path, const DecodeOptions& options = {}) {
    return error_of([&] { decode_image(path, options); });
  };
  EXPECT_THAT(error(s / "none.jpg"),
              AllOf(StartsWith("[decode_image]"), HasSubstr("none.jpg: cannot open: No such file")));
  EXPECT_THAT(error(s.dir()), HasSubstr("expected a regular file"));
  EXPECT_THAT(error(s.write("a.jpg", "")), HasSubstr("a.jpg: is empty"));
  EXPECT_THAT(error(s.write("a.jpg", "GIF89a")),
              HasSubstr("a.jpg: is neither JPEG, PNG nor WebP: starts with 474946"));
  EXPECT_THAT(error(s.write("a.png", "\x1f\x8b and more")), HasSubstr("but gzip data"));
  EXPECT_THAT(error(s.write("a.jpg", std::string(100, 'x')), {.max_bytes = 99}),
              HasSubstr("has 100 bytes, more than the limit of 99"));
  EXPECT_THAT(error(s / "a.jpg", {.max_pixels = 0}), HasSubstr("at least 1"));
  // The format is detected from the content, not from the name.
  fs::copy(kImages / "rgb_8.png", s / "b.jpg");
  EXPECT_EQ(decode_image(s / "b.jpg").width(), 37);
}

TEST(DecodeImage, FilesThatAreCutShortAreErrorsWhereverTheyEnd) {
  for (const std::string& name : all_images()) {
    const Bytes whole = read(name);
    for (size_t n = 0; n < whole.size(); ++n) {
      const std::string error = decode_error(Bytes(whole.begin(), whole.begin() + static_cast<int64_t>(n)));
      ASSERT_THAT(error, StartsWith("[decode_image] some.file: ")) << name << " cut after " << n;
    }
    EXPECT_EQ(decode_error(whole), "no error") << name;
  }
}

TEST(DecodeImage, AByteThatChangedIsNoticedInAnyPng) {
  for (const std::string& name : all_images()) {
    if (is_jpeg(name)) continue;
    Bytes bytes = read(name);
    for (size_t i = 0; i < bytes.size(); i += 1 + bytes.size() / 400) {
      bytes[i] ^= 0x10;
      EXPECT_THAT(decode_error(bytes), StartsWith("[decode_image] some.file: ")) << name << " byte " << i;
      bytes[i] ^= 0x10;
    }
  }
  Bytes bytes = read("rgb_8.png");
  bytes[bytes.size() - 30] ^= 1;
  EXPECT_THAT(decode_error(bytes), HasSubstr("CRC error"));
}

TEST(DecodeImage, DamagedFilesDecodeAsFarAsTheyGoWhenAskedFor) {
  const std::vector<std::pair<std::string, size_t>> cuts = {
      {"ycc_422.jpg", 60}, {"progressive.jpg", 8}, {"rgb_8.png", 60}};
  for (const auto& [name, cut] : cuts) {
    Bytes bytes = read(name);
    const Image whole = decode_image(bytes, name);
    bytes.resize(bytes.size() - cut);
    EXPECT_NE(decode_error(bytes), "no error") << name;
    const Image part = decode_image(bytes, name, {.allow_damaged = true});
    ASSERT_EQ(part.bytes(), whole.bytes());
    EXPECT_NE(checksum(part), checksum(whole)) << name;
    // A truncated progressive file lacks details everywhere, also in the first row.
    if (name == "progressive.jpg") continue;
    EXPECT_EQ(std::memcmp(part.data(), whole.data(), static_cast<size_t>(3 * part.width())), 0) << name;
  }
}

// ---- malicious files ----

void put_big_endian(Bytes& bytes, size_t at, uint32_t value, int count) {
  for (int i = 0; i < count; ++i)
    bytes[at + static_cast<size_t>(i)] = static_cast<uint8_t>(value >> (8 * (count - 1 - i)));
}

Bytes chunk(const std::string& type, const Bytes& data) {
  Bytes out(4);
  put_big_endian(out, 0, static_cast<uint32_t>(data.size()), 4);
  append(out, type);
  append(out, data);
  const auto crc = static_cast<uint32_t>(crc32(0, out.data() + 4, static_cast<uInt>(out.size() - 4)));
  out.resize(out.size() + 4);
  put_big_endian(out, out.size() - 4, crc, 4);
  return out;
}

Bytes deflated(const Bytes& data) {
  uLongf size = compressBound(data.size());
  Bytes out(size);
  compress(out.data(), &size, data.data(), data.size());
  out.resize(size);
  return out;
}

// A PNG of 8-bit RGB whose header claims a size, with the zlib stream `packed` as pixels (a row has 1 + 3
// width bytes) and the chunks `more` before the pixels.
Bytes png(uint32_t height, uint32_t width, const Bytes& packed, const std::vector<Bytes>& more = {}) {
  Bytes out = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  Bytes header(13, 0);
  put_big_endian(header, 0, width, 4);
  put_big_endian(header, 4, height, 4);
  header[8] = 8;
  header[9] = 2;
  std::vector<Bytes> chunks = {chunk("IHDR", header)};
  chunks.insert(chunks.end(), more.begin(), more.end());
  chunks.push_back(chunk("IDAT", packed));
  chunks.push_back(chunk("IEND", {}));
  for (const Bytes& c : chunks) append(out, c);
  return out;
}

size_t find(const Bytes& bytes, const Bytes& what, size_t from = 0) {
  const auto at =
      std::search(bytes.begin() + static_cast<int64_t>(from), bytes.end(), what.begin(), what.end());
  return static_cast<size_t>(at - bytes.begin());
}

// A JPEG whose header claims another size. `frame` is the marker of the header: 0xC0 baseline, 0xC2
// progressive.
Bytes resized_jpeg(const std::string& name, uint8_t frame, uint32_t height, uint32_t width) {
  Bytes bytes = read(name);
  const size_t at = find(bytes, {0xFF, frame});
  put_big_endian(bytes, at + 5, height, 2);
  put_big_endian(bytes, at + 7, width, 2);
  return bytes;
}

TEST(HostileImage, HugeSizesAreRefusedBeforeMemoryIsTaken) {
  EXPECT_THAT(decode_error(resized_jpeg("ycc_420.jpg", 0xC0, 65500, 65500)),
              HasSubstr("claims 65500x65500 pixels, more than the limit of 89478485"));
  EXPECT_THAT(decode_error(resized_jpeg("progressive.jpg", 0xC2, 65500, 65500)),
              HasSubstr("more than the limit"));
  EXPECT_THAT(decode_error(resized_jpeg("ycc_420.jpg", 0xC0, 9000, 9000)),
              HasSubstr("premature end of data segment"));
  EXPECT_THAT(decode_error(resized_jpeg("progressive.jpg", 0xC2, 9000, 9000)), HasSubstr("some.file"));
  const Bytes packed = deflated(Bytes(5000, 0));
  EXPECT_THAT(decode_error(png(1 << 20, 1 << 19, packed)), HasSubstr("more than the limit"));
  EXPECT_THAT(decode_error(png(0x7FFFFFFF, 0x7FFFFFFF, packed)), HasSubstr("some.file"));
  EXPECT_THAT(decode_error(png(0x7FFFFFFF, 1, packed)), HasSubstr("more than the limit"));
  EXPECT_THAT(decode_error(png(1, 2'000'000, packed)), HasSubstr("some.file"));
  EXPECT_THAT(decode_error(png(9000, 9000, packed)),
              HasSubstr("cannot unpack to the 243000000 that the header claims"));
  EXPECT_THAT(decode_error(png(40, 40, packed), {.max_pixels = 1599}), HasSubstr("limit of 1599"));
  EXPECT_EQ(decode_error(png(40, 40, packed), {.max_pixels = 1600}), "no error");
}

TEST(HostileImage, SizesOfNothingAreErrors) {
  const Bytes packed = deflated(Bytes(5000, 0));
  EXPECT_THAT(decode_error(png(0, 40, packed)), HasSubstr("some.file"));
  EXPECT_THAT(decode_error(png(40, 0, packed)), HasSubstr("some.file"));
  EXPECT_THAT(decode_error(resized_jpeg("ycc_420.jpg", 0xC0, 0, 37)), HasSubstr("some.file"));
  EXPECT_THAT(decode_error(resized_jpeg("ycc_420.jpg", 0xC0, 21, 0)), HasSubstr("some.file"));
}

TEST(HostileImage, PixelsThatDoNotFillTheImageAreErrors) {
  EXPECT_THAT(decode_error(png(40, 40, deflated(Bytes(121 * 39, 0)))),
              HasSubstr("damaged or unsupported PNG"));
  EXPECT_THAT(decode_error(png(40, 40, {1, 2, 3, 4, 5, 6, 7, 8})), HasSubstr("damaged or unsupported PNG"));
  EXPECT_EQ(decode_error(png(40, 40, deflated(Bytes(121 * 40, 0)))), "no error");
}

TEST(HostileImage, ProfilesAndTextsAreNotUnpacked) {
  Bytes bomb = {'n', 0, 0};
  const Bytes packed = deflated(Bytes(50 << 20, 0));
  append(bomb, packed);
  std::vector<Bytes> more;
  for (int i = 0; i < 50; ++i) more.push_back(chunk(i == 0 ? "iCCP" : "zTXt", bomb));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(decode_error(png(40, 40, deflated(Bytes(121 * 40, 0)), more)), "no error");
  // Unpacking 2.5 GB would take many seconds.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  more.assign(20000, chunk("tEXt", {'n', 0, 'x'}));
  EXPECT_EQ(decode_error(png(40, 40, deflated(Bytes(121 * 40, 0)), more)), "no error");
}

TEST(HostileImage, ScansWithoutEndAreRefused) {
  Bytes bytes = read("progressive.jpg");
  const size_t first = find(bytes, {0xFF, 0xDA}), second = find(bytes, {0xFF, 0xC4}, first);
  ASSERT_LT(second, bytes.size());
  const Bytes scan(bytes.begin() + static_cast<int64_t>(first), bytes.begin() + static_cast<int64_t>(second));
  for (int i = 0; i < 600; ++i)
    bytes.insert(bytes.begin() + static_cast<int64_t>(first), scan.begin(), scan.end());
  EXPECT_THAT(decode_error(bytes, {.allow_damaged = true}), HasSubstr("more than 500 scans"));
  EXPECT_THAT(decode_error(bytes), HasSubstr("some.file"));
}

// Entries are TIFF directory entries of 12 bytes: tag 0x112, type (3: u16, 4: u32), count, value.
TEST(Exif, OrientationIsReadWithinBounds) {
  const auto tiff = [](Bytes entries, uint8_t count = 1) {
    Bytes b = {'I', 'I', 42, 0, 8, 0, 0, 0, count, 0};
    append(b, entries);
    return b;
  };
  const auto orientation = [](const Bytes& b) { return internal::exif_orientation(b); };
  const Bytes turned = tiff({0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0});
  EXPECT_EQ(orientation(turned), 6);
  EXPECT_EQ(orientation(tiff({0x12, 1, 4, 0, 1, 0, 0, 0, 8, 0, 0, 0})), 8) << "a long number";
  EXPECT_EQ(orientation({'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 5, 0, 0}), 5);
  // Orientation in the second entry.
  EXPECT_EQ(orientation(tiff({1, 0, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 2, 0, 0, 0}, 2)),
            2);
  for (size_t n = 0; n < turned.size(); ++n)
    EXPECT_EQ(orientation(Bytes(turned.begin(), turned.begin() + static_cast<int64_t>(n))), 1) << n;
  EXPECT_EQ(orientation(tiff({0x12, 1, 3, 0, 1, 0, 0, 0, 9, 0, 0, 0})), 1) << "there is no such orientation";
  EXPECT_EQ(orientation(tiff({0x12, 1, 3, 0, 2, 0, 0, 0, 6, 0, 0, 0})), 1) << "two numbers";
  EXPECT_EQ(orientation(tiff({0x12, 1, 7, 0, 1, 0, 0, 0, 6, 0, 0, 0})), 1) << "another type";
  Bytes far = turned;
  std::memset(far.data() + 4, 0xFF, 4);
  EXPECT_EQ(orientation(far), 1) << "a directory beyond the end";
  far[4] = static_cast<uint8_t>(turned.size());
  far[5] = far[6] = far[7] = 0;
  EXPECT_EQ(orientation(far), 1);
}

TEST(DecodeImage, RealPhotographs) {
  const char* data = std::getenv("GRADUS_DATA");
  const fs::path dir = fs::path(data ? data : "") / "imagenet-sample";
  if (!data || !fs::is_directory(dir)) GTEST_SKIP() << "GRADUS_DATA names no folder with imagenet-sample/";
  int64_t count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file()) continue;
    ++count;
    const Image image = decode_image(entry.path());
    const Region small = image.decode(image.whole(), image.height() / 2, image.width() / 2);
    EXPECT_LT(small.image.bytes(), image.bytes());
    EXPECT_EQ(image.crop(image.whole()).bytes(), 3 * image.height() * image.width());
  }
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace gradus::data
