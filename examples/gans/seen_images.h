// ClassifiedImages: images for metrics, with a classifier's features and probabilities. Each rank computes a
// part, and all ranks get all parts.
#pragma once

#include <functional>
#include <vector>

#include "gradus/examples/gans/classifier.h"
#include "gradus/examples/gans/samples.h"

namespace gradus::examples {

// Some consecutive images of a source.
struct ImagePart {
  Tensor bytes;        // u8[N,C,S,S]
  Tensor labels = {};  // i64[N]; undefined without labels
};

// n images that are read by parts [first, last), in any order.
struct ImageSource {
  int64_t n = 0;
  std::function<ImagePart(int64_t first, int64_t last)> part;
};
ImageSource source_of(const Tensor& bytes);
// Images of a generator in evaluation mode, with `weights` unless empty. Smaller images of a growing network
// are enlarged to `size` pixels. `net` must outlive the source.
ImageSource source_of(Networks& net, const Latents& from, int64_t size, const nn::StateDict& weights = {});
// Samples of a data set.
ImageSource source_of(const data::DatasetRef& set, std::vector<int64_t> indices);

// N images with what metrics need.
struct ClassifiedImages {
  int64_t n = 0;
  Tensor bytes;  // u8[K,C,S,S]: the first K images; undefined for K = 0
  // ImageFeatures::Output of all images, with a network. `manifold` is always defined then.
  Tensor features, probabilities, manifold;
  Tensor labels;  // i64[N]; undefined without labels
};

// Classifies all images, in parts that do not depend on the number of ranks, and returns the bytes of the
// first `keep_bytes` images. A null network computes no features. Collective.
ClassifiedImages classify_images(const ImageSource& source, const ImageFeatures* network, int64_t keep_bytes);

}  // namespace gradus::examples
