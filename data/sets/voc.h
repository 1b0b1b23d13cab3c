// Pascal VOC (Everingham et al. 2010): images with masks of classes or with boxes of objects, as
// torchvision.datasets.VOCSegmentation and VOCDetection. Also for other data sets in this layout:
//   DIR/ImageSets/Segmentation/train.txt, DIR/ImageSets/Main/train.txt: names of images, one in a line
//   DIR/JPEGImages/NAME.jpg, DIR/SegmentationClass/NAME.png, DIR/Annotations/NAME.xml
//
//   data::SegmentationFiles train(data::voc_segmentation("VOCdevkit/VOC2012", "train"), {.transform = augment});
//   data::VOCDetection boxes("VOCdevkit/VOC2012", "trainval", {.max_objects = 50});
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gradus/data/dataset.h"
#include "gradus/data/sets/image_files.h"
#include "gradus/data/sets/segmentation_files.h"

namespace gradus::data {

// "background", "aeroplane", ..., "tvmonitor": the names of the values 0 to 20 of masks. 255 marks borders.
const std::vector<std::string>& voc_classes();

// Returns the pairs of a list in DIR/ImageSets/Segmentation.
// Errors: FileError for a list that is missing, empty or malformed.
std::vector<SegmentationFile> voc_segmentation(const std::filesystem::path& dir,
                                               const std::string& image_set);

struct VocObject {
  std::string name;                                   // of the class
  double x_min = 0, y_min = 0, x_max = 0, y_max = 0;  // pixels, from 1 in Pascal VOC
  bool difficult = false, truncated = false;
};

// Reads the objects of an annotation, in the order of the file: annotation/object/{name, bndbox, difficult,
// truncated}. Other elements are ignored.
// Errors: FileError for a file that is missing, not such an XML file, or larger than 1 MiB; for an object without
// a name or a box, and for a box whose numbers are negative, not finite or not ascending.
std::vector<VocObject> read_voc_annotation(const std::filesystem::path& file);

struct VocDetectionOptions {
  ImageFilesOptions files = {};  // its transform changes the image, not the boxes
  std::vector<std::string> classes = voc_classes();
  int64_t max_objects = 64;
};

// A sample is a transformed image, and its objects f32[max_objects,6]: x_min, y_min, x_max, y_max, class (the index
// in `classes`), difficult (0 or 1). Rows after the last object are -1.
class VOCDetection : public Dataset {
 public:
  // Reads a list in DIR/ImageSets/Main and its annotations.
  // Errors: FileError for a list or an annotation that is missing or malformed, for a class that is not in
  // `classes`, and for more than `max_objects` objects; ValueError for max_objects outside of [1, 2^20]; those of ImageFiles.
  VOCDetection(const std::filesystem::path& dir, const std::string& image_set,
               const VocDetectionOptions& options = {});

  std::string name() const override { return "VOCDetection"; }
  int64_t size() const override { return files_.size(); }
  Sample get(int64_t index) const override;
  const ImageFiles& files() const { return files_; }

 private:
  using Row = std::array<float, 6>;

  ImageFiles files_;
  std::vector<std::vector<Row>> objects_;  // by label in files_
  int64_t max_objects_;
};

}  // namespace gradus::data
