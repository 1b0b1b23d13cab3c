// Images to train on: MNIST, CIFAR-10 or a folder of images, whichever a folder holds.
#pragma once

#include <optional>
#include <string>

#include "gradus/gradus.h"

namespace gradus::examples {

struct ImagesOptions {
  std::string dir;             // "": generated digits
  bool train = true;           // else the test images, where there are any
  int64_t size = 0;            // of the images; 0: what the data have, or 64 for a folder of images
  bool flip = false;           // left and right, at random
  bool on_error_skip = false;  // of files that cannot be read
};

// Height and width are equal, values lie in [-1,1].
struct Images {
  data::DatasetRef set;
  std::string kind;  // "MNIST", "CIFAR10", "GeneratedDigits" or "ImageFolder"
  int64_t size, channels, classes;
};

// Digits of 28x28 pixels get two pixels of background on each side to have 32. For other sizes images are
// resized, and cut at the longer side. A folder's own folders are its classes.
// Errors: FileError for a folder that holds none of these; ValueError for a size below 4.
Images open_images(const ImagesOptions& options);

}  // namespace gradus::examples
