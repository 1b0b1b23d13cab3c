// Segmentation masks under transforms of their images: exactly as torchvision and Pillow change them
// (masks.py wrote masks.safetensors), and with the random draws of the image; SegmentationFiles.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "gradus/data/dataloader.h"
#include "gradus/data/sets/segmentation_files.h"
#include "gradus/data/transforms/color.h"
#include "gradus/data/transforms/tensor.h"
#include "gradus/io/safetensors.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/support/error.h"

namespace gradus::data {
namespace {

// A mask of pseudorandom classes, as in masks.py.
Image classes(int64_t h = 13, int64_t w = 17) {
  Image image(h, w, 1);
  for (int64_t i = 0; i < image.bytes(); ++i)
    image.mutable_data()[i] = uint8_t(((uint64_t(i) * 2654435761u) & 0xFFFFFFFFu) >> 27);
  return image;
}

// A photograph of the same size.
Image photo(int64_t h = 13, int64_t w = 17) {
  Image image(h, w, 3);
  for (int64_t i = 0; i < image.bytes(); ++i) image.mutable_data()[i] = uint8_t(i * 31);
  return image;
}

void expect_mask(const std::string& name, Picture picture) {
  static const auto& golden =
      *new io::SafetensorsFile(io::load_safetensors("tests/golden/data/masks.safetensors"));
  const Tensor& expected = golden.at(name);
  const Tensor mask = picture.mask();
  EXPECT_EQ(mask.dtype(), DType::kI64);
  ASSERT_EQ(mask.shape(), (Shape{expected.size(0), expected.size(1)})) << name;
  EXPECT_EQ(mask.to_vector<int64_t>(), expected.to_vector<int64_t>()) << name;
  EXPECT_EQ(picture.height(), mask.size(0)) << name;
  EXPECT_EQ(picture.width(), mask.size(1)) << name;
}

TEST(Masks, ChangeAsPillowsDo) {
  const auto pair = [] { return Picture(photo(), classes()); };
  for (const auto& [h, w] :
       {std::pair(7, 9), std::pair(26, 34), std::pair(20, 5), std::pair(1, 1), std::pair(13, 40)})
    expect_mask(concat("resize/", h, 'x', w), Resize({.size = ResizeSize(h, w)})(pair()));
  for (const Box& b : {Box{0, 0, 17, 13}, Box{5, 3, 9, 7}, Box{16, 12, 1, 1}, Box{2, 1, 4, 11}}) {
    const std::string name = concat("resized_crop/", b.top, ',', b.left, ',', b.height, ',', b.width);
    expect_mask(name, pair().crop(b).resize(8));
    expect_mask(name + "/mirrored", pair().crop(b).resize(8).mirror());
    expect_mask(name + "/mirrored", pair().crop(b).mirror().resize(8));
  }
  for (const auto& [name, mode] :
       {std::pair("constant", PaddingMode::kConstant), std::pair("edge", PaddingMode::kEdge),
        std::pair("reflect", PaddingMode::kReflect), std::pair("symmetric", PaddingMode::kSymmetric)})
    expect_mask(concat("pad/", name),
                Pad({.padding = Padding(2, 3, 4, 1), .fill = 7, .padding_mode = mode})(pair()));
  expect_mask("vflip", RandomVerticalFlip({.p = 1})(pair()));
  expect_mask("center_crop", CenterCrop({.size = Size2(5, 6)})(pair()));
}

// An image that is its own mask stays equal to it, for 50 seeds.
TEST(Masks, HaveTheirImagesDraws) {
  const std::vector<std::pair<const char*, Transform>> steps = {
      {"RandomResizedCrop", RandomResizedCrop({.size = 9, .interpolation = Interpolation::kNearest})},
      {"RandomCrop", RandomCrop({.size = Size2(10, 12), .padding = 3, .fill = 255})},
      {"RandomCrop, smaller", RandomCrop({.size = Size2(20, 30), .pad_if_needed = true, .fill = 255})},
      {"flips", Compose({RandomHorizontalFlip(), RandomVerticalFlip()})},
      {"all",
       Compose({RandomApply({RandomCrop({.size = Size2(11, 9)})}), RandomHorizontalFlip(),
                Resize({.size = 8, .interpolation = Interpolation::kNearest}), RandomVerticalFlip(),
                RandomCrop({.size = 7, .padding = 1, .fill = 255, .padding_mode = PaddingMode::kReflect})})}};
  for (const auto& [name, step] : steps) {
    std::set<std::vector<int64_t>> results;
    for (uint64_t seed = 0; seed < 50; ++seed) {
      manual_seed(seed);
      Picture picture = step(Picture(classes(), classes()));
      const Image image = picture.image();
      const auto mask = picture.mask().to_vector<int64_t>();
      ASSERT_EQ(std::vector<int64_t>(image.data(), image.data() + image.bytes()), mask)
          << name << ", seed " << seed;
      results.insert(mask);
    }
    EXPECT_GE(results.size(), 4u) << name;
  }
}

TEST(Masks, KeepTheirClassesWhenColorsChange) {
  manual_seed(1);
  const Transform colors =
      Compose({ColorJitter({.brightness = 0.5, .hue = 0.3}), RandomGrayscale({.p = 1}), ToTensor(),
               Normalize({.mean = {0.5f}, .std = {0.25f}}), RandomErasing({.p = 1})});
  Picture picture = colors(Picture(photo(), classes()));
  EXPECT_EQ(picture.tensor().shape(), (Shape{3, 13, 17}));
  const Image before = classes();
  EXPECT_EQ(picture.mask().to_vector<int64_t>(),
            std::vector<int64_t>(before.data(), before.data() + before.bytes()));
}

TEST(Masks, APictureAndItsCopyHaveTheirOwn) {
  Picture first(photo(), classes());
  Picture second = first;
  second.crop({0, 0, 2, 3});
  EXPECT_EQ(first.mask().shape(), (Shape{13, 17}));
  EXPECT_EQ(second.mask().shape(), (Shape{3, 2}));
  EXPECT_FALSE(Picture(photo()).has_mask());
}

TEST(Masks, FillIsAnOption) {
  const auto mask =
      Picture(photo(2, 2), Image(classes(2, 2)), {.fill = 9}).pad(1, {.fill = 3}).mask().to_vector<int64_t>();
  EXPECT_EQ(mask[0], 9);
}

TEST(Masks, WhatDoesNotFitIsAnError) {
  EXPECT_ERROR(Error, Picture(photo(), photo()), "3 channels");
  EXPECT_ERROR(Error, Picture(photo(), classes(12, 17)), "12x17", "13x17");
  EXPECT_ERROR(Error, Picture(photo()).mask(), "no mask");
  const Lambda upper([](const Image& image) { return image.crop({0, 0, image.width(), 3}); });
  EXPECT_ERROR(Error, upper(Picture(photo(), classes())), "3x17", "crop");
  upper(Picture(photo()));  // nothing to follow
}

// PNG files, as Pillow writes them (masks.py has no part in them): a palette of 4 bits, gray, and colors.
std::filesystem::path folder() { return std::filesystem::path(testing::TempDir()); }

std::filesystem::path write(const std::string& name, std::initializer_list<int> bytes) {
  const auto path = folder() / name;
  std::ofstream out(path, std::ios::binary);
  for (const int b : bytes) out.put(char(b));
  return path;
}

std::filesystem::path palette_2x3() {
  return write(
      "palette_2x3.png",
      {137, 80,  78,  71, 13, 10,  26,  10,  0,   0,   0,  13, 73, 72,  68,  82, 0,   0,   0,   3,  0,   0,
       0,   2,   4,   3,  0,  0,   0,   111, 90,  123, 41, 0,  0,  0,   48,  80, 76,  84,  69,  10, 20,  30,
       200, 100, 50,  7,  7,  7,   255, 255, 255, 0,   0,  0,  0,  0,   0,   0,  0,   0,   0,   0,  0,   0,
       0,   0,   0,   0,  0,  0,   0,   0,   0,   0,   0,  0,  0,  0,   0,   0,  0,   0,   0,   0,  0,   0,
       0,   73,  201, 67, 69, 0,   0,   0,   14,  73,  68, 65, 84, 120, 156, 99, 100, 148, 103, 50, 252, 0,
       0,   1,   229, 1,  69, 251, 68,  254, 229, 0,   0,  0,  0,  73,  69,  78, 68,  174, 66,  96, 130});
}
std::filesystem::path gray_2x3() {
  return write("gray_2x3.png",
               {137, 80,  78, 71,  13,  10, 26,  10, 0,   0,   0,   13,  73,  72,  68, 82, 0,  0,  0,
                3,   0,   0,  0,   2,   8,  0,   0,  0,   0,   184, 31,  57,  198, 0,  0,  0,  16, 73,
                68,  65,  84, 120, 156, 99, 100, 96, 100, 100, 98,  102, 252, 15,  0,  1,  45, 1,  9,
                25,  134, 46, 243, 0,   0,  0,   0,  73,  69,  78,  68,  174, 66,  96, 130});
}
std::filesystem::path gray_1x1() {
  return write("gray_1x1.png", {137, 80,  78,  71,  13, 10, 26, 10,  0,   0,  0,  13, 73,  72,  68,  82, 0,
                                0,   0,   1,   0,   0,  0,  1,  8,   0,   0,  0,  0,  58,  126, 155, 85, 0,
                                0,   0,   10,  73,  68, 65, 84, 120, 156, 99, 96, 0,  0,   0,   2,   0,  1,
                                72,  175, 164, 113, 0,  0,  0,  0,   73,  69, 78, 68, 174, 66,  96,  130});
}
std::filesystem::path colors_2x3() {
  return write(
      "colors_2x3.png",
      {137, 80, 78,  71,  13,  10,  26,  10, 0,  0,   0,   13,  73,  72, 68, 82,  0,   0,   0,  3,   0,   0,
       0,   2,  8,   2,   0,   0,   0,   18, 22, 241, 77,  0,   0,   0,  28, 73,  68,  65,  84, 120, 156, 99,
       100, 96, 96,  8,   8,   8,   8,   8,  8,  96,  250, 240, 225, 67, 64, 64,  192, 134, 13, 27,  0,   56,
       220, 7,  180, 156, 245, 144, 125, 0,  0,  0,   0,   73,  69,  78, 68, 174, 66,  96,  130});
}

TEST(SegmentationFiles, GiveImagesAndClasses) {
  const auto image = colors_2x3(), palette = palette_2x3(), gray = gray_2x3();
  const SegmentationFiles set({{image, palette}, {image, gray}});
  EXPECT_EQ(set.get(0).target.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3, 2, 1}));
  EXPECT_EQ(set.get(1).target.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3, 2, 1}));
  EXPECT_EQ(set.get(0).input.shape(), (Shape{3, 2, 3}));
  for (const Batch& b : DataLoader(set, {.batch_size = 2})) {
    EXPECT_EQ(b.input.shape(), (Shape{2, 3, 2, 3}));
    EXPECT_EQ(b.target.shape(), (Shape{2, 2, 3}));
  }
  EXPECT_ERROR(Error, SegmentationFiles({{image, image}}).get(0), "colors_2x3.png", "colors");
  EXPECT_ERROR(Error, SegmentationFiles({{image, gray_1x1()}}).get(0), "gray_1x1.png: is 1x1",
               "colors_2x3.png is 2x3");
  EXPECT_ERROR(Error, SegmentationFiles({}), "at least one file");
}

}  // namespace
}  // namespace gradus::data
