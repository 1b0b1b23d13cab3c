#include "gradus/data/sets/image_set.h"

#include <utility>

namespace gradus::data {

ImageSet::ImageSet(std::string name, Tensor images, Tensor labels, int64_t classes,
                   const Normalization& normalization, std::optional<MemoryUse> memory)
    : name_(std::move(name)),
      images_(std::move(images)),
      labels_(std::move(labels)),
      classes_(classes),
      memory_(memory.value_or(MemoryUse{.own = images_.nbytes() + labels_.nbytes()})) {
  if (images_.dim() != 4 || labels_.dim() != 1 || images_.size(0) != labels_.size(0) ||
      !images_.is_row_major() || !labels_.is_row_major())
    throw ShapeError(name_, "expected row-major images [N,C,H,W] and labels [N], given images ",
                     describe(images_), ", labels ", describe(labels_));
  if (images_.dtype() != DType::kU8 || labels_.dtype() != DType::kU8)
    throw DTypeError(name_, "expected u8, given images ", describe(images_), ", labels ", describe(labels_));
  for (int64_t i = 0; i < labels_.numel(); ++i) {
    if (labels_.ptr<uint8_t>()[i] >= classes)
      throw ValueError(name_, "label ", i, " is ", int(labels_.ptr<uint8_t>()[i]), ", expected less than ",
                       classes);
  }
  const size_t channels = static_cast<size_t>(images_.size(1));
  const bool plain = normalization.mean.empty() && normalization.std.empty();
  if (!plain && (normalization.mean.size() != channels || normalization.std.size() != channels))
    throw ValueError(name_, "expected a mean and a std for each of ", channels, " channels, given ",
                     normalization.mean.size(), " and ", normalization.std.size());
  value_of_.resize(channels);
  for (size_t c = 0; c < channels; ++c) {
    const float mean = plain ? 0.f : normalization.mean[c], std = plain ? 1.f : normalization.std[c];
    if (!(std > 0.f)) throw ValueError(name_, "std must be positive, given ", std);
    for (size_t v = 0; v < 256; ++v) value_of_[c][v] = (static_cast<float>(v) / 255.f - mean) / std;
  }
}

void ImageSet::fill(int64_t index, float* out) const {
  const int64_t plane = images_.size(2) * images_.size(3);
  const uint8_t* from = images_.ptr<uint8_t>() + index * plane * images_.size(1);
  for (const auto& value_of : value_of_) {
    for (int64_t i = 0; i < plane; ++i) out[i] = value_of[from[i]];
    from += plane;
    out += plane;
  }
}

Sample ImageSet::get(int64_t index) const {
  check_index(index);
  Sample s{empty({images_.size(1), images_.size(2), images_.size(3)}), empty({}, {.dtype = DType::kI64})};
  fill(index, s.input.ptr<float>());
  *s.target.ptr<int64_t>() = labels_.ptr<uint8_t>()[index];
  return s;
}

Batch ImageSet::get_batch(std::span<const int64_t> indices) const {
  for (int64_t index : indices) check_index(index);
  const int64_t n = static_cast<int64_t>(indices.size());
  Batch b{empty({n, images_.size(1), images_.size(2), images_.size(3)}, {DType::kF32}),
          empty({n}, {.dtype = DType::kI64}),
          {indices.begin(), indices.end()}};
  const int64_t image = images_.size(1) * images_.size(2) * images_.size(3);
  for (int64_t i = 0; i < n; ++i) {
    fill(indices[static_cast<size_t>(i)], b.input.ptr<float>() + i * image);
    b.target.ptr<int64_t>()[i] = labels_.ptr<uint8_t>()[indices[static_cast<size_t>(i)]];
  }
  return b;
}

}  // namespace gradus::data
