// Checks of options and inputs that the networks of GANs share, and the one-hot encoding of labels. In all
// functions `network` is the name of the network's class in errors.
#pragma once

#include <bit>

#include "gradus/autograd/ops/ops.h"

namespace gradus::models::internal {

// Errors: ValueError unless `size` is a power of two in [min, 65536].
inline void check_image_size(const char* network, int64_t size, int64_t min) {
  if (size < min || size > 65536 || !std::has_single_bit(static_cast<uint64_t>(size)))
    throw ValueError(network, "expected a size of ", min, ", ", 2 * min, ", ", 4 * min,
                     ", ... pixels, at most 65536, got ", size);
}
// Errors: ValueError unless the option `what` is in [min, 2^20]: products of three such numbers fit in int64.
inline void check_count(const char* network, const char* what, int64_t value, int64_t min = 1) {
  if (value < min || value > int64_t{1} << 20)
    throw ValueError(network, "expected ", what, " in [", min, ", ", int64_t{1} << 20, "], got ", value);
}

// Errors: StateError for a network without classes; ShapeError unless labels is [N] for the network's other input
// x [N,...].
void check_labels(const char* network, const Tensor& x, const Tensor& labels, int64_t classes);

// Returns the one-hot encoding of integer labels in x's dtype.
// Shapes: labels [N] -> [N,classes], where x, the other input of the network, is [N,...].
// Errors: StateError for a network without classes; ShapeError; IndexError for a label outside of [0, classes).
Tensor one_hot_like(const char* network, const Tensor& x, const Tensor& labels, int64_t classes);

// Errors: StateError if the network has classes and therefore must be called with labels.
inline void check_unlabeled(const char* network, int64_t classes) {
  if (classes > 0)
    throw StateError(network, "the network has ", classes,
                     " classes: call it with labels, as in gen(z, labels)");
}

// Errors: ShapeError unless x is [N,channels,size,size].
void check_images(const char* network, const Tensor& x, int64_t channels, int64_t size);

// Reshapes latent vectors z [N,latent] or [N,latent,1,1] to [N,latent].
// Errors: ShapeError for another shape.
Tensor latent_vectors(const char* network, const Tensor& z, int64_t latent);

}  // namespace gradus::models::internal
