// CPU kernels of convolution, its input gradient and its weight gradient. Each direction has a table of
// algorithms; the first one that applies computes the problem, and the profiler shows its name. oneDNN computes
// most f32 and bf16 convolutions; the entries before it are faster where they apply, and the last one applies
// always. Images x and y are channels-last, [N, C, ...] and [N, O, ...]; filters w are row-major, [O, C / groups,
// ...]. In the tables of gradients, the members x, w, bias and y of ConvProblem are dx, dw, db or dy (kernels.h).
// tensor/ops/images/conv.cc checks the arguments, allocates the results, and skips empty tensors.
#include "gradus/tensor/ops/images/conv.h"
#include "gradus/tensor/kernel.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "gradus/tensor/cpu/conv/kernels.h"
#include "gradus/tensor/cpu/convert.h"
#include "gradus/tensor/cpu/onednn/problems.h"
#include "gradus/tensor/cpu/widen.h"
#include "gradus/tensor/ops/activations.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/flush_denormal.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/processor.h"

namespace gradus {
namespace {

using cpu::as_f32;
using cpu::compute_in_f32;
using cpu::to_f32;
using onednn::Desc;
using onednn::Pass;
using raw::ConvGeometry;

// Returns the 2-dim geometry g with a stride of 1.
ConvGeometry without_stride(ConvGeometry g) {
  g.stride = {1, 1};
  return g;
}

// Returns the pixels of x that a strided 1x1 filter reads, as a view of shape [N, C, P, Q].
Tensor strided_pixels(const Tensor& x, const Tensor& y, const ConvGeometry& g) {
  Strides strides = x.strides();
  strides[2] *= g.stride[0], strides[3] *= g.stride[1];
  return view_as_strided(x, {x.size(0), x.size(1), y.size(2), y.size(3)}, strides, x.impl().offset);
}
// Returns the same pixels as a dense channels-last copy.
Tensor copy_strided_pixels(const ConvProblem& p) {
  const Tensor view = strided_pixels(p.x, p.y, p.geometry);
  const Tensor copy = empty_channels_last(view.shape(), {p.x.dtype(), p.x.device()});
  raw::copy_kernel.cpu(copy, view);  // the kernel, not the op, which would queue the copy
  return copy;
}

// Runs the first kernel of the table that applies.
void run_first_applicable(std::span<const ConvKernel> table, const ConvProblem& p) {
  for (const ConvKernel& kernel : table) {
    if (!kernel.applies(p)) continue;
    report_algorithm(kernel.name);
    return kernel.run(p);
  }
}

bool always(const ConvProblem&) { return true; }
bool has_bias(const ConvProblem& p) { return p.bias.defined(); }

// Returns whether im2col with Eigen's matrix product computes the problem: f64, and f32 where oneDNN is slow.
bool prefers_im2col(const ConvProblem& p) {
  const DType dtype = p.y.dtype();
  return p.x.dtype() == dtype && (dtype == DType::kF64 || (dtype == DType::kF32 && !onednn::kHasFastMatmul));
}

// Returns whether this is a 1x1 convolution with a stride. All algorithms are faster on a copy of the pixels
// that are read, with a stride of 1.
bool is_strided_pointwise(const ConvProblem& p) {
  const ConvGeometry& g = p.geometry;
  return (p.x.dtype() == DType::kF32 || p.x.dtype() == DType::kBF16) && p.x.dtype() == p.y.dtype() &&
         g.rank() == 2 && p.w.size(2) * p.w.size(3) == 1 && g.stride[0] * g.stride[1] > 1 &&
         g.padding[0] + g.padding[1] == 0;
}

void conv_cpu(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, ConvGeometry g);
void conv_input_grad_cpu(const Tensor& dx, const Tensor& dy, const Tensor& w, const Tensor& bias,
                         ConvGeometry g);
void conv_weight_grad_cpu(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                          ConvGeometry g);

// Returns whether oneDNN's weight gradient is computed from blocked copies of the images. With a stride it
// takes 1.6 times as long on channels-last images, a difference larger than the time for the copies.
bool prefers_blocked_images(const ConvProblem& p) {
  return p.y.dtype() == DType::kF32 && p.geometry.rank() == 2 && p.geometry.groups == 1 &&
         p.geometry.stride[0] > 1 && p.w.size(2) > 1 && p.w.size(1) >= 16;
}

// Finds or makes oneDNN's primitive for the problem and stores it in p.plan. Returns false if oneDNN has none.
template <Pass pass> bool has_plan(const ConvProblem& p) {
  static const char kind[] = "convolution";  // its address is the key's op (PlanKey): one object per Pass
  const ConvGeometry& g = p.geometry;
  onednn::PlanKey key(kind);
  key.add(p.x.shape()).add(p.w.shape()).add(g.stride).add(g.padding).add(g.dilation).add(g.groups);
  key.add(has_bias(p)).add(int64_t(p.x.dtype())).add(int64_t(p.w.dtype()));
  p.plan = onednn::find_or_create_plan(p.y.dtype(), key, [&] {
    const bool any_layout = pass == Pass::kWeightGrad && prefers_blocked_images(p);
    return onednn::conv_plan(pass, p.x, p.w, p.y, g, has_bias(p), any_layout);
  });
  return p.plan != nullptr;
}

// ---- forward ----

void run_forward_plan(const ConvProblem& p) {
  const onednn::Plan& plan = *p.plan;
  Tensor owner;
  onednn::run(plan,
              {{DNNL_ARG_SRC, onednn::memory(plan.src, p.x)},
               {DNNL_ARG_WEIGHTS, onednn::reorder_weights(p.w, plan.plain_weights, plan.weights, owner)},
               {DNNL_ARG_BIAS, onednn::memory(plan.bias, p.bias)},
               {DNNL_ARG_DST, onednn::memory(plan.dst, p.y)}});
}

void forward_in_f32(const ConvProblem& p) {
  compute_in_f32(p.y,
                 [&](const Tensor& y) { conv_cpu(y, to_f32(p.x), to_f32(p.w), to_f32(p.bias), p.geometry); });
}

void forward_of_strided_pixels(const ConvProblem& p) {
  conv_cpu(p.y, copy_strided_pixels(p), p.w, p.bias, without_stride(p.geometry));
}

void conv_cpu(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, ConvGeometry g) {
  static const ConvKernel table[] = {
      pointwise_kernels().forward,
      winograd_kernels().forward,
      winograd_stride2_kernels().forward,
      {"strided pixels", is_strided_pointwise, forward_of_strided_pixels},
      {"im2col", prefers_im2col, conv_reference},
      {"onednn", has_plan<Pass::kForward>, run_forward_plan},
      {"f32", always, forward_in_f32},
  };
  run_first_applicable(table, {x, w, bias, y, g});
}

void conv_relu_cpu(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, ConvGeometry g) {
  conv_cpu(y, x, w, bias, g);
  raw::Unary<functors::Relu>::kernel.cpu(y, y, {});
}

// ---- input gradient: dx is f32 or has dy's dtype ----

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

// For transposed convolution, which has a bias: dx + bias in f32, rounded once.
void input_grad_and_bias(const ConvProblem& p) {
  compute_in_f32(p.x, [&](const Tensor& sum) {
    conv_input_grad_cpu(sum, p.y, p.w, {}, p.geometry);
    add_to_channels(sum, as_f32(p.bias));
  });
}

void input_grad_of_strided_pixels(const ConvProblem& p) {
  const Tensor dpixels =
      empty_channels_last({p.x.size(0), p.x.size(1), p.y.size(2), p.y.size(3)}, {p.x.dtype(), p.x.device()});
  conv_input_grad_cpu(dpixels, p.y, p.w, {}, without_stride(p.geometry));
  raw::fill_kernel.cpu(p.x, 0);
  raw::copy_kernel.cpu(strided_pixels(p.x, p.y, p.geometry), dpixels);
}

void run_input_grad_plan(const ConvProblem& p) {
  const onednn::Plan& plan = *p.plan;
  Tensor owner;
  onednn::run(plan,
              {{DNNL_ARG_DIFF_DST, onednn::memory(plan.dst, p.y)},
               {DNNL_ARG_WEIGHTS, onednn::reorder_weights(p.w, plan.plain_weights, plan.weights, owner)},
               {DNNL_ARG_DIFF_SRC, onednn::memory(plan.src, p.x)}});
}

void input_grad_in_f32(const ConvProblem& p) {
  compute_in_f32(
      p.x, [&](const Tensor& dx) { conv_input_grad_cpu(dx, to_f32(p.y), to_f32(p.w), {}, p.geometry); });
}

void conv_input_grad_cpu(const Tensor& dx, const Tensor& dy, const Tensor& w, const Tensor& bias,
                         ConvGeometry g) {
  static const ConvKernel table[] = {
      {"bias", has_bias, input_grad_and_bias},
      sparse_grad_kernels().input_grad,
      pointwise_kernels().input_grad,
      winograd_kernels().input_grad,
      winograd_stride2_kernels().input_grad,
      {"strided pixels", is_strided_pointwise, input_grad_of_strided_pixels},
      {"im2col", prefers_im2col, conv_input_grad_reference},
      {"onednn", has_plan<Pass::kInputGrad>, run_input_grad_plan},
      {"f32", always, input_grad_in_f32},
  };
  run_first_applicable(table, {dx, w, bias, dy, g});
}

// ---- weight and bias gradients: dw and db are f32 or have the images' dtype ----

constexpr int64_t kRows = 64;         // pixels that are summed in f32
constexpr int64_t kPart = 64 * 1024;  // approximate elements per partial sum

// db[o] = sum of dy[n, o, ...]: blocks of kRows pixels in f32, their sums in f64, partial sums in parallel.
template <class T> void sum_pixels(const Tensor& db, const Tensor& dy) {
  const int64_t O = dy.size(1), pixels = dy.numel() / O;
  const int64_t part = std::max<int64_t>(1, kPart / (kRows * O)) * kRows, parts = (pixels + part - 1) / part;
  const Tensor sums = empty({parts, O}, {DType::kF64});
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    std::vector<float> rows(static_cast<size_t>(O));
    for (int64_t i = first; i < last; ++i) {
      double* __restrict sum = sums.ptr<double>() + i * O;
      std::fill(sum, sum + O, 0.0);
      const int64_t end = std::min(pixels, (i + 1) * part);
      for (int64_t p = i * part; p < end;) {
        float* __restrict partial = rows.data();
        std::fill(partial, partial + O, 0.0f);
        for (const int64_t block = std::min(end, p + kRows); p < block; ++p) {
          const T* __restrict row = dy.ptr<T>() + p * O;
          for (int64_t o = 0; o < O; ++o) partial[o] += float(row[o]);
        }
        for (int64_t o = 0; o < O; ++o) sum[o] += partial[o];
      }
    }
  });
  double* total = sums.ptr<double>();
  for (int64_t i = 1; i < parts; ++i)
    for (int64_t o = 0; o < O; ++o) total[o] += total[i * O + o];
  cpu::converter(db.dtype(), DType::kF64)(O, db.raw_ptr(), 1, total, 1);
}

}  // namespace

