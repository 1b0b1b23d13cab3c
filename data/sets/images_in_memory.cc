// ImagesInMemory: labeled images as one u8 tensor whose two accepted layouts have bytes in the order
// [N, H, W, C]. With a pointwise transform, get_batch converts bytes to floats by a lookup table, without an
// Image per sample. host_tensor: bytes shared by the ranks of a host. Const functions are thread-safe.
#include "gradus/data/sets/images_in_memory.h"

#include <cstring>
#include <utility>

#include "gradus/tensor/runtime/job.h"

namespace gradus::data {

HostTensor host_tensor(const std::string& key, int64_t size, const std::function<void(uint8_t* out)>& fill) {
  const HostMemory memory =
      Job::current()->share("data/" + key, static_cast<size_t>(size),
                            [&](std::byte* out) { fill(reinterpret_cast<uint8_t*>(out)); });
  HostTensor result;
  // The cast removes const: the memory is read-only, and callers must not write into the tensor.
  result.bytes = from_blob(const_cast<std::byte*>(memory.bytes.get()), {size}, {.dtype = DType::kU8},
                           [keep = memory.bytes] {});
  (memory.shared ? result.memory.shared : result.memory.own) = size;
  return result;
}

ImagesInMemory::ImagesInMemory(std::string name, Tensor images, Tensor labels, int64_t num_classes,
                               Transform transform, std::optional<MemoryUse> memory)
    : ImageDataset(std::move(transform)),
      name_(std::move(name)),
      images_(std::move(images)),
      labels_(std::move(labels)),
      memory_(memory.value_or(MemoryUse{.own = images_.nbytes() + labels_.nbytes()})) {
  const int64_t channels = images_.dim() == 4 ? images_.size(1) : 0;
  const bool fits = channels == 1 ? images_.is_row_major() : channels == 3 && images_.is_channels_last();
  if (!fits || labels_.dim() != 1 || images_.size(0) != labels_.size(0) || !labels_.is_row_major())
    throw ShapeError(name_, "expected row-major images [N,1,H,W] or channels-last images [N,3,H,W], and ",
                     "row-major labels [N], got images ", describe(images_), ", labels ", describe(labels_));
  if (images_.dtype() != DType::kU8 || labels_.dtype() != DType::kU8)
    throw DTypeError(name_, "expected u8, got images ", describe(images_), ", labels ", describe(labels_));
  for (int64_t i = 0; i < labels_.numel(); ++i)
    if (labels_.ptr<uint8_t>()[i] >= num_classes)
      throw ValueError(name_, "label ", i, " is ", int(labels_.ptr<uint8_t>()[i]), ", expected less than ",
                       num_classes);
  const Transform& step = this->transform();
  // The table does not depend on the pixels, so an image of one pixel is enough to make it.
  if (step.is_pointwise()) value_table_ = step(Image(1, 1, channels)).value_table();
}

// Returns the first byte of an image [H, W, C]. The caller has checked the index.
const uint8_t* ImagesInMemory::pixels(int64_t index) const {
  return images_.ptr<uint8_t>() + index * images_.size(1) * images_.size(2) * images_.size(3);
}

Image ImagesInMemory::image(int64_t index) const {
  check_index(index);
  Image image(images_.size(2), images_.size(3), images_.size(1));
  std::memcpy(image.mutable_data(), pixels(index), static_cast<size_t>(image.bytes()));
  return image;
}

int64_t ImagesInMemory::label(int64_t index) const {
  check_index(index);
  return labels_.ptr<uint8_t>()[index];
}

// Returns input f32[N, C, H, W], channels-last, and target i64[N] for N indices.
Batch ImagesInMemory::get_batch(std::span<const int64_t> indices) const {
  if (!value_table_) return ImageDataset::get_batch(indices);
  for (int64_t index : indices) check_index(index);
  Shape shape = images_.shape();
  shape[0] = static_cast<int64_t>(indices.size());
  Batch b{empty_channels_last(shape, {DType::kF32}),
          empty({shape[0]}, {.dtype = DType::kI64}),
          {indices.begin(), indices.end()}};
  float* out = b.input.ptr<float>();
  int64_t* target = b.target.ptr<int64_t>();
  for (int64_t index : indices) {
    internal::to_floats({pixels(index), shape[2], shape[3], shape[1]}, *value_table_, false, out);
    out += shape[1] * shape[2] * shape[3];
    *target++ = labels_.ptr<uint8_t>()[index];
  }
  return b;
}

}  // namespace gradus::data
