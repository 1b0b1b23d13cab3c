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
  // Endings of files' names, in small letters, that make them samples; case does not matter. By default .jpg,
  // .jpeg and .png, and other kinds that torchvision reads are then an error rather than left out.
  std::vector<std::string> extensions = {};
  bool allow_empty = false;  // classes without images
};

class ImageFolder : public ImageFiles {
 public:
  // Lists `root`: its folders, sorted by name, are the classes 0, 1, ...; files in them and in folders
  // below are the samples, sorted by class, then by folder, then by name. Links are followed. The
  // order is torchvision's.
  // Errors: FileError naming what cannot be listed, a link that leads back to a folder above it, a root
  // without folders, classes without images, and as ImageFiles.
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
