#include "gradus/tests/cuda/report/work.h"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string_view>

#include "gradus/tensor/flops.h"
#include "gradus/tensor/runtime/observer.h"
#include "gradus/tensor/tensor.h"

namespace report {
namespace {

using gradus::DType;
using gradus::Tensor;
using Tensors = std::span<const Tensor* const>;

// A broadcast operand is read once.
int64_t bytes_of(const Tensor& x) { return std::min(x.nbytes(), x.storage()->bytes()); }
int64_t bytes_of(Tensors tensors) {
  int64_t sum = 0;
  for (const Tensor* t : tensors) sum += bytes_of(*t);
  return sum;
}
int64_t bytes_in_f32(const Tensor& x) { return x.numel() * 4; }

// A weight gradient has dw, perhaps db, dy, x. Where dw is in f32, the backend widens operands in 16 bits.
bool is_weight_grad(std::string_view op) { return op == "conv_weight_grad"; }
bool has_widened_operands(Tensors t) { return t[0]->dtype() != t.back()->dtype(); }

// An optimizer's step has the first parameter, then of each one: itself, its gradient and its state. It
// writes what it reads, but for the gradient.
int64_t bytes_of_step(std::string_view op, Tensors tensors) {
  struct Listed {
    const char* op;
    int64_t tensors;  // of a parameter
  };
  static constexpr Listed all[] = {{"sgd_step", 3}, {"adadelta_step", 4}, {"adam_step", 4}};
  const auto* const found =
      std::ranges::find(all, op, [](const Listed& l) { return std::string_view(l.op); });
  const auto items = tensors.subspan(1);
  if (found == std::end(all) || static_cast<int64_t>(items.size()) % found->tensors != 0)
    throw std::logic_error("not known of this step what it writes: " + std::string(op));
  return bytes_of(items) / found->tensors * (2 * found->tensors - 1);
}

Work work_of(std::string_view op, Tensors t) {
  Work w{std::string(op), bytes_of(t), gradus::kernel_flops(op, t)};
  if (op.ends_with("_step")) w.bytes = bytes_of_step(op, t);
  if (w.flops > 0 && t.back()->dtype() == DType::kBF16) w.units = kBF16;
  if (!is_weight_grad(op)) return w;
  const Tensor &dw = *t[0], &dy = *t[t.size() - 2], &x = *t.back();
  w.bytes = bytes_of(dw) + bytes_of(dy) + bytes_of(x);
  if (has_widened_operands(t)) w.bytes = bytes_of(dw) + bytes_in_f32(dy) + bytes_in_f32(x), w.units = kTF32;
  return w;
}

}  // namespace

class WorkCounter final : public gradus::Observer {
 public:
  // On meta there is no kernel to call others.
  void launched(const char* op, Tensors t) override {
    work.push_back(work_of(op, t));
    if (!is_weight_grad(op)) return;
    const bool widens = has_widened_operands(t);
    for (const Tensor* operand : t.last(2))
      if (widens) work.push_back({"copy", bytes_of(*operand) + bytes_in_f32(*operand)});
    const Tensor& dy = *t[t.size() - 2];
    if (t.size() == 4) work.push_back({"sum", bytes_of(*t[1]) + (widens ? bytes_in_f32(dy) : bytes_of(dy))});
  }
  int64_t announce(const gradus::Range& range) override {
    if (range.kind == gradus::RangeKind::kKernel) work.push_back(work_of(range.name, range.tensors));
    return -1;
  }

  std::vector<Work> work;
};

WorkScope::WorkScope()
    : counter_(gradus::make_ref<WorkCounter>()),
      context_([this] {
        gradus::Context c = gradus::Context::current().snapshot();
        c.observer = counter_;
        return c;
      }()),
      scope_(context_) {
  ++gradus::internal::observers;
}
WorkScope::~WorkScope() { --gradus::internal::observers; }

const std::vector<Work>& WorkScope::work() const { return counter_->work; }

double roofline_seconds(const std::vector<Work>& work, const Gpu& gpu) {
  double sum = 0;
  for (const Work& w : work)
    sum += std::max(static_cast<double>(w.bytes) / gpu.bytes_per_second,
                    static_cast<double>(w.flops) / gpu.flops_per_second[w.units]);
  return sum;
}

}  // namespace report
