// Gradus' own element-wise functors on the device and on the host, bit by bit. record.sh builds this with and
// without -fmad=false. (When it ran, CUDA's functions were tried too, in place of the formulas.)
//
// A line says how many of the results differ in bits (NaN equals NaN) and by how many units in the last
// place.
#include <atomic>
#include <thread>
#include <vector>

#include "gradus/tensor/ops/activations.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/losses/loss_functors.h"
#include "gradus/tensor/ops/math.h"
#include "recorder.h"

namespace {

using namespace gradus::functors;

__host__ __device__ inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
__host__ __device__ inline float argument(uint64_t i, uint64_t salt, float) {
  constexpr float kSpecial[] = {0.f,
                                -0.f,
                                1.f,
                                -1.f,
                                INFINITY,
                                -INFINITY,
                                NAN,
                                1e-45f,
                                -1e-45f,
                                1.17549435e-38f,
                                1e-40f,
                                3.4028235e38f,
                                -3.4028235e38f,
                                0.5f,
                                88.8f,
                                -104.f};
  const uint64_t z = mix((i + salt * 0x51ed27) * 0x9E3779B97F4A7C15u);
  const uint32_t u = uint32_t(z >> 32);
  if (z % 64 == 0) return kSpecial[u % 16];
  if (z % 3 == 0) return __builtin_bit_cast(float, u);
  const float v = float(int32_t(u)) * 4.656612873e-10f;
  return z % 3 == 1 ? v * 10.f : v;
}
__host__ __device__ inline double argument(uint64_t i, uint64_t salt, double) {
  const uint64_t z = mix((i + salt * 0x51ed27) * 0x9E3779B97F4A7C15u), u = mix(z + 77);
  if (z % 64 == 0) return argument(i, salt, 0.f);
  if (z % 3 == 0) return __builtin_bit_cast(double, u);
  const double v = double(int64_t(u)) * 1.0842021724855044e-19;
  return z % 3 == 1 ? v * 10 : v;
}
template <class T> struct Bits;
template <> struct Bits<float> {
  using type = uint32_t;
};
template <> struct Bits<double> {
  using type = uint64_t;
};
template <class T> uint64_t distance(T a, T b) {
  using U = typename Bits<T>::type;
  constexpr U kSign = U(1) << (8 * sizeof(T) - 1);
  const U x = __builtin_bit_cast(U, a), y = __builtin_bit_cast(U, b);
  if ((x & kSign) == (y & kSign)) return x < y ? y - x : x - y;
  return uint64_t(x & U(~kSign)) + uint64_t(y & U(~kSign));
}

// How many operands the functor takes.
template <class F, class T> __host__ __device__ T call(const F& f, T a, T b, T c) {
  if constexpr (requires { f(a); })
    return f(a);
  else if constexpr (requires { f(a, b); })
    return f(a, b);
  else
    return f(a, b, c);
}

template <class F, class T> __global__ void compute(F f, T* out, uint64_t from, uint64_t n, uint64_t every) {
  for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < n;
       i += uint64_t(gridDim.x) * blockDim.x) {
    T a;
    if constexpr (sizeof(T) == 4)
      a = every ? __builtin_bit_cast(float, uint32_t((from + i) * every)) : argument(from + i, 1, T());
    else
      a = argument(from + i, 1, T());
    if constexpr (requires { f(a); })
      out[i] = f(a);
    else
      out[i] = call(f, a, argument(from + i, 2, T()), argument(from + i, 3, T()));
  }
}

// 0: samples. Else every f32 whose bits are a multiple of this, for functors of one operand.
uint64_t every_float = 0;

