// MNIST and FashionMNIST: finds the IDX files of images and labels, checks their shapes and labels, and reads
// them into memory that all ranks of a host share (host_tensor).
#include "gradus/data/sets/mnist.h"

#include <string>
#include <system_error>
#include <vector>

#include "gradus/data/files/idx.h"

namespace gradus::data {
namespace {
namespace fs = std::filesystem;

struct Kind {
  const char* name;    // name in errors, and of torchvision's folder
  double mean, std;    // of the training images
  const char* origin;  // source of the files, for errors
};

constexpr Kind kMnist{"MNIST", 0.1307, 0.3081,
                      "https://ossci-datasets.s3.amazonaws.com/mnist/ or "
                      "https://storage.googleapis.com/cvdf-datasets/mnist/"};
constexpr Kind kFashionMnist{"FashionMNIST", 0.2860, 0.3530,
                             "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"};

std::vector<fs::path> folders(const fs::path& dir, const Kind& kind) {
  return {dir, dir / kind.name / "raw", dir / "raw"};
}

// Returns the names under which a file is distributed, such as "train-images-idx3-ubyte" and
// "train-images.idx3-ubyte.gz" for the stem "train-images" and the rank (number of dimensions) 3.
std::vector<std::string> names(const std::string& stem, int rank) {
  const std::string ending = concat("idx", rank, "-ubyte");
  return {stem + "-" + ending, stem + "-" + ending + ".gz", stem + "." + ending, stem + "." + ending + ".gz"};
}

// Returns the path of the file; empty if it does not exist.
fs::path find(const fs::path& dir, const Kind& kind, const std::string& stem, int rank) {
  for (const fs::path& folder : folders(dir, kind)) {
    for (const std::string& name : names(stem, rank)) {
      std::error_code ignored;
      if (fs::exists(folder / name, ignored)) return folder / name;
    }
  }
  return {};
}

// Finds and opens a file of the set, and checks its header.
IdxFile open(const fs::path& dir, const Kind& kind, const std::string& stem, int rank) {
  const fs::path path = find(dir, kind, stem, rank);
  if (path.empty()) {
    const auto candidates = names(stem, rank);
    std::error_code ignored;
    throw FileError(
        kind.name, fs::is_directory(dir, ignored) ? "found no " : "there is no such folder, so no ",
        candidates[0], " or ", candidates[1], " in ", dir.string(), " (nor in ", kind.name,
        "/raw or raw below it); get the files from ", kind.origin, " (data::download_mnist does)");
  }
  constexpr int64_t kMaxBytes = int64_t{1} << 30;
  IdxFile file(path, {.max_bytes = kMaxBytes});
  const Shape& shape = file.shape();
  const bool fits =
      file.dtype() == DType::kU8 && shape.size() == rank && (rank == 1 || (shape[1] == 28 && shape[2] == 28));
  if (!fits)
    throw FileError(kind.name, path.string(), ": expected ",
                    rank == 3 ? "images u8[N,28,28]" : "labels u8[N]", ", found ", name_of(file.dtype()),
                    shape);
  return file;
}

// Returns the file's bytes. Checks labels (files of rank 1).
HostTensor read(IdxFile& file, const Kind& kind) {
  return host_tensor(file.identity(), file.bytes(), [&](uint8_t* out) {
    file.read(out);
    if (file.shape().size() != 1) return;
    for (int64_t i = 0; i < file.bytes(); ++i)
      if (out[i] > 9)
        throw FileError(kind.name, file.path().string(), ": label ", i, " is ", int(out[i]),
                        ", expected 0 to 9");
  });
}

ImagesInMemory load(const fs::path& dir, const Kind& kind, const MnistOptions& options) {
  const std::string part = options.train ? "train" : "t10k";
  IdxFile image_file = open(dir, kind, part + "-images", 3),
          label_file = open(dir, kind, part + "-labels", 1);
  const int64_t n = image_file.shape()[0], m = label_file.shape()[0];
  if (n != m || n == 0)
    throw FileError(kind.name, dir.string(), ": ", part, "-images has ", n, " images, but ", part,
                    "-labels has ", m, " labels; expected as many, and at least one");
  const HostTensor images = read(image_file, kind), labels = read(label_file, kind);
  const Shape shape{n, 1, 28, 28};
  const Compose normalized({ToTensor(), Normalize({.mean = {kind.mean}, .std = {kind.std}})});
  return ImagesInMemory(kind.name, view_as_strided(images.bytes, shape, row_major_strides(shape), 0),
                        labels.bytes, 10, options.transform.value_or(normalized),
                        MemoryUse{.own = images.memory.own + labels.memory.own,
                                  .shared = images.memory.shared + labels.memory.shared});
}

bool all_there(const fs::path& dir, const Kind& kind) {
  for (const char* part : {"train", "t10k"}) {
    if (find(dir, kind, std::string(part) + "-images", 3).empty()) return false;
    if (find(dir, kind, std::string(part) + "-labels", 1).empty()) return false;
  }
  return true;
}

}  // namespace

MNIST::MNIST(const fs::path& dir, MnistOptions options) : ImagesInMemory(load(dir, kMnist, options)) {}
bool MNIST::available(const fs::path& dir) { return all_there(dir, kMnist); }

FashionMNIST::FashionMNIST(const fs::path& dir, MnistOptions options)
    : ImagesInMemory(load(dir, kFashionMnist, options)) {}
bool FashionMNIST::available(const fs::path& dir) { return all_there(dir, kFashionMnist); }

}  // namespace gradus::data
