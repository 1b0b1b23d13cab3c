// What the pages say is what the tree holds: every C++ block of a page stands, line for line, in a file that is compiled;
// every file and folder that a page links to exists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace gradus {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

const char* const kPages[] = {"README.md", "docs/adding-an-op.md", "docs/architecture.md", "docs/autograd.md",
                              "docs/performance.md"};

std::string trimmed(const std::string& line) {
  const size_t first = line.find_first_not_of(' ');
  return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(' ') + 1 - first);
}

// The file's lines without their indentation.
Lines lines_of(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << " is missing";
  Lines lines;
  for (std::string line; std::getline(file, line);) lines.push_back(trimmed(line));
  return lines;
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

bool contains(const Lines& file, const Lines& block) {
  return std::search(file.begin(), file.end(), block.begin(), block.end()) != file.end();
}

// A block whose first line is a comment that names a file is a selection of its lines, in order, with "..." for what is
// left out; others stand in a file of this folder as a whole.
TEST(Docs, CodeInThePagesIsCodeOfTheTree) {
  std::vector<Lines> examples;
  for (const auto& file : fs::directory_iterator("tests/docs"))
    if (file.path().extension() == ".cc") examples.push_back(lines_of(file.path()));
  ASSERT_GE(examples.size(), 2u);
  for (const char* page : kPages)
    for (Lines block : blocks_of(page)) {
      ASSERT_FALSE(block.empty()) << page;
      std::smatch name;
      if (!std::regex_match(block[0], name, std::regex(R"(// ([\w/]+\.(?:h|cc)))"))) {
        EXPECT_TRUE(std::any_of(examples.begin(), examples.end(), [&](const Lines& f) { return contains(f, block); }))
            << page << ": no example has the block that starts with: " << block[0];
        continue;
      }
      const Lines file = lines_of(name[1].str());
      auto at = file.begin();
      for (size_t i = 1; i < block.size(); ++i) {
        if (block[i].empty() || block[i] == "...") continue;
        at = std::find(at, file.end(), block[i]);
        ASSERT_NE(at, file.end()) << page << ": " << name[1] << " has no line (there): " << block[i];
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
