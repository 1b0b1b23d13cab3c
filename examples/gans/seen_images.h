// SeenImages: many images as metrics take them, with what a classifier sees of them. Each rank looks at a
// part, and all ranks get all of it.
#pragma once

#include <functional>
#include <vector>

#include "gradus/examples/gans/classifier.h"
#include "gradus/examples/gans/samples.h"

namespace gradus::examples {

struct ImagePart {
  Tensor bytes;        // u8[N,C,S,S]
  Tensor labels = {};  // i64[N]; undefined without labels
};

// Images that can be had part by part, in any order.
struct ImageSource {
  int64_t n = 0;
  std::function<ImagePart(int64_t first, int64_t last)> part;
};
ImageSource source_of(const Tensor& bytes);
// Images of a generator in evaluation mode, with these weights if there are any. Those of a network that
// still grows get `size` pixels. `net` must outlive the source.
ImageSource source_of(Networks& net, const Latents& from, int64_t size, const nn::StateDict& weights = {});
// These samples of a data set.
ImageSource source_of(const data::DatasetRef& set, std::vector<int64_t> indices);

struct SeenImages {
  int64_t n = 0;
  Tensor bytes;                    // u8[K,C,S,S] of the first; undefined for K = 0
  Tensor features, probabilities;  // f32[N,D], f32[N,classes], with a classifier
  Tensor labels;                   // i64[N]; undefined without labels
};

// Looks at all images, in parts that do not depend on the number of ranks, and keeps the bytes of
// the first. Collective.
SeenImages look_at(const ImageSource& source, const Classifier* classifier, int64_t keep_bytes);

}  // namespace gradus::examples
