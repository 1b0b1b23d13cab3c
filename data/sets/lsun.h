// LSUN (Yu et al. 2015): scenes by category in LMDB databases, as torchvision.datasets.LSUN.
//   DIR/bedroom_train_lmdb/data.mdb, DIR/bridge_train_lmdb/data.mdb, ...: the values are encoded images
//
//   data::LSUN bedrooms("lsun", {.classes = {"bedroom_train"}, .transform = square});
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gradus/data/images/image_decoder.h"
#include "gradus/data/sets/image_dataset.h"
#include "gradus/data/transforms/tensor.h"

namespace gradus::data {

// "bedroom", "bridge", "church_outdoor", ..., "tower".
const std::vector<std::string>& lsun_categories();

struct LSUNOptions {
  // Class i is the database DIR/NAME_lmdb. {"train"} and {"val"} are those of all categories; {"test"} is one class.
  std::vector<std::string> classes = {"train"};
  Transform transform = ToTensor();
  DecodeOptions decode = {};
};

// A sample is an image, and the number of its class. The samples of a class are in the order of its keys. Copies share
// the databases, which are mapped read-only, without locks: a process must not write them at the same time.
class LSUN : public ImageDataset {
 public:
  // Reads the keys, about 50 bytes of memory for each image.
  // Errors: ValueError for no classes; FileError for a database that is missing, truncated, empty or in another version
  // of the format. The header and the file's size are checked. LMDB does not check what the other pages
  // hold: a file that was damaged behind its header can end the process, so read files from a trusted source.
  explicit LSUN(const std::filesystem::path& dir, const LSUNOptions& options = {});

  std::string name() const override { return "LSUN"; }
  int64_t size() const override { return ends_.back(); }
  Image image(int64_t index) const override;
  int64_t label(int64_t index) const override;
  std::string key(int64_t index) const;
  const std::vector<std::string>& classes() const { return classes_; }

 private:
  class Database;
  const Database& database_of(int64_t index) const { return *databases_[size_t(label(index))]; }
  int64_t index_in_class(int64_t index) const;

  DecodeOptions decode_;
  std::vector<std::string> classes_;
  std::vector<std::shared_ptr<const Database>> databases_;
  std::vector<int64_t> ends_;  // of the classes
};

}  // namespace gradus::data
