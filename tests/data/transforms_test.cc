// Image transforms and Picture, which collects the steps of an image and decodes only what they need. Random
// transforms are checked by statistics of fixed seeds (some of torchvision's) and against the deterministic
// functions.
#include "gradus/data/transforms/color.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "gradus/data/images/image_decoder.h"
#include "gradus/data/transforms/tensor.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/support/error.h"

namespace gradus::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Image ramp(int64_t h, int64_t w, int64_t c = 3) {
  Image image(h, w, c);
  for (int64_t i = 0; i < image.bytes(); ++i) image.mutable_data()[i] = uint8_t(i * 37 + i / 256);
  return image;
}

std::vector<int> bytes(const Image& image) { return {image.data(), image.data() + image.bytes()}; }

// An image source that records the boxes it decodes.
class Recorder : public ImageSource {
 public:
  Recorder(Image image, std::vector<Box>& boxes) : image_(std::move(image)), boxes_(boxes) {}
  int64_t height() const override { return image_.height(); }
  int64_t width() const override { return image_.width(); }
  int64_t channels() const override { return image_.channels(); }
  // Decodes at half the size, each pixel the mean of four, if the minima allow that and the box is even.
  Region decode(Box box, int64_t min_height, int64_t min_width) const override {
    boxes_.push_back(box);
    const bool halves = box.height / 2 >= min_height && box.width / 2 >= min_width && box.left % 2 == 0 &&
                        box.top % 2 == 0 && box.height % 2 == 0 && box.width % 2 == 0;
    const Image part = image_.crop(box);
    if (!halves) return {part, 0, 0, double(box.width), double(box.height)};
    return {resize(part, {box.height / 2, box.width / 2}, Interpolation::kBox), 0, 0, double(box.width) / 2,
            double(box.height) / 2};
  }

 private:
  Image image_;
  std::vector<Box>& boxes_;
};

TEST(Picture, DecodesTheBoxThatIsNeededOnly) {
  std::vector<Box> boxes;
  const Image decoded = ramp(100, 120), lazy(std::make_shared<Recorder>(decoded, boxes));
  const Box box{20, 10, 64, 48};
  const Image cut = Picture(lazy).crop(box).image();
  EXPECT_EQ(boxes, (std::vector<Box>{box}));
  EXPECT_EQ(bytes(cut), bytes(decoded.crop(box)));
  boxes.clear();
  // Rows 20 .. 29 of 80 are made of rows near 25 .. 38 of 100.
  Picture eval = Picture(lazy).resize({80, 90}).crop({30, 20, 40, 10});
  EXPECT_EQ(bytes(eval.image()), bytes(resize(decoded, {80, 90}).crop({30, 20, 40, 10})));
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_GE(boxes[0].top, 22);
  EXPECT_LE(boxes[0].top + boxes[0].height, 40);
  EXPECT_GE(boxes[0].left, 36);
  EXPECT_LE(boxes[0].left + boxes[0].width, 96);
}

TEST(Picture, DecodesAtASmallerScaleWhereThatIsAllowed) {
  std::vector<Box> boxes;
  const Image decoded = ramp(100, 120), lazy(std::make_shared<Recorder>(decoded, boxes));
  const Box box{20, 10, 64, 48};
  const Image exact = Picture(lazy).crop(box).resize(20).image();
  EXPECT_EQ(bytes(exact), bytes(resize(decoded.crop(box), 20)));
  const Image halved = resize(decoded.crop(box), {24, 32}, Interpolation::kBox);
  EXPECT_EQ(bytes(Picture(lazy).crop(box).resize(20, Interpolation::kBilinear, true).image()),
            bytes(resize(halved, 20)));
  EXPECT_EQ(
      bytes(Picture(lazy).crop(box).resize(20, Interpolation::kBilinear, true).crop({3, 4, 9, 10}).image()),
      bytes(resize(halved, 20).crop({3, 4, 9, 10})));
  // 25 rows are more than half of 48.
  EXPECT_EQ(bytes(Picture(lazy).crop(box).resize(25, Interpolation::kBilinear, true).image()),
            bytes(resize(decoded.crop(box), 25)));
  EXPECT_EQ(bytes(Picture(decoded).crop(box).resize(20, Interpolation::kBilinear, true).image()),
            bytes(exact))
      << "what is decoded is not scaled";
}

