// Scores of generated images by a classifier's probabilities: whether they look like one class each, whether
// all classes occur, and whether as often as they should. A classifier trained on the data set will do.
//
//   const Tensor p = softmax(classifier(generated), 1);  // f32[N,10]
//   const metrics::ClassScores s = metrics::class_scores(p, {.reference = bincount(labels_of_test_set)});
//   std::cout << s.score << " +- " << s.score_std << ", " << s.covered << " classes\n";
//
// The result is that of the images given, on whichever rank: it is not collective.
#pragma once

#include <cstdint>

#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

struct ClassScoresOptions {
  Tensor reference = {};   // [C]: how often each class occurs in the reference; none: all equally
  Tensor labels = {};      // i[N]: the class that each image was to show; none: there were no labels
  int64_t splits = 10;     // consecutive ones
  double confident = 0.9;  // the least probability of a confident classifier
};

struct ClassScores {
  // e to the mean of KL(p(y|x) | p(y)), from 1 to C: mean and standard deviation over the splits. With
  // an Inception network this is the Inception score.
  double score, score_std;
  double confident;  // share of images with a class of at least the probability ClassScoresOptions::confident
  int64_t covered;   // classes of the reference that have at least a quarter of their share there
  double total_variation;  // half the sum of differences of the classes' shares from the reference's
  double agreement;        // share of images of the class that the label says; NaN without labels
  Tensor shares;           // f64[C]: of the images, by their most probable class
};

// Shapes: probabilities [N,C], each row of sum 1 (within 0.001).
// Errors: DTypeError unless floating point, labels of integers; ShapeError; ValueError for rows that are no
// probabilities, a reference without classes, negative or not finite, labels outside 0 to C - 1, fewer than
// 1 or more than N splits, a bound of confidence outside [0,1].
// Source: Salimans et al., "Improved techniques for training GANs", NeurIPS 2016 (the score).
ClassScores class_scores(const Tensor& probabilities, const ClassScoresOptions& options = {});

}  // namespace gradus::metrics
