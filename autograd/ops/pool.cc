#include "gradus/autograd/ops/pool.h"

#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/elementwise.h"
#include "gradus/autograd/record.h"
#include "gradus/autograd/recording_state.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus {
namespace {

Tensor max_pool2d_over(const char* op, const Tensor& x, const PoolWindows& windows) {
  Recorder r{op, x};
  if (!r) return raw::max_pool2d_value(x, windows);
  auto [y, index] = raw::max_pool2d(x, windows);
  r.record(y, wrt(x, [index = r.save(index), windows](const Tensor& dy) {
             return max_pool2d_scatter(dy, index.get(), windows);
           }));
  return y;
}

Tensor avg_pool2d_over(const char* op, const Tensor& x, const PoolWindows& windows) {
  Tensor y = raw::avg_pool2d(x, windows);
  if (Recorder r{op, x})
    r.record(y, wrt(x, [windows](const Tensor& dy) { return avg_pool2d_spread(dy, windows); }));
  return y;
}

// Note [Pooling a relu]
// For max_pool2d(relu(x)) over disjoint windows, the relu's result h is all that backward needs: x's gradient
// is dy at each window's first maximum if that is positive, and 0 elsewhere. So one node stands for both ops,
// with the relu's edge; the relu's own node remains for whoever else uses h. The node keeps h, and if by the
// time of backward nobody else does, h's buffer, overwritten window by window, becomes x's gradient: no
// index, no mask, no new memory. Asked for the gradient of h itself, the node splits: it is the pooling alone
// again, with an edge to the relu.

// The relu node that made x, or null.
const autograd::Node* relu_of(const Tensor& x) {
  const auto& slot = x.ref()->slot;
  if (!slot || slot->is_leaf()) return nullptr;
  const auto* node = static_cast<const autograd::Node*>(slot.get());
  // A recording that has h for a leaf (a checkpoint's) does not know what made it.
  for (const auto& open : autograd::open_recordings())
    if (const auto* r = autograd::as_recording(open); r->follows(slot.get()) && !node->belongs_to(r)) return nullptr;
  return std::string_view(node->op()) == "relu" && node->edges().size() == 1 ? node : nullptr;
}

// Returns the gradient of max_pool2d(relu(.)) given h = relu(.), which is overwritten if nobody else holds
// it.
Tensor max_pool2d_relu_grad(const Tensor& dy, Tensor h, const PoolWindows& windows) {
  if (autograd::is_tracked(dy)) {  // this backward will be differentiated: it is linear in dy
    const Tensor index = raw::max_pool2d(h, windows).second;
    return mul(max_pool2d_scatter(dy, index, windows), to(gt(h, 0), h.dtype()));
  }
  Tensor dx = raw::channels_last(h);
  const bool copied = !dx.is_same(h);
  h = Tensor();
  if (!copied && !autograd::may_reuse(dx)) dx = raw::clone(dx);
  raw::max_pool2d_relu_grad_(dx, dy, windows);
  return dx;
}

class MaxPoolReluNode final : public autograd::Node {
 public:
  MaxPoolReluNode(autograd::Saved h, const PoolWindows& windows, uint64_t relu)
      : Node("max_pool2d(relu)"), h_(std::move(h)), windows_(windows), relu_(relu) {}

  void run(std::span<Tensor> dys, std::span<const char>, std::span<Tensor> dxs) override {
    if (relu_)
      dxs[0] = max_pool2d_relu_grad(dys[0], h_.take(), windows_);
    else
      dxs[0] = max_pool2d_scatter(dys[0], raw::max_pool2d(h_.get(), windows_).second, windows_);
  }
  void drop_rule() override { h_ = {}; }

  uint64_t passed_over() const override { return relu_; }
  void split(const autograd::Edge& between) override {
    set_edge(0, between);
    relu_ = 0;
  }

 private:
  autograd::Saved h_;
  PoolWindows windows_;
  uint64_t relu_;  // sequence number of the relu's node; 0 once it is on its own
};

}  // namespace

Tensor max_pool2d(const Tensor& x, const MaxPool2dOptions& options) {
  const PoolWindows windows = raw::max_pool2d_windows(x, options);
  const autograd::Node* relu = windows.are_disjoint() && windows.padding == Size2(0) ? relu_of(x) : nullptr;
  Recorder r{"max_pool2d(relu)", x};
  if (!relu || !r) return max_pool2d_over("max_pool2d", x, windows);
  Tensor y = raw::max_pool2d_value(x, windows);
  r.attach(make_ref<MaxPoolReluNode>(r.save(detach(x)), windows, relu->sequence()), {&y, 1},
           {relu->edges()[0]});
  return y;
}

Tensor avg_pool2d(const Tensor& x, const AvgPool2dOptions& options) {
  return avg_pool2d_over("avg_pool2d", x, raw::avg_pool2d_windows(x, options));
}
Tensor adaptive_avg_pool2d(const Tensor& x, Size2 output) {
  return avg_pool2d_over("adaptive_avg_pool2d", x, raw::adaptive_windows("adaptive_avg_pool2d", x, output));
}
Tensor adaptive_max_pool2d(const Tensor& x, Size2 output) {
  return max_pool2d_over("adaptive_max_pool2d", x, raw::adaptive_windows("adaptive_max_pool2d", x, output));
}

Tensor max_pool2d_scatter(const Tensor& dy, const Tensor& index, const PoolWindows& windows) {
  Tensor dx = raw::max_pool2d_scatter(dy, index, windows);
  if (Recorder r{"max_pool2d_scatter", dy})
    r.record(dx, wrt(dy, [index = r.save(index), windows](const Tensor& g) {
               return max_pool2d_gather(g, index.get(), windows);
             }));
  return dx;
}

Tensor max_pool2d_gather(const Tensor& x, const Tensor& index, const PoolWindows& windows) {
  Tensor y = raw::max_pool2d_gather(x, index, windows);
  if (Recorder r{"max_pool2d_gather", x})
    r.record(y, wrt(x, [index = r.save(index), windows](const Tensor& g) {
               return max_pool2d_scatter(g, index.get(), windows);
             }));
  return y;
}

Tensor avg_pool2d_spread(const Tensor& dy, const PoolWindows& windows) {
  Tensor dx = raw::avg_pool2d_spread(dy, windows);
  if (Recorder r{"avg_pool2d_spread", dy})
    r.record(dx, wrt(dy, [windows](const Tensor& g) { return avg_pool2d_over("avg_pool2d", g, windows); }));
  return dx;
}

}  // namespace gradus
