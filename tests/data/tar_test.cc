// unpack_tar on ustar archives assembled from 512-byte headers: it writes only the requested members, keeps
// existing files, and rejects damaged archives with errors that name the archive.
#include "gradus/data/files/tar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>

#include "gradus/tensor/base/error.h"
#include "gradus/tests/support/error.h"
#include "gradus/tests/support/scratch.h"

namespace gradus::data {
namespace {

using ::testing::HasSubstr;

// Writes the checksum into the header at the beginning of `bytes`: the sum of its bytes, itself taken as
// blanks.
void set_sum(std::string& bytes) {
  bytes.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(bytes[i]);
  char text[8];
  std::snprintf(text, sizeof text, "%06o", sum);
  bytes.replace(148, 7, text, 7);
}

// A member as tar writes it. Types: '0' file, '2' symbolic link, '5' directory.
std::string member(const std::string& name, const std::string& content, char type = '0') {
  std::string h(512, '\0');
  h.replace(0, name.size(), name);
  char size[13];
  std::snprintf(size, sizeof size, "%011zo", content.size());
  h.replace(124, 11, size, 11);
  h[156] = type;
  h.replace(257, 8, "ustar  \0", 8);
  set_sum(h);
  return h + content + std::string((512 - content.size() % 512) % 512, '\0');
}

const std::string kEnd(1024, '\0');

TEST(UnpackTar, WritesTheMembersThatAreAskedFor) {
  Scratch s;
  const std::string big(100'000, 'b');
  const auto archive =
      s.write("a.tar", member("d/", "", '5') + member("d/one", "1") + member("d/big", big) +
                           member("d/other", "x") + member("d/exact", std::string(512, 'e')) + kEnd);
  unpack_tar(archive, s / "out", {"d/big", "d/one", "d/exact"});
  EXPECT_EQ(s.read("out/d/one"), "1");
  EXPECT_EQ(s.read("out/d/big"), big);
  EXPECT_EQ(s.read("out/d/exact"), std::string(512, 'e'));
  EXPECT_FALSE(std::filesystem::exists(s / "out/d/other"));
  s.write("out/d/one", "kept");
  std::filesystem::remove(s / "out/d/big");
  unpack_tar(archive, s / "out", {"d/one", "d/big"});
  EXPECT_EQ(s.read("out/d/one"), "kept");
  EXPECT_EQ(s.read("out/d/big"), big);
}

TEST(UnpackTar, ReadsNumbersWithLeadingBlanks) {
  Scratch s;
  std::string one = member("one", "12345678");
  for (size_t i = 124; one[i] == '0'; ++i) one[i] = ' ';
  set_sum(one);
  unpack_tar(s.write("a.tar", one + member("two", "2") + kEnd), s / "out", {"one", "two"});
  EXPECT_EQ(s.read("out/one"), "12345678");
  EXPECT_EQ(s.read("out/two"), "2");
}

TEST(UnpackTar, DamagedArchivesAreNamed) {
  Scratch s;
  const auto error = [&](const std::string& bytes, int64_t max_bytes = 1000) {
    const auto archive = s.write("a.tar", bytes);
    const std::string text = error_of<FileError>([&] { unpack_tar(archive, s / "out", {"one"}, max_bytes); });
    EXPECT_FALSE(std::filesystem::exists(s / "out/one"));
    EXPECT_THAT(text, HasSubstr("a.tar"));
    return text;
  };
  const std::string one = member("one", std::string(700, '1'));
  EXPECT_THAT(error(kEnd), HasSubstr("has no one"));
  EXPECT_THAT(error(""), HasSubstr("has no one"));
  EXPECT_THAT(error(one.substr(0, 300)), HasSubstr("inside a header"));
  EXPECT_THAT(error(one.substr(0, 1000)), HasSubstr("cut short inside one"));
  EXPECT_THAT(error(one + kEnd, 699), HasSubstr("700 bytes, more than the limit of 699"));
  EXPECT_THAT(error(member("one", "", '2') + kEnd), HasSubstr("no regular file"));
  std::string wrong = one + kEnd;
  wrong[3] ^= 1;
  EXPECT_THAT(error(wrong), HasSubstr("sum is wrong"));
  EXPECT_THAT(error(std::string(600, 'x')), HasSubstr("no tar archive"));
}

}  // namespace
}  // namespace gradus::data
