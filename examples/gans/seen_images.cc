// Sources of images, and their classification: rank r computes the parts r, r + ranks, ... of 100 images, and
// an all-reduce of zero-padded tensors joins the parts.
#include "gradus/examples/gans/seen_images.h"

namespace gradus::examples {
namespace {

constexpr int64_t kPart = 100;

// A tensor [n, ...] whose rows ranks compute in parts. Each rank writes its own parts.
class Rows {
 public:
  explicit Rows(int64_t n) : n_(n) {}

  void add(int64_t first, const Tensor& part, bool is_local) {
    if (!part.defined()) return;
    Shape shape = part.shape();
    shape[0] = n_;
    if (!all_.defined()) all_ = zeros(shape, {.dtype = part.dtype()});
    if (is_local) copy_(slice(all_, 0, first, first + part.size(0)), part);
  }
  // Returns the rows of all ranks: a sum, since rows of other ranks are zeros. Collective.
  Tensor join() const {
    if (all_.defined() && dist::get_world_size() > 1) dist::all_reduce(all_);
    return all_;
  }

 private:
  int64_t n_;
  Tensor all_;
};

}  // namespace

ImageSource source_of(const Tensor& bytes) {
  return {.n = bytes.size(0),
          .part = [bytes](int64_t first, int64_t last) { return ImagePart{slice(bytes, 0, first, last)}; }};
}

ImageSource source_of(Networks& net, const Latents& from, int64_t size, const nn::StateDict& weights) {
  const auto part = [&net, from, size, weights](int64_t first, int64_t last) {
    const auto of = [&](const Tensor& x) { return x.defined() ? slice(x, 0, first, last) : x; };
    Tensor images = generate(net, {.z = of(from.z), .labels = of(from.labels)}, weights);
    if (const int64_t grown = images.size(2); grown < size)
      images = repeat_interleave(repeat_interleave(images, size / grown, 2), size / grown, 3);
    return ImagePart{to_bytes(images), of(from.labels)};
  };
  return {.n = from.z.size(0), .part = part};
}

ImageSource source_of(const data::DatasetRef& set, std::vector<int64_t> indices) {
  const auto n = int64_t(indices.size());
  const auto part = [set, indices = std::move(indices)](int64_t first, int64_t last) {
    const data::Subset samples(set, {indices.begin() + first, indices.begin() + last});
    ImagePart images;
    for (const data::Batch& b : data::DataLoader(samples, {.batch_size = last - first, .world_size = 1}))
      images = {.bytes = to_bytes(b.input), .labels = b.target};
    return images;
  };
  return {.n = n, .part = part};
}

ClassifiedImages classify_images(const ImageSource& source, const ImageFeatures* network,
                                 int64_t keep_bytes) {
  const auto off = no_record();
  const int64_t kept = std::min(keep_bytes, source.n);
  Rows bytes(kept), features(source.n), probabilities(source.n), manifold(source.n), labels(source.n);
  const auto classify = [&](int64_t first, bool is_local) {
    const ImagePart part = source.part(first, std::min(first + kPart, source.n));
    if (first < kept) bytes.add(first, slice(part.bytes, 0, 0, std::min(kPart, kept - first)), is_local);
    labels.add(first, part.labels, is_local);
    if (!network) return;
    const ImageFeatures::Output output = (*network)(part.bytes);
    features.add(first, output.features, is_local);
    probabilities.add(first, output.probabilities, is_local);
    manifold.add(first, output.manifold, is_local);
  };
  const int64_t rank = dist::get_rank(), ranks = dist::get_world_size();
  for (int64_t first = rank * kPart; first < source.n; first += ranks * kPart) classify(first, true);
  if (rank * kPart >= source.n) classify(0, false);  // defines the tensors of a rank without a part
  ClassifiedImages images = {.n = source.n,
                             .bytes = bytes.join(),
                             .features = features.join(),
                             .probabilities = probabilities.join(),
                             .manifold = manifold.join(),
                             .labels = labels.join()};
  if (!images.manifold.defined()) images.manifold = images.features;
  return images;
}

}  // namespace gradus::examples
