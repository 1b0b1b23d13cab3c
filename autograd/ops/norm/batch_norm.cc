// Batch normalization with fused relu, leaky_relu and residual addition, and its backward rules; and the two steps
// of synchronized batch normalization, between which ranks combine their statistics (batch_statistics,
// batch_norm_by). In training, first derivatives run fused kernels (tensor/ops/norm/batch_norm.h). If dy, x or the
// weight is tracked in a backward (second derivatives), the gradients are computed by differentiable ops instead.
#include "gradus/autograd/ops/norm/batch_norm.h"

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/relu_fusion.h"
#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus {

// Note [Rectified batch norm]
// A relu whose input is the temporary result of a batch norm is fused into the batch norm's node (FusesNextRelu).
// The node's backward recomputes the sign of the result from x, and uses dy only where the result is positive.
// The fusion halves the memory traffic of the gradient, and the result need not be saved.
// batch_norm_relu and batch_norm_leaky_relu are recorded in the same way, and also apply the activation in the
// forward kernel, where a slope of 0 means relu. A leaky_relu of slope 0 is a different function (it maps
// negative numbers to -0 and -infinity to NaN) and is not fused. With a residual the sign cannot be computed
// from x, so batch_norm_add_relu saves its result. If no other reference to the result exists during the
// backward, its buffer is reused for x's gradient, and dy's buffer for the residual's.
namespace {

// Returns all dims except the channels'.
Dims all_but_channels(const Tensor& x) {
  Dims dims{0};
  for (int d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}
// Returns t[C] as [1,C,1,...], to broadcast with x.
Tensor per_channel(const Tensor& t, const Tensor& x) {
  Shape shape = Dims::filled(x.dim(), 1);
  shape[1] = x.size(1);
  return reshape(t, shape);
}

int64_t elements_per_channel(const Tensor& x) { return x.size(1) > 0 ? x.numel() / x.size(1) : 0; }

// Returns x in the dtype of sums per channel: f64 for f64, else f32.
Tensor widened(const Tensor& x) { return to(x, raw::channel_dtype(x.dtype())); }

// Computes the gradients of batch_norm by differentiable ops, for second derivatives. dx includes the paths
// through mean and variance:
//   dx = weight / std * (dy - mean(dy) - normalized * mean(dy * normalized)), normalized = (x - mean(x)) / std
raw::BatchNormGrads batch_norm_grads(const Tensor& dy_in, const Tensor& x_in, const Tensor& weight,
                                     double eps) {
  const Tensor dy = widened(dy_in), x = widened(x_in);
  const Dims dims = all_but_channels(x);
  const Tensor centered = x - mean(x, dims, true);
  const Tensor inv_std = rsqrt(mean(centered * centered, dims, true) + eps);
  const Tensor normalized = centered * inv_std;
  const Tensor scale = weight.defined() ? inv_std * per_channel(weight, x) : inv_std;
  return {scale * (dy - mean(dy, dims, true) - normalized * mean(dy * normalized, dims, true)),
          sum(dy * normalized, dims, false), sum(dy, dims, false)};
}

// Normalizes by the given statistics, which count as constants. The backward uses copies of the mean and of the
// inverse standard deviation, because running statistics may change before the backward.
Tensor normalize_by(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                    const Tensor& bias, double eps) {
  Tensor y = raw::batch_norm_apply(x, mean, var, weight, bias, eps);
  if (Recorder r{"batch_norm", x, weight, bias}) {
    const Tensor inv_std = per_channel(rsqrt(widened(detach(var)) + eps), x);
    r.record(
        y,
        wrt(x,
            [inv_std, weight = r.save(weight)](const Tensor& dy) {
              const Tensor w = weight.get();
              return dy * (w.defined() ? inv_std * per_channel(w, dy) : inv_std);
            }),
        wrt(weight,
            [inv_std, x = r.save(x), mean = r.save(raw::clone(mean))](const Tensor& dy) {
              const Tensor v = widened(x.get());
              return sum(dy * ((v - per_channel(mean.get(), v)) * inv_std), all_but_channels(v), false);
            }),
        wrt(bias, [dims = all_but_channels(x)](const Tensor& dy) { return sum(widened(dy), dims, false); }));
  }
  return y;
}

void check_arguments(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const Tensor& running_mean, const Tensor& running_var,
                     const BatchNormFuncOptions& options) {
  raw::check_batch_norm(
      op, x,
      {{"weight", &weight}, {"bias", &bias}, {"running_mean", &running_mean}, {"running_var", &running_var}});
  if (!(options.eps >= 0)) throw ValueError(op, "eps must be at least 0, got ", options.eps);
  if (running_mean.defined() != running_var.defined())
    throw ValueError(op, "running_mean and running_var are given together or not at all");
  if (!options.training && !running_mean.defined())
    throw ValueError(op, "has no running statistics to normalize by, and training is off");
  if (options.training && elements_per_channel(x) == 1)
    throw ValueError(op, "training needs more than one element per channel: x ", describe(x));
}

// Returns the running statistics for the kernel to update. For an empty batch, increments the number of batches
// and returns none.
raw::RunningStatistics statistics_to_update(const Tensor& x, const Tensor& running_mean,
                                            const Tensor& running_var, const BatchNormFuncOptions& options) {
  const Tensor& batches = options.num_batches_tracked;
  if (x.numel() > 0) return {running_mean, running_var, batches, options.momentum};
  if (batches.defined()) raw::add_(batches, 1);
  return {};
}

// The backward rule of y = leaky_relu(batch_norm(x)) in training, where batch_norm uses the batch's own
// statistics. A slope of 1 means batch_norm alone, a slope of 0 relu.
class BatchNormNode final : public autograd::Node, public autograd::FusesNextRelu {
 public:
  struct Saved {
    autograd::Saved x, weight, bias, mean, var;
  };
  BatchNormNode(const char* op, Saved saved, double eps, double negative_slope)
      : Node(op), saved_(std::move(saved)), eps_(eps), negative_slope_(negative_slope) {}

  void run(const autograd::RuleArgs& args) override {
    const Tensor x = saved_.x.get(), w = saved_.weight.get(), b = saved_.bias.get();
    Tensor dy = std::move(args.dys[0]);
    const bool second_order = autograd::any_tracked(dy, x, w);
    if (second_order && negative_slope_ != 1) {
      const Tensor y = raw::batch_norm(x, w, b, eps_).y;
      dy = negative_slope_ == 0 ? relu_backward(dy, y) : leaky_relu_backward(dy, y, negative_slope_);
    }
    const raw::BatchNormBackwardOptions options{
        .eps = eps_, .negative_slope = negative_slope_, .in_place = autograd::may_reuse(dy)};
    auto g = second_order
                 ? batch_norm_grads(dy, x, w, eps_)
                 : raw::batch_norm_backward(dy, x, saved_.mean.get(), saved_.var.get(), w, b, options);
    args.dxs[0] = std::move(g.dx), args.dxs[1] = std::move(g.dweight), args.dxs[2] = std::move(g.dbias);
  }
  void drop(std::span<const char>) override { saved_ = {}; }

  bool fuse_relu() override {
    return std::exchange(negative_slope_, negative_slope_ == 1 ? 0 : negative_slope_) == 1;
  }

 private:
  Saved saved_;
  const double eps_;
  double negative_slope_;
};

// Records y = leaky_relu(x normalized by the batch's own statistics). With a slope of 1, a later relu may be
// fused into the node.
void record_training(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const raw::BatchNormResult& result, double eps, double negative_slope) {
  if (Recorder r{op, x, weight, bias})
    r.attach(make_ref<BatchNormNode>(op,
                                     BatchNormNode::Saved{r.save(x), r.save(weight), r.save(bias),
                                                          r.save(result.mean), r.save(result.var)},
                                     eps, negative_slope),
             {&result.y, 1}, {r.edge_to(x), r.edge_to(weight), r.edge_to(bias)});
}

// The node of batch_statistics with outputs x, mean f64[C] and m2 f64[C] = sum (x - mean)^2. The gradient
// of x is
//   dx + dmean / rows + 2 * dm2 * (x - mean), where rows is the number of elements per channel.
// The gradient of output x is accepted in channel_dtype, so that the sum is rounded once.
class BatchStatisticsNode final : public autograd::Node {
 public:
  BatchStatisticsNode(autograd::Saved x, autograd::Saved mean)
      : Node("batch_statistics"), x_(std::move(x)), mean_(std::move(mean)) {}

  DType gradient_dtype(size_t output) const override { return raw::channel_dtype(outputs()[output].dtype); }
  void run(const autograd::RuleArgs& args) override {
    args.dxs[0] = gradient(std::move(args.dys[0]), args.dys[1], args.dys[2]);
  }
  void drop(std::span<const char>) override { x_ = mean_ = {}; }

 private:
  Tensor gradient(Tensor dx, const Tensor& dmean, const Tensor& dm2) const {
    const Tensor v = x_.get();
    const int64_t rows = elements_per_channel(v);
    if ((!dmean.defined() && !dm2.defined()) || rows == 0) return dx;
    const DType wide = raw::channel_dtype(v.dtype());
    const Tensor none = zeros({v.size(1)}, {wide, v.device()});
    const Tensor offset = dmean.defined() ? to(dmean / double(rows), wide) : none;
    const Tensor slope = dm2.defined() ? to(2 * dm2, wide) : none;
    if (!autograd::any_tracked(v, offset, slope, dx)) {
      const bool in_place = dx.defined() && autograd::may_reuse(dx);
      return raw::batch_statistics_backward(dx, v, mean_.get(), offset, slope, in_place);
    }
    const Tensor wide_v = widened(v), centered = wide_v - mean(wide_v, all_but_channels(v), true);
    const Tensor through = per_channel(offset, v) + centered * per_channel(slope, v);
    return dx.defined() ? dx + through : through;
  }

  autograd::Saved x_, mean_;
};

// Returns whether t has x's shape, dtype and device.
bool same_form(const Tensor& t, const Tensor& x) {
  return t.shape() == x.shape() && t.dtype() == x.dtype() && t.device() == x.device();
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormFuncOptions& options) {
  const OpCall call("batch_norm", {{"x", x}});
  const char* op = "batch_norm";
  check_arguments(op, x, weight, bias, running_mean, running_var, options);
  if (!options.training) return normalize_by(x, running_mean, running_var, weight, bias, options.eps);
  const auto result = raw::batch_norm(x, weight, bias, options.eps,
                                      statistics_to_update(x, running_mean, running_var, options));
  record_training(op, x, weight, bias, result, options.eps, 1);
  return result.y;
}

Tensor batch_norm_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, const BatchNormFuncOptions& options) {
  const OpCall call("batch_norm_relu", {{"x", x}});
  const char* op = "batch_norm_relu";
  check_arguments(op, x, weight, bias, running_mean, running_var, options);
  if (!options.training) return relu(batch_norm(x, weight, bias, running_mean, running_var, options));
  const auto result = raw::batch_norm_relu(x, {}, weight, bias, {.eps = options.eps},
                                           statistics_to_update(x, running_mean, running_var, options));
  record_training(op, x, weight, bias, result, options.eps, 0);
  return result.y;
}

Tensor batch_norm_leaky_relu(const Tensor& x, double slope, const Tensor& weight, const Tensor& bias,
                             const Tensor& running_mean, const Tensor& running_var,
                             const BatchNormFuncOptions& options) {
  const OpCall call("batch_norm_leaky_relu", {{"x", x}});
  const char* op = "batch_norm_leaky_relu";
  check_arguments(op, x, weight, bias, running_mean, running_var, options);
  if (!options.training || slope == 0)
    return leaky_relu(batch_norm(x, weight, bias, running_mean, running_var, options), slope);
  const auto result = raw::batch_norm_relu(x, {}, weight, bias, {options.eps, slope},
                                           statistics_to_update(x, running_mean, running_var, options));
  record_training(op, x, weight, bias, result, options.eps, slope);
  return result.y;
}

Tensor batch_norm_add_relu(const Tensor& x, Tensor residual, const Tensor& weight, const Tensor& bias,
                           const Tensor& running_mean, const Tensor& running_var,
                           const BatchNormFuncOptions& options) {
  const OpCall call("batch_norm_add_relu", {{"x", x}, {"residual", residual}});
  const char* op = "batch_norm_add_relu";
  check_arguments(op, x, weight, bias, running_mean, running_var, options);
  if (!options.training || !same_form(residual, x))
    return relu(batch_norm(x, weight, bias, running_mean, running_var, options) + residual);
  const bool reuses = autograd::may_reuse(residual);
  const auto result =
      raw::batch_norm_relu(x, detach(residual), weight, bias, {.eps = options.eps, .in_place = reuses},
                           statistics_to_update(x, running_mean, running_var, options));
  const std::vector<Tensor> inputs{x, weight, bias, residual};
  if (Recorder r{op, inputs})
    r.record_joint(
        {&result.y, 1}, inputs,
        [x = r.save(x), weight = r.save(weight), y = r.save_output(result.y), mean = r.save(result.mean),
         var = r.save(result.var),
         eps = options.eps](std::vector<Tensor> dys, autograd::Needs) mutable -> std::vector<Tensor> {
          const Tensor v = x.get(), w = weight.get();
          Tensor dy = std::move(dys[0]);
          dys.clear();
          if (autograd::any_tracked(dy, v, w)) {
            const Tensor dsum = relu_backward(dy, y.get());
            const auto g = batch_norm_grads(dsum, v, w, eps);
            return {g.dx, g.dweight, g.dbias, dsum};
          }
          const Tensor out = y.release();
          const auto g = raw::batch_norm_add_relu_backward(
              dy, out, v, mean.get(), var.get(), w, {eps, autograd::may_reuse(dy), autograd::may_reuse(out)});
          return {g.dx, g.dweight, g.dbias, g.dresidual};
        });
  return result.y;
}

BatchStatistics batch_statistics(const Tensor& x) {
  const OpCall call("batch_statistics", {{"x", x}});
  const char* op = "batch_statistics";
  const auto [mean, m2] = raw::batch_statistics(x);
  BatchStatistics result{detach(x), mean, m2};
  if (Recorder r{op, x})
    r.attach(Ref<autograd::Node>(new BatchStatisticsNode(r.save(x), r.save_output(mean, 1))),
             std::vector<Tensor>{result.x, mean, m2}, {r.edge_to(x)});
  return result;
}

Tensor batch_norm_by(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                     const Tensor& bias, double eps) {
  const OpCall call("batch_norm_by", {{"x", x}, {"mean", mean}, {"var", var}});
  const char* op = "batch_norm_by";
  if (!(eps >= 0)) throw ValueError(op, "eps must be at least 0, got ", eps);
  raw::check_batch_norm(op, x, {{"mean", &mean}, {"var", &var}, {"weight", &weight}, {"bias", &bias}});
  const Tensor y = raw::batch_norm_apply(x, mean, var, weight, bias, eps);
  const std::vector<Tensor> inputs{x, mean, var, weight, bias};
  if (Recorder r{op, inputs})
    r.record_joint({&y, 1}, inputs,
                   [x = r.save(x), mean = r.save(mean), var = r.save(var), weight = r.save(weight), eps](
                       std::vector<Tensor> dys, autograd::Needs) -> std::vector<Tensor> {
                     const Tensor dy = dys[0], v = x.get(), m = mean.get(), s = var.get(), w = weight.get();
                     const Tensor inv_std = rsqrt(widened(s) + eps);
                     const Tensor scale = w.defined() ? inv_std * w : inv_std;
                     Tensor dx, total, centered_total;
                     if (autograd::any_tracked(dy, v, m, s, w)) {
                       const Dims dims = all_but_channels(v);
                       const Tensor g = widened(dy);
                       dx = g * per_channel(scale, v);
                       total = sum(g, dims, false);
                       centered_total = sum(g * (widened(v) - per_channel(m, v)), dims, false);
                     } else {
                       auto g = raw::batch_norm_apply_backward(dy, v, m, s, w, eps);
                       dx = g.dx, total = g.sum, centered_total = g.centered_sum;
                     }
                     return {dx, -(total * scale), -0.5 * (centered_total * scale * inv_std * inv_std),
                             centered_total * inv_std, total};
                   });
  return y;
}

}  // namespace gradus
