// Convolution on the CPU. Images are channels-last. oneDNN computes f32 and bf16, except where a kernel of
// gradus/tensor/cpu/conv is faster: Winograd's algorithm for 3x3 filters in f32, matrix products for
// pointwise filters, and several kernels for gradients. Patches and Eigen compute f64. f16, and bf16 where
// oneDNN does not compute it, are computed in f32 and rounded once. Weights are reordered to the layout that
// oneDNN picks, once per update (onednn::weights_as).
#include "gradus/tensor/ops/images/conv.h"
#include "gradus/tensor/kernel.h"

#include <cstring>

#include "gradus/tensor/cpu/conv/pointwise.h"
#include "gradus/tensor/cpu/conv/reference.h"
#include "gradus/tensor/cpu/conv/sparse_grad.h"
#include "gradus/tensor/cpu/conv/tap_grad.h"
#include "gradus/tensor/cpu/conv/weight_grad.h"
#include "gradus/tensor/cpu/conv/weight_grad_bf16.h"
#include "gradus/tensor/cpu/conv/winograd.h"
#include "gradus/tensor/cpu/convert.h"
#include "gradus/tensor/cpu/onednn/problems.h"
#include "gradus/tensor/cpu/widen.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus {
namespace {

using cpu::round_to;
using cpu::wide_like;
using cpu::widened;
using onednn::Desc;
using onednn::Pass;
using raw::ConvGeometry;

onednn::PlanKey key_of(const char* kind, const Tensor& x, const Tensor& w, const ConvGeometry& g,
                       bool with_bias) {
  onednn::PlanKey key(kind);
  key.add(x.shape()).add(w.shape()).add(g.stride).add(g.padding).add(g.dilation).add(g.groups).add(with_bias);
  return key;
}

// Pointwise filters with a stride. Both oneDNN and our matrix products are faster on an image of the
// seen pixels alone.
bool is_strided_pointwise(const Tensor& x, const Tensor& w, const ConvGeometry& g) {
  return (x.dtype() == DType::kF32 || x.dtype() == DType::kBF16) && g.rank() == 2 &&
         w.size(2) * w.size(3) == 1 && g.stride[0] * g.stride[1] > 1 && g.padding[0] + g.padding[1] == 0;
}
ConvGeometry without_stride(ConvGeometry g) {
  g.stride = {1, 1};
  return g;
}

// Returns the pixels of x that the filters see, as [N,C,P,Q].
Tensor seen_pixels(const Tensor& x, const Tensor& y, const ConvGeometry& g) {
  const int64_t C = x.size(1), H = x.size(2), W = x.size(3), P = y.size(2), Q = y.size(3);
  const int64_t pixel = C * size_of(x.dtype());
  Tensor seen = empty_channels_last({x.size(0), C, P, Q}, {x.dtype(), x.device()});
  parallel_for(0, x.size(0) * P, 1 + 65536 / (Q * pixel), [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const char* from =
          static_cast<const char*>(x.raw_ptr()) + (r / P * H + r % P * g.stride[0]) * W * pixel;
      char* to = static_cast<char*>(seen.raw_ptr()) + r * Q * pixel;
      for (int64_t q = 0; q < Q; ++q, to += pixel, from += g.stride[1] * pixel) std::memcpy(to, from, pixel);
    }
  });
  return seen;
}

// Writes the gradient of the seen pixels into dx, and zeros for all other pixels.
void spread_seen_pixels(const Tensor& dx, const Tensor& dseen, const ConvGeometry& g) {
  const int64_t C = dx.size(1), H = dx.size(2), W = dx.size(3), P = dseen.size(2), Q = dseen.size(3);
  const int64_t pixel = C * size_of(dx.dtype());
  parallel_for(0, dx.size(0) * H, 1 + 65536 / (W * pixel), [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const int64_t h = r % H, p = h / g.stride[0];
      char* to = static_cast<char*>(dx.raw_ptr()) + r * W * pixel;
      std::memset(to, 0, W * pixel);
      if (h % g.stride[0] || p >= P) continue;
      const char* from = static_cast<const char*>(dseen.raw_ptr()) + (r / H * P + p) * Q * pixel;
      for (int64_t q = 0; q < Q; ++q, from += pixel, to += g.stride[1] * pixel) std::memcpy(to, from, pixel);
    }
  });
}

