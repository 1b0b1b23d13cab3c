// CelebA: 202,599 aligned images of faces, 178x218, with 40 attributes (Liu, Luo, Wang, Tang 2015), as
// torchvision.datasets.CelebA.
//
//   data::CelebA train("data/celeba", {.transform = data::Compose({data::CenterCrop({.size = 178}), data::Resize({.size = 64}),
//                                                                  data::ToTensor()})});
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "gradus/data/sets/image_files.h"

namespace gradus::data {

struct CelebaOptions {
  std::string split = "train";  // "train", "valid", "test" or "all"
  ImageFilesOptions files = {};
};

// A sample is a transformed image, and its attributes i64[40], 0 or 1.
class CelebA : public Dataset {
 public:
  // Reads list_attr_celeba.txt and list_eval_partition.txt of `dir`, or else of `dir`/celeba. The images are in
  // img_align_celeba beside them.
  // Errors: FileError for a list that is missing or malformed; ValueError for an unknown split, and for one without
  // images; those of ImageFiles.
  explicit CelebA(const std::filesystem::path& dir, const CelebaOptions& options = {});

  std::string name() const override { return "CelebA"; }
  int64_t size() const override { return files_.size(); }
  Sample get(int64_t index) const override;
  Batch get_batch(std::span<const int64_t> indices) const override;

  const ImageFiles& files() const { return files_; }
  const std::vector<std::string>& attribute_names() const { return lists_.names; }
  // Returns the column of an attribute, such as "Smiling": target[column].
  // Errors: ValueError.
  int64_t attribute(const std::string& name) const;

 private:
  struct Lists {
    std::vector<std::string> names;
    std::vector<ImageFile> images;     // of the split; the label is the row of `values`
    std::vector<uint8_t> values = {};  // [images, attributes], 0 or 1
  };
  CelebA(Lists lists, const CelebaOptions& options);
  static Lists read_lists(const std::filesystem::path& dir, const std::string& split);
  // Replaces rows of `values` by the values.
  // Shapes: i64[...] -> i64[...,40].
  Tensor attributes(const Tensor& rows) const;

  Lists lists_;
  ImageFiles files_;
};

}  // namespace gradus::data
