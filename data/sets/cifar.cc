// Implementation of CIFAR10 and CIFAR100: reads the binary version into memory shared by the host's ranks.
#include "gradus/data/sets/cifar.h"

#include <algorithm>
#include <sstream>
#include <system_error>

#include "gradus/data/files/input_file.h"

namespace gradus::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSide = 32, kPixels = kSide * kSide, kImageBytes = 3 * kPixels;

}  // namespace

struct CifarSet::Kind {
  const char* name;     // name of the data set in errors
  const char* folder;   // folder in the archive
  int64_t label_bytes;  // number of label bytes before each image, of which the last is used
  int64_t classes;
  const char* class_file;
  const char* origin;

  int64_t record_bytes() const { return label_bytes + kImageBytes; }
  static const Kind& cifar10();
  static const Kind& cifar100();
  // Returns the files of the set, in order; empty if they do not exist.
  std::vector<fs::path> files(const fs::path& dir, bool train) const;
  // Errors: FileError if they do not exist.
  std::vector<fs::path> find(const fs::path& dir, bool train) const;
  ImagesInMemory load(const std::vector<fs::path>& files, const Transform& transform) const;
};

const CifarSet::Kind& CifarSet::Kind::cifar10() {
  static constexpr Kind kind{
      "CIFAR10", "cifar-10-batches-bin", 1,
      10,        "batches.meta.txt",     "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"};
  return kind;
}

const CifarSet::Kind& CifarSet::Kind::cifar100() {
  static constexpr Kind kind{
      "CIFAR100", "cifar-100-binary",     2,
      100,        "fine_label_names.txt", "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"};
  return kind;
}

namespace {

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Converts an image from planar (CHW) to channels-last (HWC).
void interleave(const uint8_t* planes, uint8_t* out) {
  for (int64_t i = 0; i < kPixels; ++i) {
    out[3 * i] = planes[i];
    out[3 * i + 1] = planes[kPixels + i];
    out[3 * i + 2] = planes[2 * kPixels + i];
  }
}

// Returns the lines up to the first empty one, without trailing blanks and carriage returns.
std::vector<std::string> read_names(const fs::path& path, const std::string& op) {
  constexpr size_t kMaxBytes = 64 << 10;
  std::string text(kMaxBytes + 1, '\0');
  text.resize(size_t(InputFile(path, op).read(text.data(), int64_t(text.size()))));
  if (text.size() > kMaxBytes)
    throw FileError(op, path.string(), ": expected names of classes, at most ", kMaxBytes, " bytes");
  std::vector<std::string> names;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty()) break;
    names.push_back(line);
  }
  return names;
}

}  // namespace

std::vector<fs::path> CifarSet::Kind::files(const fs::path& dir, bool train) const {
  std::vector<fs::path> found;
  for (const fs::path& folder : {dir, dir / this->folder}) {
    if (classes == 100) {
      found = {folder / (train ? "train.bin" : "test.bin")};
    } else if (!train) {
      found = {folder / "test_batch.bin"};
    } else {
      // Files are numbered consecutively. A set may have more files than the original 5.
      for (int i = 1; is_there(folder / concat("data_batch_", i, ".bin")); ++i)
        found.push_back(folder / concat("data_batch_", i, ".bin"));
    }
    if (!found.empty() && is_there(found[0])) return found;
    found.clear();
  }
  return found;
}

std::vector<fs::path> CifarSet::Kind::find(const fs::path& dir, bool train) const {
  std::vector<fs::path> found = files(dir, train);
  if (!found.empty()) return found;
  std::error_code ignored;
  const char* file =
      classes == 100 ? (train ? "train.bin" : "test.bin") : (train ? "data_batch_1.bin" : "test_batch.bin");
  throw FileError(name, fs::is_directory(dir, ignored) ? "found no " : "there is no such folder, so no ",
                  file, " in ", dir.string(), " (nor in ", folder, " below it); data::download_cifar",
                  classes, " gets the binary version, ", origin);
}

ImagesInMemory CifarSet::Kind::load(const std::vector<fs::path>& files, const Transform& transform) const {
  struct Part {
    InputFile file;
    int64_t images;
  };
  const int64_t record = record_bytes();
  std::vector<Part> parts;
  std::string key = concat(name, " interleaved");
  int64_t n = 0;
  for (const fs::path& path : files) {
    InputFile file(path, name);
    const int64_t bytes = file.file_size();
    if (bytes == 0 || bytes % record != 0)
      throw FileError(name, path.string(), ": is ", bytes, " bytes long, expected a multiple of ", record,
                      ", the size of a label and an image");
    key += " " + file.identity();
    n += bytes / record;
    parts.push_back({std::move(file), bytes / record});
  }

  // Layout: images, then labels.
  const HostTensor all = host_tensor(key, n * (kImageBytes + 1), [&](uint8_t* images) {
    uint8_t* labels = images + n * kImageBytes;
    std::vector<uint8_t> buffer(static_cast<size_t>(record));
    for (Part& part : parts) {
      for (int64_t i = 0; i < part.images; ++i) {
        if (part.file.read(buffer.data(), record) != record)
          throw FileError(name, part.file.path().string(), ": is cut short: no image ", i, " of ",
                          part.images);
        const int label = buffer[static_cast<size_t>(label_bytes - 1)];
        if (label >= classes)
          throw FileError(name, part.file.path().string(), ": label ", i, " is ", label, ", expected 0 to ",
                          classes - 1);
        interleave(buffer.data() + label_bytes, images);
        images += kImageBytes;
        *labels++ = static_cast<uint8_t>(label);
      }
    }
  });
  const Shape image_shape{n, 3, kSide, kSide};
  return ImagesInMemory(name, view_as_strided(all.bytes, image_shape, channels_last_strides(image_shape), 0),
                        view_as_strided(all.bytes, {n}, {1}, n * kImageBytes), classes, transform,
                        all.memory);
}

CifarSet::CifarSet(const fs::path& dir, const Kind& kind, const CifarOptions& options)
    : ImagesInMemory(kind.load(kind.find(dir, options.train), options.transform)) {
  const fs::path names = kind.find(dir, options.train)[0].parent_path() / kind.class_file;
  if (!is_there(names)) return;
  classes_ = read_names(names, kind.name);
  if (static_cast<int64_t>(classes_.size()) != kind.classes)
    throw FileError(kind.name, names.string(), ": has ", classes_.size(), " names, expected ", kind.classes);
}

CIFAR10::CIFAR10(const fs::path& dir, CifarOptions options) : CifarSet(dir, Kind::cifar10(), options) {}
bool CIFAR10::available(const fs::path& dir) {
  return !Kind::cifar10().files(dir, true).empty() && !Kind::cifar10().files(dir, false).empty();
}

CIFAR100::CIFAR100(const fs::path& dir, CifarOptions options) : CifarSet(dir, Kind::cifar100(), options) {}
bool CIFAR100::available(const fs::path& dir) {
  return !Kind::cifar100().files(dir, true).empty() && !Kind::cifar100().files(dir, false).empty();
}

}  // namespace gradus::data
