#include "gradus/distributed/store/port_note.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "gradus/tensor/base/error.h"
#include "gradus/tests/distributed/subprocess.h"

namespace gradus::dist::internal {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class PortNoteTest : public testing::Test {
 protected:
  PortNoteTest() {
    setenv("HOME", home_.c_str(), 1);
    setenv("XDG_RUNTIME_DIR", home_.c_str(), 1);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> files;
    if (std::filesystem::exists(home_ + "/.gradus"))
      for (const auto& entry : std::filesystem::directory_iterator(home_ + "/.gradus"))
        files.push_back(entry.path().string());
    return files;
  }
  // Moves the only file's time.
  void age_by(Milliseconds age) const {
    const auto time = std::chrono::system_clock::now() - age;
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
    const timespec times[2] = {{ns / 1'000'000'000, ns % 1'000'000'000},
                               {ns / 1'000'000'000, ns % 1'000'000'000}};
    ASSERT_THAT(files(), SizeIs(1));
    ASSERT_EQ(utimensat(AT_FDCWD, files()[0].c_str(), times, 0), 0);
  }

  TestFolder folder_;
  const std::string home_ = folder_.path();
};

TEST_F(PortNoteTest, IsReadAtItsPortAlone) {
  EXPECT_EQ(PortNote("here", 29500).text(), "");
  PortNote("here", 29500).leave("two jobs");
  EXPECT_EQ(PortNote("here", 29500).text(), "two jobs");
  EXPECT_EQ(PortNote("here", 29501).text(), "");
  EXPECT_EQ(PortNote("here", 2950).text(), "");
  PortNote("here", 29500).leave("three jobs");
  EXPECT_EQ(PortNote("here", 29500).text(), "three jobs");
}

TEST_F(PortNoteTest, IsReadOnItsHostAlone) {
  PortNote("here", 29500).leave("two jobs");
  EXPECT_EQ(PortNote("there", 29500).text(), "");
}

TEST_F(PortNoteTest, EndsByItsTime) {
  PortNote("here", 29500).leave("two jobs");
  age_by(PortNote::kLife / 2);
  EXPECT_EQ(PortNote("here", 29500).text(), "two jobs");
  age_by(PortNote::kLife);
  EXPECT_EQ(PortNote("here", 29500).text(), "");
  age_by(-2 * PortNote::kLife);
  EXPECT_EQ(PortNote("here", 29500).text(), "") << "the clock has been set";
}

TEST_F(PortNoteTest, FilesAreFewAndShort) {
  for (int port = 1000; port < 2000; ++port) PortNote("here", port).leave(std::string(1 << 20, 'x'));
  EXPECT_THAT(files(), SizeIs(64));
  for (const std::string& file : files())
    EXPECT_LE(std::filesystem::file_size(file), 2 * PortNote::kMaxText + 1);
  EXPECT_EQ(PortNote("here", 1999).text(), std::string(PortNote::kMaxText, 'x'));
}

TEST_F(PortNoteTest, IsThisUsersAlone) {
  PortNote("here", 29500).leave("two jobs");
  ASSERT_THAT(files(), SizeIs(1));
  const std::string file = files()[0];
  EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms(0600));
  chmod(file.c_str(), 0644);
  EXPECT_EQ(PortNote("here", 29500).text(), "");
  chmod(file.c_str(), 0600);
  EXPECT_EQ(PortNote("here", 29500).text(), "two jobs");
  std::filesystem::rename(file, home_ + "/elsewhere");
  std::filesystem::create_symlink(home_ + "/elsewhere", file);
  EXPECT_EQ(PortNote("here", 29500).text(), "");
}

TEST_F(PortNoteTest, ReadingMakesNothing) {
  EXPECT_EQ(PortNote("here", 29500).text(), "");
  EXPECT_EQ(PortNote("here", 29500, true).text(), "");
  EXPECT_THAT(files(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(home_ + "/.gradus"));
}

}  // namespace
}  // namespace gradus::dist::internal
