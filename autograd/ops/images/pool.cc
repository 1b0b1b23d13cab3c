// Max, average and Lp pooling of [N, C, L], [N, C, H, W] and [N, C, D, H, W], or of samples without N, over
// the kernels of tensor/ops/images/pool.h. Rules (backward functions) use max_pool_scatter, whose gradient is
// max_pool_gather and vice versa, and avg_pool_spread, the transpose of average pooling. Max pooling of a
// relu's result is recorded as one fused node. Fractional max pooling is composed of gather.
#include "gradus/autograd/ops/images/pool.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/recording_state.h"
#include "gradus/autograd/graph/relu_fusion.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/autograd/ops/precision.h"
#include "gradus/autograd/ops/random.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

Tensor max_pool_over(const char* op, const Tensor& x, const PoolWindows& windows) {
  Recorder r{op, x};
  if (!r) return raw::max_pool_value(x, windows);
  auto [y, index] = raw::max_pool(x, windows);
  r.record(y, wrt(x, [index = r.save(index), windows](const Tensor& dy) {
             return max_pool_scatter(dy, index.get(), windows);
           }));
  return y;
}

Tensor avg_pool_over(const char* op, const Tensor& x, const PoolWindows& windows) {
  return autograd::record_unary(op, x, raw::avg_pool(x, windows),
                                [windows](const Tensor& dy) { return avg_pool_spread(dy, windows); });
}

// Note [Pooling a relu]
// The backward of max_pool2d(relu(x)) over disjoint windows needs only the relu's result h: dx is dy at the
// first maximum of each window if this maximum is positive, and 0 elsewhere. One fused node therefore records
// both ops: its edge is the relu's edge to x, and it saves h. The relu's own node remains for other consumers
// of h. If no other reference to h exists during the backward, dx is written into h's buffer window by
// window, without an index, a mask or new memory. If h itself is a target of the backward, unfuse() splits
// the node, which then applies the rule of the pooling alone and has an edge to the relu.

// Returns the relu node that made x; null if there is none, or an open recording of x does not contain it.
const autograd::Node* relu_of(const Tensor& x) {
  const auto& slot = x.ref()->slot;
  if (!slot || slot->is_leaf()) return nullptr;
  const auto* node = static_cast<const autograd::Node*>(slot.get());
  // A recording that has h as a leaf (a checkpoint's) does not contain the relu.
  for (const auto& open : autograd::open_recordings())
    if (const auto* r = autograd::as_recording(open); r->follows(slot.get()) && !node->belongs_to(r))
      return nullptr;
  return std::string_view(node->op()) == "relu" && node->edges().size() == 1 ? node : nullptr;
}

// Returns the gradient of max_pool2d(relu(x)) with respect to x, where h = relu(x). Writes it into h's buffer
// if there is no other reference to h.
Tensor max_pool_relu_grad(const Tensor& dy, Tensor h, const PoolWindows& windows) {
  if (autograd::is_tracked(dy)) {  // second order: composed of differentiable ops, which are linear in dy
    const Tensor index = raw::max_pool(h, windows).second;
    return mul(max_pool_scatter(dy, index, windows), to(gt(h, 0), h.dtype()));
  }
  Tensor dx = raw::channels_last(h);
  const bool copied = !dx.is_same(h);
  h = Tensor();
  if (!copied && !autograd::may_reuse(dx)) dx = raw::clone(dx);
  raw::max_pool_relu_grad_(dx, dy, windows);
  return dx;
}

class MaxPoolReluNode final : public autograd::Node, public autograd::FusesPreviousRelu {
 public:
  MaxPoolReluNode(autograd::Saved h, const PoolWindows& windows, uint64_t relu)
      : Node("max_pool2d(relu)"), h_(std::move(h)), windows_(windows), relu_(relu) {}

  void run(const autograd::RuleArgs& args) override {
    args.dxs[0] = relu_ ? max_pool_relu_grad(args.dys[0], h_.release(), windows_)
                        : max_pool_scatter(args.dys[0], raw::max_pool(h_.get(), windows_).second, windows_);
  }
  void drop(std::span<const char>) override { h_ = {}; }

  uint64_t fused_relu_sequence() const override { return relu_; }
  void unfuse(const autograd::Edge& relu_result) override {
    set_edge(0, relu_result);
    relu_ = 0;
  }

 private:
  autograd::Saved h_;
  PoolWindows windows_;
  uint64_t relu_;  // sequence number of the relu's node; 0 after unfuse
};

}  // namespace

