// Counted work against work computed by hand. Counted on meta, against what the emulated device is asked.
#include "gradus/tests/cuda/report/work.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <utility>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/cuda/training/steps.h"

namespace report {

void PrintTo(const Work& w, std::ostream* out) {
  *out << w.op << " of " << w.bytes << " bytes, " << w.flops << " FLOPs, units " << w.units;
}

namespace {

using gradus::Device;
using gradus::DType;
using gradus::Tensor;

const Device kMeta = Device::parse("meta");

// A linear layer of m samples: three products, the gradient of the bias, a step.
TEST(Work, OfALinearLayer) {
  constexpr int64_t m = 5, k = 7, n = 3;
  const Tensor x = gradus::empty({m, k}, {.device = kMeta}), w = gradus::empty({n, k}, {.device = kMeta}),
               b = gradus::empty({n}, {.device = kMeta}), dy = gradus::empty({m, n}, {.device = kMeta});
  gradus::GradManager gm;
  gm.attach({x, w, b});
  gradus::optim::SGD opt({w, b}, {.lr = 0.1, .momentum = 0.9});
  std::vector<Work> work;
  {
    WorkScope counting;
    auto recording = gm.record();
    gm.backward(gradus::linear(x, w, b), dy);
    opt.step();
    work = counting.work();
  }
  std::erase_if(work, [](const Work& call) { return call.op == "fill_"; });  // the first momentum
  std::ranges::sort(work);
  const int64_t flops = 2 * m * n * k;
  std::vector<Work> expected{
      {"matmul", 4 * (m * n + m * k + n * k + n), flops},
      {"matmul", 4 * (m * k + m * n + n * k), flops},  // dx
      {"matmul", 4 * (n * k + m * n + m * k), flops},  // dw
      {"sum", 4 * (n + m * n), 0},                     // db
      // Parameter, gradient and momentum are read, two of them written.
      {"sgd_step", 4 * 5 * (n * k + n), 0},
  };
  std::ranges::sort(expected);
  EXPECT_EQ(work, expected);
}

// In mixed precision the gradient of a weight is a sum in f32, of operands that are widened for it.
TEST(Work, OfAConvolutionInMixedPrecision) {
  const Tensor x = gradus::empty_channels_last({2, 3, 4, 4}, {.device = kMeta}),
               w = gradus::empty({5, 3, 1, 1}, {.device = kMeta}),
               dy = gradus::empty_channels_last({2, 5, 4, 4}, {.dtype = DType::kBF16, .device = kMeta});
  gradus::GradManager gm;
  gm.attach(w);
  WorkScope counting;
  {
    const auto amp = gradus::autocast(DType::kBF16);
    auto recording = gm.record();
    gm.backward(gradus::conv2d(x, w), dy);
  }
  std::vector<Work> work = counting.work();
  std::ranges::sort(work);
  const int64_t nx = 96, nw = 15, ny = 160, flops = 2 * ny * 3;
  std::vector<Work> expected{
      {"copy", (4 + 2) * nx},  // to bf16
      {"copy", (4 + 2) * nw}, {"conv", 2 * (nx + nw + ny), flops, kBF16},
      {"copy", (2 + 4) * ny},  // widened
      {"copy", (2 + 4) * nx}, {"conv_weight_grad", 4 * (nw + ny + nx), flops, kTF32},
  };
  std::ranges::sort(expected);
  EXPECT_EQ(work, expected);
}

// The first is bound by its bytes, the second by its FLOPs, the third by those of tensor cores.
TEST(Work, RooflineTakesTheLongerOfBytesAndFlops) {
  const Gpu gpu{"", 100, {10, 20, 40}};
  EXPECT_DOUBLE_EQ(roofline_seconds({{"add", 500, 0}, {"matmul", 100, 30}, {"matmul", 100, 80, kBF16}}, gpu),
                   5 + 3 + 2);
}

std::vector<Work> work_of_a_step(const gradus::Example& e, const gradus::StepOptions& o) {
  const gradus::Step step = e.make(o);
  step();  // the optimizer makes its state
  WorkScope counting;
  step();
  std::vector<Work> work = counting.work();
  std::erase_if(work, [](const Work& w) { return w.bytes <= 4; });  // numbers of the host
  std::ranges::sort(work);
  return work;
}

// Among them are all kernels that call others.
TEST(Work, OnMetaIsThatOfTheBackend) {
  const std::pair<const char*, int64_t> networks[] = {
      {"MNIST's network", 28}, {"ResNet-20", 8}, {"DCGAN", 16}};
  for (const auto& [name, size] : networks) {
    const gradus::Example& e = gradus::example(name);
    for (const bool bf16 : {false, true}) {
      gradus::StepOptions o{kMeta, 2, size, bf16, 4};
      const std::vector<Work> expected = work_of_a_step(e, o);
      o.device = Device::parse("cuda:0");
      EXPECT_EQ(work_of_a_step(e, o), expected) << name << (bf16 ? ", bf16" : "");
    }
  }
}

}  // namespace
}  // namespace report
