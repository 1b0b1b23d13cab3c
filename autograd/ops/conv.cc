#include "gradus/autograd/ops/conv.h"

#include "gradus/autograd/record.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus {

// Note [Three convolutions]
// y = conv2d(x, w), dx = conv2d_input_grad(dy, w) and dw = conv2d_weight_grad(dy, x) are the three ways to
// contract one trilinear form; the derivative of each consists of the other two, to any order. The bias rides
// along: its gradient falls out of the weight gradient's kernel, and that op's derivative is a conv2d with a
// bias again.

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dOptions& options) {
  Tensor y = raw::conv2d(x, w, bias, options);
  if (Recorder r{"conv2d", x, w, bias}) {
    const bool filters = autograd::is_tracked(w) || autograd::is_tracked(bias);
    r.record_joint({&y, 1}, {x, w, bias},
                   [x = filters ? r.save(x) : autograd::Saved(),
                    w = autograd::is_tracked(x) ? r.save(w) : autograd::Saved(), x_shape = x.shape(),
                    w_shape = w.shape(), options](std::vector<Tensor> dys, autograd::Needs needs) mutable {
                     std::vector<Tensor> grads(3);
                     if (needs[1] || needs[2])
                       std::tie(grads[1], grads[2]) =
                           conv2d_weight_grad(dys[0], x.take(), w_shape, needs[2], options);
                     if (needs[0]) grads[0] = conv2d_input_grad(dys[0], w.get(), x_shape, options);
                     return grads;
                   });
  }
  return y;
}

Tensor conv2d_input_grad(const Tensor& dy, const Tensor& w, const Shape& x_shape,
                         const Conv2dOptions& options) {
  Tensor dx = raw::conv2d_input_grad(dy, w, x_shape, options);
  if (Recorder r{"conv2d_input_grad", dy, w})
    r.record(dx,
             wrt(dy, [w = r.save(w), options](const Tensor& g) { return conv2d(g, w.get(), {}, options); }),
             wrt(w, [dy = r.save(dy), w_shape = w.shape(), options](const Tensor& g) {
               return conv2d_weight_grad(dy.get(), g, w_shape, false, options).first;
             }));
  return dx;
}

std::pair<Tensor, Tensor> conv2d_weight_grad(const Tensor& dy, const Tensor& x, const Shape& w_shape,
                                             bool with_bias, const Conv2dOptions& options) {
  const auto result = raw::conv2d_weight_grad(dy, x, w_shape, with_bias, options);
  if (Recorder r{"conv2d_weight_grad", dy, x}) {
    const Tensor outputs[] = {result.first, result.second};
    r.record_joint(
        outputs, {dy, x},
        [dy = r.save(dy), x = r.save(x), w_shape, options](std::vector<Tensor> g, autograd::Needs needs) {
          std::vector<Tensor> grads(2);
          const Tensor v = x.get();
          if (!g[0].defined()) {  // only the bias's gradient was used
            g[0] = empty(w_shape, {v.dtype(), v.device()});
            raw::fill_(g[0], 0);
          }
          if (needs[0]) grads[0] = conv2d(v, g[0], g[1], options);
          if (needs[1]) grads[1] = conv2d_input_grad(dy.get(), g[0], v.shape(), options);
          return grads;
        });
  }
  return result;
}

}  // namespace gradus
