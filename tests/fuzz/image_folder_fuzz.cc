// Fuzz target: the samples of ImageFolder in random trees of folders, files and links are those of a
// recursive walk, in torchvision's order. Input: three bytes per entry: kind, parent folder, name.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "gradus/data/sets/image_folder.h"
#include "gradus/tests/fuzz/fuzz.h"

namespace gradus::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 12> kNames = {"a",      "b",    "b-1",    "a.png", "B.JPG", "c.jpeg",
                                                "\xff\n", ".png", "d.webp", "e.txt", "z.PnG", "png"};

constexpr size_t kSteps = 16;  // bounds the number of folders that links multiply

struct Tree {
  explicit Tree(std::string_view script)
      : root(fs::temp_directory_path() / ("gradus-fuzz-" + std::to_string(::getpid()))) {
    fs::remove_all(root);
    fs::create_directories(root);
    folders = {root};
    for (size_t i = 0; i + 2 < script.size() && i < 3 * kSteps; i += 3)
      step(script[i], script[i + 1], script[i + 2]);
  }
  ~Tree() {
    std::error_code ignored;
    fs::remove_all(root, ignored);
  }

  void step(unsigned char what, unsigned char where, unsigned char name) {
    std::error_code ignored;
    const fs::path path = folders[where % folders.size()] / kNames[name % kNames.size()];
    if (fs::symlink_status(path).type() != fs::file_type::not_found) return;
    switch (what % 4) {
      case 0:
        if (fs::create_directory(path, ignored)) folders.push_back(path);
        break;
      case 1:
        std::ofstream(path).put('x');
        break;
      case 2:
        fs::create_symlink(folders[what / 4 % folders.size()], path, ignored);
        break;
      case 3:
        fs::create_symlink("/nowhere/" + std::to_string(what / 4), path, ignored);
        break;
    }
  }

  fs::path root;
  std::vector<fs::path> folders;
};

bool is_sample(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* end : {".png", ".jpg", ".jpeg", ".webp"})
    if (name.ends_with(end)) return true;
  return false;
}

// Finds the sample files of each folder. `depth` detects cycles of links.
void walk(const fs::path& folder, int depth, std::map<std::string, std::set<std::string>>& found) {
  FUZZ_CHECK(depth < 100);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) {
      walk(entry.path(), depth + 1, found);
    } else if (is_sample(entry.path().filename())) {
      found[folder].insert(entry.path().filename());
    }
  }
}

}  // namespace

std::vector<std::string> seeds() {
  using namespace std::string_literals;
  return {"\0\0\0\1\1\3"s, "\0\0\0\0\0\1\1\1\3\1\2\4\0\1\1\1\3\3"s, "\0\0\0\2\1\1\1\1\3"s,
          "\0\0\2\3\1\3\1\1\6"s, "\0\0\0\0\0\1\6\1\1\1\2\3\1\2\7"s};
}

}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradus;
  const fuzz::Tree tree({reinterpret_cast<const char*>(data), size});
  fuzz::survives([&] {
    const data::ImageFolder folder(tree.root, {.allow_empty = true});
    int64_t i = 0;
    for (size_t label = 0; label < folder.classes().size(); ++label) {
      FUZZ_CHECK(label == 0 || folder.classes()[label - 1] < folder.classes()[label]);
      std::map<std::string, std::set<std::string>> found;
      fuzz::walk(tree.root / folder.classes()[label], 0, found);
      for (const auto& [where, names] : found)
        for (const std::string& name : names) {
          FUZZ_CHECK(i < folder.size() && folder.path(i) == std::filesystem::path(where) / name);
          FUZZ_CHECK(folder.label(i++) == static_cast<int64_t>(label));
        }
    }
    FUZZ_CHECK(i == folder.size());
  });
  return 0;
}
