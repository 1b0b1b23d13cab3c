// CPU kernel of the discrete Fourier transform: Eigen's FFT (kissfft), which is fast for lengths of small prime
// factors, and Bluestein's algorithm for the others, which turns the transform into a convolution by FFTs whose
// length is a power of 2 (Bluestein, 1970). Lines are distributed over threads.
#include "gradus/tensor/ops/linalg/fft.h"
#include "gradus/tensor/kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include <unsupported/Eigen/FFT>

#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

constexpr int64_t kMaxPrime = 64;    // largest prime factor for which kissfft, n p operations, is faster
constexpr int64_t kGrain = 1 << 13;  // minimum number of elements per thread

int64_t largest_prime_factor(int64_t n) {
  int64_t largest = 1;
  for (int64_t p = 2; p * p <= n; ++p)
    for (; n % p == 0; n /= p) largest = p;
  return std::max(largest, n);
}

// Transforms of one length, unscaled.
template <class T> class Transform {
 public:
  using Complex = std::complex<T>;
  using Line = std::vector<Complex>;

  Transform(int64_t n, bool inverse) : n_(n), inverse_(inverse) {
    fft_.SetFlag(fft_.Unscaled);
    if (largest_prime_factor(n) <= kMaxPrime) return;
    // exp(-i pi k^2 / n), since j k = (j^2 + k^2 - (k - j)^2) / 2. The angle is reduced to k^2 mod 2n.
    chirp_.resize(size_t(n));
    for (uint64_t k = 0; k < uint64_t(n); ++k) {
      __extension__ using Wide = unsigned __int128;
      const double angle = std::numbers::pi * double(uint64_t(Wide(k) * k % (2 * uint64_t(n)))) / double(n);
      chirp_[k] = Complex(std::polar(1.0, inverse ? angle : -angle));
    }
    const size_t m = std::bit_ceil(2 * size_t(n) - 1);
    Line filter(m);
    for (size_t k = 0; k < size_t(n); ++k) filter[k] = filter[(m - k) % m] = std::conj(chirp_[k]) / T(m);
    filter_.resize(m), padded_.resize(m), spectrum_.resize(m);
    fft_.fwd(filter_.data(), filter.data(), int(m));
  }

  // `in` and `out` have n elements and do not overlap.
  void run(Complex* out, const Complex* in) {
    if (n_ == 1) {
      *out = *in;
    } else if (!chirp_.empty()) {
      std::fill(padded_.begin(), padded_.end(), Complex());
      for (size_t k = 0; k < chirp_.size(); ++k) padded_[k] = in[k] * chirp_[k];
      fft_.fwd(spectrum_.data(), padded_.data(), int(padded_.size()));
      for (size_t k = 0; k < filter_.size(); ++k) spectrum_[k] *= filter_[k];
      fft_.inv(padded_.data(), spectrum_.data(), int(padded_.size()));
      for (size_t k = 0; k < chirp_.size(); ++k) out[k] = padded_[k] * chirp_[k];
    } else if (inverse_) {
      fft_.inv(out, in, int(n_));
    } else {
      fft_.fwd(out, in, int(n_));
    }
  }

 private:
  int64_t n_;
  bool inverse_;
  Eigen::FFT<T> fft_;
  Line chirp_, filter_, padded_, spectrum_;  // of Bluestein's algorithm, else empty
};

void dft_cpu(const Tensor& y, const Tensor& x, bool inverse, double scale) {
  const int64_t outer = x.size(0), n = x.size(1), inner = x.size(2);
  dispatch_floating(x.dtype(), "dft", [&]<class T>() {
    using Complex = std::complex<T>;
    const auto* from = reinterpret_cast<const Complex*>(x.ptr<T>());
    auto* to = reinterpret_cast<Complex*>(y.ptr<T>());
    parallel_for(0, outer * inner, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
      Transform<T> transform(n, inverse);
      std::vector<Complex> in(static_cast<size_t>(n)), out(static_cast<size_t>(n));
      for (int64_t line = begin; line < end; ++line) {
        const int64_t first = line / inner * n * inner + line % inner;
        for (int64_t k = 0; k < n; ++k) in[size_t(k)] = from[first + k * inner];
        transform.run(out.data(), in.data());
        for (int64_t k = 0; k < n; ++k) to[first + k * inner] = T(scale) * out[size_t(k)];
      }
    });
  });
}

}  // namespace

constinit decltype(dft_kernel) dft_kernel{"dft", &dft_cpu};

}  // namespace gradus::raw
