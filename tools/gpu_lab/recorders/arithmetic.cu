// Element-wise arithmetic of the device against the host's. Built twice: as nvcc does by itself, and with
// -fmad=false.
//
//   all     every one of the 2^32 f32 through a function, against the f64 function rounded to f32, both on
//           the device: differences, the largest distance in units of the last place (ulp), a sum over all
//           bits
//   glibc   2^25 f32 (or pairs), 2^24 f64, against the host's C library
//   casts   conversions to 16-bit floats of all 2^32 f32; of special values to integers
//
// The sum over all bits: for i from 0 to 2^32 - 1, mix(i * 2^32 + bits of f(i as a float)), modulo 2^64,
// where a NaN's bits count as 0x7fc00000. A program without a GPU can compute it too.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "recorder.h"

namespace {

__host__ __device__ inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
__host__ __device__ inline uint32_t bits(float f) { return __builtin_bit_cast(uint32_t, f); }
__host__ __device__ inline uint64_t bits(double f) { return __builtin_bit_cast(uint64_t, f); }
__host__ __device__ inline float of(uint32_t u) { return __builtin_bit_cast(float, u); }
__host__ __device__ inline double of(uint64_t u) { return __builtin_bit_cast(double, u); }
template <class T> __host__ __device__ inline bool same_nan(T a, T b) { return a != a && b != b; }
// How many values lie between.
__host__ __device__ inline uint64_t distance(float a, float b) {
  if (a != a || b != b) return (a != a) == (b != b) ? 0 : ~0ull;
  const int64_t x = bits(a) & 0x80000000u ? -int64_t(bits(a) & 0x7fffffffu) : int64_t(bits(a)),
                y = bits(b) & 0x80000000u ? -int64_t(bits(b) & 0x7fffffffu) : int64_t(bits(b));
  return uint64_t(x < y ? y - x : x - y);
}
__host__ __device__ inline uint64_t distance(double a, double b) {
  if (a != a || b != b) return (a != a) == (b != b) ? 0 : ~0ull;
  const uint64_t m = 0x7fffffffffffffffull, x = bits(a), y = bits(b);
  if (x >> 63 == y >> 63) return (x & m) < (y & m) ? (y & m) - (x & m) : (x & m) - (y & m);
  return (x & m) + (y & m);
}

// name, the function in its own type (x, and y for pairs)
// clang-format off
#define UNARY(F)                                                                                       \
  F(exp, exp) F(exp2, exp2) F(expm1, expm1) F(log, log) F(log2, log2) F(log10, log10) F(log1p, log1p)  \
  F(tanh, tanh) F(sqrt, sqrt) F(sin, sin) F(cos, cos) F(tan, tan) F(asin, asin) F(acos, acos)          \
  F(atan, atan) F(sinh, sinh) F(cosh, cosh) F(asinh, asinh) F(acosh, acosh) F(atanh, atanh)            \
  F(erf, erf) F(erfc, erfc) F(lgamma, lgamma) F(cbrt, cbrt) F(floor, floor) F(rint, rint) F(round, round)
#define BINARY(F)                                                                                      \
  F(pow, pow) F(atan2, atan2) F(fmod, fmod) F(hypot, hypot) F(fmin, fmin) F(fmax, fmax)                \
  F(remainder, remainder)
// clang-format on

#define STRUCT(name, f)                                                                  \
  struct F_##name {                                                                      \
    static constexpr const char* text = #name;                                           \
    template <class T> __host__ __device__ T operator()(T x, T) const { return ::f(x); } \
  };
UNARY(STRUCT)
#undef STRUCT
#define STRUCT(name, f)                                                                       \
  struct F_##name {                                                                           \
    static constexpr const char* text = #name;                                                \
    template <class T> __host__ __device__ T operator()(T x, T y) const { return ::f(x, y); } \
  };
