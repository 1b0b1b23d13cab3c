// ImageDataset: labeled images and a transform of each when it is read. Base of the data sets of images.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "gradus/data/dataset.h"
#include "gradus/data/images/image.h"
#include "gradus/data/transforms/transform.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {

class ImageDataset : public Dataset {
 public:
  // Returns the image itself, before the transform.
  // Errors: IndexError outside [0, size()).
  virtual Image image(int64_t index) const = 0;
  virtual int64_t label(int64_t index) const = 0;
  const Transform& transform() const { return transform_; }

  // Returns the transformed image, row-major, and the label i64[].
  // Errors: StateError when the transform leaves an image.
  Sample get(int64_t index) const override;
  // Reads a batch. The last pass over an image's pixels writes into the batch. Inputs f32[N,C,H,W] lie
  // channels-last, as convolutions want them.
  // Errors: SampleError, also when an image has another shape than the first.
  Batch get_batch(std::span<const int64_t> indices) const override;

 protected:
  explicit ImageDataset(Transform transform) : transform_(std::move(transform)) {}
  // Says whether another sample may stand in for one that cannot be read. The first readable one of the 100
  // samples after it does so. By default none may.
  virtual bool skips(int64_t index, const FileError& error) const;

 private:
  struct BatchWriter;
  // Calls read(i) for indices after `index` until it does not throw a FileError.
  template <class F> void read_stand_in(int64_t index, const std::string& cause, const F& read) const;

  Transform transform_;
};

}  // namespace gradus::data
