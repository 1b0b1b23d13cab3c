// Scores of generated images from the probabilities of a classifier, which may be trained on the data set:
// whether each image looks like one class, and how the classes are distributed.
//
//   const Tensor p = softmax(classifier(generated), 1);  // f32[N,10]
//   const metrics::ClassScores s = metrics::class_scores(p, {.reference = bincount(labels_of_test_set)});
//   std::cout << s.score << " +- " << s.score_std << ", " << s.covered << " classes\n";
//
// Not collective: each rank scores its own images. Tensors may be on any device; the host waits for them.
#pragma once

#include <cstdint>

#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

struct ClassScoresOptions {
  Tensor reference = {};   // [C]: counts of the classes in the reference; undefined: equal counts
  Tensor labels = {};      // i[N]: the requested class of each image; undefined: none
  int64_t splits = 10;     // number of parts of consecutive images, each of which gets a score; at most N
  double confident = 0.9;  // the minimum probability of a confident classifier
};

struct ClassScores {
  // exp(mean of KL(p(y|x) | p(y))), from 1 to C: mean and standard deviation over the splits. With an
  // Inception network this is the Inception score.
  double score, score_std;
  double confident;        // fraction of images with a probability of at least ClassScoresOptions::confident
  int64_t covered;         // classes with at least a quarter of their fraction in the reference
  double total_variation;  // sum_c |fraction[c] - reference fraction[c]| / 2
  double agreement;        // fraction of images whose most probable class is their label; NaN without labels
  Tensor shares;           // f64[C]: fractions of the images, by their most probable class
};

// Shapes: probabilities [N,C], each row of sum 1 (within 0.001).
// Errors: DTypeError unless floating point, with labels of integers; ShapeError; ValueError for rows that are
// not probabilities, a reference that is negative, not finite or 0, labels outside [0, C-1], splits outside
// [1, N], `confident` outside [0,1].
// Source: Salimans et al., "Improved techniques for training GANs", NeurIPS 2016 (the score).
ClassScores class_scores(const Tensor& probabilities, const ClassScoresOptions& options = {});

}  // namespace gradus::metrics