BINARY(STRUCT)
#undef STRUCT
struct F_sigmoid {
  static constexpr const char* text = "1 / (1 + exp(-x))";
  template <class T> __host__ __device__ T operator()(T x, T) const { return T(1) / (T(1) + ::exp(-x)); }
};
struct F_rsqrt {
  static constexpr const char* text = "1 / sqrt(x)";
  template <class T> __host__ __device__ T operator()(T x, T) const { return T(1) / ::sqrt(x); }
};
struct F_reciprocal {
  static constexpr const char* text = "1 / x";
  template <class T> __host__ __device__ T operator()(T x, T) const { return T(1) / x; }
};
struct F_divide {
  static constexpr const char* text = "x / y";
  template <class T> __host__ __device__ T operator()(T x, T y) const { return x / y; }
};
struct F_multiply_add {
  static constexpr const char* text = "x * y + x";
  template <class T> __host__ __device__ T operator()(T x, T y) const { return x * y + x; }
};
struct F_multiply {
  static constexpr const char* text = "x * y";
  template <class T> __host__ __device__ T operator()(T x, T y) const { return x * y; }
};
struct F_fma {
  static constexpr const char* text = "fma(x, y, x)";
  template <class T> __host__ __device__ T operator()(T x, T y) const { return ::fma(x, y, x); }
};

struct Tally {
  unsigned long long sum, different, over_1, over_2, over_4, only_one_nan, worst, worst_at;
};

template <class F> __global__ void over_all(Tally* out) {
  const F f;
  unsigned long long sum = 0, different = 0, o1 = 0, o2 = 0, o4 = 0, nans = 0, worst = 0, at = 0;
  for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < (1ull << 32);
       i += uint64_t(gridDim.x) * blockDim.x) {
    const float x = of(uint32_t(i)), y = f(x, 0.f), t = float(f(double(x), 0.0));
    sum += mix(i << 32 | (y != y ? 0x7fc00000u : bits(y)));
    const uint64_t d = distance(y, t);
    if (d == ~0ull) {
      ++nans;
    } else if (d || bits(y) != bits(t)) {
      if (y == y) ++different;
      if (d > 1) ++o1;
      if (d > 2) ++o2;
      if (d > 4) ++o4;
      if (d > worst) worst = d, at = i;
    }
  }
  atomicAdd(&out->sum, sum);
  atomicAdd(&out->different, different);
  atomicAdd(&out->over_1, o1);
  atomicAdd(&out->over_2, o2);
  atomicAdd(&out->over_4, o4);
  atomicAdd(&out->only_one_nan, nans);
  if (worst > atomicMax(&out->worst, worst)) out->worst_at = at;
}
template <class F> void all() {
  static Tally* t = nullptr;
  if (!t) MUST(cudaMalloc(&t, sizeof *t));
  MUST(cudaMemset(t, 0, sizeof *t));
  over_all<F><<<132 * 8, 256>>>(t);
  Tally h;
  MUST(cudaMemcpy(&h, t, sizeof h, cudaMemcpyDefault));
  record::line(F::text,
               "sum %016llx; not the rounded f64: %llu, by more than 1 ulp %llu, more than 2 %llu, more than "
               "4 %llu; NaN on one side %llu; at most %llu ulp, near %a",
               h.sum, h.different, h.over_1, h.over_2, h.over_4, h.only_one_nan, h.worst,
               double(of(uint32_t(h.worst_at))));
}

