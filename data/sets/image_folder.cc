// ImageFolder lists root/<class>/**/<image>: the folders of the root, sorted by name, are the labels 0, 1,
// ..., and the image files below each are its samples, ordered by folder, then name (as torchvision). The
// walk is depth first, follows symbolic links, and rejects cycles. Only names are read here; the base class
// ImageFiles decodes.
#include "gradus/data/sets/image_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace gradus::data {
namespace {
namespace fs = std::filesystem;

constexpr const char* kOp = "ImageFolder";

struct Folder {
  fs::path path;
  std::vector<std::string> files;  // names of the samples
};

// Identifies a file independently of its path.
using FileId = std::pair<dev_t, ino_t>;

FileId id_of(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    throw FileError(kOp, path.string(), ": cannot be listed: ", std::strerror(errno));
  return {info.st_dev, info.st_ino};
}

bool ends_with_any(std::string name, const std::vector<std::string>& endings) {
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::any_of(endings.begin(), endings.end(), [&](const std::string& e) { return name.ends_with(e); });
}

// Calls f(entry) for each entry of a folder, in any order.
template <class F> void for_each_in(const fs::path& folder, F&& f) {
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) f(*it);
  if (error) throw FileError(kOp, folder.string(), ": cannot be listed: ", error.message());
}

// A broken link counts as a file; reading the sample reports the error.
bool is_folder(const fs::directory_entry& entry) {
  std::error_code ignored;
  return entry.is_directory(ignored);
}

class FolderWalk {
 public:
  explicit FolderWalk(const std::vector<std::string>& extensions)
      : extensions_(extensions.empty() ? std::vector<std::string>{".jpg", ".jpeg", ".png", ".webp"}
                                       : extensions),
        refuses_others_(extensions.empty()) {}

  // Returns the folders below a class folder that contain images, sorted.
  std::vector<Folder> folders(const fs::path& root) {
    found_.clear();
    descend(root);
    std::sort(found_.begin(), found_.end(),
              [](const Folder& a, const Folder& b) { return a.path.native() < b.path.native(); });
    return std::move(found_);
  }

  std::string extensions() const {
    std::string text;
    for (const std::string& e : extensions_) text += (text.empty() ? "" : ", ") + e;
    return text;
  }

 private:
  void descend(const fs::path& path) {
    // Symbolic links can multiply the number of folders exponentially with depth.
    constexpr int64_t kMaxFolders = 1'000'000;
    if (++visited_ > kMaxFolders)
      throw FileError(kOp, path.string(), ": comes after ", kMaxFolders, " other folders, the limit");
    const FileId id = id_of(path);
    if (std::find(above_.begin(), above_.end(), id) != above_.end())
      throw FileError(kOp, path.string(), ": leads back to a folder above it");
    above_.push_back(id);
    Folder folder{path, {}};
    std::vector<fs::path> below;
    for_each_in(path, [&](const fs::directory_entry& entry) {
      if (is_folder(entry)) {
        below.push_back(entry.path());
      } else {
        add(entry.path(), folder);
      }
    });
    std::sort(folder.files.begin(), folder.files.end());
    if (!folder.files.empty()) found_.push_back(std::move(folder));
    for (const fs::path& next : below) descend(next);
    above_.pop_back();
  }

  void add(const fs::path& path, Folder& folder) const {
    static const std::vector<std::string> kNotRead = {".ppm", ".bmp", ".pgm", ".tif", ".tiff"};
    std::string name = path.filename().native();
    if (ends_with_any(name, extensions_)) {
      folder.files.push_back(std::move(name));
    } else if (refuses_others_ && ends_with_any(name, kNotRead)) {
      throw FileError(kOp, path.string(),
                      ": only JPEG, PNG and WebP files are read; name .extensions to leave ", "out others");
    }
  }

  const std::vector<std::string> extensions_;
  const bool refuses_others_;
  int64_t visited_ = 0;
  std::vector<FileId> above_;
  std::vector<Folder> found_;
};

std::vector<std::string> class_names(const fs::path& root) {
  std::error_code ignored;
  if (!fs::is_directory(root, ignored)) throw FileError(kOp, root.string(), ": there is no such folder");
  std::vector<std::string> names;
  for_each_in(root, [&](const fs::directory_entry& entry) {
    if (is_folder(entry)) names.push_back(entry.path().filename().native());
  });
  if (names.empty()) throw FileError(kOp, root.string(), ": has no folders, expected one for each class");
  std::sort(names.begin(), names.end());
  return names;
}

// Returns "cat, dog and 3 more".
std::string abbreviate(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) text += (i ? ", " : "") + names[i];
  return names.size() > kShown ? concat(text, " and ", names.size() - kShown, " more") : text;
}

ImageFilesOptions files_options(const ImageFolderOptions& options) {
  return {options.transform, options.decode, options.on_error, options.check};
}

}  // namespace

struct ImageFolder::Listing {
  std::vector<std::string> classes;
  internal::FileList files;
};

ImageFolder::Listing ImageFolder::list(const fs::path& root, const ImageFolderOptions& options) {
  Listing listing{class_names(root), {}};
  FolderWalk walk(options.extensions);
  std::vector<std::string> empty;
  for (size_t label = 0; label < listing.classes.size(); ++label) {
    const std::vector<Folder> folders = walk.folders(root / listing.classes[label]);
    if (folders.empty()) empty.push_back(listing.classes[label]);
    for (const Folder& folder : folders) {
      const int32_t number = listing.files.add_folder(folder.path);
      for (const std::string& name : folder.files)
        listing.files.add(number, name, static_cast<int64_t>(label));
    }
  }
  if ((!empty.empty() && !options.allow_empty) || listing.files.size() == 0)
    throw FileError(kOp, root.string(), ": no images (", walk.extensions(), ") for ", empty.size(), " of ",
                    listing.classes.size(), " classes: ", abbreviate(empty));
  return listing;
}

ImageFolder::ImageFolder(const fs::path& root, const ImageFolderOptions& options)
    : ImageFolder(list(root, options), options) {}

ImageFolder::ImageFolder(Listing listing, const ImageFolderOptions& options)
    : ImageFiles(kOp, std::move(listing.files), files_options(options)),
      classes_(std::move(listing.classes)) {
  for (size_t i = 0; i < classes_.size(); ++i) class_to_idx_[classes_[i]] = static_cast<int64_t>(i);
}

}  // namespace gradus::data
