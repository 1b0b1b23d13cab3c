// Fuzz target: the files of CIFAR-10 and CIFAR-100 give a set of readable images with valid labels, or a FileError. Input: a byte (bit 1: CIFAR-100, bit 0: test set),
// images, and after "NAMES" the file of class names.
#include <filesystem>
#include <memory>

#include "gradus/data/sets/cifar.h"
#include "gradus/tests/fuzz/fuzz.h"

namespace gradus::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "NAMES";

// A folder whose files are in memory.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "gradus-fuzz-XXXXXX").string();
    FUZZ_CHECK(::mkdtemp(name.data()) != nullptr);
    dir_ = name;
    for (const char* file : {"data_batch_1.bin", "test_batch.bin", "train.bin", "test.bin"})
      fs::create_symlink(images.path(), dir_ / file);
    for (const char* file : {"batches.meta.txt", "fine_label_names.txt"})
      fs::create_symlink(names.path(), dir_ / file);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(dir_, ignored);
  }
  const fs::path& dir() const { return dir_; }

  const MemoryFile images, names;

 private:
  fs::path dir_;
};

void check_set(const data::CifarSet& set) {
  FUZZ_CHECK(set.size() > 0);
  touch(set.images().raw_ptr(), set.images().nbytes());
  for (int64_t i = 0; i < set.size(); ++i) {
    FUZZ_CHECK(set.label(i) >= 0 && set.label(i) < 100);
    const data::Sample sample = set.get(i);
    FUZZ_CHECK(sample.input.shape() == Shape({3, 32, 32}));
  }
}

}  // namespace

std::vector<std::string> seeds() {
  const auto images = [](int64_t label_bytes, int count) {
    std::string file;
    for (int i = 0; i < count; ++i) {
      file.append(static_cast<size_t>(label_bytes), static_cast<char>(i % 10));
      for (int k = 0; k < 3072; ++k) file += static_cast<char>(i + k);
    }
    return file;
  };
  const std::string names = std::string(kMark) + "airplane\nautomobile\r\nbird \n\nend";
  return {'\0' + images(1, 2) + names, '\1' + images(1, 1), '\2' + images(2, 2) + names, '\3' + images(2, 1)};
}

}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradus;
  static const auto folder = std::make_unique<fuzz::Folder>();
  std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.empty()) return 0;
  const bool hundred = input[0] & 2, test = input[0] & 1;
  input.remove_prefix(1);
  const size_t mark = input.find(fuzz::kMark);
  folder->images.set(input.substr(0, mark));
  folder->names.set(mark == input.npos ? "" : input.substr(mark + fuzz::kMark.size()));
  fuzz::survives([&] {
    if (hundred) {
      fuzz::check_set(data::CIFAR100(folder->dir(), {.train = !test}));
    } else {
      fuzz::check_set(data::CIFAR10(folder->dir(), {.train = !test}));
    }
  });
  return 0;
}
