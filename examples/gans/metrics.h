// ImageMetrics: compares generated images with reference images by a list of metrics. The features of the
// reference images are computed once.
#pragma once

#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradus/examples/gans/seen_images.h"

namespace gradus::examples {

// The help text of the names and their limits.
extern const char* const kMetricsHelp;

// Returns the names of a list as "frechet,swd".
// Errors: ValueError for an unknown, empty or repeated name.
std::vector<std::string> metric_names(const std::string& list);
// Returns the Figure::name of the first metric's value by which checkpoints are compared ("score" of
// "scores"), and whether lower is better; nothing if the metric has no better direction, or without metrics.
std::optional<std::pair<std::string, bool>> compared_by(const std::vector<std::string>& names);

// One value of a metric.
struct Figure {
  std::string name;  // "frechet", "swd_32"
  double value = 0;
  int64_t n = 0;                     // generated images
  double floor = std::nan("");       // the value that real training images have; NaN: undefined
  std::string features_sha256 = {};  // of the network's weights; "": none
};
// Returns "frechet 43.532  (n 2000, averaged weights, floor 3.492, features 0c30756689661f8b)".
std::string text_of(const Figure& figure, const std::string& mode = "");

struct ImageMetricsOptions {
  std::vector<std::string> names;
  ImagesOptions images;                   // the reference: its test images
  int64_t n = 0;                          // images to compare
  std::filesystem::path classifier = {};  // its weights; "": those in the cache folder
  // Computes features in place of the classifier; null: the classifier.
  std::shared_ptr<const ImageFeatures> features = {};
};

class ImageMetrics {
 public:
  // Computes the features of up to n test images, the reference, and up to n training images, for the floors.
  // Of image files, which have no such split, a random half stands for each. Collective.
  // Errors: as Classifier, if a metric needs it; ShapeError, ValueError for images that a metric does not
  // take, or too few images; ValueError if ranks have different weights.
  explicit ImageMetrics(ImageMetricsOptions options);

  // Compares images with the reference. The first rank computes, and broadcasts the values. Collective.
  // Errors: as the metrics, on the first rank.
  std::vector<Figure> operator()(const ImageSource& generated) const;
  // Returns the metrics with their floors, without values.
  const std::vector<Figure>& floors() const { return floors_; }
  const std::string& kind() const { return kind_; }  // of the images: Images::kind

 private:
  ClassifiedImages classify(const ImageSource& source) const;
  std::vector<Figure> measure(const ClassifiedImages& seen) const;

  ImageMetricsOptions options_;
  std::string kind_;
  std::shared_ptr<const ImageFeatures> network_;  // null: no metric needs one
  ClassifiedImages reference_;
  std::vector<Figure> floors_;
};

}  // namespace gradus::examples
