// pixel_shuffle, pixel_unshuffle and channel_shuffle as reshape, permute, reshape, with a variant that keeps
// channels-last layout.
#include "gradus/autograd/ops/images/pixel_shuffle.h"

#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"

namespace gradus {
namespace {

// Throws unless x has at least 3 dims and n, the argument `name`, is at least 1.
void check_arguments(const char* op, const Tensor& x, const char* name, int64_t n) {
  if (x.dim() < 3) throw ShapeError(op, "x must have 3 dims or more: x ", describe(x));
  check_bounds(op, name, n, 1);
}

void check_divides(const char* op, const Tensor& x, int64_t n, int64_t dim) {
  if (x.size(dim) % n != 0) throw ShapeError(op, n, " does not divide dim ", dim, " of x ", describe(x));
}

// Permute [N,H,W,C] to [N,C,H,W], and back.
Tensor nhwc_to_nchw(const Tensor& x) { return permute(x, {0, 3, 1, 2}); }
Tensor nchw_to_nhwc(const Tensor& x) { return permute(x, {0, 2, 3, 1}); }
bool is_channels_last_image(const Tensor& x) { return x.dim() == 4 && x.is_channels_last(); }

// Reshape x [...,C,H,W] to [N,C,H,W], and images [N,C,H,W] to x's leading dims in place of N.
Tensor as_images(const Tensor& x) {
  int64_t images = 1;
  for (int d = 0; d < x.dim() - 3; ++d) images *= x.size(d);
  return reshape(x, {images, x.size(-3), x.size(-2), x.size(-1)});
}
Tensor with_leading_dims_of(const Tensor& x, const Tensor& images) {
  Shape shape = x.shape();
  for (int d = 1; d <= 3; ++d) shape[shape.size() - d] = images.size(-d);
  return reshape(images, shape);
}

}  // namespace

Tensor pixel_shuffle(const Tensor& x, int64_t f) {
  const OpCall call("pixel_shuffle", {{"x", x}});
  check_arguments("pixel_shuffle", x, "factor", f);
  check_divides("pixel_shuffle", x, f * f, x.dim() - 3);
  if (x.dim() != 4) return with_leading_dims_of(x, pixel_shuffle(as_images(x), f));
  const int64_t N = x.size(0), C = x.size(1) / (f * f), H = x.size(2), W = x.size(3);
  const int64_t rows = Checked("pixel_shuffle", H) * f, columns = Checked("pixel_shuffle", W) * f;
  if (is_channels_last_image(x)) {
    const Tensor cells = reshape(nchw_to_nhwc(x), {N, H, W, C, f, f});
    return nhwc_to_nchw(reshape(permute(cells, {0, 1, 4, 2, 5, 3}), {N, rows, columns, C}));
  }
  return reshape(permute(reshape(x, {N, C, f, f, H, W}), {0, 1, 4, 2, 5, 3}), {N, C, rows, columns});
}

Tensor pixel_unshuffle(const Tensor& x, int64_t f) {
  const OpCall call("pixel_unshuffle", {{"x", x}});
  check_arguments("pixel_unshuffle", x, "factor", f);
  check_divides("pixel_unshuffle", x, f, x.dim() - 2);
  check_divides("pixel_unshuffle", x, f, x.dim() - 1);
  if (x.dim() != 4) return with_leading_dims_of(x, pixel_unshuffle(as_images(x), f));
  const int64_t N = x.size(0), C = x.size(1), H = x.size(2) / f, W = x.size(3) / f;
  const int64_t channels = Checked("pixel_unshuffle", C) * f * f;
  if (is_channels_last_image(x)) {
    const Tensor cells = reshape(nchw_to_nhwc(x), {N, H, f, W, f, C});
    return nhwc_to_nchw(reshape(permute(cells, {0, 1, 3, 5, 2, 4}), {N, H, W, channels}));
  }
  return reshape(permute(reshape(x, {N, C, H, f, W, f}), {0, 1, 3, 5, 2, 4}), {N, channels, H, W});
}

Tensor channel_shuffle(const Tensor& x, int64_t groups) {
  const OpCall call("channel_shuffle", {{"x", x}});
  check_arguments("channel_shuffle", x, "groups", groups);
  check_divides("channel_shuffle", x, groups, 1);
  const int64_t N = x.size(0), C = x.size(1);
  if (is_channels_last_image(x)) {
    const Tensor cells = reshape(nchw_to_nhwc(x), {N, x.size(2), x.size(3), groups, C / groups});
    return nhwc_to_nchw(reshape(transpose(cells, 3, 4), {N, x.size(2), x.size(3), C}));
  }
  Shape split{N, groups, C / groups};
  for (int d = 2; d < x.dim(); ++d) split.push_back(x.size(d));
  return reshape(transpose(reshape(x, split), 1, 2), x.shape());
}

}  // namespace gradus
