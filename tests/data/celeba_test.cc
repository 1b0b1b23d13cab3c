// CelebA on small folders: splits, attributes, replaced images, and malformed lists.
#include "gradus/data/sets/celeba.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "gradus/data/dataloader.h"
#include "gradus/tests/support/error.h"
#include "gradus/tests/support/scratch.h"

namespace gradus::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

const std::string kAttributes =
    "5\n"
    "Bald Smiling Young \n"
    "000001.jpg -1  1  1\n"
    "000002.jpg -1 -1  1\r\n"
    "000003.jpg  1 -1 -1\n"
    "000004.jpg -1  1 -1\n"
    "000005.jpg  1  1  1\n";
const std::string kPartition =
    "000001.jpg 0\n"
    "000002.jpg 1\n"
    "000003.jpg 0\n"
    "000004.jpg 2\n"
    "000005.jpg 0\n";

class CelebaTest : public ::testing::Test {
 protected:
  void write(const std::string& attributes = kAttributes, const std::string& partition = kPartition,
             const fs::path& dir = "") {
    fs::create_directories(scratch_.dir() / dir / "img_align_celeba");
    std::ofstream(scratch_.dir() / dir / "list_attr_celeba.txt") << attributes;
    std::ofstream(scratch_.dir() / dir / "list_eval_partition.txt") << partition;
    for (int i = 1; i <= 5; ++i)
      fs::copy("tests/data/golden/images/rgb.jpg",
               scratch_.dir() / dir / "img_align_celeba" / ("00000" + std::to_string(i) + ".jpg"),
               fs::copy_options::overwrite_existing);
  }
  const Scratch scratch_;
};

TEST_F(CelebaTest, SplitsHaveTheirImagesAndAttributes) {
  write();
  const CelebA train(scratch_.dir());
  EXPECT_EQ(train.size(), 3);
  EXPECT_THAT(train.attribute_names(), ElementsAre("Bald", "Smiling", "Young"));
  EXPECT_EQ(train.files().path(1).filename(), "000003.jpg");
  EXPECT_THAT(train.get(1).target.to_vector<int64_t>(), ElementsAre(1, 0, 0));
  EXPECT_EQ(train.get(0).input.size(0), 3);
  EXPECT_EQ(train.attribute("Smiling"), 1);
  EXPECT_ERROR(ValueError, train.attribute("smiling"), "smiling");
  EXPECT_THROW(train.get(3), IndexError);

  EXPECT_THAT(CelebA(scratch_.dir(), {.split = "valid"}).get(0).target.to_vector<int64_t>(),
              ElementsAre(0, 0, 1));
  EXPECT_THAT(CelebA(scratch_.dir(), {.split = "test"}).get(0).target.to_vector<int64_t>(),
              ElementsAre(0, 1, 0));
  const CelebA all(scratch_.dir(), {.split = "all"});
  for (const Batch& b : DataLoader(all, {.batch_size = 5, .num_workers = 1})) {
    EXPECT_EQ(b.target.shape(), Shape({5, 3}));
    EXPECT_THAT(b.target.to_vector<int64_t>(), ElementsAre(0, 1, 1, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1));
  }
  EXPECT_ERROR(ValueError, CelebA(scratch_.dir(), {.split = "val"}), "valid", "'val'");
}

TEST_F(CelebaTest, MayLieInAFolderOfTorchvision) {
  write(kAttributes, kPartition, "celeba");
  EXPECT_EQ(CelebA(scratch_.dir(), {.split = "all"}).size(), 5);
}

TEST_F(CelebaTest, AReplacedImageHasItsOwnAttributes) {
  write();
  std::ofstream(scratch_.dir() / "img_align_celeba" / "000001.jpg") << "cut";
  const CelebA strict(scratch_.dir());
  EXPECT_THROW(DataLoader(strict, {.batch_size = 3}).begin(), SampleError);
  const CelebA train(scratch_.dir(), {.files = {.on_error = OnError::kSkip}});
  DataLoader loader(train, {.batch_size = 3});
  const auto it = loader.begin();
  EXPECT_EQ(it->skipped, 1);
  EXPECT_THAT(it->target.to_vector<int64_t>(), ElementsAre(1, 0, 0, 1, 1, 1, 1, 0, 0));
}

TEST_F(CelebaTest, MalformedListsAreErrors) {
  const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  struct Case {
    std::string attributes, partition, part_of_error;
  };
  for (const auto& [attributes, partition, part] : std::vector<Case>{
           {"", kPartition, "is empty"},
           {"x\nBald\n", kPartition, "number of images"},
           {"5", kPartition, "number of images"},
           {replaced(kAttributes, "5\n", "99999999999999999999\n"), kPartition, "5 images, expected 1e+20"},
           {replaced(kAttributes, "5\n", "4\n"), kPartition, "5 images, expected 4"},
           {replaced(kAttributes, "000003.jpg  1", "000003.jpg  2"), kPartition, "row 3 has '2' for Bald"},
           {replaced(kAttributes, "1 -1 -1\n000004", "1 -1\n000004"), kPartition, "'000004.jpg' for Young"},
           {kAttributes.substr(0, kAttributes.size() - 3), kPartition, "has '' for Young"},
           {kAttributes, kPartition.substr(0, kPartition.size() - 13), "row 5 is of ''"},
           {kAttributes, kPartition.substr(0, kPartition.size() - 2), "has part ''"},
           {kAttributes, kPartition + "000006.jpg 0\n", "row 6"},
           {kAttributes, replaced(kPartition, "000002", "000003"), "row 2"},
           {kAttributes, replaced(kPartition, " 2", " 3"), "row 4 has part '3'"},
           {replaced(kAttributes, "000002.jpg", "../2.jpg"), replaced(kPartition, "000002.jpg", "../2.jpg"),
            "row 2"},
           {replaced(kAttributes, "000001.jpg", std::string(1 << 20, 'x')), kPartition, "row 1"},
       }) {
    write(attributes, partition);
    const std::string error = error_of<FileError>([&] { CelebA train(scratch_.dir()); });
    EXPECT_THAT(error, ::testing::HasSubstr(part));
    EXPECT_LT(error.size(), 1000u);
  }
  write("1\nBald\n000001.jpg 1\n", "000001.jpg 2\n");
  EXPECT_ERROR(ValueError, CelebA(scratch_.dir()), "no image of split 'train'");
  EXPECT_ERROR(FileError, CelebA(scratch_ / "elsewhere"), "list_attr_celeba.txt");
}

}  // namespace
}  // namespace gradus::data
