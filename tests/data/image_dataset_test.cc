// ImageDataset and FakeData (random pixels, determined by seed and index). Random transforms give the same
// pixels for any number of workers and ranks, and other pixels for another epoch or seed; errors name the
// sample; batches have the transform's shape. Images are given as height x width.
#include "gradus/data/sets/image_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/data/dataloader.h"
#include "gradus/data/sets/fake_data.h"
#include "gradus/data/transforms/color.h"
#include "gradus/data/transforms/tensor.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/support/error.h"

namespace gradus::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Random crops, flips, colors, lighting and erasing; the result is f32[3,24,24].
Transform training_transform() {
  return Compose({RandomResizedCrop({.size = 24}), RandomHorizontalFlip(),
                  ColorJitter({.brightness = 0.4, .hue = 0.1}), RandomGrayscale(), ToTensor(), Lighting(),
                  Normalize({.mean = {0.5f}, .std = {0.25f}}), RandomErasing({.random_value = true})});
}

// Returns all pixels of the first epoch, shuffled with a fixed seed, in the order of the batches.
std::vector<float> epoch_of(const Dataset& d, DataLoaderOptions options) {
  options.batch_size = 4;
  options.shuffle = true;
  options.seed = 5;
  std::vector<float> all;
  DataLoader loader(d, options);
  for (const Batch& b : loader) {
    const auto values = b.input.to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST(ImageDataset, AugmentationDoesNotDependOnWorkers) {
  const FakeData d({.size = 21, .image_size = {40, 50}, .transform = training_transform()});
  const auto alone = epoch_of(d, {});
  for (int workers : {1, 4}) EXPECT_EQ(epoch_of(d, {.num_workers = workers}), alone) << workers;
}

// A loader per rank with batches of 4, and one loader with batches of 8. Image i of rank r's batch
// is image 2 * i + r of the global batch.
TEST(ImageDataset, AugmentationDoesNotDependOnRanks) {
  const FakeData d({.size = 16, .image_size = {40, 50}, .transform = training_transform()});
  const auto batches = [&](DataLoaderOptions options) {
    options.shuffle = true;
    options.seed = 5;
    std::vector<Batch> all;
    for (const Batch& b : DataLoader(d, options)) all.push_back(b);
    return all;
  };
  const auto whole = batches({.batch_size = 8});
  for (int rank : {0, 1}) {
    const auto part = batches({.batch_size = 4, .rank = rank, .world_size = 2});
    ASSERT_EQ(part.size(), whole.size());
    for (size_t b = 0; b < part.size(); ++b) {
      const auto mine = part[b].input.to_vector<float>(), all = whole[b].input.to_vector<float>();
      const size_t image = 3 * 24 * 24;
      for (size_t i = 0; i < 4; ++i) {
        const auto from = all.begin() + ptrdiff_t((2 * i + size_t(rank)) * image);
        EXPECT_TRUE(std::equal(from, from + ptrdiff_t(image), mine.begin() + ptrdiff_t(i * image)));
      }
    }
  }
}

TEST(ImageDataset, AugmentationChangesWithTheEpochAndTheSeed) {
  const FakeData d({.size = 1, .image_size = 40, .transform = training_transform()});
  DataLoader loader(d, {.seed = 1}), other(d, {.seed = 2});
  const auto first = loader.begin()->input.to_vector<float>(),
             second = loader.begin()->input.to_vector<float>();
  EXPECT_NE(first, second);
  EXPECT_NE(first, other.begin()->input.to_vector<float>());
}

TEST(ImageDataset, TransformsThatGiveOtherShapesOrNoTensorAreErrorsThatNameTheSample) {
  // Returns the text of the error of reading samples 4 and 7 with this transform.
  const auto message = [](Transform transform) {
    const FakeData d({.size = 9, .image_size = {6, 5}, .transform = std::move(transform)});
    return error_of<SampleError>([&] { d.get_batch(std::vector<int64_t>{4, 7}); });
  };
  EXPECT_THAT(message(RandomHorizontalFlip()), AllOf(HasSubstr("sample 4"), HasSubstr("ToTensor")));
  int calls = 0;  // each image is one pixel narrower than the image before
  const Lambda shrinking([&](const Image& image) { return image.crop({0, 0, 5 - calls++, 6}); });
  EXPECT_THAT(
      message(Compose({shrinking, ToTensor()})),
      AllOf(HasSubstr("sample 7"), HasSubstr("[3,6,4]"), HasSubstr("[3,6,5]"), HasSubstr("of sample 4")));
  EXPECT_THAT(message(Compose({RandomCrop({.size = 7}), ToTensor()})),
              AllOf(HasSubstr("7x7"), HasSubstr("6x5")));
  EXPECT_THAT(message(Normalize({.mean = {0.f}, .std = {1.f}})), HasSubstr("after ToTensor"));
  EXPECT_THAT(message(Compose({ToTensor(), RandomHorizontalFlip()})), HasSubstr("before ToTensor"));
}

// A transform that returns f32[1], the first pixel, gives inputs f32[N,1].
TEST(ImageDataset, TensorsOfAnyShapeMakeABatch) {
  const FakeData d(
      {.size = 9, .image_size = {6, 5}, .transform = Compose({ToTensor(), Lambda([](const Tensor& x) {
                                                                return tensor<float>({x.data<float>()[0]},
                                                                                     {1});
                                                              })})});
  const Batch b = d.get_batch(std::vector<int64_t>{4, 7});
  EXPECT_EQ(b.input.shape(), Shape({2, 1}));
  EXPECT_EQ(b.input.to_vector<float>()[1], float(d.image(7).data()[0]) / 255.f);
  EXPECT_EQ(b.target.to_vector<int64_t>()[1], d.label(7));
}

// Also checks sizes, the range and spread of labels, and the errors of invalid options and indices.
TEST(FakeData, DependsOnSeedAndIndexAlone) {
  const FakeData a({.size = 50, .image_size = {3, 7}, .classes = 4}),
      b({.size = 50, .image_size = {3, 7}, .seed = 1});
  EXPECT_EQ(a.size(), 50);
  const auto bytes = [](const Image& i) { return std::vector<uint8_t>(i.data(), i.data() + i.bytes()); };
  EXPECT_EQ(a.image(3).bytes(), 63);
  EXPECT_EQ(bytes(a.image(3)), bytes(FakeData({.image_size = {3, 7}}).image(3)));
  EXPECT_NE(bytes(a.image(3)), bytes(a.image(4)));
  EXPECT_NE(bytes(a.image(3)), bytes(b.image(3)));
  std::vector<int> seen(4);
  for (int64_t i = 0; i < 50; ++i) ++seen.at(size_t(a.label(i)));
  for (int n : seen) EXPECT_GT(n, 4);
  EXPECT_EQ(FakeData({.image_size = 2, .channels = 1}).get(0).input.shape(), Shape({1, 2, 2}));
  EXPECT_THROW(FakeData({.size = 0}), ValueError);
  EXPECT_THROW(FakeData({.classes = 0}), ValueError);
  EXPECT_THROW(FakeData({.channels = 2}), ValueError);
  EXPECT_THROW(a.image(50), IndexError);
  EXPECT_THROW(a.label(-1), IndexError);
}

}  // namespace
}  // namespace gradus::data
