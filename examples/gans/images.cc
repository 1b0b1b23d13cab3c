// Selects the data set and composes the transforms to the requested size and to [-1,1].
#include "gradus/examples/gans/images.h"

#include <filesystem>

namespace gradus::examples {
namespace {

namespace fs = std::filesystem;

// Returns the transform from an image of native x native pixels (0: any) to f32[C,size,size] in [-1,1].
data::Transform transform(const ImagesOptions& o, int64_t size, int64_t native) {
  std::vector<data::Transform> steps;
  if (native == 28 && size == 32)
    steps.emplace_back(data::Pad({.padding = 2}));
  else if (size != native)
    steps.emplace_back(data::Resize({.size = size})), steps.emplace_back(data::CenterCrop({.size = size}));
  if (o.flip) steps.emplace_back(data::RandomHorizontalFlip());
  steps.emplace_back(data::ToTensor());
  steps.emplace_back(data::Normalize({.mean = {0.5}, .std = {0.5}}));
  return data::Compose(steps);
}

bool has_folders(const fs::path& dir) {
  for (const fs::directory_entry& entry : fs::directory_iterator(dir))
    if (entry.is_directory()) return true;
  return false;
}

bool is_image(const fs::path& file) {
  std::string ending = file.extension().string();
  for (char& c : ending) c = char(std::tolower(static_cast<unsigned char>(c)));
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

// Returns the images of a folder without subfolders, sorted by path.
data::ImageFiles flat_folder(const fs::path& dir, const data::ImageFilesOptions& options) {
  std::vector<data::ImageFile> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir))
    if (is_image(entry.path())) files.push_back({.path = entry.path()});
  if (files.empty())
    throw FileError(
        "gan", dir.string(),
        ": expected the files of MNIST or of CIFAR-10, or images (.jpg, .jpeg, .png), found none");
  std::ranges::sort(files, {}, &data::ImageFile::path);
  return data::ImageFiles(files, options);
}

// Returns the images of a folder, whose subfolders are classes.
Images image_folder(const ImagesOptions& o) {
  const int64_t size = o.size ? o.size : 64;
  const data::Transform steps = transform(o, size, 0);
  const data::OnError on_error = o.on_error_skip ? data::OnError::kSkip : data::OnError::kThrow;
  if (!has_folders(o.dir))
    return {.set = flat_folder(o.dir, {.transform = steps, .on_error = on_error}),
            .kind = "ImageFolder",
            .size = size,
            .channels = 3,
            .classes = 0};
  data::ImageFolder folder(o.dir, {.transform = steps, .on_error = on_error, .allow_empty = true});
  const auto classes = int64_t(folder.classes().size());
  return {.set = std::move(folder), .kind = "ImageFolder", .size = size, .channels = 3, .classes = classes};
}

}  // namespace

Images open_images(const ImagesOptions& o) {
  if (o.size != 0 && o.size < 4) throw ValueError("gan", "expected images of 4 pixels or more, got ", o.size);
  const int64_t size = o.size ? o.size : 32;
  if (o.dir.empty())
    return {.set = data::GeneratedDigits({.train = o.train, .transform = transform(o, size, 28)}),
            .kind = "GeneratedDigits",
            .size = size,
            .channels = 1,
            .classes = 10};
  if (data::MNIST::available(o.dir))
    return {.set = data::MNIST(o.dir, {.train = o.train, .transform = transform(o, size, 28)}),
            .kind = "MNIST",
            .size = size,
            .channels = 1,
            .classes = 10};
  if (data::CIFAR10::available(o.dir))
    return {.set = data::CIFAR10(o.dir, {.train = o.train, .transform = transform(o, size, 32)}),
            .kind = "CIFAR10",
            .size = size,
            .channels = 3,
            .classes = 10};
  if (std::error_code error; !fs::is_directory(o.dir, error))
    throw FileError("gan", o.dir, ": expected a folder", error ? ": " + error.message() : "");
  return image_folder(o);
}

}  // namespace gradus::examples
