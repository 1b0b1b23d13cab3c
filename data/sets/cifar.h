// CIFAR10 and CIFAR100: 32x32 color images of 10 or 100 classes, from the files of the binary version.
//
//   data::CIFAR10 train("data/cifar-10-batches-bin", {.train = true, .transform = data::Compose({...})});
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "gradus/data/sets/images_in_memory.h"
#include "gradus/data/transforms/tensor.h"

namespace gradus::data {

struct CifarOptions {
  bool train = true;                 // true: training images; false: test images
  Transform transform = ToTensor();  // applied to each image when it is read
};

namespace internal {
struct CifarKind;
}

// Base class of CIFAR10 and CIFAR100.
class CifarSet : public ImagesInMemory {
 public:
  // Returns the names of the classes, by label. Empty if the folder has no file of names.
  const std::vector<std::string>& classes() const { return classes_; }

 protected:
  CifarSet(const std::filesystem::path& dir, const internal::CifarKind& kind, const CifarOptions& options);

 private:
  std::vector<std::string> classes_;
};

// 50,000 training and 10,000 test images of 10 classes (Krizhevsky 2009).
class CIFAR10 : public CifarSet {
 public:
  // Reads data_batch_1.bin, data_batch_2.bin, ... (as many as exist) or test_batch.bin, and the class names in
  // batches.meta.txt, from `dir` or `dir`/cifar-10-batches-bin. Files may contain any number of images.
  // Errors: FileError if a file is malformed or there is none; the error lists the searched folders.
  explicit CIFAR10(const std::filesystem::path& dir, CifarOptions options = {});
  // Returns whether the files of training and test images exist.
  static bool available(const std::filesystem::path& dir);
};

// 50,000 training and 10,000 test images of 100 classes. Each class belongs to one of 20 coarse classes.
class CIFAR100 : public CifarSet {
 public:
  // Reads train.bin or test.bin, and fine_label_names.txt, from `dir` or `dir`/cifar-100-binary. Labels are the
  // fine labels.
  // Errors: as CIFAR10.
  explicit CIFAR100(const std::filesystem::path& dir, CifarOptions options = {});
  static bool available(const std::filesystem::path& dir);
};

}  // namespace gradus::data
