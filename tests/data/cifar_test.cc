// CIFAR10 and CIFAR100 read the binary files of the data sets: values, labels, batches, errors. Files are
// made by the test; the real ones are checked if GRADUS_DATA names a folder that has them.
#include "gradus/data/sets/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "gradus/data/dataloader.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/support/error.h"
#include "gradus/tests/support/scratch.h"

namespace gradus::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Byte k of image i.
uint8_t pixel(int i, int k) { return uint8_t(i * 31 + k * 7 + k / 1024); }

// Records of images first, first + 1, ..., with label i % classes; with a coarse label before
// it for CIFAR-100.
std::string records(int first, int n, int classes = 10) {
  std::string bytes;
  for (int i = first; i < first + n; ++i) {
    if (classes == 100) bytes += char(i % 20);
    bytes += char(i % classes);
    for (int k = 0; k < 3072; ++k) bytes += char(pixel(i, k));
  }
  return bytes;
}

std::string names(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += "class" + std::to_string(i) + "\n";
  return text + "\n";
}

TEST(CIFAR10, ReadsAllTrainingFilesAndTheTestFile) {
  for (const std::string prefix : {"", "cifar-10-batches-bin/"}) {
    Scratch s;
    EXPECT_FALSE(CIFAR10::available(s.dir()));
    s.write(prefix + "data_batch_1.bin", records(0, 12));
    s.write(prefix + "data_batch_2.bin", records(12, 3));
    EXPECT_FALSE(CIFAR10::available(s.dir())) << "the test images are missing";
    s.write(prefix + "test_batch.bin", records(15, 4));
    s.write(prefix + "batches.meta.txt", names(10));
    EXPECT_TRUE(CIFAR10::available(s.dir()));
    const CIFAR10 train(s.dir()), test(s.dir(), {.train = false});
    EXPECT_EQ(train.name(), "CIFAR10");
    EXPECT_EQ(train.size(), 15);
    EXPECT_EQ(test.size(), 4);
    EXPECT_EQ(train.label(13), 3);
    EXPECT_EQ(test.label(0), 5);
    ASSERT_EQ(train.classes().size(), 10u);
    EXPECT_EQ(train.classes()[9], "class9");
    const MemoryUse memory = train.memory();
    EXPECT_EQ(memory.own + memory.shared, 15 * 3073);
  }
}

TEST(CIFAR10, GivesPixelsOfEachChannel) {
  Scratch s;
  s.write("data_batch_1.bin", records(0, 3));
  const CIFAR10 d(s.dir());
  EXPECT_TRUE(d.classes().empty());
  EXPECT_EQ(d.images().shape(), Shape({3, 3, 32, 32}));
  const Sample x = d.get(2);
  EXPECT_EQ(x.input.shape(), Shape({3, 32, 32}));
  EXPECT_EQ(x.target.item<int64_t>(), 2);
  const Image image = d.image(2);
  for (int c = 0; c < 3; ++c) {
    for (int i = 0; i < 1024; ++i) {
      ASSERT_EQ(image.data()[3 * i + c], pixel(2, c * 1024 + i));
      ASSERT_EQ(x.input.data<float>()[c * 1024 + i], float(pixel(2, c * 1024 + i)) / 255.f);
    }
  }
  EXPECT_EQ(d.images().to_vector<int>()[(2 * 3 + 1) * 1024 + 5], pixel(2, 1024 + 5));
  EXPECT_THAT(d.labels().to_vector<int>(), ElementsAre(0, 1, 2));
  EXPECT_THROW(d.get(3), IndexError);
  EXPECT_THROW(d.image(-1), IndexError);
}

TEST(CIFAR10, BatchEqualsItsSamples) {
  Scratch s;
  s.write("data_batch_1.bin", records(0, 9));
  const CIFAR10 d(s.dir(),
                  {.transform = Compose({RandomCrop({.size = 32, .padding = 4}), RandomHorizontalFlip(),
                                         ToTensor(), Normalize({.mean = {.5f, .4f, .3f}, .std = {.2f}})})});
  const std::vector<int64_t> indices = {8, 0, 7, 7};
  manual_seed(3);
  const Batch fast = d.get_batch(indices);
  manual_seed(3);
  const Batch slow = d.Dataset::get_batch(indices);
  EXPECT_EQ(fast.input.shape(), Shape({4, 3, 32, 32}));
  EXPECT_TRUE(fast.input.is_channels_last());
  EXPECT_EQ(fast.input.to_vector<float>(), slow.input.to_vector<float>());
  EXPECT_EQ(fast.target.to_vector<int64_t>(), slow.target.to_vector<int64_t>());
  EXPECT_THROW(d.get_batch(std::vector<int64_t>{9}), SampleError);
}

