// Figures that say how good generated images are, by what a classifier sees of them.
#pragma once

#include <vector>

#include "gradus/examples/gans/classifier.h"

namespace gradus::examples {

// What the classifier sees of many images.
struct SeenImages {
  metrics::FeatureMoments moments;
  Tensor probabilities;  // f32[N,classes]
  Tensor shares;         // f64[classes]: of the images, by their labels; undefined without them
};
SeenImages look_at(const Classifier& classifier, const Tensor& bytes);
// Looks at the first `count` images of a set; all if there are fewer.
SeenImages look_at(const Classifier& classifier, const data::DatasetRef& set, int64_t count);

struct Evaluation {
  int64_t n = 0;
  double frechet = 0;  // between the images and the test set
  double floor = 0;    // the same of as many training images
  metrics::ClassScores scores;
};

// Compares images with the test set of `options`. `labels`: the classes that they were to show, if any.
// Errors: as Classifier.
Evaluation evaluate(const Classifier& classifier, const ImagesOptions& options, const Tensor& bytes,
                    const Tensor& labels = {});

// Runs `gan evaluate`: prints the figures of a checkpoint's generator, or of a file of images. Returns the
// program's exit status.
int run_evaluate(int argc, char** argv);

}  // namespace gradus::examples
