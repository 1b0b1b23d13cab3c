// MNIST and FashionMNIST on small files in IDX format: folders, normalization, and errors. Also
// ImagesInMemory, their base class, the cache folder, and the published files, if GRADUS_DATA names a folder
// with mnist/.
#include "gradus/data/sets/mnist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "gradus/data/files/download.h"
#include "gradus/data/files/sha256.h"
#include "gradus/tests/support/error.h"
#include "gradus/tests/support/scratch.h"

namespace gradus::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Big-endian.
std::string be32(uint32_t v) { return {char(v >> 24), char(v >> 16), char(v >> 8), char(v)}; }

// IDX files of n images and of n labels: first, first + 1, ... mod 10, or, for first > 9, mod 256 (invalid
// labels).
std::string images(uint32_t n, uint32_t side = 28) {
  std::string bytes = std::string("\0\0\x08\x03", 4) + be32(n) + be32(side) + be32(side);
  for (uint32_t i = 0; i < n * side * side; ++i) bytes += char(i * 7 + i / 784);
  return bytes;
}

std::string labels(uint32_t n, int first = 0) {
  std::string bytes = std::string("\0\0\x08\x01", 4) + be32(n);
  for (uint32_t i = 0; i < n; ++i) bytes += char((first + int(i)) % 256 % (first > 9 ? 256 : 10));
  return bytes;
}

TEST(MNIST, ReadsImagesAndLabelsFromEitherFolder) {
  for (const std::string prefix : {"", "MNIST/raw/", "raw/"}) {
    Scratch s;
    EXPECT_FALSE(MNIST::available(s.dir()));
    s.write(prefix + "train-images-idx3-ubyte", images(12));
    s.write(prefix + "train-labels.idx1-ubyte", labels(12));
    const MNIST d(s.dir());
    EXPECT_EQ(d.size(), 12);
    EXPECT_EQ(d.name(), "MNIST");
    EXPECT_FALSE(MNIST::available(s.dir())) << "the test images are missing";
    s.write(prefix + "t10k-images-idx3-ubyte", images(2));
    s.write(prefix + "t10k-labels-idx1-ubyte", labels(2));
    EXPECT_TRUE(MNIST::available(s.dir()));
    EXPECT_EQ(MNIST(s.dir(), {.train = false}).size(), 2);
  }
}

TEST(MNIST, NormalizesLikePyTorch) {
  Scratch s;
  s.write("train-images-idx3-ubyte", images(3));
  s.write("train-labels-idx1-ubyte", labels(3));
  const MNIST d(s.dir());
  const Sample x = d.get(2);
  EXPECT_EQ(x.input.shape(), Shape({1, 28, 28}));
  EXPECT_EQ(x.target.shape(), Shape({}));
  EXPECT_EQ(x.target.dtype(), DType::kI64);
  EXPECT_EQ(x.target.item<int>(), 2);
  for (int64_t i = 0; i < 784; ++i) {
    const float byte = d.images().data<uint8_t>()[2 * 784 + i];
    ASSERT_EQ(x.input.data<float>()[i], (byte / 255.f - 0.1307f) / 0.3081f);
  }
  const MNIST plain(s.dir(), {.transform = ToTensor()});
  EXPECT_EQ(plain.get(0).input.data<float>()[1], 7.f / 255.f);
}

TEST(MNIST, MissingFilesAreNamedWithTheFolderAndAWayToGetThem) {
  Scratch s;
  EXPECT_THAT(
      error_of<FileError>([&] { MNIST d(s.dir()); }),
      AllOf(HasSubstr("[MNIST]"), HasSubstr(s.dir().string()), HasSubstr("train-images-idx3-ubyte.gz"),
            HasSubstr("https://"), HasSubstr("download_mnist")));
  EXPECT_ERROR(FileError, MNIST d(s / "nowhere"), "no such folder");
  s.write("t10k-images-idx3-ubyte", images(2));
  EXPECT_ERROR(FileError, MNIST d(s.dir(), {.train = false}), "t10k-labels-idx1-ubyte");
  EXPECT_ERROR(FileError, FashionMNIST d(s.dir()), "[FashionMNIST]");
}

