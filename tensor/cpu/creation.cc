// CPU kernels of arange and linspace: elements are computed in f64 on several threads and converted to out's
// dtype. `out` is row-major; the callers in tensor/ops/creation.cc check the arguments.
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/kernel.h"

#include "gradus/tensor/cpu/convert.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

using namespace cpu;  // NOLINT

constexpr int64_t kBlock = 512;

// out[i] = f(i), where f returns a double. Values are converted in blocks of kBlock.
template <class F> void generate(const Tensor& out, F f) {
  const ConvertFunction store = converter(out.dtype(), DType::kF64);
  char* const to = static_cast<char*>(out.raw_ptr());
  const int64_t size = size_of(out.dtype());
  parallel_for(0, out.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    double values[kBlock];
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t n = std::min(kBlock, end - at);
      for (int64_t i = 0; i < n; ++i) values[i] = f(at + i);
      store(n, to + at * size, 1, values, 1);
    }
  });
}

void arange_cpu(const Tensor& out, double start, double step) {
  generate(out, [=](int64_t i) { return start + double(i) * step; });
}

// The first half is computed from `start`, the second from `end`, so both ends are exact.
void linspace_cpu(const Tensor& out, double start, double end) {
  const int64_t n = out.numel();
  const double step = n > 1 ? (end - start) / double(n - 1) : 0;
  generate(out, [=](int64_t i) {
    return i < (n + 1) / 2 ? start + double(i) * step : end - double(n - 1 - i) * step;
  });
}

}  // namespace

constinit decltype(arange_kernel) arange_kernel{"arange", &arange_cpu};
constinit decltype(linspace_kernel) linspace_kernel{"linspace", &linspace_cpu};

}  // namespace gradus::raw