void conv_cpu(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, ConvGeometry g) {
  if (y.dtype() == DType::kF64) return conv_reference(y, x, w, bias, g);
  if (!bias.defined() && pays_pointwise(y, x, w.shape(), g) && !onednn::keeps_reordered(w))
    return pointwise_conv(y, x, w);
  if (prefers_winograd(x, y, w.shape(), g)) return winograd_conv(y, x, w, bias, g);
  if (is_strided_pointwise(x, w, g)) return conv_cpu(y, seen_pixels(x, y, g), w, bias, without_stride(g));
  static const char kind[] = "conv";
  const auto plan = onednn::plan_in(y.dtype(), key_of(kind, x, w, g, bias.defined()), [&] {
    return onednn::conv_plan(Pass::kForward, x, w, y, g, bias.defined());
  });
  if (!plan) {
    const Tensor wide = wide_like(y);
    conv_cpu(wide, widened(x), widened(w), widened(bias), g);
    return round_to(y, wide);
  }
  Tensor hold;
  onednn::run(*plan, {{DNNL_ARG_SRC, onednn::memory(plan->src, x)},
                      {DNNL_ARG_WEIGHTS, onednn::weights_as(w, plan->plain_weights, plan->weights, hold)},
                      {DNNL_ARG_BIAS, bias.defined() ? onednn::memory(plan->bias, bias) : dnnl::memory()},
                      {DNNL_ARG_DST, onednn::memory(plan->dst, y)}});
}

// Adds bias[C] to every pixel of x.
void add_to_channels(const Tensor& x, const Tensor& bias) {
  const int64_t C = bias.numel();
  dispatch_floating(x.dtype(), "conv_transpose", [&]<class T>() {
    const T* b = bias.ptr<T>();
    parallel_for(0, x.numel() / C, 1 + 32768 / C, [&](int64_t first, int64_t last) {
      for (T *p = x.ptr<T>() + first * C, *end = x.ptr<T>() + last * C; p != end; p += C)
        for (int64_t c = 0; c < C; ++c) p[c] += b[c];
    });
  });
}

// dx is f32 or of dy's dtype.
void conv_input_grad_cpu(const Tensor& dx, const Tensor& dy, const Tensor& w, const Tensor& bias,
                         ConvGeometry g) {
  if (bias.defined()) {  // added before the one rounding
    const bool narrow = cpu::is_narrow(dx.dtype());
    const Tensor sum = narrow ? wide_like(dx) : dx;
    conv_input_grad_cpu(sum, dy, w, {}, g);
    add_to_channels(sum, narrow ? widened(bias) : bias);
    if (narrow) round_to(dx, sum);
    return;
  }
  if (dx.dtype() == DType::kF64) return conv_input_grad_reference(dx, dy, w, g);
  if (pays_sparse_grad(dy, dx, w.shape(), g)) return sparse_input_grad(dx, dy, w, g);
  if (pays_pointwise(dx, dy, w.shape(), g)) return pointwise_input_grad(dx, dy, w);
  if (prefers_winograd(dx, dy, w.shape(), g)) return winograd_input_grad(dx, dy, w, g);
  if (dy.dtype() == dx.dtype() && is_strided_pointwise(dx, w, g)) {
    const Tensor dseen =
        empty_channels_last({dx.size(0), dx.size(1), dy.size(2), dy.size(3)}, {dx.dtype(), dx.device()});
    conv_input_grad_cpu(dseen, dy, w, {}, without_stride(g));
    return spread_seen_pixels(dx, dseen, g);
  }
  static const char kind[] = "conv_input_grad";
  onednn::PlanKey key = key_of(kind, dx, w, g, false);
  const auto plan = onednn::plan_in(dy.dtype(), key.add(int64_t(dx.dtype())),
                                    [&] { return onednn::conv_plan(Pass::kInputGrad, dx, w, dy, g, false); });
  if (!plan) {
    const Tensor wide = dx.dtype() == DType::kF32 ? dx : wide_like(dx);
    conv_input_grad_cpu(wide, widened(dy), widened(w), {}, g);
    if (!wide.is_same(dx)) round_to(dx, wide);
    return;
  }
  Tensor hold;
  onednn::run(*plan, {{DNNL_ARG_DIFF_DST, onednn::memory(plan->dst, dy)},
                      {DNNL_ARG_WEIGHTS, onednn::weights_as(w, plan->plain_weights, plan->weights, hold)},
                      {DNNL_ARG_DIFF_SRC, onednn::memory(plan->src, dx)}});
}

