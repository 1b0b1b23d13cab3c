// CPU kernels of operations on lists of row-major tensors, such as all gradients: total norm, hashes, clipping by norm and
// by value, unscaling for mixed precision, gradient accumulation, moving averages of weights. 16-bit floats are
// computed in f32. Results do not depend on the number of threads. An unnamed tensor only selects the device.
#include <atomic>
#include <cstring>

#include "gradus/tensor/cpu/optim_norm.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/formulas/gradients.h"
#include "gradus/tensor/ops/formulas/hash.h"
#include "gradus/tensor/ops/formulas/loss_scale.h"
#include "gradus/tensor/ops/value_errors.h"

namespace gradus::raw {
namespace {

// Returns sum |x[k]|^p, or max |x[k]| for p = infinity.
template <class T> double power_sum(const T* x, int64_t n, double p) {
  double sum = 0;
  if (std::isinf(p)) {
    for (int64_t k = 0; k < n; ++k) sum = max_or_nan(sum, std::abs(double(x[k])));
  } else if (p == 2) {
    SumOfSquares squares;
    squares.add(x, n);
    sum = squares.sum();
  } else if (p == 1) {
    for (int64_t k = 0; k < n; ++k) sum += std::abs(double(x[k]));
  } else {
    for (int64_t k = 0; k < n; ++k) sum += std::pow(std::abs(double(x[k])), p);
  }
  return sum;
}

std::vector<int64_t> sizes_of(const std::vector<Tensor>& tensors) {
  std::vector<int64_t> sizes;
  for (const Tensor& t : tensors) sizes.push_back(t.numel());
  return sizes;
}

// out = the p-norm of all tensors as one vector. Partial sums of blocks are added in a fixed order.
void norm_of_cpu(const Tensor& out, const std::vector<Tensor>& tensors, double p) {
  const std::vector<Block> blocks = blocks_of(sizes_of(tensors));
  std::vector<double> partial(blocks.size());
  parallel_over_blocks(blocks, [&](const Block& b, size_t i) {
    dispatch_storage_type(tensors[b.tensor].dtype(), "norm_of", [&]<class P, class T>() {
      partial[i] = power_sum(tensors[b.tensor].ptr<P>() + b.begin, b.end - b.begin, p);
    });
  });
  const bool largest = std::isinf(p);
  double total = 0;
  for (double s : partial) total = largest ? max_or_nan(total, s) : total + s;
  total = p_norm_of_sum(total, p);
  dispatch_floating(out.dtype(), "norm_of", [&]<class T>() { *out.ptr<T>() = static_cast<T>(total); });
}

// out[t] += sum of hash_of_word(word i, i) over the words of tensor t.
void hashes_of_cpu(const Tensor& out, const std::vector<Tensor>& tensors) {
  for (size_t t = 0; t < tensors.size(); ++t) {
    const char* const bytes = static_cast<const char*>(tensors[t].raw_ptr());
    const int64_t n = tensors[t].nbytes(), words = n / 8;
    uint64_t word = 0, sum = 0;
    for (int64_t i = 0; i < words; ++i) {
      std::memcpy(&word, bytes + 8 * i, 8);
      sum += hash_of_word(word, uint64_t(i));
    }
    if (n % 8 > 0) {
      word = 0;
      std::memcpy(&word, bytes + 8 * words, size_t(n % 8));
      sum += hash_of_word(word, uint64_t(words));
    }
    out.ptr<int64_t>()[t] += int64_t(sum);
  }
}

// Calls f(pointer, count, T()) on ranges of the tensors' elements in parallel, where T is the type to compute in.
template <class F> void parallel_over_tensors(const char* op, const std::vector<Tensor>& tensors, F f) {
  parallel_over_all(sizes_of(tensors), [&](size_t i, int64_t begin, int64_t end) {
    dispatch_storage_type(tensors[i].dtype(), op,
                          [&]<class P, class T>() { f(tensors[i].ptr<P>() + begin, end - begin, T()); });
  });
}

// Multiplies all tensors by clip_factor(norm, max_norm), unless the factor is at least 1.
void clip_by_norm_cpu(const Tensor& norm, const std::vector<Tensor>& tensors, double max_norm) {
  const double total =
      dispatch_floating(norm.dtype(), "clip_by_norm_", [&]<class T>() { return double(*norm.ptr<T>()); });
  const double scale = clip_factor(total, max_norm);
  if (!needs_clipping(scale)) return;
  parallel_over_tensors("clip_by_norm_", tensors, [scale]<class P, class T>(P* x, int64_t n, T) {
    const T factor = T(scale);
    for (int64_t i = 0; i < n; ++i) x[i] = P(T(x[i]) * factor);
  });
}

// Clamps all elements to [-limit, limit].
void clip_by_value_cpu(const Tensor&, const std::vector<Tensor>& tensors, double limit) {
  parallel_over_tensors("clip_by_value_", tensors, [limit]<class P, class T>(P* x, int64_t n, T) {
    const T low = T(-limit), high = T(limit);
    for (int64_t i = 0; i < n; ++i) x[i] = P(clamped(T(x[i]), low, high));
  });
}

// Multiplies all tensors by `factor`, or by 1 / scale if `scale` is defined. found = 1 if a product is not finite,
// else 0.
void unscale_cpu(const Tensor& found, const std::vector<Tensor>& tensors, double factor,
                 const Tensor& scale) {
  if (scale.defined()) factor = 1 / *scale.ptr<double>();
  std::atomic<bool> found_inf = false;
  parallel_over_tensors("unscale_", tensors, [&found_inf, factor]<class P, class T>(P* x, int64_t n, T) {
    const T multiplier = T(factor);
    int not_finite = 0;
    for (int64_t i = 0; i < n; ++i) {
      const T v = T(x[i]) * multiplier;
      not_finite |= !is_finite(v);
      x[i] = P(v);
    }
    if (not_finite) found_inf = true;
  });
  *found.ptr<float>() = found_inf;
}

// Updates the loss scale after a step: out = next_loss_scale(before, latest, found != 0), where `out`,
// `before` and `latest` are LossScale structs in f64 tensors, `found` is f32[]. An undefined `latest` means
// `before` without infinities. Errors: StateError for a new scale below kMinLossScale.
void move_scale_cpu(const Tensor& out, const Tensor& before, const Tensor& latest, const Tensor& found,
                    const LossScaleOptions& options) {
  const auto state_of = [](const Tensor& x) { return reinterpret_cast<LossScale*>(x.ptr<double>()); };
  LossScale latest_state = latest.defined() ? *state_of(latest) : *state_of(before);
  if (!latest.defined()) latest_state.found_inf = 0;
  *state_of(out) = next_loss_scale(*state_of(before), latest_state, *found.ptr<float>() != 0, options);
  if (state_of(out)->scale < kMinLossScale)
    throw_invalid_scale(state_of(out)->scale, int64_t(state_of(out)->skipped));
}

// sums[i] += terms[i].
void add_all_cpu(const Tensor&, const std::vector<Tensor>& sums, const std::vector<Tensor>& terms) {
  for (size_t i = 0; i < sums.size(); ++i) Binary<functors::Add>::kernel.cpu(sums[i], sums[i], terms[i], {});
}

// Updates moving averages `param` of `grad`: param += weight * (grad - param).
void average_step_cpu(const Tensor&, const std::vector<StepItem>& items, const double& weight) {
  ApplyOnCPU::rule("average_step", items, 0, false, AverageRuleFactory{weight});
}

}  // namespace

constinit decltype(norm_of_kernel) norm_of_kernel{"norm_of", &norm_of_cpu};
constinit decltype(hashes_of_kernel) hashes_of_kernel{"hashes_of", &hashes_of_cpu};
constinit decltype(clip_by_norm_kernel) clip_by_norm_kernel{"clip_by_norm_", &clip_by_norm_cpu};
constinit decltype(clip_by_value_kernel) clip_by_value_kernel{"clip_by_value_", &clip_by_value_cpu};
constinit decltype(unscale_kernel) unscale_kernel{"unscale_", &unscale_cpu};
constinit decltype(move_scale_kernel) move_scale_kernel{"move_scale", &move_scale_cpu};
constinit decltype(add_all_kernel) add_all_kernel{"add_all_", &add_all_cpu};
constinit StepSlot<double> average_step_kernel{"average_step", &average_step_cpu};

}  // namespace gradus::raw