namespace {
// Max pooling of signals [N,C,L] and images [N,C,H,W], fused with a relu before (Note [Pooling a relu]).
Tensor max_pool_fusing_relu(const char* op, const Tensor& x, const PoolWindows& windows) {
  const autograd::Node* relu = windows.are_disjoint() && windows.padding == Size3(0) ? relu_of(x) : nullptr;
  Recorder r{"max_pool2d(relu)", x};
  if (!relu || !r) return max_pool_over(op, x, windows);
  Tensor y = raw::max_pool_value(x, windows);
  r.attach(make_ref<MaxPoolReluNode>(r.save(detach(x)), windows, relu->sequence()), {&y, 1},
           {relu->edges()[0]});
  return y;
}

std::pair<Tensor, Tensor> max_pool_with_indices_over(const char* op, const Tensor& x,
                                                     const PoolWindows& windows) {
  auto [y, index] = raw::max_pool(x, windows);
  if (Recorder r{op, x})
    r.record(y, wrt(x, [index = r.save(index), windows](const Tensor& dy) {
               return max_pool_scatter(dy, index.get(), windows);
             }));
  return {y, raw::max_pool_positions(index, windows)};
}

// Returns the p-th root of a window's sum of p-th powers, computed from the mean of the powers and the number
// of elements of a window, `cells`.
Tensor root_of_sum(const Tensor& mean, double cells, double p) { return pow(mul(mean, cells), 1 / p); }

void check_p(const char* op, double p) {
  if (!(p > 0) || std::isinf(p)) throw ValueError(op, "p must be positive and finite, got ", p);
}

// Returns whether x is a signal (rank 1), an image (2) or a volume (3) without a batch dim.
bool is_sample(const Tensor& x, int rank) { return x.defined() && x.dim() == rank + 1; }

Tensor without_batch(const Tensor& x) { return squeeze(x, 0); }
std::pair<Tensor, Tensor> without_batch(const std::pair<Tensor, Tensor>& batches) {
  return {squeeze(batches.first, 0), squeeze(batches.second, 0)};
}
// Returns over(op, x, windows(x)) for an x with a batch dim; a sample x becomes a batch of one.
template <class Over, class F>
auto over_batch(const char* op, const Tensor& x, int rank, Over over, F windows) {
  const OpCall call(op, {{"x", x}});
  if (!is_sample(x, rank)) return over(op, x, windows(x));
  const Tensor batch = unsqueeze(x, 0);
  return without_batch(over(op, batch, windows(batch)));
}
template <class Over, class O>
auto pooled(const char* op, const Tensor& x, int rank, Over over,
            PoolWindows (&windows)(const Tensor&, const O&), const O& options) {
  return over_batch(op, x, rank, over, [&](const Tensor& batch) { return windows(batch, options); });
}
// Adaptive pooling.
template <class Over> auto pooled(const char* op, const Tensor& x, int rank, Over over, Size3 output) {
  return over_batch(op, x, rank, over,
                    [&](const Tensor& batch) { return raw::adaptive_windows(op, batch, rank, output); });
}

Size3 with(int64_t w) { return {1, 1, w}; }
Size3 with(Size2 s) { return {1, s.h, s.w}; }
}  // namespace

Tensor max_pool1d(const Tensor& x, const MaxPool1dOptions& options) {
  return pooled("max_pool1d", x, 1, max_pool_fusing_relu, raw::max_pool1d_windows, options);
}
Tensor max_pool2d(const Tensor& x, const MaxPool2dOptions& options) {
  return pooled("max_pool2d", x, 2, max_pool_fusing_relu, raw::max_pool2d_windows, options);
}
Tensor max_pool3d(const Tensor& x, const MaxPool3dOptions& options) {
  return pooled("max_pool3d", x, 3, max_pool_over, raw::max_pool3d_windows, options);
}

std::pair<Tensor, Tensor> max_pool1d_with_indices(const Tensor& x, const MaxPool1dOptions& options) {
  return pooled("max_pool1d_with_indices", x, 1, max_pool_with_indices_over, raw::max_pool1d_windows,
                options);
}
std::pair<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, const MaxPool2dOptions& options) {
  return pooled("max_pool2d_with_indices", x, 2, max_pool_with_indices_over, raw::max_pool2d_windows,
                options);
}
std::pair<Tensor, Tensor> max_pool3d_with_indices(const Tensor& x, const MaxPool3dOptions& options) {
  return pooled("max_pool3d_with_indices", x, 3, max_pool_with_indices_over, raw::max_pool3d_windows,
                options);
}

