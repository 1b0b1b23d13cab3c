// Image: crops, copy-on-write copies, decoding of an ImageSource only when and where needed, and errors.
#include "gradus/data/images/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "gradus/tensor/base/error.h"
#include "gradus/tests/support/error.h"

namespace gradus::data {
namespace {

using ::testing::HasSubstr;

// Pixel (x, y) of channel c is 100 y + 10 x + c.
Image counted(int64_t height, int64_t width, int64_t channels) {
  Image image(height, width, channels);
  uint8_t* p = image.mutable_data();
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < channels; ++c) *p++ = static_cast<uint8_t>(100 * y + 10 * x + c);
  return image;
}

std::vector<int> values(const Image& image) { return {image.data(), image.data() + image.bytes()}; }

// A source of 2x3 gray pixels that records the arguments of every decode.
class Counter : public ImageSource {
 public:
  int64_t height() const override { return 2; }
  int64_t width() const override { return 3; }
  int64_t channels() const override { return 1; }
  Region decode(Box box, int64_t min_height, int64_t min_width) const override {
    boxes.push_back(box);
    minima.push_back({min_height, min_width});
    return counted(2, 3, 1).decode(box, min_height, min_width);
  }
  mutable std::vector<Box> boxes;
  mutable std::vector<std::vector<int64_t>> minima;
};

TEST(Image, CropsRows) {
  const Image image = counted(2, 4, 3);
  EXPECT_EQ(image.bytes(), 24);
  const Image part = image.crop({.left = 1, .top = 1, .width = 2, .height = 1});
  EXPECT_EQ(values(part), (std::vector<int>{110, 111, 112, 120, 121, 122}));
  const Region region = image.decode({.left = 2, .top = 0, .width = 2, .height = 2}, 1, 1);
  EXPECT_EQ(values(region.image), (std::vector<int>{20, 21, 22, 30, 31, 32, 120, 121, 122, 130, 131, 132}));
  EXPECT_EQ(region.left, 0);
  EXPECT_EQ(region.width, 2);
}

TEST(Image, CopiesAreValues) {
  Image a = counted(2, 2, 1);
  Image b = a;
  EXPECT_EQ(a.data(), b.data()) << "shared until written to";
  b.mutable_data()[0] = 77;
  EXPECT_EQ(values(a)[0], 0);
  EXPECT_EQ(values(b)[0], 77);
  uint8_t* own = b.mutable_data();
  EXPECT_EQ(own, b.data());
  Image whole = a.crop(a.whole());
  whole.mutable_data()[0] = 5;
  EXPECT_EQ(values(a)[0], 0);
}

TEST(Image, ASourceDecodesWhatIsAskedForAndTheWholeOnce) {
  const auto source = std::make_shared<Counter>();
  const Image lazy(source);
  EXPECT_FALSE(lazy.is_decoded());
  EXPECT_EQ(lazy.width(), 3);
  EXPECT_TRUE(source->boxes.empty()) << "nothing is decoded before it is asked for";
  const Box box{.left = 1, .top = 0, .width = 2, .height = 1};
  EXPECT_EQ(values(lazy.crop(box)), (std::vector<int>{10, 20}));
  lazy.decode(box, 100, -1);
  EXPECT_EQ(source->boxes, (std::vector<Box>{box, box}));
  EXPECT_EQ(source->minima[1], (std::vector<int64_t>{1, 1})) << "at most the box's size, at least 1";
  lazy.data();
  lazy.data();
  EXPECT_TRUE(lazy.is_decoded());
  EXPECT_EQ(source->boxes.size(), 3u);
  EXPECT_EQ(values(lazy), values(counted(2, 3, 1)));
}

TEST(Image, MistakesAreErrors) {
  EXPECT_THROW(Image(0, 3, 3), ValueError);
  EXPECT_THROW(Image(3, 3, 4), ValueError);
  EXPECT_THROW(Image(int64_t{1} << 40, int64_t{1} << 40, 3), ValueError);
  EXPECT_THROW(Image(std::shared_ptr<const ImageSource>()), ValueError);
  EXPECT_FALSE(Image().defined());
  EXPECT_THROW(Image().data(), StateError);
  const Image image = counted(2, 4, 1);
  for (const Box& box : {Box{0, 0, 5, 1}, Box{0, 0, 0, 1}, Box{-1, 0, 2, 1}, Box{3, 0, 2, 1}, Box{0, 2, 1, 1},
                         Box{INT64_MAX, 0, 1, 1}, Box{0, 0, 1, INT64_MAX}}) {
    EXPECT_ERROR(ValueError, image.crop(box), "is not inside the image of 2x4");
  }
}

}  // namespace
}  // namespace gradus::data
