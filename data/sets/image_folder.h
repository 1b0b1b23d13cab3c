// ImageFolder: images in one folder per class, as torchvision's.
//
//   data::ImageFolder train("imagenet/train", {.transform = augment});
//   train.classes()[train.label(0)];  // the name of the first image's folder
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gradus/data/sets/image_files.h"

namespace gradus::data {

struct ImageFolderOptions {
  // As in ImageFilesOptions.
  Transform transform = ToTensor();
  DecodeOptions decode = {};
  OnError on_error = OnError::kThrow;
  Check check = Check::kNothing;
  // File name extensions of samples, in lower case; compared without regard to case. Default: .jpg, .jpeg,
  // .png and .webp; files of other types that torchvision reads are then an error instead of being ignored.
  std::vector<std::string> extensions = {};
  bool allow_empty = false;  // allow classes without images
};

class ImageFolder : public ImageFiles {
 public:
  // Lists `root`. Its folders, sorted by name, are the classes 0, 1, ... All files below a class folder are its
  // samples, in torchvision's order: by class, folder, name. Symbolic links are followed.
  // Errors: FileError for a folder that cannot be listed, a cycle of links, a root without folders, or classes
  // without images; and as ImageFiles.
  explicit ImageFolder(const std::filesystem::path& root, const ImageFolderOptions& options = {});

  const std::vector<std::string>& classes() const { return classes_; }
  const std::map<std::string, int64_t>& class_to_idx() const { return class_to_idx_; }

 private:
  struct Listing;
  static Listing list(const std::filesystem::path& root, const ImageFolderOptions& options);
  ImageFolder(Listing listing, const ImageFolderOptions& options);

  std::vector<std::string> classes_;
  std::map<std::string, int64_t> class_to_idx_;
};

}  // namespace gradus::data
