// CPU and memory limits of cgroups v2, read from files that the test writes in the kernel's format: "self" as
// /proc/self/cgroup, "groups" as /sys/fs/cgroup.
#include "gradus/tensor/runtime/internal/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

namespace gradus::internal {
namespace {

namespace fs = std::filesystem;

class Cgroup : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    const fs::path path = root_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  CgroupFiles files() const { return {(root_ / "groups").string(), (root_ / "self").string()}; }

  static constexpr int kNoLimit = 1 << 20;
  const fs::path root_ = fs::path(testing::TempDir()) / "cgroup_test";
};

TEST_F(Cgroup, WithoutFilesThereIsNoLimit) {
  EXPECT_EQ(cgroup_cores(files()), kNoLimit);
  EXPECT_EQ(cgroup_memory(files()), std::numeric_limits<int64_t>::max());
}

TEST_F(Cgroup, InAContainerTheRootHasTheLimits) {
  write("self", "0::/");
  write("groups/cpu.max", "250000 100000");
  write("groups/memory.max", "1073741824");
  EXPECT_EQ(cgroup_cores(files()), 3);  // 2.5, rounded up
  EXPECT_EQ(cgroup_memory(files()), 1 << 30);
}

TEST_F(Cgroup, TheStrictestGroupAroundCounts) {
  write("self", "1:name=systemd:/other\n0::/outer/inner");
  write("groups/outer/cpu.max", "400000 100000");
  write("groups/outer/inner/cpu.max", "max 100000");
  write("groups/outer/inner/memory.max", "max");
  write("groups/outer/memory.max", "5000");
  EXPECT_EQ(cgroup_cores(files()), 4);
  EXPECT_EQ(cgroup_memory(files()), 5000);
  write("groups/outer/inner/cpu.max", "50000 100000");
  EXPECT_EQ(cgroup_cores(files()), 1);
  write("groups/outer/cpu.max", "10000 100000");
  EXPECT_EQ(cgroup_cores(files()), 1);
}

TEST_F(Cgroup, StrangeTextIsNoLimit) {
  write("self", "0::/../elsewhere\n\nrubbish");
  write("elsewhere/cpu.max", "100000 100000");  // outside of the groups
  for (const char* text : {"", "max", "rubbish", "-1 100000", "100000 0", "100000 -5", "nan nan", "100000"}) {
    write("groups/cpu.max", text);
    EXPECT_EQ(cgroup_cores(files()), kNoLimit) << text;
  }
  write("groups/cpu.max", "1e300 1e-3");
  EXPECT_EQ(cgroup_cores(files()), kNoLimit);
  for (const char* text : {"", "max", "0", "-4096", "99999999999999999999999"}) {
    write("groups/memory.max", text);
    EXPECT_EQ(cgroup_memory(files()), std::numeric_limits<int64_t>::max()) << text;
  }
}

}  // namespace
}  // namespace gradus::internal
