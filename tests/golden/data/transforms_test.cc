// Transforms of images against torchvision's and Pillow's, bit by bit: transforms.py wrote
// transforms.safetensors, with the pixels of small results and the CRC-32 of large ones.
#include "gradus/data/transforms/color.h"
#include "gradus/data/transforms/tensor.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <map>
#include <sstream>
#include <string>

#include "gradus/io/safetensors.h"

namespace gradus::data {
namespace {

// A gradient with pseudorandom noise, as in transforms.py.
Image photo(int64_t h, int64_t w, int64_t c, uint64_t key = 0) {
  Image image(h, w, c);
  uint8_t* p = image.mutable_data();
  for (int64_t i = 0; i < image.bytes(); ++i) {
    const uint64_t noise = ((uint64_t(i) * 2654435761u + 40503 * key) & 0xFFFFFFFFu) >> 24;
    p[i] = uint8_t((noise + uint64_t(i / (w * c) * 255 / h)) / 2);
  }
  return image;
}

// Colors of all combinations of 0, 5, ..., 255.
Image cube() {
  Image image(52, 52 * 52, 3);
  uint8_t* p = image.mutable_data();
  for (int r = 0; r < 256; r += 5)
    for (int g = 0; g < 256; g += 5)
      for (int b = 0; b < 256; b += 5) *p++ = uint8_t(r), *p++ = uint8_t(g), *p++ = uint8_t(b);
  return image;
}

const io::SafetensorsFile& golden() {
  static const auto& file =
      *new io::SafetensorsFile(io::load_safetensors("tests/golden/data/transforms.safetensors"));
  return file;
}

class Golden : public ::testing::Test {
 protected:
  // Every case of the file must have been compared.
  static void TearDownTestSuite() {
    for (const auto& [name, x] : golden().tensors)
      EXPECT_TRUE(seen().count(name)) << name << " is not compared";
  }
  static std::map<std::string, bool>& seen() {
    static auto& names = *new std::map<std::string, bool>;
    return names;
  }
  static const Tensor& tensor_of(const std::string& name) {
    seen()[name] = true;
    return golden().at(name);
  }
  // Compares every byte.
  static void expect_pixels(const std::string& name, const Image& given) {
    const Tensor& expected = tensor_of(name);
    ASSERT_EQ(to_string(Shape{given.height(), given.width(), given.channels()}), to_string(expected.shape()))
        << name;
    for (int64_t i = 0; i < given.bytes(); ++i)
      ASSERT_EQ(int(given.data()[i]), int(expected.data<uint8_t>()[i])) << name << " at " << i;
  }
  // Compares the checksum of all bytes.
  static void expect_crc(const std::string& name, const Image& given) {
    const uLong crc = crc32(0, given.data(), uInt(given.bytes()));
    EXPECT_EQ(int64_t(crc), tensor_of(name + ".crc").item<int64_t>()) << name;
  }
};

// Formats as Python does: "1.0".
std::string text(double x) {
  std::ostringstream out;
  out << x;
  return out.str().find('.') == std::string::npos ? out.str() + ".0" : out.str();
}

TEST_F(Golden, Resize) {
  const std::map<std::string, Interpolation> filters = {
      {"nearest", Interpolation::kNearest},   {"box", Interpolation::kBox},
      {"bilinear", Interpolation::kBilinear}, {"hamming", Interpolation::kHamming},
      {"bicubic", Interpolation::kBicubic},   {"lanczos", Interpolation::kLanczos}};
  const Image rgb = photo(13, 17, 3), gray = photo(13, 17, 1, 1);
  for (const auto& [name, filter] : filters) {
    const std::string prefix = "resize/" + name + "/";
    for (Size2 size : {Size2{7, 9}, {13, 9}, {7, 17}, {20, 31}, {1, 1}, {13, 40}})
      expect_pixels(prefix + concat(size.h, "x", size.w), resize(rgb, size, filter));
    expect_pixels(prefix + "gray", resize(gray, {8, 21}, filter));
    expect_pixels(prefix + "tall", resize(photo(300, 2, 3, 5), {10, 7}, filter));
    expect_crc(prefix + "large", resize(photo(375, 500, 3, 2), 224, filter));
    expect_crc(prefix + "huge", resize(photo(1201, 1603, 3, 3), {256, 341}, filter));
    expect_crc(prefix + "up", resize(photo(31, 47, 3, 4), {224, 301}, filter));
  }
}

TEST_F(Golden, ResizeOfTheShorterSide) {
  for (Size2 from : {Size2{375, 500}, {500, 375}, {333, 499}, {256, 300}, {17, 400}}) {
    for (int64_t size : {256, 224, 33}) {
      ResizeOptions options{.size = size};
      if (size == 224) options.max_size = 300;
      const std::string what = concat(from.h, "x", from.w, "/", size, size == 224 ? "/300" : "/None");
      const Image result = Resize(options)(photo(from.h, from.w, 3)).image();
      EXPECT_EQ((std::vector<int64_t>{result.height(), result.width()}),
                tensor_of("shape/" + what).to_vector<int64_t>())
          << what;
      expect_crc("shorter/" + what, result);
    }
  }
}

TEST_F(Golden, RandomCropsOfAllShapes) {
  const Tensor& crops = tensor_of("crops");
  int differ = 0;
  for (int64_t n = 0; n < crops.size(0); ++n) {
    // Columns: height, width, key of photo(); crop top, left, height, width; new height, width; filter; CRC.
    const int64_t* c = crops.data<int64_t>() + n * crops.size(1);
    Picture picture(photo(c[0], c[1], 3, uint64_t(c[2])));
    const Image result =
        picture.crop({c[4], c[3], c[6], c[5]}).resize(Size2{c[7], c[8]}, Interpolation(c[9])).image();
    differ += int64_t(crc32(0, result.data(), uInt(result.bytes()))) != c[10];
  }
  EXPECT_EQ(differ, 0) << "of " << crops.size(0);
}

TEST_F(Golden, Crops) {
  const Image rgb = photo(13, 17, 3);
  for (Size2 size : {Size2{5, 6}, {6, 5}, {13, 17}, {14, 18}, {21, 20}, {4, 30}})
    expect_pixels(concat("center_crop/", size.h, "x", size.w), CenterCrop({.size = size})(rgb).image());
  expect_crc("eval",
             Compose({Resize({.size = 256}), CenterCrop({.size = 224})})(photo(375, 500, 3, 6)).image());
  for (Box box : {Box{0, 0, 17, 13}, {5, 3, 9, 7}, {16, 12, 1, 1}}) {
    const std::string name = concat("resized_crop/", box.top, ",", box.left, ",", box.height, ",", box.width);
    expect_pixels(name, Picture(rgb).crop(box).resize(8).image());
    expect_pixels(name + "/mirrored",
                  Picture(rgb).crop(box).resize(8, Interpolation::kBicubic).mirror().image());
  }
}

TEST_F(Golden, FlipsAndPadding) {
  const Image rgb = photo(13, 17, 3), gray = photo(13, 17, 1, 1);
  expect_pixels("hflip", hflip(rgb));
  expect_pixels("vflip", vflip(rgb));
  expect_pixels("mirror_then_resize", Picture(rgb).mirror().resize({6, 7}).image());
  const std::map<std::string, PaddingMode> modes = {{"constant", PaddingMode::kConstant},
                                                    {"edge", PaddingMode::kEdge},
                                                    {"reflect", PaddingMode::kReflect},
                                                    {"symmetric", PaddingMode::kSymmetric}};
  for (const auto& [name, mode] : modes) {
    expect_pixels("pad/" + name,
                  Pad({.padding = {2, 3, 4, 1}, .fill = 7, .padding_mode = mode})(rgb).image());
    expect_pixels("pad/" + name + "/gray", pad(gray, {2, 3}, {.fill = 9, .mode = mode}));
    const Padding wide = mode == PaddingMode::kReflect ? Padding{3, 2, 3, 2} : Padding{5, 4, 3, 2};
    expect_pixels("pad/" + name + "/wide", pad(photo(3, 4, 3), wide, {.mode = mode}));
  }
  expect_pixels("pad/color", pad(rgb, 1, {.fill = {1, 2, 3}}));
}

TEST_F(Golden, Colors) {
  const Image large = photo(120, 160, 3, 7), gray = photo(13, 17, 1, 1), all = cube();
  expect_crc("grayscale", to_grayscale(all));
  expect_crc("grayscale3", to_grayscale(large, 3));
  for (double factor : {0.0, 0.3, 0.61, 1.0, 1.37, 2.5}) {
    expect_crc("brightness/" + text(factor), adjust_brightness(large, factor));
    expect_crc("contrast/" + text(factor), adjust_contrast(large, factor));
    expect_crc("saturation/" + text(factor), adjust_saturation(all, factor));
    expect_pixels("contrast/" + text(factor) + "/gray", adjust_contrast(gray, factor));
  }
  for (double shift : {-0.5, -0.13, -0.01, 0.0, 0.05, 0.33, 0.5})
    expect_crc("hue/" + text(shift), adjust_hue(all, shift));
}

TEST_F(Golden, Tensors) {
  const Image rgb = photo(13, 17, 3), gray = photo(13, 17, 1, 1);
  const auto expect_equal = [](const std::string& name, const Tensor& given) {
    const Tensor& expected = tensor_of(name);
    EXPECT_EQ(to_string(given.shape()), to_string(expected.shape()));
    EXPECT_EQ(given.to_vector<float>(), expected.to_vector<float>()) << name;
  };
  expect_equal("to_tensor", to_tensor(rgb));
  expect_equal("to_tensor/gray", ToTensor()(gray).tensor());
  const Normalize normalize({.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}});
  expect_equal("normalize", Compose({ToTensor(), normalize})(rgb).tensor());
  expect_equal("normalize", normalize(to_tensor(rgb)).tensor());
  expect_equal("normalize/one",
               Compose({ToTensor(), Normalize({.mean = {0.1307f}, .std = {0.3081f}})})(gray).tensor());
}

}  // namespace
}  // namespace gradus::data