// Arguments: a third are any bits, the others lie in ranges where functions are interesting.
__host__ __device__ inline float argument(uint64_t i, uint64_t salt, float) {
  const uint64_t z = mix((i + salt) * 0x9E3779B97F4A7C15u);
  const uint32_t u = uint32_t(z >> 32);
  if (z % 3 == 0) return of(u);
  const float v = float(int32_t(u)) * 4.656612873e-10f;
  return z % 3 == 1 ? v * 10.f : v * 1.5f;
}
__host__ __device__ inline double argument(uint64_t i, uint64_t salt, double) {
  const uint64_t z = mix((i + salt) * 0x9E3779B97F4A7C15u), u = mix(z + 0x1234567);
  if (z % 3 == 0) return of(u);
  const double v = double(int64_t(u)) * 1.0842021724855044e-19;
  return z % 3 == 1 ? v * 10 : v * 1.5;
}
template <class F, class T> __global__ void sample(T* out, uint64_t n) {
  for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < n;
       i += uint64_t(gridDim.x) * blockDim.x)
    out[i] = F{}(argument(i, 1, T()), argument(i, 2, T()));
}
template <class F, class T> void against_the_host() {
  constexpr uint64_t n = sizeof(T) == 4 ? 1u << 25 : 1u << 24;
  static T *d = nullptr, *h = nullptr;
  if (!d) {
    MUST(cudaMalloc(&d, n * sizeof(T)));
    MUST(cudaMallocHost(&h, n * sizeof(T)));
  }
  sample<F, T><<<132 * 8, 256>>>(d, n);
  MUST(cudaMemcpy(h, d, n * sizeof(T), cudaMemcpyDefault));
  const int threads = int(std::thread::hardware_concurrency());
  std::vector<Tally> tallies(static_cast<size_t>(threads), Tally{});
  std::vector<std::thread> pool;
  for (int k = 0; k < threads; ++k)
    pool.emplace_back([&, k] {
      Tally& t = tallies[size_t(k)];
      for (uint64_t i = n * k / threads; i < n * (k + 1) / threads; ++i) {
        const T got = h[i], want = F{}(argument(i, 1, T()), argument(i, 2, T()));
        const uint64_t off = distance(got, want);
        if (off == ~0ull) {
          ++t.only_one_nan;
        } else if (off || (bits(got) != bits(want) && got == got)) {
          ++t.different;
          t.over_1 += off > 1, t.over_2 += off > 2, t.over_4 += off > 4;
          if (off > t.worst) t.worst = off, t.worst_at = i;
        }
      }
    });
  for (std::thread& t : pool) t.join();
  Tally s{};
  for (const Tally& t : tallies) {
    s.different += t.different, s.over_1 += t.over_1, s.over_2 += t.over_2, s.over_4 += t.over_4,
        s.only_one_nan += t.only_one_nan;
    if (t.worst > s.worst) s.worst = t.worst, s.worst_at = t.worst_at;
  }
  record::line(F::text,
               "of %llu: different %llu, by more than 1 ulp %llu, more than 2 %llu, more than 4 %llu; NaN on "
               "one side %llu; at most %llu ulp, at (%a, %a)",
               static_cast<unsigned long long>(n), s.different, s.over_1, s.over_2, s.over_4, s.only_one_nan,
               s.worst, double(argument(s.worst_at, 1, T())), double(argument(s.worst_at, 2, T())));
}

// Round to nearest even, as Gradus' bf16 and the hardware's f16 do it on the host.
__host__ __device__ inline uint16_t bf16_of(float f) {
  const uint32_t u = bits(f);
  return f != f ? uint16_t((u >> 16) | 0x40) : uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
__host__ __device__ inline uint16_t f16_of(float f) {
  const uint32_t u = bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return uint16_t(sign | 0x7e00 | (a >> 13 & 0x3ff));
  if (a >= 0x47800000) return uint16_t(sign | 0x7c00);
  if (a < 0x38800000) {  // below 2^-14: a multiple of 2^-24
    const uint32_t shift = 126 - (a >> 23);
    if (shift > 25) return uint16_t(sign);
    const uint32_t m = (a & 0x7fffff) | 0x800000, q = m >> shift, rest = m & ((1u << shift) - 1),
                   half = 1u << (shift - 1);
    return uint16_t(sign | (q + (rest > half || (rest == half && (q & 1)))));
  }
  const uint32_t v = a - 0x38000000, q = v >> 13, rest = v & 0x1fff;
  return uint16_t(sign | (q + (rest > 0x1000 || (rest == 0x1000 && (q & 1)))));
}
struct CastTally {
  unsigned long long sum, different, nans, nans_different, back_different;
  unsigned nan_out;
};
template <int kWhich> __global__ void casts_of_all(CastTally* out) {
  unsigned long long sum = 0, different = 0, nans = 0, nans_different = 0, back = 0;
  for (uint64_t i = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; i < (1ull << 32);
       i += uint64_t(gridDim.x) * blockDim.x) {
    const float x = of(uint32_t(i));
    uint16_t got, want;
    if (kWhich == 0)
      got = __bfloat16_as_ushort(__float2bfloat16_rn(x)), want = bf16_of(x);
    else
      got = __half_as_ushort(__float2half_rn(x)), want = f16_of(x);
    if (x != x) {
      ++nans;
      nans_different += got != want;
      if (i == 0x7fc00001) out->nan_out = got;
    } else {
      sum += mix(i << 32 | got);
      different += got != want;
    }
  }
  atomicAdd(&out->sum, sum);
  atomicAdd(&out->different, different);
  atomicAdd(&out->nans, nans);
  atomicAdd(&out->nans_different, nans_different);
  atomicAdd(&out->back_different, back);
}

struct Specials {
  float f[24];
  int n;
};
struct Casts {
  int8_t i8;
  uint8_t u8;
  int16_t i16;
  int32_t i32;
  uint32_t u32;
  int64_t i64;
  uint64_t u64;
  bool b;
};
__host__ __device__ inline Casts cast(float f) {
  return {int8_t(f), uint8_t(f), int16_t(f), int32_t(f), uint32_t(f), int64_t(f), uint64_t(f), f != 0};
}
__global__ void casts_of(Specials s, Casts* out) {
  for (int i = 0; i < s.n; ++i) out[i] = cast(s.f[i]);
}
std::string show(const Casts& c) {
  return record::text("i8 %d u8 %u i16 %d i32 %d u32 %u i64 %lld u64 %llu bool %d", c.i8, unsigned(c.u8),
                      c.i16, c.i32, c.u32, static_cast<long long>(c.i64),
                      static_cast<unsigned long long>(c.u64), int(c.b));
}
__global__ void integers(int* a, int* out, long long* la, long long* lout) {
  out[0] = a[0] / a[1];   // 7 / 0
  out[1] = a[0] % a[1];   // 7 % 0
  out[2] = a[2] / a[3];   // INT_MIN / -1
  out[3] = a[2] % a[3];   // INT_MIN % -1
  out[4] = a[0] << a[4];  // 7 << 40
  out[5] = a[2] >> a[4];  // INT_MIN >> 40
  out[6] = int(unsigned(a[0]) >> a[4]);
  out[7] = a[0] << a[3];  // 7 << -1
  lout[0] = la[0] / la[1];
  lout[1] = la[2] / la[3];
  lout[2] = la[0] << la[4];  // 7 << 70
  lout[3] = la[2] >> la[4];
}
__global__ void nans(float* in, uint32_t* out) {
  out[0] = bits(in[0] / in[0]);  // 0 / 0
  out[1] = bits(in[1] - in[1]);  // inf - inf
  out[2] = bits(sqrtf(-in[2]));  // sqrt(-1)
  out[3] = bits(in[3] + in[2]);  // NaN 0x7fc12345 + 1
  out[4] = bits(in[4] + in[2]);  // signalling NaN + 1
  out[5] = bits(in[5] * in[2]);  // negative NaN * 1
  out[6] = bits(fminf(in[3], in[2]));
  out[7] = bits(fmaxf(in[3], in[2]));
  out[8] = bits(in[3] < in[2] ? in[3] : in[2]);
  out[9] = bits(-in[3]);
  out[10] = bits(fabsf(in[5]));
  out[11] = bits(expf(in[3]));
  out[12] = bits(float(double(in[3])));
  out[13] = bits(fminf(-in[0], in[0]));  // fmin(-0, +0)
  out[14] = bits(fmaxf(-in[0], in[0]));
  out[15] = bits(fmodf(in[2], in[0]));  // fmod(1, 0)
}

}  // namespace