// With a stride, oneDNN's weight gradient of channels-last images takes 1.6 times as long as that of blocked
// images. The difference is more than the time to reorder them.
bool pays_own_layout(const Tensor& dw, const ConvGeometry& g) {
  return dw.dtype() == DType::kF32 && g.rank() == 2 && g.groups == 1 && g.stride[0] > 1 && dw.size(2) > 1 &&
         dw.size(1) >= 16;
}

// Returns x, whose layout is `plain`, in the layout `want`.
dnnl::memory image_as(const Tensor& x, const Desc& plain, const Desc& want, Tensor& hold) {
  if (want == plain) return onednn::memory(plain, x);
  hold = onednn::scratch(want);
  const dnnl::memory to = onednn::memory(want, hold);
  onednn::reorder(onednn::memory(plain, x), to);
  return to;
}

void conv_weight_grad_cpu(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                          ConvGeometry g) {
  if (dw.dtype() != dy.dtype()) {
    if (has_bf16_weight_grad(dy, x, g)) return bf16_weight_grad(dw, db, dy, x, g);
    // Elsewhere a 16-bit gradient from oneDNN, widened, is faster than f32 copies of the images.
    const Tensor narrow_dw = empty(dw.shape(), {dy.dtype()});
    const Tensor narrow_db = db.defined() ? empty(db.shape(), {dy.dtype()}) : Tensor();
    conv_weight_grad_cpu(narrow_dw, narrow_db, dy, x, g);
    const auto widen = cpu::converter(dw.dtype(), dy.dtype());
    widen(dw.numel(), dw.raw_ptr(), 1, narrow_dw.raw_ptr(), 1);
    if (db.defined()) widen(db.numel(), db.raw_ptr(), 1, narrow_db.raw_ptr(), 1);
    return;
  }
  if (dw.dtype() == DType::kF64) return conv_weight_grad_reference(dw, db, dy, x, g);
  if (pays_sparse_grad(dy, x, dw.shape(), g)) return sparse_weight_grad(dw, db, dy, x, g);
  if (!db.defined() && pays_winograd_weight_grad(x, dy, dw.shape(), g))
    return winograd_weight_grad(dw, dy, x, g);
  if (!db.defined() && pays_tap_weight_grad(dw, dy, g)) return tap_weight_grad(dw, dy, x, g);
  if (db.defined() && has_fast_weight_grad(dw, g)) return fast_weight_grad(dw, db, dy, x, g);
  if (has_bf16_weight_grad(dy, x, g)) return bf16_weight_grad(dw, db, dy, x, g);
  if (is_strided_pointwise(x, dw, g))
    return conv_weight_grad_cpu(dw, db, dy, seen_pixels(x, dy, g), without_stride(g));
  static const char kind[] = "conv_weight_grad";
  const auto plan = onednn::plan_in(dw.dtype(), key_of(kind, x, dw, g, db.defined()), [&] {
    return onednn::conv_plan(Pass::kWeightGrad, x, dw, dy, g, db.defined(), pays_own_layout(dw, g));
  });
  if (!plan) {
    const Tensor wide_dw = wide_like(dw), wide_db = wide_like(db);
    conv_weight_grad_cpu(wide_dw, wide_db, widened(dy), widened(x), g);
    round_to(dw, wide_dw), round_to(db, wide_db);
    return;
  }
  // dw is row-major, like its weights.
  const bool direct = plan->weights == plan->plain_weights;
  const Tensor packed = direct ? dw : onednn::scratch(plan->weights);
  const dnnl::memory weights = onednn::memory(plan->weights, packed);
  Tensor hold_x, hold_dy;
  onednn::run(*plan, {{DNNL_ARG_SRC, image_as(x, onednn::image_layout(x), plan->src, hold_x)},
                      {DNNL_ARG_DIFF_DST, image_as(dy, onednn::image_layout(dy), plan->dst, hold_dy)},
                      {DNNL_ARG_DIFF_WEIGHTS, weights},
                      {DNNL_ARG_DIFF_BIAS, db.defined() ? onednn::memory(plan->bias, db) : dnnl::memory()}});
  if (!direct) onednn::reorder(weights, onednn::memory(plan->plain_weights, dw));
}

}  // namespace

constinit decltype(raw::conv_kernel) raw::conv_kernel{"conv", &conv_cpu};
constinit decltype(raw::conv_input_grad_kernel) raw::conv_input_grad_kernel{"conv_input_grad",
                                                                            &conv_input_grad_cpu};
constinit decltype(raw::conv_weight_grad_kernel) raw::conv_weight_grad_kernel{"conv_weight_grad",
                                                                              &conv_weight_grad_cpu};

}  // namespace gradus