TEST(Picture, StepsThatWaitGiveWhatTheyGiveAtOnce) {
  const Image image = ramp(31, 43);
  const auto step = [](Picture& p, int k) {
    if (k == 0) p.mirror();
    if (k == 1) p.crop({1, 2, p.width() - 4, p.height() - 3});
    if (k == 2) p.resize({p.height() - 5, p.width() + 3}, Interpolation::kBicubic);
    if (k == 3) p.set(vflip(p.image()));
  };
  // All sequences of four steps.
  for (int order = 0; order < 256; ++order) {
    Picture waiting(image), at_once(image);
    for (int i = 0; i < 4; ++i) {
      const int k = order >> (2 * i) & 3;
      step(waiting, k);
      step(at_once, k);
      at_once = Picture(at_once.image());
    }
    EXPECT_EQ(waiting.height(), at_once.height());
    EXPECT_EQ(waiting.width(), at_once.width());
    ASSERT_EQ(bytes(waiting.image()), bytes(at_once.image())) << order;
    std::vector<float> direct(size_t(3 * waiting.height() * waiting.width()));
    Picture again(image);
    for (int i = 0; i < 4; ++i) step(again, order >> (2 * i) & 3);
    again.to_float().write_channels_last(direct.data());
    for (size_t i = 0; i < direct.size(); ++i) ASSERT_EQ(direct[i], float(waiting.image().data()[i]) / 255.f);
  }
}

TEST(Picture, TensorsAreLaidOutRowMajorAndWrittenChannelsLast) {
  Picture p(ramp(4, 5));
  p.to_float();
  const Tensor x = p.tensor();
  EXPECT_TRUE(x.is_row_major());
  EXPECT_EQ(p.channels_last_copy().to_vector<float>(), x.to_vector<float>());
  std::vector<float> last(60);
  p.write_channels_last(last.data());
  EXPECT_EQ(last[3 * 7 + 2], x.data<float>()[2 * 20 + 7]);
  p.normalize(std::vector<float>{1, 2, 3}, std::vector<float>{4});
  EXPECT_EQ(p.tensor().data<float>()[20], (x.data<float>()[20] - 2) / 4);
  EXPECT_THROW(p.normalize(std::vector<float>{1, 2}, std::vector<float>{4}), ValueError);
  EXPECT_THROW(p.image(), StateError);
  EXPECT_THROW(p.crop({0, 0, 1, 1}), StateError);
  EXPECT_THROW(Picture{Image()}, StateError);
  EXPECT_THROW(Picture{Tensor()}, StateError);
  EXPECT_THROW(Picture(ramp(4, 5)).crop({0, 0, 6, 1}), ValueError);
  EXPECT_THROW(Picture(ramp(4, 5)).resize({0, 1}), ValueError);
  EXPECT_THROW(Picture(ramp(4, 5)).tensor(), StateError);
}

TEST(RandomCrop, TakesEveryPlaceAlike) {
  manual_seed(1);
  const Image image = ramp(5, 7);
  std::map<std::vector<int>, int> seen;
  for (int i = 0; i < 3000; ++i) ++seen[bytes(RandomCrop({.size = {4, 5}})(image).image())];
  EXPECT_EQ(seen.size(), 6u);
  for (const auto& [pixels, n] : seen) EXPECT_NEAR(n, 500, 90);
  EXPECT_EQ(bytes(RandomCrop({.size = {5, 7}})(image).image()), bytes(image));
  EXPECT_ERROR(Error, RandomCrop({.size = 6})(image), "6x6", "5x7");
  const Image needed = RandomCrop({.size = {9, 7}, .pad_if_needed = true})(image).image();
  EXPECT_EQ(needed.height(), 9);
  // With padding, shifts of -4 .. 4 both ways.
  seen.clear();
  for (int i = 0; i < 4000; ++i)
    ++seen[bytes(RandomCrop({.size = {5, 7}, .padding = 4, .fill = 9})(image).image())];
  EXPECT_EQ(seen.size(), 81u);
}