int main(int argc, char** argv) {
  const bool plain = argc > 1 && std::string(argv[1]) == "fmad";
  record::header(plain ? "Element-wise arithmetic, compiled as nvcc does by itself"
                       : "Element-wise arithmetic, compiled with -fmad=false");
#define ALL(name, f) all<F_##name>();
#define SAMPLE32(name, f) against_the_host<F_##name, float>();
#define SAMPLE64(name, f) against_the_host<F_##name, double>();
  record::group = "all f32";
  UNARY(ALL)
  all<F_sigmoid>();
  all<F_rsqrt>();
  all<F_reciprocal>();
  record::group = "f32 against glibc";
  if (!plain) {
    UNARY(SAMPLE32)
  }
  against_the_host<F_sigmoid, float>();
  BINARY(SAMPLE32)
  against_the_host<F_divide, float>();
  against_the_host<F_multiply, float>();
  against_the_host<F_multiply_add, float>();
  against_the_host<F_fma, float>();
  against_the_host<F_rsqrt, float>();
  record::group = "f64 against glibc";
  if (!plain) {
    UNARY(SAMPLE64)
    BINARY(SAMPLE64)
  }
  against_the_host<F_sigmoid, double>();
  against_the_host<F_divide, double>();
  against_the_host<F_multiply_add, double>();
  against_the_host<F_fma, double>();
  against_the_host<F_rsqrt, double>();
  record::group = "casts";
  CastTally *t, h;
  MUST(cudaMalloc(&t, sizeof *t));
  MUST(cudaMemset(t, 0, sizeof *t));
  casts_of_all<0><<<1056, 256>>>(t);
  MUST(cudaMemcpy(&h, t, sizeof h, cudaMemcpyDefault));
  record::line("all f32 to bf16",
               "sum %016llx; not round to nearest even: %llu; of %llu NaN, %llu differ from keeping the "
               "upper half with the quiet bit, 0x7fc00001 gives %04x",
               h.sum, h.different, h.nans, h.nans_different, h.nan_out);
  MUST(cudaMemset(t, 0, sizeof *t));
  casts_of_all<1><<<1056, 256>>>(t);
  MUST(cudaMemcpy(&h, t, sizeof h, cudaMemcpyDefault));
  record::line("all f32 to f16",
               "sum %016llx; not round to nearest even: %llu; of %llu NaN, %llu differ from keeping the "
               "upper bits with the quiet bit, 0x7fc00001 gives %04x",
               h.sum, h.different, h.nans, h.nans_different, h.nan_out);
  const float kInf = INFINITY;
  const Specials s{
      {0.5f,    -0.5f,   -1.f,         1.9f, 127.f, 128.f, 129.f, -129.f, 255.f, 256.f, 300.f, -300.f,
       32768.f, 70000.f, 2147483648.f, 3e9f, -3e9f, 5e9f,  1e19f, 2e19f,  kInf,  -kInf, NAN,   -0.f},
      24};
  Casts* d;
  MUST(cudaMalloc(&d, 24 * sizeof *d));
  casts_of<<<1, 1>>>(s, d);
  std::vector<Casts> got(24);
  MUST(cudaMemcpy(got.data(), d, 24 * sizeof *d, cudaMemcpyDefault));
  for (int i = 0; i < s.n; ++i) {
    volatile float v = s.f[i];
    record::line(record::text("%g on the device", s.f[i]).c_str(), "%s", show(got[size_t(i)]).c_str());
    record::line(record::text("%g on the host (x86-64)", s.f[i]).c_str(), "%s", show(cast(v)).c_str());
  }
  record::group = "integers";
  int a[5] = {7, 0, INT32_MIN, -1, 40}, out[8], *da, *dout;
  long long la[5] = {7, 0, INT64_MIN, -1, 70}, lout[4], *dla, *dlout;
  MUST(cudaMalloc(&da, sizeof a));
  MUST(cudaMalloc(&dout, sizeof out));
  MUST(cudaMalloc(&dla, sizeof la));
  MUST(cudaMalloc(&dlout, sizeof lout));
  MUST(cudaMemcpy(da, a, sizeof a, cudaMemcpyDefault));
  MUST(cudaMemcpy(dla, la, sizeof la, cudaMemcpyDefault));
  integers<<<1, 1>>>(da, dout, dla, dlout);
  MUST(cudaMemcpy(out, dout, sizeof out, cudaMemcpyDefault));
  MUST(cudaMemcpy(lout, dlout, sizeof lout, cudaMemcpyDefault));
  record::line("7 / 0, 7 % 0, INT_MIN / -1, INT_MIN % -1", "%d %d %d %d", out[0], out[1], out[2], out[3]);
  record::line("7 << 40, INT_MIN >> 40, 7u >> 40, 7 << -1", "%d %d %d %d", out[4], out[5], out[6], out[7]);
  record::line("64 bits: 7 / 0, INT64_MIN / -1, 7 << 70, INT64_MIN >> 70", "%lld %lld %lld %lld", lout[0],
               lout[1], lout[2], lout[3]);
  record::group = "NaN";
  float in[6] = {0.f, INFINITY, 1.f, of(0x7fc12345u), of(0x7f812345u), of(0xffc12345u)}, *din;
  uint32_t nout[16], *dnout;
  MUST(cudaMalloc(&din, sizeof in));
  MUST(cudaMalloc(&dnout, sizeof nout));
  MUST(cudaMemcpy(din, in, sizeof in, cudaMemcpyDefault));
  nans<<<1, 1>>>(din, dnout);
  MUST(cudaMemcpy(nout, dnout, sizeof nout, cudaMemcpyDefault));
  const char* const names[] = {"0 / 0",
                               "inf - inf",
                               "sqrt(-1)",
                               "NaN 7fc12345 + 1",
                               "signalling NaN 7f812345 + 1",
                               "NaN ffc12345 * 1",
                               "fmin(NaN, 1)",
                               "fmax(NaN, 1)",
                               "NaN < 1 ? NaN : 1",
                               "-NaN 7fc12345",
                               "fabs(NaN ffc12345)",
                               "exp(NaN 7fc12345)",
                               "NaN 7fc12345 to f64 and back",
                               "fmin(-0, 0)",
                               "fmax(-0, 0)",
                               "fmod(1, 0)"};
  for (int i = 0; i < 16; ++i) record::line(names[i], "%08x", nout[i]);
}
