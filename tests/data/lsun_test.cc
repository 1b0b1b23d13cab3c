// LSUN on databases that liblmdb writes: order, classes, images in JPEG and WebP, several workers, damaged headers.
#include "gradus/data/sets/lsun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lmdb.h>
#include <webp/encode.h>

#include <map>
#include <sstream>

#include "gradus/data/dataloader.h"
#include "gradus/tests/support/error.h"
#include "gradus/tests/support/scratch.h"

namespace gradus::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr int kWidth = 5, kHeight = 4;

std::vector<uint8_t> pixels(int number) {
  std::vector<uint8_t> bytes(3 * kWidth * kHeight);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(number + int(i) * 7);
  return bytes;
}

// A lossless WebP with these pixels.
std::string webp(int number) {
  uint8_t* bytes = nullptr;
  const size_t size = WebPEncodeLosslessRGB(pixels(number).data(), kWidth, kHeight, 3 * kWidth, &bytes);
  const std::string content(reinterpret_cast<char*>(bytes), size);
  WebPFree(bytes);
  return content;
}

using Records = std::map<std::string, std::string>;

class LSUNTest : public ::testing::Test {
 protected:
  // Writes DIR/NAME_lmdb, in the opposite order of the keys.
  void write(const std::string& name, const Records& records, unsigned flags = 0) {
    fs::create_directories(scratch_ / (name + "_lmdb"));
    MDB_env* env = nullptr;
    MDB_txn* transaction = nullptr;
    MDB_dbi database = 0;
    ASSERT_EQ(mdb_env_create(&env), 0);
    ASSERT_EQ(mdb_env_set_mapsize(env, 64 << 20), 0);
    ASSERT_EQ(mdb_env_open(env, (scratch_ / (name + "_lmdb")).c_str(), 0, 0600), 0);
    ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &transaction), 0);
    ASSERT_EQ(mdb_dbi_open(transaction, nullptr, flags, &database), 0);
    for (auto it = records.rbegin(); it != records.rend(); ++it) {
      MDB_val key{it->first.size(), const_cast<char*>(it->first.data())};
      MDB_val value{it->second.size(), const_cast<char*>(it->second.data())};
      ASSERT_EQ(mdb_put(transaction, database, &key, &value, 0), 0);
    }
    ASSERT_EQ(mdb_txn_commit(transaction), 0);
    mdb_env_close(env);
    fs::remove(scratch_ / (name + "_lmdb") / "lock.mdb");
  }
  std::string data_of(const std::string& name) { return scratch_.read(name + "_lmdb/data.mdb"); }

  const Scratch scratch_;
};