TEST(RandomResizedCrop, BoxesFollowScaleAndRatio) {
  manual_seed(1);
  const RandomResizedCrop crop({.size = 8});
  double area = 0, log_ratio = 0, low = 1, high = 0;
  const int n = 4000;
  for (int i = 0; i < n; ++i) {
    const Box b = crop.draw_box(1000, 1000);
    ASSERT_TRUE(b.left >= 0 && b.top >= 0 && b.left + b.width <= 1000 && b.top + b.height <= 1000);
    const double part = double(b.width * b.height) / 1e6, ratio = double(b.width) / double(b.height);
    EXPECT_TRUE(part > 0.079 && part <= 1 && ratio > 0.74 && ratio < 1.345) << part << " " << ratio;
    area += part, log_ratio += std::log(ratio);
    low = std::min(low, part), high = std::max(high, part);
  }
  EXPECT_NEAR(log_ratio / n, 0, 0.01);
  EXPECT_LT(low, 0.09);
  EXPECT_GT(high, 0.95);
  EXPECT_NEAR(area / n, 0.478, 0.012);  // torchvision's mean over 60,000 draws
  // The same of a wide image, where many draws do not fit.
  double left = 0;
  area = 0;
  for (int i = 0; i < n; ++i) {
    const Box b = crop.draw_box(300, 600);
    area += double(b.width * b.height) / (300 * 600), left += double(b.left) / 600;
  }
  EXPECT_NEAR(area / n, 0.304, 0.009);
  EXPECT_NEAR(left / n, 0.305, 0.012);
  // If no box fits, it is the middle of the image, with the nearest allowed ratio.
  const RandomResizedCrop whole({.size = 8, .scale = {1, 1}, .ratio = {1, 1}});
  EXPECT_EQ(whole.draw_box(10, 30), (Box{10, 0, 10, 10}));
  EXPECT_EQ(whole.draw_box(31, 10), (Box{0, 10, 10, 10}));
  EXPECT_EQ(RandomResizedCrop({.size = 8, .scale = {2, 3}}).draw_box(10, 10), (Box{0, 0, 10, 10}));
}

TEST(RandomFlips, HappenWithTheirProbability) {
  manual_seed(1);
  const Image image = ramp(3, 4);
  const auto share = [&](const Transform& t, const Image& flipped) {
    int n = 0;
    for (int i = 0; i < 2000; ++i) {
      const auto result = bytes(t(image).image());
      n += result == bytes(flipped);
      EXPECT_TRUE(result == bytes(flipped) || result == bytes(image));
    }
    return n / 2000.;
  };
  EXPECT_NEAR(share(RandomHorizontalFlip(), hflip(image)), 0.5, 0.04);
  EXPECT_NEAR(share(RandomVerticalFlip({.p = 0.25}), vflip(image)), 0.25, 0.04);
  EXPECT_NEAR(share(RandomGrayscale(), to_grayscale(image, 3)), 0.1, 0.03);
  EXPECT_NEAR(share(RandomApply({RandomHorizontalFlip({.p = 1})}, {.p = 0.7}), hflip(image)), 0.7, 0.04);
  EXPECT_EQ(share(RandomHorizontalFlip({.p = 0}), hflip(image)), 0);
}

