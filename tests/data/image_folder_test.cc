// ImageFolder and ImageFiles on small trees of images: the order of files and classes of torchvision's
// ImageFolder, errors that name the folder or file, and unreadable images, which are thrown, replaced, or
// found by checks.
#include "gradus/data/sets/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gradus/data/dataloader.h"
#include "gradus/data/transforms/color.h"
#include "gradus/data/transforms/tensor.h"
#include "gradus/tests/support/error.h"
#include "gradus/tests/support/scratch.h"

namespace gradus::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const fs::path kImages = "tests/data/golden/images";

void put(const Scratch& s, const std::string& name, const std::string& image = "rgb_8.png") {
  fs::create_directories((s / name).parent_path());
  fs::copy(kImages / image, s / name, fs::copy_options::overwrite_existing);
}

// "path=label" of every sample.
std::vector<std::string> listed(const ImageFolder& folder, const Scratch& s) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < folder.size(); ++i)
    names.push_back(concat(fs::relative(folder.path(i), s.dir()).string(), '=', folder.label(i)));
  return names;
}

// Makes f32[3,4,4] of any image. Its second channel differs for gray and colored images.
Transform small() { return Compose({Resize({.size = {4, 4}}), ToTensor()}); }

// Second channel of the first pixel of a sample f32[3,4,4] or of sample i of a batch f32[N,3,4,4] in any
// layout.
float second_channel(const Tensor& x, int64_t i = 0) {
  const bool is_batch = x.dim() == 4;
  return x.ptr<float>()[is_batch ? i * x.strides()[0] + x.strides()[1] : x.strides()[0]];
}

TEST(ImageFolder, ListsAsTorchvisionDoes) {
  Scratch s;
  for (const char* name : {"dog/b.PNG", "dog/a.jpeg", "dog/sub/deep/z.png", "dog/sub-2/y.png",
                           "dog/.hidden.jpg", "cat/10.jpg", "cat/9.jpg", "Zebra/1.png"})
    put(s, name, fs::path(name).extension() == ".jpg" ? "ycc_420.jpg" : "rgb_8.png");
  s.write("cat/notes.txt", "x");
  s.write("readme.jpg", "a file beside the classes is none");
  const ImageFolder folder(s.dir());
  EXPECT_THAT(folder.classes(), ElementsAre("Zebra", "cat", "dog"));
  EXPECT_EQ(folder.class_to_idx().at("dog"), 2);
  // As sorted(os.walk()) orders them: '-' is before '/'.
  EXPECT_THAT(listed(folder, s),
              ElementsAre("Zebra/1.png=0", "cat/10.jpg=1", "cat/9.jpg=1", "dog/.hidden.jpg=2", "dog/a.jpeg=2",
                          "dog/b.PNG=2", "dog/sub-2/y.png=2", "dog/sub/deep/z.png=2"));
  const Sample sample = folder.get(4);
  EXPECT_EQ(sample.input.shape(), Shape({3, 21, 37}));
  EXPECT_EQ(sample.target.item<int64_t>(), 2);
  const Image image = folder.image(4);
  EXPECT_EQ(sample.input.data<float>()[37], float(image.data()[3 * 37]) / 255.f);
  EXPECT_EQ(sample.input.data<float>()[21 * 37], float(image.data()[1]) / 255.f) << "planes, not pixels";
  EXPECT_THROW(folder.get(8), IndexError);
  EXPECT_THROW(folder.path(-1), IndexError);
}

TEST(ImageFolder, LinksAreFollowedButNotInCircles) {
  Scratch s;
  put(s, "data/a/1.png");
  put(s, "elsewhere/2.png");
  fs::create_directory_symlink(s / "elsewhere", s / "data/b");
  fs::create_symlink(s / "elsewhere/2.png", s / "data/a/3.png");
  const ImageFolder folder(s / "data");
  EXPECT_EQ(folder.size(), 3);
  EXPECT_EQ(folder.get(2).target.item<int64_t>(), 1);
  fs::create_directory_symlink(s / "data", s / "data/a/up");
  EXPECT_ERROR(FileError, ImageFolder f(s / "data"), "leads back to a folder above it");
}