void bias_grad(const Tensor& db, const Tensor& dy) {
  dy.dtype() == DType::kBF16 ? sum_pixels<bf16>(db, dy) : sum_pixels<float>(db, dy);
}

namespace {

// With AMX, oneDNN's bf16 weight gradient takes half the time of bf16_weight_grad_kernels().
bool has_amx_weight_grad_plan(const ConvProblem& p) {
  return cpu::level() == cpu::Level::kAmx && p.y.dtype() == DType::kBF16 && has_plan<Pass::kWeightGrad>(p) &&
         onednn::implementation_name(p.plan->primitive).find("amx") != std::string_view::npos;
}

// Returns x, whose layout is `plain`, in `layout`. A reordered copy is stored in `owner`, which must
// outlive the result.
dnnl::memory image_as(const Tensor& x, const Desc& plain, const Desc& layout, Tensor& owner) {
  if (layout == plain) return onednn::memory(plain, x);
  owner = onednn::scratch(layout);
  const dnnl::memory to = onednn::memory(layout, owner);
  onednn::reorder(onednn::memory(plain, x), to);
  return to;
}

// oneDNN may compute dw in a blocked layout, which is then reordered to row-major.
void run_weight_grad_plan(const ConvProblem& p) {
  const onednn::Plan& plan = *p.plan;
  const bool direct = plan.weights == plan.plain_weights;
  const Tensor packed = direct ? p.w : onednn::scratch(plan.weights);
  const dnnl::memory weights = onednn::memory(plan.weights, packed);
  Tensor hold_x, hold_dy;
  onednn::run(plan, {{DNNL_ARG_SRC, image_as(p.x, onednn::image_layout(p.x), plan.src, hold_x)},
                     {DNNL_ARG_DIFF_DST, image_as(p.y, onednn::image_layout(p.y), plan.dst, hold_dy)},
                     {DNNL_ARG_DIFF_WEIGHTS, weights},
                     {DNNL_ARG_DIFF_BIAS, onednn::memory(plan.bias, p.bias)}});
  if (!direct) onednn::reorder(weights, onednn::memory(plan.plain_weights, p.w));
}

// Computes the two gradients separately: oneDNN takes longer for both at once, and other algorithms have no
// bias gradient.
void weight_grad_and_bias(const ConvProblem& p) {
  conv_weight_grad_cpu(p.w, {}, p.y, p.x, p.geometry);
  bias_grad(p.bias, p.y);
}

bool prefers_separate_bias_grad(const ConvProblem& p) {
  return has_bias(p) && cpu::is_computed_in_f32(p.y.dtype());
}

void weight_grad_of_strided_pixels(const ConvProblem& p) {
  conv_weight_grad_cpu(p.w, p.bias, p.y, copy_strided_pixels(p), without_stride(p.geometry));
}

void weight_grad_in_f32(const ConvProblem& p) {
  compute_in_f32(p.w, [&](const Tensor& dw) {
    compute_in_f32(p.bias, [&](const Tensor& db) {
      conv_weight_grad_cpu(dw, db, to_f32(p.y), to_f32(p.x), p.geometry);
    });
  });
}

void conv_weight_grad_cpu(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                          ConvGeometry g) {
  static const ConvKernel table[] = {
    {"onednn", has_amx_weight_grad_plan, run_weight_grad_plan},
#if defined(__x86_64__)
    bf16_weight_grad_kernels().weight_grad,
#endif
    sparse_grad_kernels().weight_grad,
    {"bias", prefers_separate_bias_grad, weight_grad_and_bias},
    pointwise_kernels().weight_grad,
    winograd_kernels().weight_grad,
    winograd_stride2_kernels().weight_grad,
    {"strided pixels", is_strided_pointwise, weight_grad_of_strided_pixels},
    {"im2col", prefers_im2col, conv_weight_grad_reference},
    {"onednn", has_plan<Pass::kWeightGrad>, run_weight_grad_plan},
    {"f32", always, weight_grad_in_f32},
  };
  run_first_applicable(table, {x, dw, db, dy, g});
}

}  // namespace

constinit decltype(raw::conv_kernel) raw::conv_kernel{"conv", cpu::flushing<&conv_cpu>};
constinit decltype(raw::conv_relu_kernel) raw::conv_relu_kernel{"conv_relu", cpu::flushing<&conv_relu_cpu>};
constinit decltype(raw::conv_input_grad_kernel) raw::conv_input_grad_kernel{
    "conv_input_grad", cpu::flushing<&conv_input_grad_cpu>};
constinit decltype(raw::conv_weight_grad_kernel) raw::conv_weight_grad_kernel{
    "conv_weight_grad", cpu::flushing<&conv_weight_grad_cpu>};

}  // namespace gradus