Tensor max_unpool(const Tensor& x, const Tensor& indices, const Dims& size) {
  const OpCall call("max_unpool", {{"x", x}, {"indices", indices}});
  if (is_sample(x, size.size())) return squeeze(max_unpool(unsqueeze(x, 0), unsqueeze(indices, 0), size), 0);
  if (x.dim() < 3 || x.dim() != size.size() + 2)
    throw ShapeError("max_unpool", "x must be [N,C,...] or [C,...] with one dim per size of ", size, ": x ",
                     describe(x));
  if (indices.shape() != x.shape())
    throw ShapeError("max_unpool", "x and indices must have one shape: x ", describe(x), " and indices ",
                     describe(indices));
  for (int64_t s : size)
    if (s < 1) throw ValueError("max_unpool", "sizes must be at least 1, got ", size);
  Shape shape{x.size(0), x.size(1)};
  for (int64_t s : size) shape.push_back(s);
  checked_numel(shape, "max_unpool");
  const Shape rows{x.size(0), x.size(1), x.numel() == 0 ? 0 : x.numel() / (x.size(0) * x.size(1))};
  const Tensor none =
      zeros({x.size(0), x.size(1), size.product()}, {.dtype = x.dtype(), .device = x.device()});
  return reshape(scatter(none, 2, reshape(indices, rows), reshape(x, rows)), shape);
}

Tensor avg_pool1d(const Tensor& x, const AvgPool1dOptions& options) {
  return pooled("avg_pool1d", x, 1, avg_pool_over, raw::avg_pool1d_windows, options);
}
Tensor avg_pool2d(const Tensor& x, const AvgPool2dOptions& options) {
  return pooled("avg_pool2d", x, 2, avg_pool_over, raw::avg_pool2d_windows, options);
}
Tensor avg_pool3d(const Tensor& x, const AvgPool3dOptions& options) {
  return pooled("avg_pool3d", x, 3, avg_pool_over, raw::avg_pool3d_windows, options);
}

Tensor adaptive_avg_pool1d(const Tensor& x, int64_t output) {
  return pooled("adaptive_avg_pool1d", x, 1, avg_pool_over, with(output));
}
Tensor adaptive_avg_pool2d(const Tensor& x, Size2 output) {
  return pooled("adaptive_avg_pool2d", x, 2, avg_pool_over, with(output));
}
Tensor adaptive_avg_pool3d(const Tensor& x, Size3 output) {
  return pooled("adaptive_avg_pool3d", x, 3, avg_pool_over, output);
}
Tensor adaptive_max_pool1d(const Tensor& x, int64_t output) {
  return pooled("adaptive_max_pool1d", x, 1, max_pool_over, with(output));
}
Tensor adaptive_max_pool2d(const Tensor& x, Size2 output) {
  return pooled("adaptive_max_pool2d", x, 2, max_pool_over, with(output));
}
Tensor adaptive_max_pool3d(const Tensor& x, Size3 output) {
  return pooled("adaptive_max_pool3d", x, 3, max_pool_over, output);
}

std::pair<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& x, int64_t output) {
  return pooled("adaptive_max_pool1d_with_indices", x, 1, max_pool_with_indices_over, with(output));
}
std::pair<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& x, Size2 output) {
  return pooled("adaptive_max_pool2d_with_indices", x, 2, max_pool_with_indices_over, with(output));
}
std::pair<Tensor, Tensor> adaptive_max_pool3d_with_indices(const Tensor& x, Size3 output) {
  return pooled("adaptive_max_pool3d_with_indices", x, 3, max_pool_with_indices_over, output);
}

namespace {
// Lp pooling by average pooling over windows(x, mean); Mean are the options of average pooling of that rank.
template <class Mean, class Size>
Tensor lp_pool(const char* op, int rank, PoolWindows (&windows)(const Tensor&, const Mean&), const Tensor& x,
               const LpPoolOptions<Size>& o) {
  check_p(op, o.p);
  const Tensor batch = is_sample(x, rank) ? unsqueeze(x, 0) : x;
  const PoolWindows w = windows(batch, {.kernel = *o.kernel, .stride = o.stride, .ceil_mode = o.ceil_mode});
  const Tensor y = root_of_sum(avg_pool_over(op, pow(batch, *o.p), w), double(w.kernel_numel()), o.p);
  return is_sample(x, rank) ? squeeze(y, 0) : y;
}
}  // namespace

