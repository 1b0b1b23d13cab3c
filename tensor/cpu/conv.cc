// Convolution on the CPU: oneDNN in f32, patches and Eigen in f64. Images lie channels-last; weights are
// reordered to the layout that oneDNN picks, once per update (onednn::weights_as).
#include "gradus/tensor/ops/conv.h"

#include "gradus/tensor/cpu/conv_reference.h"
#include "gradus/tensor/cpu/conv_sparse_grad.h"
#include "gradus/tensor/cpu/conv_weight_grad.h"
#include "gradus/tensor/cpu/onednn.h"

namespace gradus {
namespace {

using onednn::Desc;
using dims = dnnl::memory::dims;
using tag = dnnl::memory::format_tag;

// The memory layouts and the movement of one convolution, in oneDNN's terms.
struct Problem {
  Problem(const Tensor& x, const Tensor& w, const Tensor& y, const Conv2dOptions& o)
      : src(image(x)),
        dst(image(y)),
        stride{o.stride.h, o.stride.w},
        dilation{o.dilation.h - 1, o.dilation.w - 1},
        padding{o.padding.h, o.padding.w} {
    dims shape(w.shape().begin(), w.shape().end());
    if (o.groups > 1) shape[0] /= o.groups, shape.insert(shape.begin(), o.groups);
    plain_weights = Desc(shape, f32, o.groups > 1 ? tag::goihw : tag::oihw);
    any_weights = Desc(shape, f32, tag::any);
    bias = Desc({w.size(0)}, f32, tag::x);
  }

  dnnl::convolution_forward::primitive_desc forward(bool with_bias) const {
    using dnnl::convolution_forward;
    const auto kind = dnnl::prop_kind::forward_training;
    const auto direct = dnnl::algorithm::convolution_direct;
    const auto desc = with_bias ? convolution_forward::desc(kind, direct, src, any_weights, bias, dst, stride,
                                                            dilation, padding, padding)
                                : convolution_forward::desc(kind, direct, src, any_weights, dst, stride,
                                                            dilation, padding, padding);
    return {desc, onednn::user_scratchpad(), onednn::engine()};
  }
  dnnl::convolution_backward_data::primitive_desc backward_data() const {
    const dnnl::convolution_backward_data::desc desc(dnnl::algorithm::convolution_direct, src, any_weights,
                                                     dst, stride, dilation, padding, padding);
    return {desc, onednn::user_scratchpad(), onednn::engine(), forward(false)};
  }
  dnnl::convolution_backward_weights::primitive_desc backward_weights(bool with_bias) const {
    using dnnl::convolution_backward_weights;
    const auto direct = dnnl::algorithm::convolution_direct;
    const auto desc = with_bias ? convolution_backward_weights::desc(direct, src, any_weights, bias, dst,
                                                                     stride, dilation, padding, padding)
                                : convolution_backward_weights::desc(direct, src, any_weights, dst, stride,
                                                                     dilation, padding, padding);
    return {desc, onednn::user_scratchpad(), onednn::engine(), forward(with_bias)};
  }

  static constexpr auto f32 = dnnl::memory::data_type::f32;
  static Desc image(const Tensor& x) {
    return Desc(dims(x.shape().begin(), x.shape().end()), f32, tag::nhwc);
  }