TEST(ImageFolder, MistakesNameTheFolder) {
  Scratch s;
  const auto error = [&](ImageFolderOptions options = {}) {
    return error_of<FileError>([&] { ImageFolder f(s.dir(), std::move(options)); });
  };
  EXPECT_ERROR(FileError, ImageFolder f(s / "none"), "none: there is no such folder");
  EXPECT_THAT(error(), AllOf(HasSubstr(s.dir().string()), HasSubstr("one for each class")));
  put(s, "a/1.png");
  fs::create_directory(s / "b");
  EXPECT_THAT(error(), HasSubstr("no images (.jpg, .jpeg, .png, .webp) for 1 of 2 classes: b"));
  EXPECT_EQ(ImageFolder(s.dir(), {.allow_empty = true}).classes().size(), 2u);
  fs::remove(s / "a/1.png");
  EXPECT_THAT(error({.allow_empty = true}), HasSubstr("no images")) << "there must be one";
  put(s, "a/1.png");
  put(s, "b/2.tar.png");
  s.write("b/3.bmp", "BM");
  EXPECT_THAT(error(), AllOf(HasSubstr("b/3.bmp"), HasSubstr("only JPEG, PNG")));
  EXPECT_EQ(ImageFolder(s.dir(), {.extensions = {".png"}}).size(), 2);
  EXPECT_EQ(ImageFolder(s.dir(), {.extensions = {".tar.png"}, .allow_empty = true}).size(), 1);
}

TEST(ImageFolder, FoldersThatCannotBeListedAreNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may list any folder";
  Scratch s;
  put(s, "a/1.png");
  ::chmod((s / "a").c_str(), 0);
  EXPECT_ERROR(FileError, ImageFolder f(s.dir()), "cannot be listed: Permission denied");
  ::chmod((s / "a").c_str(), 0700);
}

TEST(ImageFiles, AreALabeledList) {
  const ImageFiles files({{kImages / "rgb_8.png", 7}, {kImages / "gray_8.png", -1}},
                         {.decode = {.mode = ColorMode::kGray}});
  EXPECT_EQ(files.size(), 2);
  EXPECT_EQ(files.get(0).input.shape(), Shape({1, 21, 37}));
  EXPECT_EQ(files.get(0).target.item<int64_t>(), 7);
  EXPECT_EQ(files.label(1), -1);
  EXPECT_THROW(ImageFiles({}), ValueError);
}

// Twelve files of two classes (0 to 5 and 6 to 11). File 3 is cut short, 7 is a dangling link, 8 is no image.
class Damaged : public ::testing::Test {
 protected:
  Damaged() {
    for (int i = 0; i < 12; ++i)
      put(s_, concat(i < 6 ? "a/" : "b/", char('a' + i), ".png"), i % 2 ? "rgb_8.png" : "gray_8.png");
    s_.write("a/d.png", s_.read("a/d.png").substr(0, 500));
    s_.write("b/i.png", "no image");
    fs::remove(s_ / "b/h.png");
    fs::create_symlink("/nowhere/h.png", s_ / "b/h.png");
  }
  ImageFolder folder(OnError on_error, Check check = Check::kNothing) const {
    return ImageFolder(s_.dir(), {.transform = small(), .on_error = on_error, .check = check});
  }
  Scratch s_;
};

TEST_F(Damaged, AreErrorsThatNameSampleAndFile) {
  const ImageFolder all = folder(OnError::kThrow);
  DataLoader loader(all, {.batch_size = 4});
  const std::string error = error_of<SampleError>([&] {
    for (const Batch& b : loader) (void)b;
  });
  EXPECT_THAT(error, AllOf(HasSubstr("sample 3"), HasSubstr("a/d.png"), HasSubstr("cut short")));
  EXPECT_ERROR(FileError, all.get(7), "b/h.png", "No such file");
}