template <class T, class F> void check(const char* name, F f) {
  constexpr uint64_t kChunk = 1 << 24;
  const uint64_t every = sizeof(T) == 4 && requires(T a) { f(a); } ? every_float : 0;
  const uint64_t total = every ? ((1ull << 32) + every - 1) / every : sizeof(T) == 4 ? kChunk : kChunk / 8;
  static T *d = nullptr, *h = nullptr;
  if (!d) {
    MUST(cudaMalloc(&d, kChunk * sizeof(T)));
    MUST(cudaMallocHost(&h, kChunk * sizeof(T)));
  }
  std::atomic<uint64_t> different{0}, over_2{0}, over_16{0}, worst{0}, nan_on_one{0};
  T worst_a = 0;
  for (uint64_t from = 0; from < total; from += kChunk) {
    const uint64_t n = total - from < kChunk ? total - from : kChunk;
    compute<<<1056, 256>>>(f, d, from, n, every);
    MUST(cudaMemcpy(h, d, n * sizeof(T), cudaMemcpyDefault));
    const unsigned threads = std::thread::hardware_concurrency();
    std::vector<std::thread> pool;
    for (unsigned k = 0; k < threads; ++k)
      pool.emplace_back([&, k] {
        uint64_t diff = 0, o2 = 0, o16 = 0, w = 0, nan = 0;
        T wa = 0;
        for (uint64_t i = n * k / threads; i < n * (k + 1) / threads; ++i) {
          T a, want;
          if constexpr (sizeof(T) == 4)
            a = every ? __builtin_bit_cast(float, uint32_t((from + i) * every)) : argument(from + i, 1, T());
          else
            a = argument(from + i, 1, T());
          if constexpr (requires { f(a); })
            want = f(a);
          else
            want = call(f, a, argument(from + i, 2, T()), argument(from + i, 3, T()));
          const T got = h[i];
          if (got != got || want != want) {
            nan += (got != got) != (want != want);
            continue;
          }
          const uint64_t off = distance(got, want);
          if (!off && std::signbit(got) == std::signbit(want)) continue;
          ++diff;
          o2 += off > 2, o16 += off > 16;
          if (off > w) w = off, wa = a;
        }
        different += diff, over_2 += o2, over_16 += o16, nan_on_one += nan;
        uint64_t seen = worst;
        while (w > seen && !worst.compare_exchange_weak(seen, w)) {
        }
        if (w && w == worst) worst_a = wa;
      });
    for (std::thread& t : pool) t.join();
  }
  record::line(record::text("%s %s", name, sizeof(T) == 4 ? "f32" : "f64").c_str(),
               "of %llu: different %llu, by more than 2 ulp %llu, more than 16 %llu; NaN on one side %llu; "
               "at most %llu ulp, at %a",
               static_cast<unsigned long long>(total), static_cast<unsigned long long>(different),
               static_cast<unsigned long long>(over_2), static_cast<unsigned long long>(over_16),
               static_cast<unsigned long long>(nan_on_one), static_cast<unsigned long long>(worst),
               double(worst_a));
}
#define CHECK(...)                         \
  check<float>(#__VA_ARGS__, __VA_ARGS__); \
  check<double>(#__VA_ARGS__, __VA_ARGS__)

}  // namespace

int main(int argc, char** argv) {
  record::header(argv[1]);
  record::group = "math";
  CHECK(Exp{});
  CHECK(Exp2{});
  CHECK(Expm1{});
  CHECK(Log{});
  CHECK(Log2{});
  CHECK(Log10{});
  CHECK(Log1p{});
  CHECK(LogAddExp{});
  CHECK(Xlogy{});
  CHECK(Sin{});
  CHECK(Cos{});
  CHECK(Tan{});
  CHECK(Asin{});
  CHECK(Acos{});
  CHECK(Atan{});
  CHECK(Atan2{});
  CHECK(Sinh{});
  CHECK(Cosh{});
  CHECK(Asinh{});
  CHECK(Acosh{});
  CHECK(Atanh{});
  CHECK(Erf{});
  CHECK(Erfc{});
  record::group = "arithmetic";
  CHECK(Add{});
  CHECK(Sub{});
  CHECK(Mul{});
  CHECK(Div{});
  CHECK(AddScaled{{}, 0.3, 0});
  CHECK(AddCMul{{}, 0.3});
  CHECK(AddCDiv{{}, 0.3});
  CHECK(Pow{});
  CHECK(Remainder{});
  CHECK(Fmod{});
  CHECK(FloorDivide{});
  CHECK(TruncDivide{});
  CHECK(Maximum{});
  CHECK(Minimum{});
  CHECK(Lerp{{}, 0.3});
  CHECK(LerpTensor{});
  CHECK(Neg{});
  CHECK(Abs{});
  CHECK(Sign{});
  CHECK(Square{});
  CHECK(Reciprocal{});
  CHECK(Sqrt{});
  CHECK(Rsqrt{});
  CHECK(Hypot{});
  CHECK(Copysign{});
  CHECK(Floor{});
  CHECK(Ceil{});
  CHECK(Round{});
  CHECK(Trunc{});
  record::group = "activations";
  CHECK(Relu{});
  CHECK(ReluBackward{});
  CHECK(LeakyRelu{{}, 0.01});
  CHECK(Elu{{}, 1.0});
  CHECK(EluBackward{{}, 1.0});
  CHECK(Celu{{}, 1.3});
  CHECK(Selu{});
  CHECK(Sigmoid{});
  CHECK(SigmoidBackward{});
  CHECK(LogSigmoid{});
  CHECK(Tanh{});
  CHECK(TanhBackward{});
  CHECK(Softplus{{}, 1.0, 20.0});
  CHECK(Silu{});
  CHECK(SiluBackward{});
  CHECK(Mish{});
  CHECK(Gelu{});
  CHECK(GeluBackward{});
  CHECK(GeluTanh{});
  CHECK(GeluTanhBackward{});
  CHECK(HardSigmoid{});
  CHECK(HardSwish{});
  CHECK(SoftShrink{{}, 0.5});
  record::group = "losses";
  CHECK(SquaredError{});
  CHECK(SquaredErrorBackward{});
  CHECK(SmoothL1{{}, 1.0});
  CHECK(Huber{{}, 1.0});
  CHECK(BinaryCrossEntropy{});
  CHECK(BinaryCrossEntropyBackward{});
  CHECK(BinaryCrossEntropyWithLogits{});
  CHECK(BinaryCrossEntropyWithLogitsBackward{});
  CHECK(KlDiv{});
  CHECK(PoissonNll{{}, 1e-8});
  if (argc < 3) return 0;
  every_float = std::strtoull(argv[2], nullptr, 10);
  record::group = every_float == 1 ? "every f32" : "every fifth f32";
#define EVERY(...) check<float>(#__VA_ARGS__, __VA_ARGS__)
  EVERY(Exp{});
  EVERY(Exp2{});
  EVERY(Expm1{});
  EVERY(Log{});
  EVERY(Log2{});
  EVERY(Log10{});
  EVERY(Log1p{});
  EVERY(Sin{});
  EVERY(Cos{});
  EVERY(Tan{});
  EVERY(Asin{});
  EVERY(Acos{});
  EVERY(Atan{});
  EVERY(Sinh{});
  EVERY(Cosh{});
  EVERY(Asinh{});
  EVERY(Acosh{});
  EVERY(Atanh{});
  EVERY(Erf{});
  EVERY(Erfc{});
  EVERY(Sqrt{});
  EVERY(Rsqrt{});
  EVERY(Reciprocal{});
  EVERY(Tanh{});
  EVERY(Sigmoid{});
  EVERY(Gelu{});
  EVERY(GeluTanh{});
  EVERY(Silu{});
  EVERY(Mish{});
  EVERY(LogSigmoid{});
  EVERY(Softplus{{}, 1.0, 20.0});
}