TEST(ColorJitter, AppliesEachInAnyOrder) {
  manual_seed(1);
  const Image image = ramp(9, 11);
  EXPECT_EQ(bytes(ColorJitter()(image).image()), bytes(image));
  EXPECT_EQ(bytes(ColorJitter({.brightness = {0.5, 0.5}})(image).image()),
            bytes(adjust_brightness(image, 0.5)));
  EXPECT_EQ(bytes(ColorJitter({.hue = {0.2, 0.2}})(image).image()), bytes(adjust_hue(image, 0.2)));
  const ColorJitter both({.brightness = {0.5, 0.5}, .saturation = {2, 2}});
  std::map<std::vector<int>, int> seen;
  for (int i = 0; i < 1000; ++i) ++seen[bytes(both(image).image())];
  const auto one = bytes(adjust_saturation(adjust_brightness(image, 0.5), 2)),
             other = bytes(adjust_brightness(adjust_saturation(image, 2), 0.5));
  ASSERT_NE(one, other);
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_NEAR(seen[one], 500, 60);
  EXPECT_NEAR(seen[other], 500, 60);
  // Factors of [0.6, 1.4].
  Image white(1, 1, 3);
  for (int c = 0; c < 3; ++c) white.mutable_data()[c] = 100;
  int low = 255, high = 0;
  for (int i = 0; i < 2000; ++i) {
    const int v = ColorJitter({.brightness = 0.4})(white).image().data()[0];
    low = std::min(low, v), high = std::max(high, v);
  }
  EXPECT_EQ(low, 60);
  EXPECT_EQ(high, 139);
}

// The covariance of the noise of one pixel, to 5 % of the largest variance (5 standard errors of 20,000
// draws).
TEST(Lighting, AddsNoiseAlongPrincipalComponents) {
  manual_seed(1);
  const Tensor zeros = Picture(ramp(1, 1)).to_float().set(tensor<float>({0, 0, 0}, {3, 1, 1})).tensor();
  double products[3][3] = {};
  const int n = 20000;
  for (int i = 0; i < n; ++i) {
    const auto x = Lighting()(zeros).tensor().to_vector<float>();
    for (size_t a = 0; a < 3; ++a)
      for (size_t b = 0; b < 3; ++b) products[a][b] += double(x[a]) * double(x[b]) / n;
  }
  const LightingOptions o;
  for (size_t a = 0; a < 3; ++a)
    for (size_t b = 0; b < 3; ++b) {
      double expected = 0;
      for (size_t k = 0; k < 3; ++k)
        expected += o.vectors[a][k] * o.vectors[b][k] * o.values[k] * o.values[k] * 0.01;
      EXPECT_NEAR(products[a][b], expected, 0.05 * 1.6e-4) << a << b;
    }
}

TEST(RandomErasing, OverwritesOneBox) {
  manual_seed(1);
  const Image image = ramp(20, 30);
  const Tensor x = to_tensor(image);
  int erased = 0;
  const RandomErasing erase({.value = {-1, -2, -3}});
  for (int i = 0; i < 1000; ++i) {
    const Tensor y = Compose({ToTensor(), erase})(image).tensor();
    int64_t left = 30, right = 0, top = 20, bottom = 0, n = 0;
    for (int64_t k = 0; k < 600; ++k) {
      const bool is_erased = y.data<float>()[k] == -1;
      for (int64_t c = 0; c < 3; ++c)
        ASSERT_EQ(y.data<float>()[c * 600 + k], is_erased ? -1 - float(c) : x.data<float>()[c * 600 + k]);
      if (!is_erased) continue;
      left = std::min(left, k % 30), right = std::max(right, k % 30 + 1);
      top = std::min(top, k / 30), bottom = std::max(bottom, k / 30 + 1);
      ++n;
    }
    if (n == 0) continue;
    ++erased;
    EXPECT_EQ(n, (right - left) * (bottom - top));
    EXPECT_TRUE(n >= 6 && n <= 230) << n;
  }
  EXPECT_NEAR(erased, 500, 60);
  const Tensor noise = Compose({ToTensor(), RandomErasing({.p = 1, .random_value = true})})(image).tensor();
  EXPECT_NE(noise.to_vector<float>(), x.to_vector<float>());
  EXPECT_ERROR(Error, Compose({ToTensor(), RandomErasing({.p = 1, .value = {1, 2}})})(image), "3 channels");
}

TEST(Lambda, IsAFunctionOfTheImageOrTheTensor) {
  const Image image = ramp(2, 2);
  const Lambda dark([](Image i) { return adjust_brightness(i, 0); });
  const Lambda twice([](const Tensor& x) { return tensor<float>({2 * x.data<float>()[0]}, {1}); });
  EXPECT_EQ(bytes(dark(image).image()), std::vector<int>(12));
  EXPECT_EQ(Compose({ToTensor(), twice})(image).tensor().shape(), Shape({1}));
  EXPECT_THROW(twice(image), StateError);
  EXPECT_THROW(dark(to_tensor(image)), StateError);
}

