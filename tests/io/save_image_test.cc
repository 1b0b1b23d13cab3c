// make_grid against torchvision's (golden/make_grid.py), encode_png against libpng's decoder, save_image.
#include "gradus/io/save_image.h"

#include <png.h>

#include <cmath>

#include "gradus/io/safetensors.h"
#include "gradus/tests/io/testing.h"

namespace gradus::io {
namespace {

using testing::ElementsAre;

struct Case {
  const char *name, *input;
  GridOptions options;
};

// As in golden/make_grid.py.
const Case kCases[] = {
    {"default", "x.f32", {}},
    {"u8", "x.u8", {.nrow = 3, .padding = 1, .pad_value = 200}},
    {"gray", "gray", {.nrow = 2}},
    {"one", "one", {}},
    {"matrix", "matrix", {}},
    {"normalized", "x.f32", {.nrow = 4, .normalize = true}},
    {"range", "x.f32", {.normalize = true, .value_range = {{-0.5, 0.75}}, .pad_value = 0.5}},
    {"each", "x.f32", {.nrow = 1, .padding = 0, .normalize = true, .scale_each = true}},
};

TEST(MakeGrid, GivesWhatTorchvisionGives) {
  const SafetensorsFile golden = load_safetensors("tests/io/golden/make_grid.safetensors");
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Tensor y = make_grid(golden.at(c.input), c.options), want = golden.at(std::string("y.") + c.name);
    ASSERT_EQ(describe(y), describe(want));
    if (y.dtype() == DType::kU8) {
      EXPECT_EQ(bytes_of(y), bytes_of(want));
      continue;
    }
    for (int64_t i = 0; i < y.numel(); ++i) ASSERT_NEAR(y.data<float>()[i], want.data<float>()[i], 1e-6) << i;
  }
}

TEST(MakeGrid, LeavesItsInputAloneAndTakesAnyLayout) {
  const Tensor x = counted({2, 3, 4, 4}, DType::kU8);
  const std::string before = bytes_of(x);
  Tensor last = empty_channels_last({2, 3, 4, 4}, {.dtype = DType::kU8});
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t n = i / 48, c = i / 16 % 3, at = i % 16;
    last.ptr<uint8_t>()[n * 48 + at * 3 + c] = x.ptr<uint8_t>()[i];
  }
  EXPECT_EQ(bytes_of(make_grid(last)), bytes_of(make_grid(x)));
  Tensor f = empty({1, 1, 2, 2});
  for (int i = 0; i < 4; ++i) f.ptr<float>()[i] = static_cast<float>(i);
  const std::string f_before = bytes_of(f);
  make_grid(f, {.normalize = true});
  EXPECT_EQ(bytes_of(f), f_before);
  EXPECT_EQ(bytes_of(x), before);
}

TEST(MakeGrid, SaysWhatItCannotLayOut) {
  EXPECT_ERROR(ShapeError, make_grid(empty({0, 3, 2, 2})), "f32[0,3,2,2]");
  EXPECT_THROW(make_grid(empty({5})), ShapeError);
  EXPECT_THROW(make_grid(empty({1, 1, 1, 2, 2})), ShapeError);
  EXPECT_THROW(make_grid(empty({3, 2, 2}), {.nrow = 0}), ValueError);
  EXPECT_THROW(make_grid(empty({3, 2, 2}), {.padding = -1}), ValueError);
  EXPECT_THROW(make_grid(empty({3, 2, 2}), {.normalize = true, .value_range = {{1, 1}}}), ValueError);
}

// Width, height and pixels with interleaved channels, by libpng.
struct Decoded {
  unsigned width = 0, height = 0;
  std::vector<int> pixels;
};
Decoded decode(const std::string& file, png_uint_32 format) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  EXPECT_TRUE(png_image_begin_read_from_memory(&png, file.data(), file.size()));
  EXPECT_EQ(png.format, format);
  std::vector<uint8_t> bytes(PNG_IMAGE_SIZE(png));
  EXPECT_TRUE(png_image_finish_read(&png, nullptr, bytes.data(), 0, nullptr)) << png.message;
  return {png.width, png.height, {bytes.begin(), bytes.end()}};
}

TEST(EncodePng, KeepsBytesAndScalesFloats) {
  const Decoded rgb = decode(encode_png(counted({3, 2, 2}, DType::kU8)), PNG_FORMAT_RGB);
  EXPECT_EQ(rgb.width, 2u);
  EXPECT_EQ(rgb.height, 2u);
  EXPECT_THAT(rgb.pixels, ElementsAre(1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12));
  EXPECT_THAT(decode(encode_png(counted({4, 1, 1}, DType::kU8)), PNG_FORMAT_RGBA).pixels,
              ElementsAre(1, 2, 3, 4));

  const Tensor x = tensor({-1.f, 0.f, 0.5f, 1.f, 7.f, std::nanf("")});
  const Tensor image = view_as_strided(x, {2, 3}, {3, 1}, 0);
  const Decoded gray = decode(encode_png(image), PNG_FORMAT_GRAY);
  EXPECT_EQ(gray.width, 3u);
  EXPECT_THAT(gray.pixels, ElementsAre(0, 0, 128, 255, 255, 0));
  const Tensor transposed = view_as_strided(x, {1, 3, 2}, {1, 1, 3}, 0);
  EXPECT_THAT(decode(encode_png(transposed), PNG_FORMAT_GRAY).pixels, ElementsAre(0, 255, 0, 255, 128, 0));
}

TEST(EncodePng, SaysWhatIsNoImage) {
  EXPECT_ERROR(ShapeError, encode_png(empty({2, 4, 4})), "1, 3 or 4 channels");
  EXPECT_THROW(encode_png(empty({1, 3, 4, 4})), ShapeError);
  EXPECT_THROW(encode_png(empty({3, 0, 4})), ShapeError);
  EXPECT_ERROR(DTypeError, encode_png(empty({3, 4, 4}, {.dtype = DType::kBool})), "bool[3,4,4]");
}

TEST(SaveImage, WritesAGridAsAFile) {
  Scratch dir;
  const Tensor x = counted({5, 3, 4, 4}, DType::kU8);
  save_image(dir / "grid.png", x, {.nrow = 3});
  EXPECT_EQ(slurp(dir / "grid.png"), encode_png(make_grid(x, {.nrow = 3})));
  EXPECT_ERROR(FileError, save_image(dir / "none/grid.png", x), (dir / "none").string());
}

}  // namespace
}  // namespace gradus::io
