// What the pages say is what the tree holds: every C++ block of a page stands, line for line, in a file that
// is compiled; every file and folder that a page links to exists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
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
using Lines = std::vector<std::string>;

const char* const kPages[] = {"README.md",
                              "docs/adding-an-op.md",
                              "docs/amp.md",
                              "docs/architecture.md",
                              "docs/autograd.md",
                              "docs/data-parallel.md",
                              "docs/data.md",
                              "docs/distributed.md",
                              "docs/first-gan.md",
                              "docs/from-pytorch.md",
                              "docs/gans.md",
                              "docs/gpt.md",
                              "docs/install.md",
                              "docs/kernels.md",
                              "docs/launch/kubernetes.md",
                              "docs/launch/mpi.md",
                              "docs/launch/one-machine.md",
                              "docs/launch/plain.md",
                              "docs/launch/several-machines.md",
                              "docs/launch/slurm.md",
                              "docs/model-parallel.md",
                              "docs/performance.md",
                              "docs/pipeline.md",
                              "docs/training-images.md",
                              "docs/verify.md"};

Lines lines_of(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << " is missing";
  Lines lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// The text without blanks, line breaks and comment marks: layout may change.
std::string squeezed(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c != ' ' && c != '/') out += c;
  return out;
}
std::string squeezed(const Lines& lines) {
  std::string out;
  for (const std::string& line : lines) out += squeezed(line);
  return out;
}

// The ```cpp blocks of a page.
std::vector<Lines> blocks_of(const fs::path& page) {
  std::vector<Lines> blocks;
  bool inside = false;
  for (const std::string& line : lines_of(page)) {
    if (line.rfind("```", 0) == 0) {
      inside = line == "```cpp";
      if (inside) blocks.emplace_back();
    } else if (inside) {
      blocks.back().push_back(line);
    }
  }
  return blocks;
}

// A block whose first line is a comment that names a file shows parts of it, in order, with "..." for what is
// left out; others stand in a file of this folder as a whole.
TEST(Docs, CodeInThePagesIsCodeOfTheTree) {
  std::vector<std::string> examples;
  for (const auto& file : fs::directory_iterator("tests/docs"))
    if (file.path().extension() == ".cc") examples.push_back(squeezed(lines_of(file.path())));
  ASSERT_GE(examples.size(), 2u);
  for (const char* page : kPages)
    for (const Lines& block : blocks_of(page)) {
      ASSERT_FALSE(block.empty()) << page;
      std::smatch name;
      if (!std::regex_match(block[0], name, std::regex(R"(// ([\w/]+\.(?:h|cc)))"))) {
        EXPECT_TRUE(std::any_of(examples.begin(), examples.end(),
                                [&](const std::string& f) { return f.find(squeezed(block)) != f.npos; }))
            << page << ": no example has the block that starts with: " << block[0];
        continue;
      }
      const std::string file = squeezed(lines_of(name[1].str()));
      size_t at = 0;
      Lines part;
      for (size_t i = 1; i <= block.size(); ++i) {
        if (i < block.size() && block[i] != "...") {
          part.push_back(block[i]);
          continue;
        }
        at = file.find(squeezed(part), at);
        ASSERT_NE(at, file.npos) << page << ": " << name[1] << " has not (there): " << squeezed(part);
        part.clear();
      }
    }
}

TEST(Docs, TheModelOfTheReadmeHasTwentyLines) {
  int lines = 0;
  for (const std::string& line : lines_of("tests/docs/readme_model.cc")) lines += !line.empty();
  EXPECT_LE(lines, 20);
  EXPECT_EQ(blocks_of("README.md").size(), 1u);
}

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

// What a command writes to stdout; it must end with 0.
std::string output_of(const std::string& command) {
  FILE* program = popen(command.c_str(), "r");
  EXPECT_TRUE(program);
  std::string output;
  for (char line[256]; program && std::fgets(line, sizeof line, program);) output += line;
  EXPECT_EQ(program ? pclose(program) : -1, 0) << output;
  return output;
}

// A TCP port that nobody has.
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

// As docs/launch/plain.md starts them.
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

// Each of the eight places gets 5 % of the samples or more, all together three quarters.
TEST(Docs, TheRingOfTheGuideIsLearnedOnTwoRanks) {
  const std::string place = testing::TempDir() + "/ring";
  const std::string program = fs::absolute("tests/docs/ring_gan").string();
  std::istringstream lines(
      output_of("rm -rf " + place + " && mkdir -p " + place + " && cd " + place + " && " + program));
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line;
  std::istringstream shares(last);
  double sum = 0;
  int places = 0;
  for (double share = 0; shares >> share; ++places) {
    EXPECT_GE(share, 0.05) << last;
    sum += share;
  }
  EXPECT_EQ(places, 8) << last;
  EXPECT_GE(sum, 0.75) << last;
  EXPECT_TRUE(fs::exists(place + "/runs/ring/ring.ckpt"));
  fs::remove_all(place);
}

TEST(Docs, LinksLeadToPages) {
  for (const char* page : kPages)
    for (const std::string& line : lines_of(page)) {
      const std::regex link(R"(\]\(([\w./-]+)(?:#[\w-]*)?\))");
      for (std::sregex_iterator m(line.begin(), line.end(), link), end; m != end; ++m)
        EXPECT_TRUE(fs::exists(fs::path(page).parent_path() / (*m)[1].str())) << page << ": " << (*m)[1];
    }
}

}  // namespace
}  // namespace gradus
