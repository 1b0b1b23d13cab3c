// Kernels over lists of tensors (sum, norm, clip, unscale, loss scale, cast), for many list lengths and sizes:
// bits of host loops, except norms, whose f64 sums have another order.
#include "gradus/tensor/cuda/kernels/gradients.h"

#include <memory>

#include "device_test.h"
#include "gradus/tensor/cuda/kernels/compute_type.h"
#include "gradus/tensor/cuda/kernels/copy.h"
#include "gradus/tensor/ops/formulas/gradients.h"
#include "gradus/tensor/ops/formulas/loss_scale.h"

namespace device_test {
namespace {

using gradus::dtype_v;
namespace raw = gradus::raw;

// Number of elements of each tensor; first element of each buffer, for misalignment.
struct Lists {
  std::vector<int64_t> n;
  size_t start = 0;
};
std::vector<Lists> all_sizes() {
  const int most = cuda::TensorTable<1>::kMaxTensors;
  std::vector<Lists> all = {
      {{1}}, {{4095, 2, 0, 3, 4097, 4, 5}}, {{7, 8, 9, 8191, 31}, 1}, {{4096, 8195, 15, 17}}, {{}}};
  for (const int more : {-1, 0, 1}) all.push_back({std::vector<int64_t>(size_t(most + more), 3)});
  all.back().n.push_back(4099);
  if (!options().small) all.push_back({{3'000'001, 17, 1 << 20}});
  return all;
}

template <class P> class Tensors {
 public:
  using T = cuda::compute_t<P>;
  Tensors(const Lists& s, double scale) {
    for (size_t i = 0; i < s.n.size(); ++i) {
      std::vector<P> x(static_cast<size_t>(s.n[i]));
      for (size_t e = 0; e < x.size(); ++e) x[e] = from_double<P>(scale * as_double(sample<P>(e, i, false)));
      host.push_back(std::move(x));
    }
    put(s);
  }
  void put(const Lists& s) {
    at_.clear(), arrays.clear();
    for (const std::vector<P>& x : host) {
      at_.push_back(std::make_unique<Elements<P>>(x, s.start));
      arrays.push_back({{at_.back()->data()}, static_cast<int64_t>(x.size())});
    }
  }
  // Expects each element on the device to be f of the host's, bit for bit.
  template <class F> void compare(Group& group, const char* what, F&& f) const {
    for (size_t i = 0; i < host.size(); ++i) {
      const std::vector<P> got = at_[i]->take();
      for (size_t e = 0; e < got.size(); ++e) {
        const P want = stored<P>(f(widened(host[i][e])));
        group.check(same(got[e], want), "%s: tensor %zu of %zu, element %zu of %zu: %.9g, not %.9g", what, i,
                    host.size(), e, got.size(), as_double(got[e]), as_double(want));
      }
      group.check(at_[i]->is_clean(), "%s: written outside", what);
    }
  }

  std::vector<std::vector<P>> host;
  std::vector<cuda::ArraysOfTensor<1>> arrays;

 private:
  std::vector<std::unique_ptr<Elements<P>>> at_;
};

// a += b, where b = 2 a.
template <class P> void check_sums(Group& group, const Lists& s) {
  using T = cuda::compute_t<P>;
  const Tensors<P> a(s, 2), b(s, 4);
  std::vector<cuda::ArraysOfTensor<2>> both;
  for (size_t i = 0; i < a.arrays.size(); ++i)
    both.push_back({{a.arrays[i].data[0], b.arrays[i].data[0]}, a.arrays[i].n});
  cuda::add_all("test", dtype_v<P>, both, nullptr);
  a.compare(group, "sums", [](T v) { return v + v * T(2); });
  b.compare(group, "terms of sums", [](T v) { return v; });
}

// Copies of lists: casts of f32 to a 16-bit float, as those of all parameters at the begin of a step, and of bytes, as
// those of gradients between tensors and buckets.
template <class To, class From = To> void test_copies(const char* name) {
  Group group(std::string("copies of lists to ") + name);
  if (!group) return;
  for (const Lists& s : all_sizes()) {
    std::vector<std::vector<From>> values;
    std::vector<std::unique_ptr<Elements<From>>> from;
    std::vector<std::unique_ptr<Elements<To>>> to;
    std::vector<cuda::ArraysOfTensor<2>> both;
    for (size_t i = 0; i < s.n.size(); ++i) {
      const auto n = static_cast<size_t>(s.n[i]);
      std::vector<From> x(n);
      for (size_t e = 0; e < n; ++e) x[e] = sample<From>(e, i);
      from.push_back(std::make_unique<Elements<From>>(x, s.start));
      to.push_back(std::make_unique<Elements<To>>(n, s.start * 3));
      both.push_back({{to[i]->data(), from[i]->data()}, s.n[i]});
      values.push_back(std::move(x));
    }
    cuda::copy_each("test", dtype_v<To>, dtype_v<From>, both, nullptr);
    for (size_t i = 0; i < s.n.size(); ++i) {
      const std::vector<To> got = to[i]->take();
      for (size_t e = 0; e < got.size(); ++e)
        group.check(same(got[e], stored<To>(values[i][e])), "tensor %zu, element %zu of %zu: %.9g, not %.9g",
                    i, e, got.size(), as_double(got[e]), as_double(values[i][e]));
      group.check(to[i]->is_clean() && from[i]->is_clean(), "tensor %zu: written outside", i);
    }
  }
}

// Returns -1 if memory outside of the results was written.
template <class Out> double norm_on_device(cuda::Gradients x, DType dtype, double p) {
  const auto chunks = static_cast<size_t>(cuda::chunks_of(x));
  const Elements<double> sums(chunks);
  const Elements<Out> norm(1);
  cuda::power_sums("test", sums.data(), dtype, x, p, nullptr);
  cuda::norm_of_sums("test", {norm.data(), dtype_v<Out>}, sums.data(), static_cast<int64_t>(chunks), p,
                     nullptr);
  const double found = static_cast<double>(norm.take()[0]);
  return norm.is_clean() && sums.is_clean() ? found : -1;
}

// Terms are added in f64: a sum rounds at most once per element, and the root once. CUDA's pow is within 2
// units.
template <class P> void check_norms(Group& group, const Lists& s) {
  Tensors<P> x(s, 2);
  int64_t count = 0;
  for (const int64_t n : s.n) count += n;
  const bool is_long = s.n.size() > 10;  // one norm is enough
  for (const double p : {2., 1., 3., double(INFINITY)})
    for (const bool with_nan : {false, true}) {
      if (is_long && (p != 2 || with_nan)) return;
      if (with_nan && (s.n.empty() || s.n.back() == 0)) continue;
      if (with_nan) x.host.back().back() = from_double<P>(NAN), x.put(s);
      double sum = 0;
      for (const std::vector<P>& one : x.host)
        for (const P v : one) {
          const double a = std::abs(as_double(v));
          sum = std::isinf(p) ? gradus::raw::max_or_nan(sum, a) : sum + (p == 1 ? a : std::pow(a, p));
        }
      const double want = gradus::raw::p_norm_of_sum(sum, p);
      const double f64 = norm_on_device<double>(x.arrays, dtype_v<P>, p),
                   again = norm_on_device<double>(x.arrays, dtype_v<P>, p),
                   f32 = norm_on_device<float>(x.arrays, dtype_v<P>, p);
      const double off = static_cast<double>(count + 8) * 0x1p-52;
      const auto is_near = [&](double got, double allowed) {
        return std::isnan(want) ? std::isnan(got) : std::abs(got - want) <= allowed * want;
      };
      group.check(is_near(f64, off), "norm %g of %zu tensors: %.17g, not %.17g", p, s.n.size(), f64, want);
      group.check(is_near(f32, off + 0x1p-24), "norm %g of %zu tensors: %.9g, not %.9g", p, s.n.size(), f32,
                  want);
      group.check(std::memcmp(&f64, &again, sizeof f64) == 0, "norm %g: two runs differ", p);
      if (with_nan) x.host.back().back() = P(), x.put(s);
    }
}

template <class P, class Norm> void check_clipping(Group& group, const Lists& s) {
  using T = cuda::compute_t<P>;
  for (const double size : {8., 0.5, 2., double(NAN)}) {
    if (s.n.size() > 10 && size != 8) continue;
    const Tensors<P> x(s, 2);
    const Elements<Norm> norm(std::vector<Norm>{static_cast<Norm>(size)});
    cuda::clip_by_norm("test", {norm.data(), dtype_v<Norm>}, dtype_v<P>, x.arrays, 2, nullptr);
    const double factor = gradus::raw::clip_factor(size, 2);
    x.compare(group, "clip by norm",
              [&](T v) { return gradus::raw::needs_clipping(factor) ? v * static_cast<T>(factor) : v; });
  }
  Tensors<P> x(s, 2);
  if (!x.host.empty() && !x.host[0].empty()) x.host[0][0] = from_double<P>(NAN), x.put(s);
  cuda::clip_by_value("test", dtype_v<P>, x.arrays, 0.75, nullptr);
  x.compare(group, "clip by value", [](T v) { return gradus::raw::clamped(v, T(-0.75), T(0.75)); });
}

template <class P> void check_unscale(Group& group, const Lists& s) {
  using T = cuda::compute_t<P>;
  // A NaN or infinity at the begin or end of a tensor; none when bad_tensor == s.n.size().
  for (size_t bad_tensor = 0; bad_tensor <= s.n.size(); bad_tensor += std::max<size_t>(1, s.n.size() / 2)) {
    const bool is_bad = bad_tensor < s.n.size() && s.n[bad_tensor] > 0;
    Tensors<P> x(s, 2);
    if (is_bad) {
      auto& tensor = x.host[bad_tensor];
      tensor[bad_tensor % 2 ? 0 : tensor.size() - 1] =
          from_double<P>(bad_tensor % 3 ? double(NAN) : -INFINITY);
      x.put(s);
    }
    const auto chunks = static_cast<size_t>(cuda::chunks_of(x.arrays));
    const Elements<int32_t> bad(chunks);
    const Elements<float> found(1);
    cuda::unscale("test", bad.data(), dtype_v<P>, x.arrays, 0.25, nullptr, nullptr);
    cuda::any_nonfinite("test", found.data(), bad.data(), static_cast<int64_t>(chunks), nullptr);
    const Elements<double> four(std::vector<double>{4, 0, 0, 0});
    Tensors<P> y(s, 2);
    cuda::unscale("test", bad.data(), dtype_v<P>, y.arrays, 1, four.data(), nullptr);
    y.compare(group, "unscale by a scale on the device", [](T v) { return v * T(0.25); });
    x.compare(group, "unscale", [](T v) { return v * T(0.25); });
    group.check(found.take()[0] == (is_bad ? 1.f : 0.f), "found %g in tensor %zu of %zu",
                double(found.take()[0]), bad_tensor, s.n.size());
    group.check(bad.is_clean() && found.is_clean(), "unscale: written outside");
  }
}

// GradScaler's update on the device against raw::next_loss_scale(); a scale below 2^-126 is reported.
void test_scales() {
  Group group("gradients in f32: their scale");
  if (!group) return;
  const raw::LossScaleOptions options{2, 0.5, 3};
  for (const double scale : {8., 0x1p127, 0x1p-126})
    for (const double clean : {0., 1., 2.})
      for (const int latest_found : {-1, 0, 1})  // -1: this is the first step since the backward
        for (const bool found : {false, true}) {
          const raw::LossScale before{scale, clean, 5, 1},
              latest{scale / 2, 0, 6, static_cast<double>(latest_found == 1)};
          const auto put = [](const raw::LossScale& s) {
            return std::vector<double>{s.scale, s.growth_tracker, s.skipped, s.found_inf};
          };
          const Elements<double> now(4), first(put(before)), last(put(latest));
          const Elements<float> there(std::vector<float>{found ? 1.f : 0.f});
          const Elements<cuda::ValueRecord> record(std::vector<cuda::ValueRecord>(1));
          const auto at = [](const Elements<double>& x) {
            return reinterpret_cast<raw::LossScale*>(x.data());
          };
          cuda::move_scale("test", at(now), at(first), latest_found < 0 ? nullptr : at(last), there.data(),
                           options, {record.data(), 7, 0}, nullptr);
          const raw::LossScale fresh{scale, clean, 5, 0},
              want = raw::next_loss_scale(before, latest_found < 0 ? fresh : latest, found, options);
          group.check(now.take() == put(want) && now.is_clean(), "scale %g after %g clean steps: %g", scale,
                      clean, now.take()[0]);
          const bool reports = want.scale < 0x1p-126;
          const std::vector<cuda::ValueRecord> records = record.take();
          const cuda::ValueRecord& got = records[0];
          group.check(got.launch == (reports ? 7 : 0) && (!reports || got.words[0] >> 24 == want.skipped),
                      "scale %g is reported as %llu", want.scale,
                      static_cast<unsigned long long>(got.launch));
        }
}

template <class P> void test_type(const char* name) {
  Group group(std::string("gradients in ") + name);
  if (!group) return;
  for (const Lists& s : all_sizes()) {
    if (s.n.size() > 10 && !std::is_same_v<P, float>) continue;  // tables are the same
    check_sums<P>(group, s);
    check_norms<P>(group, s);
    check_clipping<P, float>(group, s);
    check_unscale<P>(group, s);
  }
  check_clipping<P, double>(group, {{4097, 5}});
}

}  // namespace

void test_gradients() {
  test_type<float>("f32");
  test_type<double>("f64");
  test_type<f16>("f16");
  test_type<bf16>("bf16");
  test_copies<bf16, float>("bf16");
  test_copies<f16, float>("f16");
  test_copies<uint8_t>("u8, from u8");
  test_copies<f16>("f16, from f16");
  test_copies<float>("f32");
  test_copies<double>("f64");
  test_scales();
}

}  // namespace device_test