Tensor lp_pool1d(const Tensor& x, const LpPool1dOptions& o) {
  const OpCall call("lp_pool1d", {{"x", x}});
  if (autograd::Casting cast{"lp_pool1d"}) return lp_pool1d(cast(x), o);
  return lp_pool<AvgPool1dOptions>("lp_pool1d", 1, raw::avg_pool1d_windows, x, o);
}
Tensor lp_pool2d(const Tensor& x, const LpPool2dOptions& o) {
  const OpCall call("lp_pool2d", {{"x", x}});
  if (autograd::Casting cast{"lp_pool2d"}) return lp_pool2d(cast(x), o);
  return lp_pool<AvgPool2dOptions>("lp_pool2d", 2, raw::avg_pool2d_windows, x, o);
}
Tensor lp_pool3d(const Tensor& x, const LpPool3dOptions& o) {
  const OpCall call("lp_pool3d", {{"x", x}});
  if (autograd::Casting cast{"lp_pool3d"}) return lp_pool3d(cast(x), o);
  return lp_pool<AvgPool3dOptions>("lp_pool3d", 3, raw::avg_pool3d_windows, x, o);
}

namespace {

std::vector<int64_t> sizes(Size2 s) { return {s.h, s.w}; }
std::vector<int64_t> sizes(Size3 s) { return {s.d, s.h, s.w}; }

// Returns the first element of each of `out` windows along a dim of n elements, i64[N,C,out], for samples u [N,C].
Tensor window_starts(const Tensor& u, int64_t n, int64_t out, int64_t kernel) {
  const TensorOptions integers{.dtype = DType::kI64, .device = u.device()};
  const Tensor last = full({u.size(0), u.size(1), 1}, n - kernel, integers);
  if (out == 1) return last;
  const double step = double(n - kernel) / double(out - 1);
  const Tensor sample = unsqueeze(u, 2), i = raw::to(arange(out - 1, integers), u.dtype());
  const auto position = [&](const Tensor& t) { return raw::to(floor(t * step), DType::kI64); };
  return cat({position(i + sample) - position(sample), last}, 2);
}

// Returns the result's size for x [N,C,...].
template <class Size>
std::vector<int64_t> fractional_output(const char* op, const Tensor& x,
                                       const FractionalMaxPoolOptions<Size>& o) {
  const std::vector<int64_t> kernel = sizes(*o.kernel);
  std::vector<int64_t> out = sizes(o.output);
  const size_t rank = out.size();
  if ((o.output == Size(0)) == o.output_ratio.empty())
    throw ValueError(op, "expected one of output and output_ratio");
  if (!o.output_ratio.empty() && o.output_ratio.size() != 1 && o.output_ratio.size() != rank)
    throw ValueError(op, "expected one output_ratio, or one per dim, got ", o.output_ratio.size());
  for (size_t d = 0; d < rank; ++d) {
    const int64_t n = x.size(int(d) + 2);
    if (!o.output_ratio.empty()) {
      const double ratio = o.output_ratio[o.output_ratio.size() == 1 ? 0 : d];
      if (!(ratio > 0 && ratio < 1)) throw ValueError(op, "expected output_ratio in (0, 1), got ", ratio);
      out[d] = int64_t(double(n) * ratio);
    }
    if (kernel[d] < 1 || out[d] < 1 || kernel[d] > n || out[d] > n - kernel[d] + 1)
      throw ValueError(op, "expected kernel, output >= 1 with output + kernel - 1 <= the size, got output ",
                       out[d], " and kernel ", kernel[d], " for x ", describe(x));
  }
  return out;
}

// The positions of the maxima are found without recording; the result reads x there.
template <class Size>
std::pair<Tensor, Tensor> fractional_max_pool(const char* op, const Tensor& x,
                                              const FractionalMaxPoolOptions<Size>& o) {
  const OpCall call(op, {{"x", x}});
  const int rank = int(sizes(*o.kernel).size());
  if (is_sample(x, rank)) return without_batch(fractional_max_pool(op, unsqueeze(x, 0), o));
  check_floating(op, "x", x);
  if (x.dim() != rank + 2)
    throw ShapeError(op, "expected x of ", rank + 2, " dims, or ", rank + 1, " without a batch, got ",
                     describe(x));
  const std::vector<int64_t> kernel = sizes(*o.kernel), out = fractional_output(op, x, o);
  const int64_t N = x.size(0), C = x.size(1);
  Tensor samples = o.random_samples;
  if (!samples.defined())
    samples = rand({N, C, rank}, {.dtype = autograd::at_least_f32(x.dtype()), .device = x.device()});
  check_floating(op, "random_samples", samples);
  autograd::check_same_device(op, "x", x, "random_samples", samples);
  if (samples.shape() != Shape{N, C, rank})
    throw ShapeError(op, "expected random_samples ", Shape{N, C, rank}, ", got ", describe(samples));
  samples = autograd::at_least_f32(detach(samples));

  Shape shape{N, C};
  std::vector<int64_t> strides(size_t(rank), 1);
  for (int d = 0; d < rank; ++d) {
    shape.push_back(out[size_t(d)]);
    for (int e = d + 1; e < rank; ++e) strides[size_t(d)] *= x.size(e + 2);
  }
  Tensor first =
      zeros(shape, {.dtype = DType::kI64, .device = x.device()});  // positions of the windows' first elements
  for (int d = 0; d < rank; ++d) {
    const Tensor u = select(samples, 2, rank == 2 ? 1 - d : d);
    Shape along = Dims::filled(rank + 2, 1);
    along[0] = N, along[1] = C, along[d + 2] = out[size_t(d)];
    first = first + reshape(window_starts(u, x.size(d + 2), out[size_t(d)], kernel[size_t(d)]), along) *
                        strides[size_t(d)];
  }
  first = reshape(first, {N, C, shape.product() / std::max<int64_t>(N * C, 1)});
  const Tensor image = reshape(x, {N, C, x.numel() / std::max<int64_t>(N * C, 1)}), values = detach(image);
  Tensor position = first, best;
  for (int64_t i = 0; i < Shape(kernel).product(); ++i) {  // the elements of a window, row-major
    int64_t distance = 0, rest = i;
    for (size_t d = kernel.size(); d-- > 0; rest /= kernel[d]) distance += rest % kernel[d] * strides[d];
    const Tensor at = distance == 0 ? first : first + distance, v = gather(values, 2, at);
    const Tensor larger = best.defined() ? logical_or(gt(v, best), isnan(v)) : Tensor();
    position = best.defined() ? where(larger, at, position) : at;
    best = best.defined() ? where(larger, v, best) : v;
  }
  return {reshape(gather(image, 2, position), shape), reshape(position, shape)};
}

}  // namespace

