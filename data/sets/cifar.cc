// CIFAR-10 and CIFAR-100: reads the files of the binary version, whose records are 1 or 2 label bytes and an
// image u8[3, 32, 32], into memory that the ranks on this host share: images u8[N, 3, 32, 32] channels-last,
// then labels u8[N]. The first rank of the host reads the files; ImagesInMemory (images_in_memory.h) serves
// the samples.
#include "gradus/data/sets/cifar.h"

#include <algorithm>
#include <sstream>
#include <system_error>

#include "gradus/data/files/input_file.h"
#include "gradus/data/files/sha256.h"

namespace gradus::data {
namespace {
namespace fs = std::filesystem;

constexpr int64_t kSide = 32, kPixels = kSide * kSide, kImageBytes = 3 * kPixels;

}  // namespace

// The differences between the two data sets.
struct internal::CifarKind {
  const char* name;     // name of the data set in errors
  const char* folder;   // folder in the archive
  int64_t label_bytes;  // number of label bytes before each image, of which the last is used
  int64_t classes;
  const char *train_file, *test_file;  // name of the first file of training and of test images
  const char* class_file;              // text file with one class name per line
  const char* origin;                  // URL of the archive

  const char* first_file(bool train) const { return train ? train_file : test_file; }
};

namespace {

using Kind = internal::CifarKind;

constexpr Kind kCifar10{.name = "CIFAR10",
                        .folder = "cifar-10-batches-bin",
                        .label_bytes = 1,
                        .classes = 10,
                        .train_file = "data_batch_1.bin",
                        .test_file = "test_batch.bin",
                        .class_file = "batches.meta.txt",
                        .origin = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"};
constexpr Kind kCifar100{.name = "CIFAR100",
                         .folder = "cifar-100-binary",
                         .label_bytes = 2,
                         .classes = 100,
                         .train_file = "train.bin",
                         .test_file = "test.bin",
                         .class_file = "fine_label_names.txt",
                         .origin = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"};

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

// Returns the files of the training or test images in `dir`, or else in its subfolder kind.folder, in order;
// empty if they do not exist.
std::vector<fs::path> files_of(const fs::path& dir, const Kind& kind, bool train) {
  for (const fs::path& folder : {dir, dir / kind.folder}) {
    std::vector<fs::path> found = {folder / kind.first_file(train)};
    if (!is_there(found[0])) continue;
    // Training files of CIFAR-10 are numbered consecutively. A set may have more than the original 5.
    if (train && kind.classes == 10)
      for (int i = 2; is_there(folder / concat("data_batch_", i, ".bin")); ++i)
        found.push_back(folder / concat("data_batch_", i, ".bin"));
    return found;
  }
  return {};
}

// As files_of.
// Errors: FileError if the files do not exist.
std::vector<fs::path> find(const fs::path& dir, const Kind& kind, bool train) {
  std::vector<fs::path> found = files_of(dir, kind, train);
  if (!found.empty()) return found;
  std::error_code ignored;
  throw FileError(kind.name, fs::is_directory(dir, ignored) ? "found no " : "there is no such folder, so no ",
                  kind.first_file(train), " in ", dir.string(), " (nor in ", kind.folder,
                  " below it); data::download_cifar", kind.classes, " gets the binary version, ",
                  kind.origin);
}

bool is_complete(const fs::path& dir, const Kind& kind) {
  return !files_of(dir, kind, true).empty() && !files_of(dir, kind, false).empty();
}

// Reads the files, or finds their contents in the shared memory under `key`: the data set's name and the
// identity (InputFile::identity) of each file.
// Errors: FileError for a file of the wrong length or a label outside [0, classes).
ImagesInMemory load(const Kind& kind, const std::vector<fs::path>& files, const Transform& transform) {
  struct Part {
    InputFile file;
    int64_t images;
  };
  const int64_t record = kind.label_bytes + kImageBytes;
  std::vector<Part> parts;
  std::string key = concat(kind.name, " interleaved");
  int64_t n = 0;
  for (const fs::path& path : files) {
    InputFile file(path, kind.name);
    const int64_t bytes = file.file_size();
    if (bytes == 0 || bytes % record != 0)
      throw FileError(kind.name, path.string(), ": is ", bytes, " bytes long, expected a multiple of ",
                      record, ", the size of a label and an image");
    key += " " + file.identity();
    n += bytes / record;
    parts.push_back({std::move(file), bytes / record});
  }

  key = sha256(key);  // Job::share takes at most 512 bytes
  // Layout: images, then labels.
  const HostTensor all = host_tensor(key, n * (kImageBytes + 1), [&](uint8_t* images) {
    uint8_t* labels = images + n * kImageBytes;
    std::vector<uint8_t> buffer(static_cast<size_t>(record));
    for (Part& part : parts) {
      for (int64_t i = 0; i < part.images; ++i) {
        if (part.file.read(buffer.data(), record) != record)
          throw FileError(kind.name, part.file.path().string(), ": is cut short: no image ", i, " of ",
                          part.images);
        const int label = buffer[static_cast<size_t>(kind.label_bytes - 1)];
        if (label >= kind.classes)
          throw FileError(kind.name, part.file.path().string(), ": label ", i, " is ", label,
                          ", expected 0 to ", kind.classes - 1);
        interleave(buffer.data() + kind.label_bytes, images);
        images += kImageBytes;
        *labels++ = static_cast<uint8_t>(label);
      }
    }
  });
  const Shape image_shape{n, 3, kSide, kSide};
  return ImagesInMemory(
      kind.name, view_as_strided(all.bytes, image_shape, channels_last_strides(image_shape), 0),
      view_as_strided(all.bytes, {n}, {1}, n * kImageBytes), kind.classes, transform, all.memory);
}

}  // namespace

CifarSet::CifarSet(const fs::path& dir, const Kind& kind, const CifarOptions& options)
    : ImagesInMemory(load(kind, find(dir, kind, options.train), options.transform)) {
  const fs::path names = find(dir, kind, options.train)[0].parent_path() / kind.class_file;
  if (!is_there(names)) return;
  classes_ = read_names(names, kind.name);
  if (static_cast<int64_t>(classes_.size()) != kind.classes)
    throw FileError(kind.name, names.string(), ": has ", classes_.size(), " names, expected ", kind.classes);
}

CIFAR10::CIFAR10(const fs::path& dir, CifarOptions options) : CifarSet(dir, kCifar10, options) {}
bool CIFAR10::available(const fs::path& dir) { return is_complete(dir, kCifar10); }

CIFAR100::CIFAR100(const fs::path& dir, CifarOptions options) : CifarSet(dir, kCifar100, options) {}
bool CIFAR100::available(const fs::path& dir) { return is_complete(dir, kCifar100); }

}  // namespace gradus::data
