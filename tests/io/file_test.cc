// FileReader, read_file and AtomicFile: contents, checksums, locks between writers, and that failures,
// signals and dead writers leave the old file as it was.
#include "gradus/io/file.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <thread>

#include "gradus/tests/io/testing.h"

namespace gradus::io {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(FileReader, ReadsInOrderAndKeepsAChecksum) {
  Scratch dir;
  spit(dir / "a", "123456789");
  FileReader file(dir / "a", {.op = "test", .checksum = true});
  EXPECT_EQ(file.size(), 9);
  char text[10] = {};
  file.read(text, 4);
  EXPECT_EQ(file.remaining(), 5);
  file.read(text + 4, 5);
  EXPECT_STREQ(text, "123456789");
  EXPECT_EQ(file.crc32(), 0xcbf43926u);  // the check value of CRC-32
}

TEST(FileReader, SeeksAndJoinsChecksumsOfParts) {
  Scratch dir;
  spit(dir / "a", "123456789");
  FileReader file(dir / "a", {.op = "test", .checksum = true});
  char text[10] = {};
  file.seek(4);
  file.read(text, 5);
  EXPECT_STREQ(text, "56789");
  const uint32_t second = file.crc32();
  file.seek(0);
  file.read(text, 4);
  EXPECT_STREQ(text, "12349");
  EXPECT_EQ(combine_crc32(file.crc32(), second, 5), 0xcbf43926u);
  EXPECT_EQ(combine_crc32(second, 0, 0), second);
  EXPECT_EQ(file.bytes_read(), 9);
  EXPECT_THROW(file.seek(10), FileError);
  EXPECT_THROW(file.seek(-1), FileError);
}

TEST(FileReader, NeverReadsBeyondTheEnd) {
  Scratch dir;
  spit(dir / "a", "123");
  FileReader file(dir / "a", {.op = "test"});
  char text[10];
  EXPECT_THAT(error_of<FileError>([&] { file.read(text, 4); }),
              AllOf(StartsWith("[test] " + (dir / "a").string()), HasSubstr("ends after 3 bytes")));
  EXPECT_THROW(file.read(text, -1), FileError);
}

TEST(FileReader, NamesAFileItCannotOpen) {
  Scratch dir;
  EXPECT_ERROR(FileError, FileReader(dir / "none"), (dir / "none").string(), "No such file");
  EXPECT_ERROR(FileError, FileReader(dir.dir()), "got a folder");
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_ERROR(FileError, FileReader(dir / "pipe"), "got a device or pipe");
  EXPECT_ERROR(FileError, FileReader("/dev/zero"), "got a device or pipe");
}

TEST(ReadFile, ReturnsTheContentUpToALimit) {
  Scratch dir;
  spit(dir / "a", std::string("x\0y", 3));
  spit(dir / "empty", "");
  EXPECT_EQ(read_file(dir / "a"), std::string("x\0y", 3));
  EXPECT_EQ(read_file(dir / "empty"), "");
  EXPECT_ERROR(FileError, read_file(dir / "a", 2), "has 3 bytes; expected at most 2");
}

TEST(AtomicFile, ReplacesAFileOnlyAtCommit) {
  Scratch dir;
  spit(dir / "a", "old");
  {
    AtomicFile file(dir / "a");
    file.write("new", 3);
    EXPECT_EQ(slurp(dir / "a"), "old");
    file.commit();
  }
  EXPECT_EQ(slurp(dir / "a"), "new");
  EXPECT_THAT(dir.names(), ElementsAre("a"));
}

TEST(AtomicFile, LeavesEverythingAsItWasWithoutCommit) {
  Scratch dir;
  spit(dir / "a", "old");
  {
    AtomicFile file(dir / "a");
    file.write("new", 3);
  }
  EXPECT_EQ(slurp(dir / "a"), "old");
  EXPECT_THAT(dir.names(), ElementsAre("a"));
}

TEST(AtomicFile, LeavesEverythingAsItWasWhenTheDiskIsFull) {
  Scratch dir;
  spit(dir / "a", "old");
  {
    FileSizeLimit limit(100);
    EXPECT_ERROR(FileError, write_file(dir / "a", std::string(101, 'x')), (dir / "a").string(),
                 "cannot write");
  }
  EXPECT_EQ(slurp(dir / "a"), "old");
  EXPECT_THAT(dir.names(), ElementsAre("a"));
}

TEST(AtomicFile, SaysWhyItCannotBeCreated) {
  Scratch dir;
  spit(dir / "a", "old");
  EXPECT_ERROR(FileError, write_file(dir / "no/a", ""), "does not exist");
  EXPECT_ERROR(FileError, write_file(dir / "a/b", ""), "is not a folder");
  EXPECT_ERROR(FileError, write_file(dir.dir(), ""), "got a folder");
  EXPECT_ERROR(FileError, write_file("", ""), "expected a file name");
  EXPECT_ERROR(FileError, write_file("/proc/a", ""), "cannot create a.lock");
  EXPECT_ERROR(FileError, write_file(dir / std::string(252, 'x'), ""), "too long");
  EXPECT_EQ(slurp(dir / "a"), "old");
  EXPECT_THAT(dir.names(), ElementsAre("a"));
}

TEST(AtomicFile, TakesOverWhatACrashedWriterLeft) {
  Scratch dir;
  spit(dir / "a.tmp", "a much longer half-written file");
  spit(dir / "a.lock", "process 1 on host gone");
  write_file(dir / "a", "new");
  EXPECT_EQ(slurp(dir / "a"), "new");
  EXPECT_THAT(dir.names(), ElementsAre("a"));
}

TEST(AtomicFile, DoesNotWriteThroughALinkInPlaceOfItsOwnFiles) {
  for (const char* name : {"a.tmp", "a.lock"})
    for (const bool hard : {true, false}) {
      Scratch dir;
      spit(dir / "victim", "precious");
      if (hard)
        std::filesystem::create_hard_link(dir / "victim", dir / name);
      else
        std::filesystem::create_symlink(dir / "victim", dir / name);
      write_file(dir / "a", "new");
      EXPECT_EQ(slurp(dir / "a"), "new");
      EXPECT_EQ(slurp(dir / "victim"), "precious") << name;
      EXPECT_THAT(dir.names(), ElementsAre("a", "victim"));
    }
}

TEST(AtomicFile, ALimitOfFileSizesIsAnErrorAndNoSignalOfTheProgram) {
  static int signals;
  signals = 0;
  const auto before = ::signal(SIGXFSZ, [](int) { ++signals; });
  Scratch dir;
  {
    FileSizeLimit limit(100);
    EXPECT_ERROR(FileError, write_file(dir / "a", std::string(101, 'x')), "File too large");
  }
  EXPECT_EQ(signals, 0);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_FALSE(sigismember(&pending, SIGXFSZ));
  ::raise(SIGXFSZ);
  EXPECT_EQ(signals, 1);  // its handler is still there
  ::signal(SIGXFSZ, before);
}

TEST(AtomicFile, AWriterThatWasStoppedIsNamedByTheNext) {
  Scratch dir;
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(dir / "a");
    file.write("half", 4);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  EXPECT_THAT(error_of<FileError>([&] {
                AtomicFile(dir / "a", {.op = "test", .lock_timeout = std::chrono::milliseconds(100)});
              }),
              AllOf(StartsWith("[test] " + (dir / "a").string()), HasSubstr("has held"), HasSubstr("a.lock"),
                    HasSubstr(concat("process ", child, " on host ", host, ", since 2"))));
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  write_file(dir / "a", "new");  // a dead writer's files do not block others
  EXPECT_EQ(slurp(dir / "a"), "new");
  EXPECT_THAT(dir.names(), ElementsAre("a"));
}

TEST(AtomicFile, AWriterThatGetsOnIsWaitedFor) {
  Scratch dir;
  std::latch begun(1);
  std::thread slow([&] {
    AtomicFile file(dir / "a");
    begun.count_down();
    for (int i = 0; i < 35; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      file.write("x", 1);
    }
    file.commit();
  });
  begun.wait();
  AtomicFile(dir / "a", {.lock_timeout = std::chrono::milliseconds(3000)}).commit();
  slow.join();
  EXPECT_EQ(slurp(dir / "a"), "");
}

TEST(AtomicFile, KeepsThePreviousOne) {
  Scratch dir;
  for (const char* content : {"one", "two", "three"}) {
    AtomicFile file(dir / "a");
    file.write(content, static_cast<int64_t>(strlen(content)));
    file.commit_with_backup(dir / "a.old");
  }
  EXPECT_EQ(slurp(dir / "a"), "three");
  EXPECT_EQ(slurp(dir / "a.old"), "two");
  EXPECT_THAT(dir.names(), ElementsAre("a", "a.old"));
}

TEST(AtomicFile, WritersOfOneFileTakeTurns) {
  Scratch dir;
  constexpr int kThreads = 4, kWrites = 10;
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (int i = 0; i < kWrites; ++i) write_file(dir / "a", std::string(10000, static_cast<char>('a' + t)));
    });
  for (std::thread& t : threads) t.join();
  const std::string content = slurp(dir / "a");
  EXPECT_EQ(content, std::string(10000, content.at(0)));
  EXPECT_THAT(dir.names(), ElementsAre("a"));
}

}  // namespace
}  // namespace gradus::io
