// ImageDataset: base class of data sets of labeled images, which applies a transform to each image when it is
// read.
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
  // Returns the image before the transform.
  // Errors: IndexError outside [0, size()); FileError for an unreadable image.
  virtual Image image(int64_t index) const = 0;
  virtual int64_t label(int64_t index) const = 0;
  const Transform& transform() const { return transform_; }

  // Returns the transformed image, row-major, and the label i64[].
  // Errors: StateError if the transform does not produce a tensor; those of image() and label().
  Sample get(int64_t index) const override;
  // Reads a batch. The last pass over an image's pixels writes directly into the batch. Inputs f32[N,C,H,W] are
  // channels-last, the fastest layout for convolutions; tensors of other dtypes or ranks are collated.
  // Errors: SampleError, also if an image's shape differs from the first image's.
  Batch get_batch(std::span<const int64_t> indices) const override;

 protected:
  explicit ImageDataset(Transform transform) : transform_(std::move(transform)) {}
  // Returns whether an unreadable sample, which threw `error`, may be replaced by the first readable one of
  // the next 100 samples. Default: false. Several threads call may_replace concurrently.
  virtual bool may_replace(int64_t index, const FileError& error) const;

 private:
  struct BatchWriter;
  // Calls read(i) for the indices after `index` until a call does not throw FileError.
  template <class F> void read_replacement(int64_t index, const std::string& cause, const F& read) const;

  Transform transform_;
};

}  // namespace gradus::data