TEST_F(LSUNTest, ReadsClassesInOrderAndSamplesByKey) {
  const std::string jpeg =
      (std::ostringstream() << std::ifstream("tests/data/golden/images/rgb.jpg").rdbuf()).str();
  write("tower_val", {{"b", webp(2)}, {"a", webp(1)}, {"c", jpeg + std::string(20'000, '\0')}});
  write("bridge_val", {{"z", webp(9)}});
  const LSUN set(scratch_.dir(), {.classes = {"tower_val", "bridge_val"}});
  EXPECT_EQ(set.size(), 4);
  EXPECT_THAT(set.classes(), ElementsAre("tower_val", "bridge_val"));
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(set.key(i), std::string(1, "abcz"[i]));
    EXPECT_EQ(set.label(i), i == 3);
  }
  EXPECT_EQ(set.get(3).target.item<int64_t>(), 1);
  for (const auto& [index, number] : {std::pair(0, 1), {1, 2}, {3, 9}}) {
    const Image image = set.image(index);
    EXPECT_EQ(image.height(), kHeight);
    EXPECT_EQ(image.width(), kWidth);
    EXPECT_THAT(std::vector<uint8_t>(image.data(), image.data() + image.bytes()),
                ElementsAreArray(pixels(number)));
  }
  EXPECT_THAT(set.image(0).crop({.left = 1, .top = 2, .width = 1, .height = 1}).data()[0],
              pixels(1)[3 * (2 * kWidth + 1)]);
  const Image expected = decode_image("tests/data/golden/images/rgb.jpg"), photo = set.image(2);
  EXPECT_EQ(std::vector<uint8_t>(photo.data(), photo.data() + photo.bytes()),
            std::vector<uint8_t>(expected.data(), expected.data() + expected.bytes()));
  EXPECT_THROW(set.get(4), IndexError);
  EXPECT_THROW(set.key(-1), IndexError);
  EXPECT_ERROR(FileError,
               LSUN(scratch_.dir(), {.classes = {"tower_val"}, .decode = {.max_bytes = 100}}).image(2),
               "record 2", "100");
}

TEST_F(LSUNTest, ASplitHasAllCategories) {
  for (const std::string& name : lsun_categories()) write(name + "_train", {{name, webp(0)}});
  const LSUN set(scratch_.dir());
  EXPECT_EQ(set.size(), 10);
  EXPECT_EQ(set.classes()[2], "church_outdoor_train");
  EXPECT_EQ(set.key(9), "tower");
  EXPECT_EQ(set.label(9), 9);
  EXPECT_ERROR(FileError, LSUN(scratch_.dir(), {.classes = {"val"}}), "bedroom_val_lmdb");
  EXPECT_ERROR(ValueError, LSUN(scratch_.dir(), {.classes = {}}), "classes");
}

// Several levels of pages, several sets and workers at once; nothing is written.
TEST_F(LSUNTest, WorkersAndCopiesReadAtOnce) {
  Records records;
  for (int i = 0; i < 600; ++i) records[concat(std::string(40, 'k'), 1000 + i)] = webp(i);
  write("cat", records);
  const std::string before = data_of("cat");
  const LSUN set(scratch_.dir(), {.classes = {"cat"}}), again(scratch_.dir(), {.classes = {"cat"}});
  const LSUN copy = again;
  ASSERT_EQ(set.size(), 600);
  for (const LSUN* one : {&set, &copy}) {
    int64_t index = 0;
    for (const Batch& b : DataLoader(*one, {.batch_size = 7, .num_workers = 4})) {
      const std::vector<float> values = b.input.to_vector<float>();
      for (size_t i = 0; i < values.size(); i += 3 * kWidth * kHeight)
        EXPECT_EQ(int(values[i] * 255 + 0.5f), int(index++ % 256));
    }
    EXPECT_EQ(index, 600);
  }
  EXPECT_FALSE(fs::exists(scratch_ / "cat_lmdb/lock.mdb"));
  EXPECT_EQ(data_of("cat"), before);
}

TEST_F(LSUNTest, DamagedFilesAreErrors) {
  write("cat", {{"a", webp(1)}, {"b", webp(2)}, {"c", "no image"}, {"d", webp(1).substr(0, 30)}});
  const std::string good = data_of("cat");
  const LSUNOptions options = {.classes = {"cat"}};
  const LSUN set(scratch_.dir(), options);
  EXPECT_ERROR(FileError, set.image(2), "record 2", "neither JPEG, PNG nor WebP");
  EXPECT_ERROR(FileError, set.image(3).data(), "record 3", "WebP");
  EXPECT_THROW(DataLoader(set, {.batch_size = 4}).begin(), SampleError);

  const auto error = [&](const std::string& content) {
    fs::remove(scratch_ / "cat_lmdb/data.mdb");  // `set` keeps its file
    scratch_.write("cat_lmdb/data.mdb", content);
    try {
      LSUN(scratch_.dir(), options);
    } catch (const FileError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(error(good), "");
  EXPECT_THAT(error(""), testing::HasSubstr("no LMDB database"));
  EXPECT_THAT(error(good.substr(0, 4000)), testing::HasSubstr("truncated"));
  EXPECT_THAT(error(good.substr(0, good.size() - 1)), testing::HasSubstr("truncated"));
  // Each bit of both meta pages: an error, or a database that can be read.
  for (const size_t page : {size_t{0}, size_t{4096}})
    for (size_t byte = 8; byte < 152; ++byte)
      for (int bit = 0; bit < 8; ++bit) {
        std::string damaged = good;
        damaged[page + byte] = char(damaged[page + byte] ^ (1 << bit));
        const std::string text = error(damaged);
        if (byte >= 16 && byte < 24) {
          EXPECT_NE(text, "") << byte;  // magic and version
        }
      }
  write("two", {{"a", "x"}}, MDB_DUPSORT);
  EXPECT_ERROR(FileError, LSUN(scratch_.dir(), {.classes = {"two"}}), "flags 4");
  write("none", {});
  EXPECT_ERROR(FileError, LSUN(scratch_.dir(), {.classes = {"none"}}), "no images");
  EXPECT_ERROR(FileError, LSUN(scratch_.dir(), {.classes = {"missing"}}), "missing_lmdb");
}

}  // namespace
}  // namespace gradus::data
