// ImagesInMemory: base class of MNIST, GeneratedDigits and CIFAR10: labeled images as bytes in memory. HostTensor:
// read-only bytes in memory that all ranks on a host share (see Job::share).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "gradus/data/sets/image_dataset.h"

namespace gradus::data {

// Numbers of bytes that belong to this process alone, and that it shares with other ranks on its host.
struct MemoryUse {
  int64_t own = 0;
  int64_t shared = 0;
};

struct HostTensor {
  Tensor bytes;  // u8[N], read-only
  MemoryUse memory;
};

// Returns `size` bytes that are identified by `key` on this host: equal keys must mean equal sizes and
// contents. The first rank that requests `key` initializes them with fill(); others wait.
// Errors: those of fill() and of Job::share.
HostTensor host_tensor(const std::string& key, int64_t size, const std::function<void(uint8_t* out)>& fill);

class ImagesInMemory : public ImageDataset {
 public:
  // Keeps the tensors, which are on the CPU. `memory`: bytes shared between ranks, and others. Default: all
  // own.
  // Shapes: images u8[N,1,H,W], or u8[N,3,H,W] channels-last; labels u8[N].
  // Errors: ShapeError; DTypeError; ValueError for a label >= num_classes, or for a transform that requires
  // another number of channels.
  ImagesInMemory(std::string name, Tensor images, Tensor labels, int64_t num_classes, Transform transform,
                 std::optional<MemoryUse> memory = {});

  std::string name() const override { return name_; }
  int64_t size() const override { return images_.size(0); }
  Image image(int64_t index) const override;  // without the transform
  int64_t label(int64_t index) const override;
  // Reads a batch. With a pointwise transform (TransformStep::is_pointwise), which runs once at construction,
  // bytes are converted directly into the batch by table lookup.
  // Errors: IndexError with a pointwise transform; otherwise as ImageDataset.
  Batch get_batch(std::span<const int64_t> indices) const override;

  const Tensor& images() const { return images_; }     // u8[N,C,H,W], channels-last, read-only
  const Tensor& labels() const { return labels_; }     // u8[N], read-only
  const MemoryUse& memory() const { return memory_; }  // of images and labels

 private:
  const uint8_t* pixels(int64_t index) const;

  std::string name_;
  Tensor images_, labels_;
  MemoryUse memory_;
  std::shared_ptr<const ValueTable> value_table_;  // lookup table of a pointwise transform; null for others
};

}  // namespace gradus::data
