// Opens images to train on or to compare with: generated digits, MNIST, CIFAR-10 or image files, depending on
// the content of a folder.
#pragma once

#include <optional>
#include <string>

#include "gradus/gradus.h"

namespace gradus::examples {

struct ImagesOptions {
  std::string dir;             // "": generated digits
  bool train = true;           // else the test images, if the set has any
  int64_t size = 0;            // of the images; 0: the native size, or 64 for image files
  bool flip = false;           // random horizontal flips
  bool on_error_skip = false;  // skip unreadable files
};

// Images f32[channels,size,size] with values in [-1,1].
struct Images {
  data::DatasetRef set;  // with labels if classes > 0
  std::string kind;      // "MNIST", "CIFAR10", "GeneratedDigits" or "ImageFolder"
  int64_t size, channels, classes;
};

// Digits of 28x28 pixels are padded to 32. For other sizes images are resized, and cropped at the longer
// side. The subfolders of a folder are its classes.
// Errors: FileError for a folder without images; ValueError for a size below 4.
Images open_images(const ImagesOptions& options);

}  // namespace gradus::examples
