// MNIST and FashionMNIST: 60,000 training and 10,000 test images, 28x28, ten classes, from IDX files.
//
//   data::MNIST train("data/mnist", {.train = true});
#pragma once

#include <filesystem>
#include <optional>

#include "gradus/data/sets/images_in_memory.h"
#include "gradus/data/transforms/tensor.h"

namespace gradus::data {

struct MnistOptions {
  bool train = true;  // true: training images; false: test images
  // Applied to each image when it is read. Default: ToTensor, then Normalize to mean 0 and standard deviation 1
  // over the training images.
  std::optional<Transform> transform = {};
};

// Handwritten digits (LeCun, Cortes, Burges). Normalizes with mean 0.1307 and std 0.3081.
class MNIST : public ImagesInMemory {
 public:
  // Reads train-images-idx3-ubyte and train-labels-idx1-ubyte (t10k-... for the test images; also with .idx
  // instead of -idx), each plain or with .gz, from `dir`, `dir`/MNIST/raw or `dir`/raw.
  // Errors: FileError if a file is missing (lists the searched folders and a source) or malformed.
  explicit MNIST(const std::filesystem::path& dir, MnistOptions options = {});
  // Returns whether the files of all training and test images exist.
  static bool available(const std::filesystem::path& dir);
};

// Zalando's article images (Xiao, Rasul, Vollgraf 2017), in MNIST's format. Normalizes with mean 0.2860
// and std 0.3530.
class FashionMNIST : public ImagesInMemory {
 public:
  // Reads the same files as MNIST, from `dir`, `dir`/FashionMNIST/raw or `dir`/raw.
  explicit FashionMNIST(const std::filesystem::path& dir, MnistOptions options = {});
  static bool available(const std::filesystem::path& dir);
};

}  // namespace gradus::data
