// Implements detect_anomaly: AnomalyScope puts an AnomalyDetector into the thread's Context, where
// check_results (called for each recorded op) and check_gradients (called after each backward rule) find it.
// A check is one reduction (all finite, or any NaN) over a tensor. If it fails, the tensor is copied to the
// host and searched for the first bad element.
#include "gradus/autograd/graph/anomaly.h"

#include <cmath>

#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/elementwise.h"
#include "gradus/tensor/ops/reduce.h"

namespace gradus::autograd {
namespace {

// An Observer that ignores all events: without any observer in the process, a check costs one load.
class AnomalyDetector final : public Observer {
 public:
  explicit AnomalyDetector(DetectAnomalyOptions options) : options_(options) {
    gradus::internal::observers.fetch_add(1, std::memory_order_relaxed);
  }
  ~AnomalyDetector() override { gradus::internal::observers.fetch_sub(1, std::memory_order_relaxed); }

  // Errors: ValueError naming `op` and `what` unless all elements are finite (or no NaN, without `infinity`).
  // Ignores undefined, meta and integer tensors, and checks the rows of a sparse gradient.
  void check(const char* op, const std::string& what, const Tensor& gradient) const {
    const Tensor& x = elements_of(gradient);
    if (!x.defined() || !is_floating(x.dtype()) || x.device().type == DeviceType::kMeta || passes(x)) return;
    const std::vector<double> values = x.to_vector<double>();
    for (size_t i = 0; i < values.size(); ++i)
      if (std::isnan(values[i]) || (options_.infinity && std::isinf(values[i])))
        throw ValueError(op, what, " is not finite: ", values[i], " at element ", i, " of ", describe(x));
  }

 private:
  bool passes(const Tensor& x) const {
    return options_.infinity ? raw::all(raw::unary<functors::IsFinite>(x)).item<bool>()
                             : !raw::any(raw::unary<functors::IsNaN>(x)).item<bool>();
  }
  DetectAnomalyOptions options_;
};

const AnomalyDetector* detector() {
  Observer* const o = observer();
  return o ? dynamic_cast<const AnomalyDetector*>(o) : nullptr;
}

}  // namespace

AnomalyScope::AnomalyScope(DetectAnomalyOptions options)
    : outer_(std::exchange(Context::current().observer, Ref<Observer>(new AnomalyDetector(options)))) {}
AnomalyScope::~AnomalyScope() { Context::current().observer = std::move(outer_); }

void check_results(const char* op, std::span<const Tensor> results) {
  const AnomalyDetector* const d = detector();
  if (!d) [[likely]]
    return;
  for (size_t i = 0; i < results.size(); ++i)
    d->check(op, results.size() == 1 ? "the result" : concat("result ", i), results[i]);
}

// gradients[i] is that of input i of the op whose rule has run. The engine adds the op's name to the error.
void check_gradients(std::span<const Tensor> gradients) {
  const AnomalyDetector* const d = detector();
  if (!d) [[likely]]
    return;
  for (size_t i = 0; i < gradients.size(); ++i)
    d->check("backward", concat("the gradient of input ", i), gradients[i]);
}

}  // namespace gradus::autograd