TEST(MNIST, FilesThatDoNotBelongTogetherAreErrors) {
  const auto with = [](const std::string& i, const std::string& l) {
    Scratch s;
    s.write("train-images-idx3-ubyte", i);
    s.write("train-labels-idx1-ubyte", l);
    return error_of<FileError>([&] { MNIST d(s.dir()); });
  };
  EXPECT_THAT(with(images(3), labels(4)), AllOf(HasSubstr("3 images"), HasSubstr("4 labels")));
  EXPECT_THAT(with(images(3, 32), labels(3)), AllOf(HasSubstr("u8[N,28,28]"), HasSubstr("u8[3,32,32]")));
  EXPECT_THAT(with(labels(3), labels(3)), HasSubstr("u8[3]"));
  EXPECT_THAT(with(images(3), images(3)), HasSubstr("labels u8[N]"));
  EXPECT_THAT(with(images(3), labels(3, 200)), HasSubstr("label 0 is 200, expected 0 to 9"));
  EXPECT_THAT(with(images(0), labels(0)), HasSubstr("at least one"));
  EXPECT_THAT(with(images(3).substr(0, 2000), labels(3)), HasSubstr("cut short"));
}

// Channels-last images of the logical shape [N,C,H,W].
Tensor rgb(const std::vector<uint8_t>& bytes, const Shape& shape) {
  return view_as_strided(tensor<uint8_t>(bytes, {int64_t(bytes.size())}), shape, channels_last_strides(shape),
                         0);
}

TEST(ImagesInMemory, NormalizesEachChannel) {
  const auto normalize = [](std::vector<double> mean, std::vector<double> std) {
    return Compose({ToTensor(), Normalize({.mean = std::move(mean), .std = std::move(std)})});
  };
  const ImagesInMemory d("rgb", rgb({0, 51, 255, 255, 102, 0}, {1, 3, 1, 2}), tensor<uint8_t>({4}, {1}), 10,
                         normalize({0, .5, 1}, {1, .5, .25}));
  const std::vector<float> expected{0, 1, (51.f / 255.f - .5f) / .5f, (102.f / 255.f - .5f) / .5f, 0, -4};
  EXPECT_EQ(d.get(0).input.to_vector<float>(), expected);
  EXPECT_EQ(d.get_batch(std::vector<int64_t>{0}).input.to_vector<float>(), expected);
  EXPECT_THROW(ImagesInMemory("x", empty({2, 1, 2, 2}, {.dtype = DType::kU8}),
                              empty({3}, {.dtype = DType::kU8}), 10, ToTensor()),
               ShapeError);
  EXPECT_THROW(ImagesInMemory("x", tensor<uint8_t>({0, 255, 51, 102, 255, 0}, {1, 3, 1, 2}),
                              tensor<uint8_t>({4}, {1}), 10, ToTensor()),
               ShapeError)
      << "row-major";
  EXPECT_THROW(ImagesInMemory("x", empty({1, 2, 2, 2}, {.dtype = DType::kU8}),
                              empty({1}, {.dtype = DType::kU8}), 10, ToTensor()),
               ShapeError);
  EXPECT_THROW(
      ImagesInMemory("x", tensor<uint8_t>({1}, {1, 1, 1, 1}), tensor<uint8_t>({10}, {1}), 10, ToTensor()),
      ValueError);
  EXPECT_THROW(ImagesInMemory("x", tensor<uint8_t>({1}, {1, 1, 1, 1}), tensor<uint8_t>({1}, {1}), 10,
                              normalize({0, 0}, {1, 1})),
               ValueError);
}

