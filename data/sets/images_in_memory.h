// ImagesInMemory: labeled images as bytes in memory. Base of MNIST, GeneratedDigits and CIFAR10.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "gradus/data/sets/host_tensor.h"
#include "gradus/data/sets/image_dataset.h"

namespace gradus::data {

class ImagesInMemory : public ImageDataset {
 public:
  // `memory` says how many of the bytes are this process's own and how many are shared. By default all
  // are its own.
  // Shapes: images u8[N,1,H,W], or u8[N,3,H,W] channels-last; labels u8[N].
  // Errors: ShapeError; DTypeError; ValueError for a label of `num_classes` or more, or for a transform that
  // needs another number of channels.
  ImagesInMemory(std::string name, Tensor images, Tensor labels, int64_t num_classes, Transform transform,
                 std::optional<MemoryUse> memory = {});

  std::string name() const override { return name_; }
  int64_t size() const override { return images_.size(0); }
  Image image(int64_t index) const override;
  int64_t label(int64_t index) const override;
  // Reads a batch. A pointwise transform's values go straight from the bytes into the batch.
  // Errors: IndexError with a pointwise transform, else as ImageDataset.
  Batch get_batch(std::span<const int64_t> indices) const override;

  int64_t num_classes() const { return num_classes_; }
  const Tensor& images() const { return images_; }     // u8[N,C,H,W], channels-last; not to be written to
  const Tensor& labels() const { return labels_; }     // u8[N]; not to be written to
  const MemoryUse& memory() const { return memory_; }  // of images and labels

 private:
  const uint8_t* pixels(int64_t index) const;

  std::string name_;
  Tensor images_, labels_;
  int64_t num_classes_;
  MemoryUse memory_;
  std::shared_ptr<const ValueTable> values_;  // of a pointwise transform
};

}  // namespace gradus::data
