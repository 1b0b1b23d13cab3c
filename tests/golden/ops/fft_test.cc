// Fourier transforms against PyTorch's: cases of fft.py by name, as golden_ops.h explains.
#include "gradus/tests/golden/ops/golden_ops.h"

namespace gradus::golden {
namespace {

using fft::ManyOptions, fft::Norm, fft::Options;
using One = Tensor (*)(const Tensor&, const Options&);
using Many = Tensor (*)(const Tensor&, const ManyOptions&);

std::vector<GoldenOp> all_ops() {
  std::vector<GoldenOp> ops = {
      {"fftn/sizes alone",
       [](X x) {
         return fft::fftn(x[0], {.s = Dims{3, 6}});
       }},
      {"fftshift/all", [](X x) { return fft::fftshift(x[0]); }},
      {"fftshift/dims",
       [](X x) {
         return fft::fftshift(x[0], Dims{0, -1});
       }},
      {"ifftshift/all", [](X x) { return fft::ifftshift(x[0]); }},
      {"ifftshift/dims",
       [](X x) {
         return fft::ifftshift(x[0], Dims{0, -1});
       }},
  };
  const std::pair<std::string, One> transforms[] = {
      {"fft", &fft::fft}, {"ifft", &fft::ifft}, {"rfft", &fft::rfft}, {"irfft", &fft::irfft}};
  const std::pair<std::string, Norm> norms[] = {
      {"backward", Norm::kBackward}, {"ortho", Norm::kOrtho}, {"forward", Norm::kForward}};
  for (const auto& [name, f] : transforms) {
    const auto add = [&ops, name = name, f = f](const std::string& variant, const Options& o) {
      ops.push_back({name + "/" + variant, [f, o](X x) { return f(x[0], o); }});
    };
    for (int64_t n : {1, 2, 3, 4, 8, 12, 15, 67, 71}) add(std::to_string(n), {.n = n});
    for (int64_t n : {3, 9}) add("n " + std::to_string(n), {.n = n});
    for (const auto& [norm, value] : norms)
      for (int64_t dim : {0, 1, -1}) add(norm + " " + std::to_string(dim), {.dim = dim, .norm = value});
  }
  const std::pair<std::string, Many> of_many[] = {
      {"fft2", &fft::fft2},   {"ifft2", &fft::ifft2},   {"fftn", &fft::fftn},   {"ifftn", &fft::ifftn},
      {"rfft2", &fft::rfft2}, {"irfft2", &fft::irfft2}, {"rfftn", &fft::rfftn}, {"irfftn", &fft::irfftn}};
  for (const auto& [name, f] : of_many) {
    ManyOptions o{.s = Dims{5, 2}, .dim = Dims{0, 2}, .norm = Norm::kOrtho};
    if (name.find('r') != std::string::npos) o.s = Dims{5, 3}, o.dim = Dims{2, 0};
    if (name.starts_with("irfft")) o.norm = Norm::kForward;
    ops.push_back({name + "/default", [f = f](X x) { return f(x[0], {}); }});
    ops.push_back({name + "/options", [f = f, o](X x) { return f(x[0], o); }});
  }
  for (int64_t n : {1, 4, 5}) {
    const std::string variant = "/" + std::to_string(n);
    ops.push_back(
        {"fftfreq" + variant, [n](X x) { return fft::fftfreq(n, 0.5, {.dtype = x[0].dtype()}) + x[0]; }});
    ops.push_back(
        {"rfftfreq" + variant, [n](X x) { return fft::rfftfreq(n, 0.5, {.dtype = x[0].dtype()}) + x[0]; }});
  }
  return ops;
}

}  // namespace

static const bool added = add_golden_ops("fft", all_ops());

}  // namespace gradus::golden