  Desc src, dst, plain_weights, any_weights, bias;
  dims stride, dilation, padding;
};

onednn::PlanKey key_of(const char* kind, const Tensor& x, const Tensor& w, const Conv2dOptions& o,
                       bool with_bias) {
  onednn::PlanKey key(kind);
  key.add(x.shape()).add(w.shape()).add(o.stride).add(o.padding).add(o.dilation).add(o.groups).add(with_bias);
  return key;
}

template <class PrimitiveDesc>
onednn::Plan plan_of(const PrimitiveDesc& pd, const Problem& problem, const dnnl::primitive& primitive,
                     const Desc& weights) {
  onednn::Plan p;
  p.primitive = primitive;
  p.src = problem.src, p.dst = problem.dst, p.bias = problem.bias, p.weights = weights;
  p.plain_weights = problem.plain_weights;
  p.scratchpad = pd.scratchpad_desc();
  return p;
}

void conv2d_cpu(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, Conv2dOptions o) {
  if (y.dtype() != DType::kF32) return conv2d_reference(y, x, w, bias, o);
  static const char kind[] = "conv2d";
  const auto plan = onednn::plan_for(key_of(kind, x, w, o, bias.defined()), [&] {
    const Problem problem(x, w, y, o);
    const auto pd = problem.forward(bias.defined());
    return plan_of(pd, problem, dnnl::convolution_forward(pd), pd.weights_desc());
  });
  Tensor hold;
  onednn::run(*plan, {{DNNL_ARG_SRC, onednn::memory(plan->src, x)},
                      {DNNL_ARG_WEIGHTS, onednn::weights_as(w, plan->plain_weights, plan->weights, hold)},
                      {DNNL_ARG_BIAS, bias.defined() ? onednn::memory(plan->bias, bias) : dnnl::memory()},
                      {DNNL_ARG_DST, onednn::memory(plan->dst, y)}});
}

void conv2d_input_grad_cpu(const Tensor& dx, const Tensor& dy, const Tensor& w, Conv2dOptions o) {
  if (dx.dtype() != DType::kF32) return conv2d_input_grad_reference(dx, dy, w, o);
  if (pays_sparse_grad(dy, dx, w.shape(), o)) return sparse_input_grad(dx, dy, w, o);
  static const char kind[] = "conv2d_input_grad";
  const auto plan = onednn::plan_for(key_of(kind, dx, w, o, false), [&] {
    const Problem problem(dx, w, dy, o);
    const auto pd = problem.backward_data();
    return plan_of(pd, problem, dnnl::convolution_backward_data(pd), pd.weights_desc());
  });
  Tensor hold;
  onednn::run(*plan, {{DNNL_ARG_DIFF_DST, onednn::memory(plan->dst, dy)},
                      {DNNL_ARG_WEIGHTS, onednn::weights_as(w, plan->plain_weights, plan->weights, hold)},
                      {DNNL_ARG_DIFF_SRC, onednn::memory(plan->src, dx)}});
}

void conv2d_weight_grad_cpu(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                            Conv2dOptions o) {
  if (dw.dtype() != DType::kF32) return conv2d_weight_grad_reference(dw, db, dy, x, o);
  if (pays_sparse_grad(dy, x, dw.shape(), o)) return sparse_weight_grad(dw, db, dy, x, o);
  if (has_fast_weight_grad(dw, o)) return fast_weight_grad(dw, db, dy, x, o);
  static const char kind[] = "conv2d_weight_grad";
  const auto plan = onednn::plan_for(key_of(kind, x, dw, o, db.defined()), [&] {
    const Problem problem(x, dw, dy, o);
    const auto pd = problem.backward_weights(db.defined());
    return plan_of(pd, problem, dnnl::convolution_backward_weights(pd), pd.diff_weights_desc());
  });
  // Gradients are row-major like their weights.
  const bool direct = plan->weights == plan->plain_weights;
  const Tensor packed = direct ? dw : onednn::scratch(plan->weights);
  const dnnl::memory weights = onednn::memory(plan->weights, packed);
  onednn::run(*plan, {{DNNL_ARG_SRC, onednn::memory(plan->src, x)},
                      {DNNL_ARG_DIFF_DST, onednn::memory(plan->dst, dy)},
                      {DNNL_ARG_DIFF_WEIGHTS, weights},
                      {DNNL_ARG_DIFF_BIAS, db.defined() ? onednn::memory(plan->bias, db) : dnnl::memory()}});
  if (!direct) onednn::reorder(weights, onednn::memory(plan->plain_weights, dw));
}

const RegisterKernel registrations[] = {
    {raw::conv2d_kernel, DeviceType::kCPU, &conv2d_cpu},
    {raw::conv2d_input_grad_kernel, DeviceType::kCPU, &conv2d_input_grad_cpu},
    {raw::conv2d_weight_grad_kernel, DeviceType::kCPU, &conv2d_weight_grad_cpu},
};

}  // namespace
}  // namespace gradus
