// The programs of README.md and docs/guide, run as processes, learn and print what the pages say; links
// between pages lead to pages. Paths are relative to the root of the repository.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace gradus {
namespace {

namespace fs = std::filesystem;

TEST(Docs, TheModelOfTheReadmeLearns) {
  FILE* program = popen("tests/docs/readme_model", "r");
  ASSERT_TRUE(program);
  std::vector<double> losses;
  for (char line[64]; std::fgets(line, sizeof line, program);) losses.push_back(std::atof(line));
  EXPECT_EQ(pclose(program), 0);
  ASSERT_EQ(losses.size(), 200u);
  double last = 0;
  for (size_t i = 180; i < 200; ++i) last += losses[i] / 20;
  EXPECT_LT(last, 0.5 * losses[0]);
}

// Returns the stdout of a command, which must exit with 0.
std::string output_of(const std::string& command) {
  FILE* program = popen(command.c_str(), "r");
  EXPECT_TRUE(program);
  std::string output;
  for (char line[256]; program && std::fgets(line, sizeof line, program);) output += line;
  EXPECT_EQ(program ? pclose(program) : -1, 0) << output;
  return output;
}

// Returns a free TCP port.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

TEST(Docs, TheFirstRanksAddUp) {
  EXPECT_THAT(output_of("tests/docs/first_ranks"), testing::HasSubstr("[6., 6.]"));
}

// With torchrun's options; the program's own number of ranks has no effect then.
TEST(Docs, TheFirstRanksAddUpUnderGradusRun) {
  for (const char* command :
       {"--nproc-per-node 3 tests/docs/first_ranks",
        "--standalone --nnodes=1 --nproc_per_node=3 --no-python tests/docs/first_ranks"})
    EXPECT_THAT(output_of(std::string("distributed/launch/gradus-run ") + command),
                testing::HasSubstr("[3., 3.]"));
}

// As docs/guide/launch/plain.md starts them.
TEST(Docs, TheFirstRanksAddUpWithoutALauncher) {
  const std::string output = output_of(
      "export GRADUS_TOKEN=docs WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 OMP_NUM_THREADS=1 MASTER_PORT=" +
      std::to_string(free_port()) +
      "; RANK=3 tests/docs/first_ranks & RANK=2 tests/docs/first_ranks & RANK=1 tests/docs/first_ranks & "
      "RANK=0 tests/docs/first_ranks; status=$?; wait; exit $status");
  EXPECT_THAT(output, testing::HasSubstr("[6., 6.]"));
}

TEST(Docs, TheFirstGanLearnsOnTwoRanks) {
  const std::string output = output_of("tests/docs/first_gan");
  EXPECT_THAT(output, testing::HasSubstr("epoch 2: discriminator "));
  const std::string said = "mean of the samples' pixels: ";
  const size_t at = output.find(said);
  ASSERT_NE(at, output.npos) << output;
  EXPECT_LT(std::atof(output.c_str() + at + said.size()), -0.4) << "it begins at 0, the digits have -0.7";
}

// A short training prints eight shares and saves a checkpoint. With GRADUS_LONG_TESTS, as
// tools/gan-quality.sh sets it, the full training: each of the eight Gaussians gets at least 5 % of the
// samples, all together three quarters.
TEST(Docs, TheRingOfTheGuideTrainsOnTwoRanks) {
  const bool is_long = std::getenv("GRADUS_LONG_TESTS");
  const std::string place = testing::TempDir() + "/ring";
  const std::string program = fs::absolute("tests/docs/ring_gan").string() + (is_long ? "" : " 100000");
  std::istringstream lines(
      output_of("rm -rf " + place + " && mkdir -p " + place + " && cd " + place + " && " + program));
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line;
  std::istringstream shares(last);
  double sum = 0;
  int places = 0;
  for (double share = 0; shares >> share; ++places) {
    EXPECT_GE(share, is_long ? 0.05 : 0) << last;
    sum += share;
  }
  EXPECT_EQ(places, 8) << last;
  EXPECT_GE(sum, is_long ? 0.75 : 0) << last;
  EXPECT_LE(sum, 1 + 1e-6) << last;
  EXPECT_TRUE(fs::exists(place + "/runs/ring/ring.ckpt"));
  fs::remove_all(place);
}

TEST(Docs, LinksLeadToPages) {
  std::vector<fs::path> pages = {"README.md"};
  for (const auto& file : fs::recursive_directory_iterator("docs"))
    if (file.path().extension() == ".md") pages.push_back(file.path());
  EXPECT_GT(pages.size(), 50u);
  const std::regex link(R"(\]\(([\w./-]+\.md)(?:#[\w-]*)?\))");
  for (const fs::path& page : pages) {
    std::ifstream file(page);
    ASSERT_TRUE(file) << page;
    for (std::string line; std::getline(file, line);)
      for (std::sregex_iterator m(line.begin(), line.end(), link), end; m != end; ++m)
        EXPECT_TRUE(fs::exists(page.parent_path() / (*m)[1].str())) << page << ": " << (*m)[1];
  }
}

}  // namespace
}  // namespace gradus
