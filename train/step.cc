// Step: random numbers per sample, logging of values for the end of the step, and backward with a check for
// gradients that are not finite. Training::Steps, the iterator of a Training, owns the Step.
#include "gradus/train/step.h"

#include "gradus/autograd/ops/view.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/train/internal/training_impl.h"

namespace gradus::training {

bool Step::every(int64_t n) const {
  if (n < 1) throw ValueError("every", "expected n >= 1, got ", n);
  return number_ % n == 0;
}

// Draws on the host, with a Philox key per sample, from seed, step, call, and index in the global batch.
// The constant, "STEPSTEP" in ASCII, separates these keys from other uses of the seed.
template <class Fill> Tensor Step::for_each_sample(const Shape& sample, Fill fill) {
  Shape shape = {batch_->size()};
  for (const int64_t size : sample) shape.push_back(size);
  const Tensor all = empty(shape, {.dtype = get_default_dtype(), .device = kCPU});
  const uint64_t call = calls_++;
  for (int64_t i = 0; i < batch_->size() && all.numel() > 0; ++i) {
    const uint64_t index = uint64_t(i) * uint64_t(ranks_) + uint64_t(rank_);  // in data::shard's order
    const auto bits = philox(seed_ ^ 0x5354455053544550u, uint64_t(number_), call << 32 | index);
    fill(select(all, 0, i), PhiloxKey{uint64_t(bits[0]) << 32 | bits[1], uint64_t(bits[2]) << 32 | bits[3]});
  }
  return raw::to(all, batch_->input.defined() ? batch_->input.device() : Context::current().device);
}

Tensor Step::randn(const Shape& sample) {
  return for_each_sample(sample,
                         [](const Tensor& x, PhiloxKey key) { raw::normal_kernel(x, 0.0, 1.0, {key}); });
}
Tensor Step::rand(const Shape& sample) {
  return for_each_sample(sample,
                         [](const Tensor& x, PhiloxKey key) { raw::uniform_kernel(x, 0.0, 1.0, {key}); });
}

void Step::log(const Sums& sums) { sums_ = sums; }

Tensor Step::log(const std::string& name, const Tensor& value) {
  if (value.numel() != 1) throw ShapeError("log", name, ": expected one number, got ", describe(value));
  values_.emplace_back(name, detach(value));
  return value;
}

double Step::log(const std::string& name, double value) {
  values_.emplace_back(name, full({}, value, {.dtype = DType::kF64, .device = kCPU}));
  return value;
}

bool Step::backward(const std::string& network, Recording& recording, const Tensor& loss) {
  try {
    recording.backward(loss);
    return true;
  } catch (const dist::NotFiniteError& e) {
    const std::string text = e.what();  // "[backward] rank 1 has ..."
    training_->impl_->finite_check.skip_step(network, text.substr(text.find("] ") + 2), values_,
                                             training_->impl_->log.tally());
    return false;
  }
}

}  // namespace gradus::training
