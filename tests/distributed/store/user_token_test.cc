// user_token(): the secret of a user that is kept in a file in the home, runtime or temporary folder: how the
// file is created, and which files and folders are refused because other users could read or write them.
#include "gradus/distributed/store/user_token.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <thread>
#include <utility>

#include "gradus/tests/distributed/subprocess.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist::internal {
namespace {

using testing::AllOf;
using testing::HasSubstr;

mode_t mode_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

// Sets HOME and XDG_RUNTIME_DIR to empty temporary folders.
class UserTokenTest : public testing::Test {
 protected:
  UserTokenTest() {
    for (const auto& [name, path] : {std::pair("HOME", home_), std::pair("XDG_RUNTIME_DIR", run_)}) {
      mkdir(path.c_str(), 0700);
      setenv(name, path.c_str(), 1);
    }
  }
  static std::string error_of(const std::string& remote_host = "") {
    return gradus::error_of([&] { user_token("test", remote_host); });
  }

  TestFolder folder_;
  const std::string home_ = folder_ / "home", run_ = folder_ / "run", file_ = home_ + "/.gradus/token";
};

TEST_F(UserTokenTest, IsMadeOnceForThisUserAlone) {
  const UserToken first = user_token("test");
  EXPECT_EQ(first.file, file_);
  EXPECT_THAT(first.token, testing::MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(first.token.size(), 64u);
  EXPECT_EQ(mode_of(file_), 0600u);
  EXPECT_EQ(mode_of(home_ + "/.gradus"), 0700u);
  EXPECT_EQ(user_token("test").token, first.token);
  TestFolder other;
  setenv("HOME", other.path().c_str(), 1);
  EXPECT_NE(user_token("test").token, first.token);
}

TEST_F(UserTokenTest, AllWhoComeAtOnceGetTheSame) {
  for (int round = 0; round < 20; ++round) {
    const std::string home = concat(home_, '/', round);
    mkdir(home.c_str(), 0700);
    setenv("HOME", home.c_str(), 1);
    std::vector<std::string> tokens(8);
    std::vector<std::thread> threads;
    for (std::string& token : tokens) threads.emplace_back([&] { token = user_token("test").token; });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::set(tokens.begin(), tokens.end()).size(), 1u);
    EXPECT_EQ(std::system(("test \"$(ls -A " + home + "/.gradus)\" = token").c_str()), 0)
        << "no drafts are left";
  }
}

TEST_F(UserTokenTest, AFileThatOthersMayReadIsRefused) {
  user_token("test");
  for (const mode_t mode : {0640, 0604, 0660}) {
    chmod(file_.c_str(), mode);
    EXPECT_THAT(error_of(), AllOf(HasSubstr("[test] " + file_), HasSubstr("nobody else may read")));
  }
  chmod(file_.c_str(), 0600);
  EXPECT_EQ(error_of(), "no error");
}

TEST_F(UserTokenTest, WhatIsNoTokenIsRefused) {
  const std::string token = user_token("test").token;
  for (const std::string& content : {std::string(), token.substr(1), token + "0", "x" + token.substr(1)}) {
    write_file(file_, content);
    EXPECT_THAT(error_of(), HasSubstr(file_ + " does not hold a token"));
  }
  unlink(file_.c_str());
  write_file(home_ + "/elsewhere", token);
  chmod((home_ + "/elsewhere").c_str(), 0600);
  ASSERT_EQ(symlink((home_ + "/elsewhere").c_str(), file_.c_str()), 0);
  EXPECT_THAT(error_of(), HasSubstr("cannot open " + file_));
  unlink(file_.c_str());
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  EXPECT_THAT(error_of(), HasSubstr("nobody else may read"));
}

TEST_F(UserTokenTest, AFolderThatOthersMayWriteIsPassedOver) {
  mkdir((home_ + "/.gradus").c_str(), 0700);
  chmod((home_ + "/.gradus").c_str(), 0770);
  EXPECT_EQ(user_token("test").file, run_ + "/gradus/token");
  rmdir((home_ + "/.gradus").c_str());
  ASSERT_EQ(symlink(run_.c_str(), (home_ + "/.gradus").c_str()), 0);
  EXPECT_EQ(user_token("test").file, run_ + "/gradus/token");
}

TEST_F(UserTokenTest, WithoutAHomeThereAreOtherFolders) {
  unsetenv("HOME");
  EXPECT_EQ(user_token("test").file, run_ + "/gradus/token");
  unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(user_token("test").file, concat("/tmp/gradus-", geteuid(), "/token"));
}

TEST_F(UserTokenTest, AnotherUsersAreNotTaken) {
  const std::string token = user_token("test").token;
  if (geteuid() != 0 || chown(file_.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "needs root";
  EXPECT_THAT(error_of(), HasSubstr("must be a file of this user"));
  ASSERT_EQ(chown((home_ + "/.gradus").c_str(), 65534, 65534), 0);
  EXPECT_EQ(user_token("test").file, run_ + "/gradus/token");
  ASSERT_EQ(chown(run_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(user_token("test").file, concat("/tmp/gradus-", geteuid(), "/token"));
}

TEST_F(UserTokenTest, SeveralHostsNeedAHomeThatTheyShare) {
  EXPECT_THAT(error_of("node0"), AllOf(HasSubstr("GRADUS_TOKEN"), HasSubstr("the store is at node0"),
                                       HasSubstr("on this host alone")));
  EXPECT_NE(access((home_ + "/.gradus").c_str(), F_OK), 0);
  unsetenv("HOME");
  EXPECT_THAT(error_of("node0"), HasSubstr("GRADUS_TOKEN"));
}

}  // namespace
}  // namespace gradus::dist::internal