TEST_F(Damaged, AreSkippedOthersStandInAndAllIsCounted) {
  for (const int workers : {0, 3}) {
    const ImageFolder all = folder(OnError::kSkip);
    DataLoader loader(all, {.batch_size = 5, .num_workers = workers});
    std::map<int64_t, float> counted;
    std::vector<int64_t> sizes, paddings, asked;
    for (const Batch& b : loader) {
      sizes.push_back(b.size());
      paddings.push_back(b.padding);
      EXPECT_EQ(b.padding, b.skipped);
      EXPECT_EQ(b.input.size(0), b.size());
      asked.insert(asked.end(), b.indices.begin(), b.indices.end());
      for (int64_t i = 0; i < b.size() - b.padding; ++i) {
        EXPECT_TRUE(counted.emplace(b.indices[size_t(i)], second_channel(b.input, i)).second)
            << "each comes once";
        EXPECT_EQ(b.target.data<int64_t>()[i], b.indices[size_t(i)] < 6 ? 0 : 1);
      }
    }
    EXPECT_THAT(sizes, ElementsAre(5, 5, 2)) << "batches keep their sizes";
    EXPECT_THAT(paddings, ElementsAre(1, 2, 0));
    EXPECT_EQ(loader.skipped(), 3);
    EXPECT_THAT(asked, ElementsAre(0, 1, 2, 4, 3, 5, 6, 9, 7, 8, 10, 11)) << "those that stand in are last";
    EXPECT_EQ(counted.size(), 9u);
    for (const auto& [index, value] : counted)
      EXPECT_EQ(value, second_channel(all.get(index).input)) << index;
    EXPECT_EQ(all.unreadable(), 3);
    EXPECT_EQ(all.unreadable_files().size(), 3u);
    for (const Batch& b : loader) (void)b;
    EXPECT_EQ(loader.skipped(), 3) << "of one pass";
    EXPECT_EQ(all.unreadable(), 3) << "each file counts once";
  }
}

TEST_F(Damaged, TheNextReadableSampleStandsIn) {
  const ImageFolder all = folder(OnError::kSkip);
  EXPECT_FALSE(all.get(6).is_replacement);
  const Sample sample = all.get(7);  // 8 is damaged too
  EXPECT_TRUE(sample.is_replacement);
  EXPECT_EQ(second_channel(sample.input), second_channel(all.get(9).input));
  fs::remove(s_ / "b/l.png");
  EXPECT_EQ(second_channel(all.get(11).input), second_channel(all.get(0).input))
      << "after the last, the first";
  EXPECT_EQ(all.get(11).target.item<int64_t>(), 0) << "with its own label";
}

TEST_F(Damaged, RanksTakeTheSameNumberOfBatches) {
  const ImageFolder all = folder(OnError::kSkip);
  std::multiset<int64_t> counted;
  for (int rank = 0; rank < 2; ++rank) {
    DataLoader loader(all, {.batch_size = 3, .shuffle = true, .seed = 1, .rank = rank, .world_size = 2});
    int64_t batches = 0;
    for (const Batch& b : loader) {
      ++batches;
      EXPECT_EQ(b.size(), 3);
      counted.insert(b.indices.begin(), b.indices.end() - b.padding);
    }
    EXPECT_EQ(batches, 2);
  }
  EXPECT_EQ(counted, (std::multiset<int64_t>{0, 1, 2, 4, 5, 6, 9, 10, 11}));
}

