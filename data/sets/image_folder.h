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
  // Name endings of the files that are samples, in small letters. The case of the files' names does not
  // matter. By default .jpg, .jpeg and .png. Other kinds of files that torchvision reads are then an error,
  // rather than left out.
  std::vector<std::string> extensions = {};
  bool allow_empty = false;  // classes without images
};

class ImageFolder : public ImageFiles {
 public:
  // Lists `root`. Its folders, sorted by name, are the classes 0, 1, ... The files in them and in folders
  // below are the samples, sorted by class, then by folder, then by name. This is torchvision's order.
  // Links are followed.
  // Errors: FileError naming what cannot be listed, a link that leads back to a folder above it, a root
  // without folders, or classes without images; and as ImageFiles.
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
