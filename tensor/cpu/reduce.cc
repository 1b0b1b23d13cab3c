// Reductions on the CPU: what is combined. How: reduce_loops.h.
#include "gradus/tensor/ops/reduce.h"

#include "gradus/tensor/cpu/reduce_loops.h"
#include "gradus/tensor/cpu/reduce_types.h"

namespace gradus::raw {
namespace {

using namespace cpu;

template <class T>
struct Prod {
  using Lane = WideOf<T>;  // a product of few f32 leaves their range easily
  using Wide = WideOf<T>;
  Lane start() const { return 1; }
  Lane step(Lane a, T x) const { return a * static_cast<Lane>(x); }
  Wide merge(Wide a, Wide b) const { return a * b; }
  Wide finish(Wide a) const { return a; }
};

// Of bools, bytes 0 and 1: all is the smallest, any the largest.
template <bool any>
struct Logical : Extreme<uint8_t, any> {
  uint8_t finish(uint8_t a) const { return a != 0; }
};

enum class Power { kZero, kOne, kTwo, kAny };

template <class T, Power power>
struct Norm : Sum<T> {
  using Lane = LaneOf<T>;
  double p = 2;
  bool root = true;
  Lane step(Lane a, T x) const {
    const Lane v = static_cast<Lane>(x);
    if constexpr (power == Power::kZero) return a + (v != 0);
    if constexpr (power == Power::kOne) return a + std::abs(v);
    if constexpr (power == Power::kTwo) return a + v * v;
    return a + std::pow(std::abs(v), static_cast<Lane>(p));
  }
  double finish(double a) const {
    a *= this->scale;
    if (!root || power == Power::kZero || power == Power::kOne) return a;
    return power == Power::kTwo ? std::sqrt(a) : std::pow(a, 1 / p);
  }
};

template <class T, bool largest>
struct ExtremeAbs : Extreme<T, largest> {
  using Lane = typename Extreme<T, largest>::Lane;
  Lane step(Lane a, T x) const { return this->join(a, std::abs(static_cast<Lane>(x))); }
};

void sum_cpu(const Tensor& out, const Tensor& x, double scale) {
  dispatch_bytes(x, [&]<class T>() { reduce<T, SumResult<T>>(out, x, Sum<T>{scale}); });
}

void prod_cpu(const Tensor& out, const Tensor& x) {
  if (x.dtype() == DType::kI64) return reduce<int64_t, int64_t>(out, x, Prod<int64_t>{});
  dispatch_floating(x.dtype(), "prod", [&]<class T>() { reduce<T, T>(out, x, Prod<T>{}); });
}

template <bool largest>
void extreme_cpu(const Tensor& out, const Tensor& x) {
  if (x.dtype() == DType::kBool) return reduce<uint8_t, uint8_t>(out, x, Extreme<uint8_t, largest>{});
  dispatch_numeric(x.dtype(), "amax", [&]<class T>() { reduce<T, T>(out, x, Extreme<T, largest>{}); });
}

template <bool any>
void logical_cpu(const Tensor& out, const Tensor& x) {
  reduce<uint8_t, uint8_t>(out, x, Logical<any>{});
}

void norm_cpu(const Tensor& out, const Tensor& x, double p, double scale, bool root) {
  dispatch_floating(x.dtype(), "norm", [&]<class T>() {
    const auto run = [&]<Power power>() { reduce<T, T>(out, x, Norm<T, power>{{scale}, p, root}); };
    if (std::isinf(p)) {
      p > 0 ? reduce<T, T>(out, x, ExtremeAbs<T, true>{}) : reduce<T, T>(out, x, ExtremeAbs<T, false>{});
    } else if (p == 0) {
      run.template operator()<Power::kZero>();
    } else if (p == 1) {
      run.template operator()<Power::kOne>();
    } else if (p == 2) {
      run.template operator()<Power::kTwo>();
    } else {
      run.template operator()<Power::kAny>();
    }
  });
}

const RegisterKernel kSum(sum_kernel, DeviceType::kCPU, &sum_cpu);
const RegisterKernel kProd(prod_kernel, DeviceType::kCPU, &prod_cpu);
const RegisterKernel kMax(amax_kernel, DeviceType::kCPU, &extreme_cpu<true>);
const RegisterKernel kMin(amin_kernel, DeviceType::kCPU, &extreme_cpu<false>);
const RegisterKernel kAny(any_kernel, DeviceType::kCPU, &logical_cpu<true>);
const RegisterKernel kAll(all_kernel, DeviceType::kCPU, &logical_cpu<false>);
const RegisterKernel kNorm(norm_kernel, DeviceType::kCPU, &norm_cpu);

}  // namespace
}  // namespace gradus::raw
