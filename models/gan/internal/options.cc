// Checks of the labels [N], images [N, C, H, W] and latent vectors [N, latent] that networks of GANs receive.
// `network` is the class that the user called, whose name begins every error.
#include "gradus/models/gan/internal/options.h"

namespace gradus::models::internal {

void check_labels(const char* network, const Tensor& x, const Tensor& labels, int64_t classes) {
  if (classes == 0) throw StateError(network, "the network has no classes, but was given labels");
  if (labels.dim() != 1 || labels.size(0) != x.size(0))
    throw ShapeError(network, "expected one label for each of ", x.size(0), " samples, got labels ",
                     describe(labels));
}

Tensor one_hot_like(const char* network, const Tensor& x, const Tensor& labels, int64_t classes) {
  check_labels(network, x, labels, classes);
  return gradus::to(one_hot(labels, classes), x.dtype());
}

void check_images(const char* network, const Tensor& x, int64_t channels, int64_t size) {
  if (x.dim() != 4 || x.size(1) != channels || x.size(2) != size || x.size(3) != size)
    throw ShapeError(network, "expected images [N,", channels, ",", size, ",", size, "], got ", describe(x));
}

Tensor latent_vectors(const char* network, const Tensor& z, int64_t latent) {
  const bool pixels = z.dim() == 4 && z.size(2) == 1 && z.size(3) == 1;
  if ((z.dim() != 2 && !pixels) || z.size(1) != latent)
    throw ShapeError(network, "expected z [N,", latent, "] or [N,", latent, ",1,1], got ", describe(z));
  return pixels ? reshape(z, {z.size(0), latent}) : z;
}

}  // namespace gradus::models::internal