TEST(CIFAR100, LabelsAreTheFineOnes) {
  Scratch s;
  s.write("cifar-100-binary/train.bin", records(60, 50, 100));
  EXPECT_FALSE(CIFAR100::available(s.dir()));
  s.write("cifar-100-binary/test.bin", records(0, 5, 100));
  s.write("cifar-100-binary/fine_label_names.txt", names(100));
  EXPECT_TRUE(CIFAR100::available(s.dir()));
  const CIFAR100 train(s.dir());
  EXPECT_EQ(train.size(), 50);
  EXPECT_EQ(train.label(39), 99);
  EXPECT_EQ(train.label(40), 0);
  EXPECT_EQ(train.classes()[99], "class99");
  EXPECT_EQ(train.image(1).data()[0], pixel(61, 0));
  EXPECT_EQ(CIFAR100(s.dir(), {.train = false}).size(), 5);
}

TEST(CIFAR, FilesThatAreMissingOrMalformedAreErrorsThatNameThem) {
  Scratch s;
  EXPECT_ERROR(FileError, CIFAR10 d(s.dir()), "[CIFAR10]", s.dir().string(), "data_batch_1.bin",
               "cifar-10-batches-bin", "https://");
  EXPECT_ERROR(FileError, CIFAR10 d(s / "nowhere"), "no such folder");
  EXPECT_ERROR(FileError, CIFAR100 d(s.dir(), {.train = false}), "test.bin");
  const auto with = [](const std::string& bytes, const std::string& classes = names(10)) {
    Scratch s;
    s.write("data_batch_1.bin", bytes);
    s.write("batches.meta.txt", classes);
    return error_of<FileError>([&] { CIFAR10 d(s.dir()); });
  };
  EXPECT_THAT(with(""), AllOf(HasSubstr("data_batch_1.bin"), HasSubstr("0 bytes")));
  EXPECT_THAT(with(records(0, 2) + "x"), AllOf(HasSubstr("6147 bytes"), HasSubstr("3073")));
  EXPECT_THAT(with(records(0, 2, 100)), HasSubstr("3073"));
  std::string wrong = records(0, 3);
  wrong[2 * 3073] = 10;
  EXPECT_THAT(with(wrong), HasSubstr("label 2 is 10, expected 0 to 9"));
  EXPECT_THAT(with(records(0, 2), names(9)), AllOf(HasSubstr("batches.meta.txt"), HasSubstr("9 names")));
  EXPECT_THAT(with(records(0, 2), std::string(1 << 20, 'x')),
              AllOf(HasSubstr("batches.meta.txt"), HasSubstr("65536 bytes")));
  EXPECT_EQ(with(records(0, 2)), "no error");
  Scratch folder;
  folder.write("data_batch_1.bin", records(0, 2));
  std::filesystem::create_directory(folder / "batches.meta.txt");
  EXPECT_ERROR(FileError, CIFAR10 d(folder.dir()), "batches.meta.txt");
}

// The real files, where GRADUS_DATA names a folder that has cifar-10-batches-bin/ in it.
TEST(RealCIFAR10, HasAllClassesInBothParts) {
  const char* data = std::getenv("GRADUS_DATA");
  if (!data || !CIFAR10::available(data))
    GTEST_SKIP() << "GRADUS_DATA names no folder with cifar-10-batches-bin/";
  for (bool train : {true, false}) {
    const CIFAR10 d(data, {.train = train});
    std::vector<int64_t> count(10);
    for (int64_t i = 0; i < d.size(); ++i) ++count[size_t(d.label(i))];
    for (int64_t n : count) EXPECT_NEAR(double(n), double(d.size()) / 10, double(d.size()) / 100);
    EXPECT_THAT(d.classes(), ElementsAre("airplane", "automobile", "bird", "cat", "deer", "dog", "frog",
                                         "horse", "ship", "truck"));
  }
}

}  // namespace
}  // namespace gradus::data
