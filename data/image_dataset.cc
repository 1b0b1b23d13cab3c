#include "gradus/data/image_dataset.h"

#include "gradus/data/sample_reading.h"

namespace gradus::data {
namespace {

Tensor label_tensor(int64_t label) {
  Tensor t = empty({}, {.dtype = DType::kI64});
  *t.ptr<int64_t>() = label;
  return t;
}

bool is_image_tensor(const Picture& p) { return p.dtype() == DType::kF32 && p.shape().size() == 3; }

// The image after the transform, a tensor.
Picture transformed(const ImageDataset& set, int64_t index) {
  Picture picture(set.image(index));
  set.transform().apply(picture);
  if (picture.is_image())
    throw StateError(set.name(), "the transform leaves an image, expected a tensor: ToTensor is missing");
  return picture;
}

}  // namespace

Sample ImageDataset::get(int64_t index) const {
  return {transformed(*this, index).tensor(), label_tensor(label(index))};
}

Batch ImageDataset::get_batch(std::span<const int64_t> indices) const {
  const int64_t n = static_cast<int64_t>(indices.size());
  if (n == 0) return Dataset::get_batch(indices);
  internal::SampleGenerator generator;
  Batch batch{{}, empty({n}, {.dtype = DType::kI64}), {indices.begin(), indices.end()}};
  std::vector<Sample> others;  // when the transform makes something else of images
  for (int64_t i = 0; i < n; ++i) {
    const int64_t index = indices[static_cast<size_t>(i)];
    generator.begin_sample(index);
    internal::reading_sample(*this, index, [&] {
      Picture picture = transformed(*this, index);
      const int64_t target = batch.target.ptr<int64_t>()[i] = label(index);
      if (!others.empty() || (i == 0 && !is_image_tensor(picture))) {
        others.push_back({picture.tensor(), label_tensor(target)});
        return;
      }
      const Shape shape = picture.shape();
      if (i == 0) batch.input = empty_channels_last({n, shape[0], shape[1], shape[2]});
      const Shape& all = batch.input.shape();
      if (!is_image_tensor(picture) || shape != Shape{all[1], all[2], all[3]})
        throw ShapeError(name(), "the transform gives ", name_of(picture.dtype()), shape, ", but f32",
                         Shape{all[1], all[2], all[3]}, " of sample ", indices[0]);
      picture.write_channels_last(batch.input.ptr<float>() + i * shape.product());
    });
  }
  return others.empty() ? batch : collate(others, indices, name());
}

}  // namespace gradus::data