TEST(Transforms, OptionsOutOfTheirDomainsAreErrors) {
  EXPECT_THROW(Resize({.size = 0}), ValueError);
  EXPECT_THROW(Resize({.size = {3, -1}}), ValueError);
  EXPECT_THROW(Resize({.size = {3, 4}, .max_size = 5}), ValueError);
  EXPECT_THROW(Resize({.size = 4, .max_size = 4}), ValueError);
  EXPECT_THROW(CenterCrop({.size = 0}), ValueError);
  EXPECT_THROW(RandomCrop({.size = -1}), ValueError);
  EXPECT_THROW(RandomResizedCrop({.size = 0}), ValueError);
  EXPECT_THROW(RandomResizedCrop({.size = 1, .scale = {0.5, 0.1}}), ValueError);
  EXPECT_THROW(RandomResizedCrop({.size = 1, .ratio = {0, 1}}), ValueError);
  EXPECT_THROW(RandomHorizontalFlip({.p = 1.1}), ValueError);
  EXPECT_THROW(RandomVerticalFlip({.p = -0.1}), ValueError);
  EXPECT_THROW(RandomApply({}, {.p = NAN}), ValueError);
  EXPECT_THROW(RandomGrayscale({.p = 2}), ValueError);
  EXPECT_THROW(Grayscale({.num_output_channels = 2}), ValueError);
  EXPECT_THROW(ColorJitter({.brightness = -0.1}), ValueError);
  EXPECT_THROW(ColorJitter({.contrast = {0.5, 0.4}}), ValueError);
  EXPECT_THROW(ColorJitter({.hue = 0.6}), ValueError);
  EXPECT_THROW(ColorJitter({.hue = {-0.6, 0}}), ValueError);
  EXPECT_THROW(Normalize({}), ValueError);
  EXPECT_THROW(Normalize({.mean = {0}, .std = {0}}), ValueError);
  EXPECT_THROW(Lighting({.std = -1}), ValueError);
  EXPECT_THROW(RandomErasing({.p = 2}), ValueError);
  EXPECT_THROW(RandomErasing({.scale = {0.5, 1.5}}), ValueError);
  EXPECT_THROW(RandomErasing({.ratio = {2, 1}}), ValueError);
  EXPECT_THROW(RandomErasing({.value = {}}), ValueError);
  EXPECT_THROW(Pad({.padding = -1})(ramp(2, 2)), ValueError);
  EXPECT_THROW(Pad({.padding = 1, .padding_mode = PaddingMode::kReflect})(ramp(1, 4)), ValueError);
  EXPECT_THROW(adjust_brightness(ramp(2, 2), -1), ValueError);
  EXPECT_THROW(adjust_contrast(ramp(2, 2), NAN), ValueError);
  EXPECT_THROW(adjust_hue(ramp(2, 2), 0.51), ValueError);
  EXPECT_ERROR(Error, Compose({ToTensor(), Normalize({.mean = {0, 0}, .std = {1}})})(ramp(2, 2)),
               "3 channels");
}

TEST(Transforms, OnlyBytesToFloatsArePointwise) {
  const Normalize normalize({.mean = {.5}, .std = {.2}});
  EXPECT_TRUE(Transform(ToTensor()).is_pointwise());
  EXPECT_TRUE(Transform(Compose({Compose({ToTensor()}), normalize})).is_pointwise());
  for (const Transform& other :
       {Transform(RandomHorizontalFlip()), Transform(RandomErasing()), Transform(Lighting()),
        Transform(RandomApply({ToTensor()})), Transform(Lambda([](const Tensor& x) { return x; }))}) {
    EXPECT_FALSE(other.is_pointwise());
    EXPECT_FALSE(Compose({ToTensor(), other}).is_pointwise());
  }
}

}  // namespace
}  // namespace gradus::data