Tensor fractional_max_pool2d(const Tensor& x, const FractionalMaxPool2dOptions& o) {
  return fractional_max_pool("fractional_max_pool2d", x, o).first;
}
Tensor fractional_max_pool3d(const Tensor& x, const FractionalMaxPool3dOptions& o) {
  return fractional_max_pool("fractional_max_pool3d", x, o).first;
}
std::pair<Tensor, Tensor> fractional_max_pool2d_with_indices(const Tensor& x,
                                                             const FractionalMaxPool2dOptions& o) {
  return fractional_max_pool("fractional_max_pool2d_with_indices", x, o);
}
std::pair<Tensor, Tensor> fractional_max_pool3d_with_indices(const Tensor& x,
                                                             const FractionalMaxPool3dOptions& o) {
  return fractional_max_pool("fractional_max_pool3d_with_indices", x, o);
}

Tensor max_pool_scatter(const Tensor& dy, const Tensor& index, const PoolWindows& windows) {
  const OpCall call("max_pool_scatter", {{"dy", dy}, {"index", index}});
  Tensor dx = raw::max_pool_scatter(dy, index, windows);
  if (Recorder r{"max_pool_scatter", dy})
    r.record(dx, wrt(dy, [index = r.save(index), windows](const Tensor& g) {
               return max_pool_gather(g, index.get(), windows);
             }));
  return dx;
}

Tensor max_pool_gather(const Tensor& x, const Tensor& index, const PoolWindows& windows) {
  const OpCall call("max_pool_gather", {{"x", x}, {"index", index}});
  Tensor y = raw::max_pool_gather(x, index, windows);
  if (Recorder r{"max_pool_gather", x})
    r.record(y, wrt(x, [index = r.save(index), windows](const Tensor& g) {
               return max_pool_scatter(g, index.get(), windows);
             }));
  return y;
}

Tensor avg_pool_spread(const Tensor& dy, const PoolWindows& windows) {
  const OpCall call("avg_pool_spread", {{"dy", dy}});
  return autograd::record_unary("avg_pool_spread", dy, raw::avg_pool_spread(dy, windows),
                                [windows](const Tensor& g) { return avg_pool_over("avg_pool", g, windows); });
}

}  // namespace gradus