// Pointwise transforms are applied to the whole batch at once, other transforms image by image. Both must
// agree.
TEST(ImagesInMemory, APointwiseTransformGivesTheSameBatch) {
  for (const int64_t channels : {1, 3}) {
    std::vector<uint8_t> bytes(static_cast<size_t>(4 * channels * 5 * 7));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37);
    const Shape shape{4, channels, 5, 7};
    const ImagesInMemory d("d", channels == 3 ? rgb(bytes, shape) : tensor<uint8_t>(bytes, shape),
                           tensor<uint8_t>({0, 1, 2, 3}, {4}), 4,
                           Compose({ToTensor(), Normalize({.mean = {.4}, .std = {.2}})}));
    const std::vector<int64_t> indices = {3, 0, 3, 1};
    const Batch at_once = d.get_batch(indices), one_by_one = d.ImageDataset::get_batch(indices);
    EXPECT_EQ(at_once.input.strides(), one_by_one.input.strides());
    EXPECT_EQ(at_once.input.to_vector<float>(), one_by_one.input.to_vector<float>());
    EXPECT_EQ(at_once.target.to_vector<int64_t>(), one_by_one.target.to_vector<int64_t>());
    EXPECT_EQ(at_once.indices, one_by_one.indices);
    EXPECT_THROW(d.get_batch(std::vector<int64_t>{4}), IndexError);
  }
}

TEST(CacheDir, FollowsTheEnvironment) {
  const char* home = std::getenv("HOME");
  const std::string saved = home ? home : "";
  ::setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(cache_dir(), "/somewhere/gradus");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(cache_dir(), "/home/me/.cache/gradus");
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(cache_dir(), "/home/me/.cache/gradus");
  ::unsetenv("HOME");
  EXPECT_THROW(cache_dir(), FileError);
  if (home) ::setenv("HOME", saved.c_str(), 1);
}

TEST(RealMNIST, HasThePublishedContent) {
  const char* data = std::getenv("GRADUS_DATA");
  const std::filesystem::path dir = data ? std::filesystem::path(data) / "mnist" : "";
  if (!data || !MNIST::available(dir)) GTEST_SKIP() << "GRADUS_DATA names no folder with mnist/";
  const std::map<std::string, std::string> published = {
      {"train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
      {"train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
      {"t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
      {"t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
  };
  for (bool train : {true, false}) {
    const MNIST d(dir, {.train = train});
    EXPECT_EQ(d.size(), train ? 60'000 : 10'000);
    const std::string part = train ? "train" : "t10k";
    const std::string image_header =
        std::string("\0\0\x08\x03", 4) + be32(uint32_t(d.size())) + be32(28) + be32(28);
    const auto bytes = [](const Tensor& x) {
      return std::string(reinterpret_cast<const char*>(x.data<uint8_t>()), size_t(x.numel()));
    };
    EXPECT_EQ(sha256(image_header + bytes(d.images())), published.at(part + "-images-idx3-ubyte"));
    const std::string label_header = std::string("\0\0\x08\x01", 4) + be32(uint32_t(d.size()));
    EXPECT_EQ(sha256(label_header + bytes(d.labels())), published.at(part + "-labels-idx1-ubyte"));
  }
  double sum = 0, squares = 0;
  const MNIST train(dir);
  for (int64_t i = 0; i < 60'000; i += 1000) {
    std::vector<int64_t> indices(1000);
    for (int64_t k = 0; k < 1000; ++k) indices[size_t(k)] = i + k;
    const Batch b = train.get_batch(indices);
    for (int64_t k = 0; k < b.input.numel(); ++k) {
      const double v = b.input.data<float>()[k];
      sum += v;
      squares += v * v;
    }
  }
  const double n = 60'000. * 784;
  EXPECT_NEAR(sum / n, 0, 1e-3);
  EXPECT_NEAR(std::sqrt(squares / n), 1, 1e-3);
}

}  // namespace
}  // namespace gradus::data
