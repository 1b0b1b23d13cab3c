// Checks that a decoder of images is consistent: a crop equals the crop of the whole, and allow_damaged opens
// whatever can be decoded completely.
#include "gradus/tests/fuzz/image_checks.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "gradus/data/images/image_decoder.h"
#include "gradus/tests/fuzz/fuzz.h"

namespace gradus::fuzz {
namespace {

using data::Box;
using data::DecodeOptions;
using data::Image;
using data::Region;

constexpr int64_t kMaxPixels = 1 << 16;

Image open(std::string_view file, const DecodeOptions& options) {
  return data::decode_image(std::vector<uint8_t>(file.begin(), file.end()), "fuzz", options);
}

void check_size(const Image& image) {
  FUZZ_CHECK(image.height() >= 1 && image.width() >= 1 && image.height() * image.width() <= kMaxPixels);
  FUZZ_CHECK(image.channels() == 1 || image.channels() == 3);
}

// Returns a box that depends on a hash of the file.
Box some_box(const Image& image, size_t bits) {
  const auto take = [&](int64_t n) {
    const auto value = static_cast<int64_t>(bits % 1021) % n;
    bits /= 31;
    return value;
  };
  Box box{.width = 1 + take(image.width()), .height = 1 + take(image.height())};
  box.left = take(image.width() - box.width + 1);
  box.top = take(image.height() - box.height + 1);
  return box;
}

void check_same(const Image& part, const Image& whole, Box box) {
  FUZZ_CHECK(part.height() == box.height && part.width() == box.width);
  const Image same = whole.crop(box);
  FUZZ_CHECK(std::memcmp(part.data(), same.data(), static_cast<size_t>(part.bytes())) == 0);
}

void check_parts(const Image& lazy, size_t bits) {
  const Image whole = Image(lazy).crop(lazy.whole());
  const Box box = some_box(lazy, bits);
  check_same(lazy.crop(box), whole, box);

  const int64_t scale = int64_t{1} << (bits % 4);
  const Region region =
      lazy.decode(box, std::max<int64_t>(1, box.height / scale), std::max<int64_t>(1, box.width / scale));
  check_size(region.image);
  FUZZ_CHECK(region.left >= 0 && region.top >= 0);
  FUZZ_CHECK(region.left + region.width <= double(region.image.width()));
  FUZZ_CHECK(region.top + region.height <= double(region.image.height()));
  touch(region.image.data(), region.image.bytes());
}

}  // namespace

void check_image(std::string_view file) {
  const size_t bits = std::hash<std::string_view>()(file);
  bool is_whole = false;
  survives([&] {
    const Image lazy = open(file, {.max_pixels = kMaxPixels});
    check_size(lazy);
    is_whole = survives([&] { Image(lazy).data(); });
    if (is_whole) check_parts(lazy, bits);
  });
  for (const auto mode : {data::ColorMode::kGray, data::ColorMode::kAsIs}) {
    const bool opened = survives([&] {
      const Image image = open(file, {.mode = mode, .allow_damaged = true, .max_pixels = kMaxPixels});
      check_size(image);
      touch(image.data(), image.bytes());
    });
    FUZZ_CHECK(opened || !is_whole);
  }
  survives([&] {  // colors have no indices
    const Image lazy = open(file, {.mode = data::ColorMode::kIndices, .max_pixels = kMaxPixels});
    FUZZ_CHECK(lazy.channels() == 1);
    check_size(lazy);
    if (survives([&] { Image(lazy).data(); })) check_parts(lazy, bits);
  });
}

}  // namespace gradus::fuzz
