#include "gradus/data/mnist.h"

#include <string>
#include <system_error>
#include <vector>

#include "gradus/data/idx.h"

namespace gradus::data {
namespace {

namespace fs = std::filesystem;

struct Kind {
  const char* name;  // as errors call it, and of the folder that other tools keep it in
  Normalization normalization;
  const char* origin;  // where to get the files
};

const Kind& mnist() {
  static const Kind kind{"MNIST",
                         {{0.1307f}, {0.3081f}},
                         "https://ossci-datasets.s3.amazonaws.com/mnist/ or "
                         "https://storage.googleapis.com/cvdf-datasets/mnist/"};
  return kind;
}

const Kind& fashion_mnist() {
  static const Kind kind{
      "FashionMNIST", {{0.2860f}, {0.3530f}}, "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"};
  return kind;
}

std::vector<fs::path> folders(const fs::path& dir, const Kind& kind) {
  return {dir, dir / kind.name / "raw", dir / "raw"};
}

// `stem` is "train-images", `rank` the 3 of idx3. Both spellings of the name are in circulation.
std::vector<std::string> names(const std::string& stem, int rank) {
  const std::string ending = concat("idx", rank, "-ubyte");
  return {stem + "-" + ending, stem + "-" + ending + ".gz", stem + "." + ending, stem + "." + ending + ".gz"};
}

// Returns the file, or an empty path.
fs::path find(const fs::path& dir, const Kind& kind, const std::string& stem, int rank) {
  for (const fs::path& folder : folders(dir, kind)) {
    for (const std::string& name : names(stem, rank)) {
      std::error_code ignored;
      if (fs::exists(folder / name, ignored)) return folder / name;
    }
  }
  return {};
}

Tensor read(const fs::path& dir, const Kind& kind, const std::string& stem, int rank) {
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
  Tensor x = read_idx(path, {.max_bytes = kMaxBytes});
  const bool fits =
      x.dtype() == DType::kU8 && x.dim() == rank && (rank == 1 || (x.size(1) == 28 && x.size(2) == 28));
  if (!fits)
    throw FileError(kind.name, path.string(), ": expected ",
                    rank == 3 ? "images u8[N,28,28]" : "labels u8[N]", ", found ", name_of(x.dtype()),
                    x.shape());
  if (rank == 1) {
    for (int64_t i = 0; i < x.numel(); ++i) {
      if (x.ptr<uint8_t>()[i] > 9)
        throw FileError(kind.name, path.string(), ": label ", i, " is ", int(x.ptr<uint8_t>()[i]),
                        ", expected 0 to 9");
    }
  }
  return x;
}

ImageSet load(const fs::path& dir, const Kind& kind, MnistOptions options) {
  const std::string part = options.train ? "train" : "t10k";
  const Tensor images = read(dir, kind, part + "-images", 3);
  const Tensor labels = read(dir, kind, part + "-labels", 1);
  if (images.size(0) != labels.size(0) || images.size(0) == 0)
    throw FileError(kind.name, dir.string(), ": ", part, "-images has ", images.size(0), " images, but ",
                    part, "-labels has ", labels.size(0), " labels; expected as many, and at least one");
  const Shape shape{images.size(0), 1, 28, 28};
  return ImageSet(kind.name, view_as_strided(images, shape, row_major_strides(shape), 0), labels, 10,
                  options.normalize ? kind.normalization : Normalization{});
}

bool all_there(const fs::path& dir, const Kind& kind) {
  for (const char* part : {"train", "t10k"}) {
    if (find(dir, kind, std::string(part) + "-images", 3).empty()) return false;
    if (find(dir, kind, std::string(part) + "-labels", 1).empty()) return false;
  }
  return true;
}

}  // namespace

MNIST::MNIST(const fs::path& dir, MnistOptions options) : ImageSet(load(dir, mnist(), options)) {}
bool MNIST::available(const fs::path& dir) { return all_there(dir, mnist()); }

FashionMNIST::FashionMNIST(const fs::path& dir, MnistOptions options)
    : ImageSet(load(dir, fashion_mnist(), options)) {}
bool FashionMNIST::available(const fs::path& dir) { return all_there(dir, fashion_mnist()); }

}  // namespace gradus::data
