// ImageMetrics: how good generated images are, by the numbers of a list. The reference images are
// looked at once.
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

// What --help says of the names and of their bounds.
extern const char* const kMetricsHelp;

// Returns the names of a list as "frechet,swd".
// Errors: ValueError for a name that is none, or that occurs twice.
std::vector<std::string> metric_names(const std::string& list);
// Returns the number by which the metrics of a list are compared, its first, and whether lower is better;
// nothing where it does not say which images are better.
std::optional<std::pair<std::string, bool>> compared_by(const std::vector<std::string>& names);

struct Figure {
  std::string name;  // "frechet", "swd_32"
  double value = 0;
  int64_t n = 0;                     // generated images that it is of
  double floor = std::nan("");       // the same of training images; NaN where it makes no sense
  std::string features_sha256 = {};  // of the classifier; "" where there is none
};
// Returns "frechet 43.532  (n 2000, averaged weights, floor 3.492, features 0c30756689661f8b)".
std::string text_of(const Figure& figure, const std::string& mode = "");

struct ImageMetricsOptions {
  std::vector<std::string> names;
  ImagesOptions images;                   // the reference: its test images
  int64_t n = 0;                          // images to compare
  std::filesystem::path classifier = {};  // its weights; "": those in the cache folder
};

class ImageMetrics {
 public:
  // Looks at as many test images and training images. A folder of images has no test images: half of them
  // stand for them, and the others for training images. Collective.
  // Errors: as Classifier, if a metric needs it; ShapeError, ValueError for images that a metric does not
  // take, or too few of them; ValueError when ranks have different classifiers.
  explicit ImageMetrics(ImageMetricsOptions options);

  // Compares images with the reference. The numbers are computed on the first rank and are the same
  // on all. Collective.
  // Errors: as the metrics, on the first rank.
  std::vector<Figure> operator()(const ImageSource& generated) const;
  // Returns the numbers with their floors, and without values.
  const std::vector<Figure>& floors() const { return floors_; }
  const std::string& kind() const { return kind_; }  // of the images: Images::kind

 private:
  SeenImages look(const ImageSource& source) const;
  std::vector<Figure> measure(const SeenImages& seen) const;

  ImageMetricsOptions options_;
  std::string kind_;
  std::unique_ptr<Classifier> classifier_;
  SeenImages reference_;
  std::vector<Figure> floors_;
};

}  // namespace gradus::examples
