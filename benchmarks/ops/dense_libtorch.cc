// Workloads: matrix products and convolutions, in LibTorch, with NCHW and channels-last layouts.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in
// dense_gradus.cc. Several entries with one name are variants (layouts), of which the fastest counts.
#include <string>
#include <vector>

#include <torch/torch.h>

#include "benchmarks/ops/shapes.h"
#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

template <class F> Workload quiet(F f) {
  return work([f] {
    torch::NoGradGuard off;
    f();
  });
}

void add_conv(std::vector<Entry>& all, const ConvShape& s, at::MemoryFormat layout) {
  const auto x = [=] { return torch::randn({s.N, s.C, s.HW, s.HW}).contiguous(layout); };
  const auto w = [=] { return torch::randn({s.O, s.C / s.groups, s.kernel, s.kernel}).contiguous(layout); };
  const auto dy = [=] { return torch::randn({s.N, s.O, s.out(), s.out()}).contiguous(layout); };
  const std::string name = std::string("conv ") + s.name;
  const auto backward = [=](bool input) {
    return [=] {
      auto a = x(), b = w(), g = dy();
      return quiet([=] {
        torch::convolution_backward(g, a, b, c10::nullopt, {s.stride, s.stride}, {s.padding, s.padding},
                                    {s.dilation, s.dilation}, false, {0, 0}, s.groups,
                                    {input, !input, false});
      });
    };
  };
  all.push_back({name, [=] {
                   auto a = x(), b = w();
                   return quiet([=] { torch::conv2d(a, b, {}, s.stride, s.padding, s.dilation, s.groups); });
                 }});
  all.push_back({name + ", input gradient", backward(true)});
  all.push_back({name + ", weight gradient", backward(false)});
}

std::vector<Entry> entries() {
  std::vector<Entry> all;
  for (const GemmShape& s : kGemmShapes) {
    all.push_back({std::string("matmul ") + s.name, [s] {
                     auto a = s.batch > 1 ? torch::randn({s.batch, s.m, s.k}) : torch::randn({s.m, s.k});
                     auto b = s.batch > 1 ? torch::randn({s.batch, s.k, s.n}) : torch::randn({s.k, s.n});
                     return quiet([=] { torch::matmul(a, b); });
                   }});
  }
  for (const ConvShape& s : kConvShapes) {
    add_conv(all, s, at::MemoryFormat::Contiguous);
    add_conv(all, s, at::MemoryFormat::ChannelsLast);
  }
  for (const ConvShape& s : kTransposedShapes) {
    for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      all.push_back({std::string("conv_transpose ") + s.name, [=] {
                       auto x = torch::randn({s.N, s.C, s.HW, s.HW}).contiguous(layout);
                       auto w = torch::randn({s.C, s.O, s.kernel, s.kernel}).contiguous(layout),
                            b = torch::randn({s.O});
                       return quiet([=] { torch::conv_transpose2d(x, w, b, s.stride, s.padding); });
                     }});
    }
  }
  return all;
}

}  // namespace

static const AddWorkloads added(Side::kLibTorch, "dense", entries());

}  // namespace gradus::bench