TEST_F(Damaged, PaddingThatIsRepeatedAndPaddingThatStandsInCountOnce) {
  // Seven samples for two ranks: the second rank's last batch repeats the first sample, which is damaged.
  const ImageFolder all = folder(OnError::kSkip);
  const Subset some(all, {3, 0, 1, 2, 8, 4, 5});
  std::multiset<int64_t> counted;
  int64_t skipped = 0;
  for (int rank = 0; rank < 2; ++rank) {
    DataLoader loader(some, {.batch_size = 2, .uneven = Uneven::kPad, .rank = rank, .world_size = 2});
    for (const Batch& b : loader) {
      EXPECT_LE(b.padding, b.size());
      EXPECT_GE(b.padding, b.skipped);
      counted.insert(b.indices.begin(), b.indices.end() - b.padding);
    }
    skipped += loader.skipped();
  }
  EXPECT_EQ(counted, (std::multiset<int64_t>{1, 2, 3, 5, 6})) << "places in the Subset";
  EXPECT_EQ(skipped, 3) << "the repeated one twice";
}

TEST_F(Damaged, ACollateOfOnesOwnGetsThemLast) {
  DataLoader loader(
      folder(OnError::kSkip),
      {.batch_size = 12, .collate = [](const std::vector<Sample>& samples, std::span<const int64_t> indices) {
         EXPECT_EQ(samples.size(), indices.size());
         EXPECT_TRUE(samples[11].is_replacement);
         EXPECT_EQ(indices[9], 3);
         return collate(samples, indices, "mine");
       }});
  const auto pass = loader.begin();
  const Batch& b = *pass;
  EXPECT_EQ(b.padding, 3);
  EXPECT_EQ(b.indices[9], 3);
}

TEST_F(Damaged, AllAtOnceIsAnError) {
  for (const char* name : {"a", "b", "c", "e", "f"}) s_.write(concat("a/", name, ".png"), "broken");
  for (const char* name : {"g", "j", "k", "l"}) s_.write(concat("b/", name, ".png"), "broken");
  EXPECT_ERROR(FileError, folder(OnError::kSkip).get(2), "cannot skip", "a/c.png", "11 after it");
  EXPECT_ERROR(ValueError, folder(OnError::kSkip, Check::kPixels), "no file can be read");
}

TEST_F(Damaged, ChecksFindThemBeforeTraining) {
  EXPECT_ERROR(FileError, folder(OnError::kThrow, Check::kHeaders), "3 of 12 files cannot be read", "a/d.png",
               "b/h.png", "b/i.png");
  const ImageFolder rest = folder(OnError::kSkip, Check::kHeaders);
  EXPECT_EQ(rest.size(), 9);
  EXPECT_EQ(rest.unreadable(), 3);
  for (int64_t i = 0; i < rest.size(); ++i) EXPECT_FALSE(rest.get(i).is_replacement);
  EXPECT_EQ(rest.path(3).filename(), "e.png");
  EXPECT_EQ(rest.label(8), 1);

  // One byte of the pixels is changed: only reading all pixels finds that.
  std::string bytes = s_.read("a/b.png");
  bytes[bytes.size() - 40] ^= 1;
  s_.write("a/b.png", bytes);
  EXPECT_EQ(folder(OnError::kSkip, Check::kHeaders).size(), 9);
  EXPECT_EQ(folder(OnError::kSkip, Check::kPixels).size(), 8);
}

TEST_F(Damaged, MistakesOfATransformAreNotSkipped) {
  const Transform wrong = Lambda([](Image) -> Image { throw ValueError("mine", "wrong"); });
  const ImageFolder all(s_.dir(), {.transform = wrong, .on_error = OnError::kSkip});
  EXPECT_THROW(all.get(0), ValueError);
}

TEST(ImageFolder, RealSample) {
  const char* data = std::getenv("GRADUS_DATA");
  const fs::path dir = fs::path(data ? data : "") / "imagenet-sample";
  if (!data || !fs::is_directory(dir)) GTEST_SKIP() << "GRADUS_DATA names no folder with imagenet-sample/";
  const ImageFolder folder(dir, {.check = Check::kPixels});
  EXPECT_EQ(folder.size(), 110);
  EXPECT_EQ(folder.classes().size(), 110u);
}

}  // namespace
}  // namespace gradus::data
