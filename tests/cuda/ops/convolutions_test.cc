// Convolutions on cuda:0 beyond the op table: plans, layouts, rounding, streams, failing calls. Values are
// small integers whose sums are exact in each dtype, so results must equal the CPU's.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "gradus/tensor/cuda/cudnn/conv_plans.h"
#include "gradus/tensor/cuda/cudnn/cudnn.h"
#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/images/conv.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_allocator.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/libraries/cudnn.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace gradus {
namespace {

const Device kCuda = Device::parse("cuda:0"), kSecond = Device::parse("cuda:1");
constexpr DType kFloats[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

// -1, 0 and 1, in an order without a pattern: sums of up to 256 products are exact in bf16.
Tensor numbers(const Shape& shape, DType dtype = DType::kF32, uint32_t seed = 1) {
  std::vector<float> v(static_cast<size_t>(shape.product()));
  for (float& x : v)
    x = static_cast<float>(static_cast<int>((seed = seed * 1664525u + 1013904223u) >> 24) % 3 - 1);
  const Tensor flat = tensor(v, {shape.product()});
  return raw::to(view_as_strided(flat, shape, row_major_strides(shape), 0), dtype);
}
std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }
Tensor there(const Tensor& x, Device device = kCuda) { return x.defined() ? raw::to(x, device) : x; }

struct Case {
  Shape x, w;
  raw::ConvGeometry geometry;
};
raw::ConvGeometry geometry(Dims stride, Dims padding, Dims dilation, int64_t groups = 1) {
  raw::ConvGeometry g;
  g.stride = stride, g.padding = padding, g.dilation = dilation, g.groups = groups;
  return g;
}
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{2, 3, 5, 6}, {4, 3, 3, 3}, geometry({1, 1}, {1, 1}, {1, 1})},
      {{2, 3, 5, 6}, {4, 3, 3, 2}, geometry({1, 1}, {0, 0}, {1, 1})},
      {{1, 1, 1, 1}, {1, 1, 1, 1}, geometry({1, 1}, {0, 0}, {1, 1})},
      {{3, 1, 5, 1}, {2, 1, 2, 1}, geometry({1, 1}, {0, 0}, {1, 1})},     // one channel, one column
      {{2, 4, 7, 5}, {3, 4, 1, 1}, geometry({1, 1}, {0, 0}, {1, 1})},     // pointwise
      {{2, 4, 7, 6}, {3, 4, 1, 1}, geometry({2, 2}, {0, 0}, {1, 1})},     // with a stride
      {{2, 3, 7, 6}, {4, 3, 3, 3}, geometry({2, 3}, {1, 0}, {1, 1})},     // sides differ
      {{2, 3, 7, 6}, {4, 3, 2, 2}, geometry({3, 2}, {0, 1}, {2, 3})},     // dilated, unused rows
      {{2, 2, 3, 3}, {3, 2, 2, 2}, geometry({1, 2}, {4, 3}, {1, 1})},     // mostly padding
      {{2, 6, 4, 4}, {4, 3, 3, 3}, geometry({1, 1}, {1, 1}, {1, 1}, 2)},  // groups
      {{2, 4, 4, 5}, {8, 1, 3, 3}, geometry({2, 1}, {1, 1}, {1, 1}, 4)},  // depthwise, two filters a channel
      {{2, 3, 3, 4, 3}, {2, 3, 2, 3, 2}, geometry({1, 1, 1}, {1, 0, 1}, {1, 1, 1})},
      {{1, 4, 3, 4, 5}, {2, 2, 2, 2, 2}, geometry({2, 1, 2}, {0, 1, 1}, {1, 2, 1}, 2)},
  };
  return all;
}
std::string describe(const Case& c) {
  return concat("x ", c.x, " w ", c.w, " stride ", c.geometry.stride, " groups ", c.geometry.groups);
}

struct CudaConvolutions : testing::Test {
  CudaConvolutions() { internal::DeviceAllocator::of(kCuda).disable_caching(true); }
  ~CudaConvolutions() override {
    internal::DeviceAllocator::of(kCuda).disable_caching(false);
    Context& context = Context::current();
    context.deterministic = context.tf32 = context.exact_weight_gradients = false;
  }
};

void expect_same(const Tensor& on_cuda, const Tensor& on_cpu, const std::string& what) {
  EXPECT_EQ(on_cuda.device(), kCuda);
  EXPECT_EQ(on_cuda.dtype(), on_cpu.dtype()) << what;
  EXPECT_EQ(on_cuda.shape(), on_cpu.shape()) << what;
  EXPECT_EQ(on_cuda.strides(), on_cpu.strides()) << what;
  EXPECT_EQ(values(on_cuda), values(on_cpu)) << what << ' ' << name_of(on_cpu.dtype());
}

// Counts calls of cuDNN, since the fallback kernels would give the same values.
TEST_F(CudaConvolutions, AllHavePlans) {
  for (const DType t : kFloats)
    for (const Case& c : cases()) {
      const Tensor x = there(numbers(c.x, t)), w = there(numbers(c.w, t, 2));
      const cuda::HostCallScope calls;
      const Tensor y = raw::conv("conv2d", x, w, {}, c.geometry);
      raw::conv_input_grad("conv2d_input_grad", y, w, {}, c.x, c.geometry);
      raw::conv_weight_grad("conv2d_weight_grad", y, x, c.w, false, c.geometry, t);
      EXPECT_EQ(calls.total().library_calls, 3) << describe(c) << ' ' << name_of(t);
    }
}

// If cuDNN has no plan with relu, it computes the convolution and bias alone.
TEST_F(CudaConvolutions, ReluIsPartOfTheGraphWhereThereIsAPlan) {
  using cuda::emulated::RefusedGraphs;
  const Case c = cases()[0];
  for (const DType t : kFloats) {
    const Tensor x = numbers(c.x, t), w = numbers(c.w, t, 2), bias = numbers({c.w[0]}, t, 3);
    for (const RefusedGraphs refused : {RefusedGraphs::kNone, RefusedGraphs::kWithRelu}) {
      cuda::clear_plans();
      cuda::emulated::refuse_graphs(refused);
      const cuda::HostCallScope calls;
      const Tensor y = raw::conv_relu("conv2d_relu", there(x), there(w), there(bias), c.geometry);
      const cuda::HostCalls all = calls.by_op().at("conv_relu");
      EXPECT_EQ(all.library_calls, 1);
      EXPECT_EQ(calls.by_op().contains("relu"), refused == RefusedGraphs::kWithRelu) << calls.table();
      expect_same(y, raw::conv_relu("conv2d_relu", x, w, bias, c.geometry), describe(c) + " relu");
    }
    cuda::emulated::refuse_graphs(RefusedGraphs::kNone);
  }
}

TEST_F(CudaConvolutions, ThreeDirections) {
  for (const DType t : kFloats) {
    for (const Case& c : cases()) {
      const Tensor x = numbers(c.x, t), w = numbers(c.w, t, 2), bias = numbers({c.w[0]}, t, 3);
      for (const Tensor& b : {Tensor(), bias}) {
        expect_same(raw::conv("conv2d", there(x), there(w), there(b), c.geometry),
                    raw::conv("conv2d", x, w, b, c.geometry), describe(c));
        expect_same(raw::conv_relu("conv2d_relu", there(x), there(w), there(b), c.geometry),
                    raw::conv_relu("conv2d_relu", x, w, b, c.geometry), describe(c) + " relu");
      }
      const Tensor dy = numbers(raw::check_conv("conv2d", x, w, {}, c.geometry), t, 4);
      const Tensor input_bias = numbers({c.x[1]}, t, 5);
      for (const Tensor& b : {Tensor(), input_bias})
        expect_same(raw::conv_input_grad("conv2d", there(dy), there(w), there(b), c.x, c.geometry),
                    raw::conv_input_grad("conv2d", dy, w, b, c.x, c.geometry), describe(c));
      for (const bool with_bias : {false, true}) {
        for (const DType result : {t, size_of(t) == 2 ? DType::kF32 : t}) {
          const auto on_cuda =
              raw::conv_weight_grad("conv2d", there(dy), there(x), c.w, with_bias, c.geometry, result);
          const auto on_cpu = raw::conv_weight_grad("conv2d", dy, x, c.w, with_bias, c.geometry, result);
          expect_same(on_cuda.first, on_cpu.first, describe(c));
          if (with_bias) expect_same(on_cuda.second, on_cpu.second, describe(c));
        }
      }
    }
  }
}

// Images in another layout, and parts of larger tensors: addresses that are multiples of an element's size.
TEST_F(CudaConvolutions, LayoutsAndParts) {
  const raw::ConvGeometry g = geometry({1, 1}, {1, 1}, {1, 1});
  for (const DType t : kFloats) {
    const Tensor x = numbers({5, 3, 4, 3}, t), w = numbers({5, 3, 2, 3}, t, 2), bias = numbers({9}, t, 3);
    const auto check = [&](auto lay_out, const char* what) {
      const auto run = [&](Device d) {
        const auto [a, b, c] = lay_out(there(x, d), there(w, d), there(bias, d));
        return raw::conv("conv2d", a, b, c, g);
      };
      expect_same(run(kCuda), run(kCPU), what);
    };
    const auto part = [](const Tensor& v, int64_t from, int64_t n) { return raw::narrow(v, 0, from, n); };
    check([&](auto a, auto b, auto c) { return std::tuple(raw::channels_last(a), b, part(c, 0, 5)); },
          "channels last");
    check([&](auto a, auto b,
              auto c) { return std::tuple(part(raw::channels_last(a), 1, 3), b, part(c, 1, 5)); },
          "some images");
    check([&](auto a, auto b, auto c) { return std::tuple(part(a, 1, 3), part(b, 1, 3), part(c, 3, 3)); },
          "some filters");
    check([&](auto a, auto b, auto c) { return std::tuple(a, raw::channels_last(b), part(c, 2, 5)); },
          "filters with channels last");
  }
}

// 16-bit sums are rounded once, with their bias: 256 + 1 - 256 is 1 in bf16.
TEST_F(CudaConvolutions, RoundOnce) {
  for (const auto& [t, large] : {std::pair(DType::kF16, 2048.f), {DType::kBF16, 256.f}}) {
    const auto row = [&](const std::vector<float>& v, bool as_pixels) {
      const auto n = static_cast<int64_t>(v.size());
      const Tensor x = tensor(v, as_pixels ? Shape{1, 1, 1, n} : Shape{1, n, 1, 1});
      return there(raw::to(x, t));
    };
    const Tensor ones = full({1, 3, 1, 1}, 1, {.dtype = t, .device = kCuda});
    const Tensor one = full({1}, 1, {.dtype = t, .device = kCuda}),
                 minus = raw::to(there(tensor({-large})), t);
    const raw::ConvGeometry g = geometry({1, 1}, {0, 0}, {1, 1});
    EXPECT_EQ(values(raw::conv("conv2d", row({large, 1, -large}, false), ones, {}, g))[0], 1);
    EXPECT_EQ(values(raw::conv("conv2d", row({large, 1, 0}, false), ones, minus, g))[0], 1);
    // Input gradient with filters [3,1,1,1]: a sum over 3 output channels.
    const Tensor spread = full({3, 1, 1, 1}, 1, {.dtype = t, .device = kCuda});
    EXPECT_EQ(values(raw::conv_input_grad("conv_transpose2d", row({large, 1, -large}, false), spread, {},
                                          {1, 1, 1, 1}, g))[0],
              1);
    EXPECT_EQ(values(raw::conv_input_grad("conv_transpose2d", row({large, 1, 0}, false), spread, minus,
                                          {1, 1, 1, 1}, g))[0],
              1);
    const Tensor pixels = row({large, 1, -large}, true),
                 dy = full({1, 1, 1, 3}, 1, {.dtype = t, .device = kCuda});
    EXPECT_EQ(values(raw::conv_weight_grad("conv2d", dy, pixels, {1, 1, 1, 1}, false, g).first)[0], 1);
  }
}

// Gradients in f32 of 16-bit operands are sums that are rounded to 16 bits, unless Context::exact_weight_gradients. The
// product of a pointwise convolution is exact in any case.
TEST_F(CudaConvolutions, ExactWeightGradients) {
  const raw::ConvGeometry g = geometry({1, 1}, {0, 0}, {1, 1});
  for (const auto& [t, large] : {std::pair(DType::kF16, 2048.), {DType::kBF16, 256.}})
    for (const bool exact : {false, true}) {
      Context::current().exact_weight_gradients = exact;
      const Tensor dy = there(raw::to(tensor(std::vector{large, 1.}, {1, 1, 1, 2}), t));
      for (const int64_t taps : {1, 2}) {
        const Tensor x = full({1, 1, 1, taps + 1}, 1, {.dtype = t, .device = kCuda});
        const auto [dw, db] = raw::conv_weight_grad("conv2d", dy, x, {1, 1, 1, taps}, true, g, DType::kF32);
        EXPECT_EQ(values(dw)[0], large + (exact || taps == 1)) << taps;
        EXPECT_EQ(values(db)[0], large + exact) << taps;
      }
    }
}

TEST_F(CudaConvolutions, Tf32IsOffAtFirst) {
  Context::current().deterministic =
      true;  // else the emulated cuDNN's first engine for gradients rounds nothing
  const Tensor x = full({1, 8, 2, 3}, 1 + 0x1p-11f, {.device = kCuda}),
               w = full({1, 8, 1, 2}, 1, {.device = kCuda});
  const raw::ConvGeometry g = geometry({1, 1}, {0, 0}, {1, 1});
  const auto all = [&](DType t) {
    const Tensor a = raw::to(x, t), b = raw::to(w, t),
                 dy = full({1, 1, 2, 2}, 1, {.dtype = t, .device = kCuda});
    const Tensor wide = raw::to(full(w.shape(), 1 + 0x1p-11f, {.device = kCuda}), t);
    return std::vector<double>{values(raw::conv("conv2d", a, b, {}, g))[0],
                               values(raw::conv_input_grad("conv2d", dy, wide, {}, x.shape(), g))[0],
                               values(raw::conv_weight_grad("conv2d", dy, a, w.shape(), false, g).first)[0]};
  };
  const std::vector<double> exact{16 + 0x1p-7, 1 + 0x1p-11, 4 + 0x1p-9}, rounded{16, 1, 4};
  EXPECT_EQ(all(DType::kF32), exact);
  Context::current().tf32 = true;
  EXPECT_EQ(all(DType::kF32), rounded);
  EXPECT_EQ(all(DType::kF64), exact);
  Context::current().tf32 = false;
  EXPECT_EQ(all(DType::kF32), exact);
}

// Results of the three directions, each a sum of large, -large and 1. In another order of the terms, the 1 would be
// lost to rounding.
std::vector<double> sums_in_order(DType t) {
  const double large = t == DType::kF32 ? 1e8 : 1e17;
  const raw::ConvGeometry g = geometry({1, 1}, {0, 0}, {1, 1});
  const Tensor row = there(raw::to(tensor(std::vector<double>{large, -large, 1}, {1, 1, 1, 3}), t));
  const Tensor ones = full({1, 1, 1, 3}, 1, {.dtype = t, .device = kCuda});
  return {values(raw::conv("conv2d", row, ones, {}, g))[0],
          values(raw::conv_input_grad("conv2d", row, ones, {}, {1, 1, 1, 5}, g))[2],
          values(raw::conv_weight_grad("conv2d", ones, row, {1, 1, 1, 1}, false, g).first)[0]};
}

TEST_F(CudaConvolutions, RepeatBitForBitIfDeterministic) {
  Context::current().deterministic = true;
  for (const DType t : {DType::kF32, DType::kF64}) {
    const std::vector<double> once = sums_in_order(t);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(sums_in_order(t), once) << name_of(t);
  }
}

// The emulated cuDNN's first engine for gradients takes another order in every other run.
TEST_F(CudaConvolutions, NondeterministicPlansMayDiffer) {
  for (const DType t : {DType::kF32, DType::kF64}) {
    Context::current().deterministic = true;
    const std::vector<double> once = sums_in_order(t);
    Context::current().deterministic = false;
    bool differs = false;
    for (int i = 0; i < 4; ++i) differs = sums_in_order(t) != once || differs;
    EXPECT_TRUE(differs) << name_of(t);
  }
}

// Convolutions that differ in stride, padding or dilation alone do not share a plan.
TEST_F(CudaConvolutions, HaveTheirOwnPlans) {
  const Tensor x = numbers({2, 3, 6, 6}), w = numbers({4, 3, 2, 2}, DType::kF32, 2);
  for (int round = 0; round < 2; ++round)
    for (const raw::ConvGeometry& g : {geometry({1, 1}, {1, 1}, {1, 1}), geometry({2, 1}, {1, 1}, {1, 1}),
                                       geometry({1, 2}, {1, 1}, {1, 1}), geometry({1, 1}, {0, 1}, {1, 1}),
                                       geometry({1, 1}, {1, 0}, {1, 1}), geometry({1, 1}, {1, 1}, {2, 1}),
                                       geometry({1, 1}, {1, 1}, {1, 2})})
      expect_same(raw::conv("conv2d", there(x), there(w), {}, g), raw::conv("conv2d", x, w, {}, g), "again");
}

// One plan is for aligned operands, another for others.
TEST_F(CudaConvolutions, AlignmentsHaveTheirOwnPlans) {
  const raw::ConvGeometry g = geometry({1, 1}, {0, 0}, {1, 1});
  const Shape x{2, 3, 4, 4}, w{5, 3, 2, 2}, y{2, 5, 3, 3};
  const auto operand = [](const Shape& s, bool is_image, int64_t offset, Device d) {
    const Tensor flat = there(numbers({s.product() + 1}), d);
    return view_as_strided(flat, s, is_image ? channels_last_strides(s) : row_major_strides(s), offset);
  };
  for (const auto [x_at, w_at, y_at] : {std::array{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}}) {
    const auto all = [&, x_at = x_at, w_at = w_at, y_at = y_at](Device d) {
      const Tensor a = operand(x, true, x_at, d), b = operand(w, false, w_at, d),
                   c = operand(y, true, y_at, d);
      return std::array{raw::conv("conv2d", a, b, {}, g), raw::conv_input_grad("conv2d", c, b, {}, x, g),
                        raw::conv_weight_grad("conv2d", c, a, w, false, g).first};
    };
    const auto on_cuda = all(kCuda), on_cpu = all(kCPU);
    for (size_t i = 0; i < 3; ++i) expect_same(on_cuda[i], on_cpu[i], concat(x_at, w_at, y_at));
  }
}

TEST_F(CudaConvolutions, DevicesHaveTheirOwnPlans) {
  const Tensor x = numbers({2, 3, 5, 6}), w = numbers({4, 3, 3, 3}, DType::kF32, 2);
  const raw::ConvGeometry g = geometry({1, 1}, {1, 1}, {1, 1});
  for (const Device d : {kSecond, kCuda, kSecond}) {
    const Tensor y = raw::conv("conv2d", there(x, d), there(w, d), {}, g);
    EXPECT_EQ(y.device(), d);
    EXPECT_EQ(values(y), values(raw::conv("conv2d", x, w, {}, g)));
  }
}

// Work of two streams, in many orders: workspaces are not shared, and freed operands stay valid until used.
TEST_F(CudaConvolutions, Streams) {
  internal::DeviceAllocator::of(kCuda).disable_caching(false);
  const Tensor x = numbers({2, 3, 4, 4}), w = numbers({2, 3, 3, 3}, DType::kF32, 2);
  const raw::ConvGeometry g = geometry({1, 1}, {1, 1}, {1, 1});
  const std::vector<double> want = values(raw::conv("conv2d", x, w, {}, g));
  const Tensor x_there = there(x), w_there = there(w);
  const Stream side = Stream::create(kCuda);
  const uint64_t before = cuda::emulated::seed();
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    cuda::emulated::set_seed(seed);
    Tensor here[3], beside[3];
    for (int i = 0; i < 3; ++i) {
      here[i] = raw::conv("conv2d", x_there, w_there, {}, g);
      Tensor freed_x = raw::clone(raw::channels_last(x_there)), freed_w = raw::clone(w_there);
      side.wait(Event::record(current_stream(kCuda)));
      {
        const StreamScope scope(side);
        beside[i] = raw::conv("conv2d", freed_x, freed_w, {}, g);
      }
      freed_x = full(x.shape(), 7, {.device = kCuda}), freed_w = full(w.shape(), 7, {.device = kCuda});
    }
    current_stream(kCuda).wait(Event::record(side));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(values(here[i]), want);
      EXPECT_EQ(values(beside[i]), want);
    }
  }
  cuda::emulated::set_seed(before);
}

TEST_F(CudaConvolutions, EachCallMayFail) {
  const Tensor x = there(numbers({1, 2, 3, 3}), kSecond), w = there(numbers({2, 2, 2, 2}), kSecond);
  const Tensor bias = there(numbers({2}), kSecond);
  const raw::ConvGeometry g = geometry({1, 1}, {0, 0}, {1, 1});
  const auto run = [&] { return raw::conv("conv2d", x, w, bias, g); };
  synchronize(kSecond);
  const auto held = [] { return memory_stats(kSecond).live_bytes; };
  const int64_t before = held();
  const size_t descriptors = cuda::emulated::count_descriptors();
  std::set<std::string> calls;
  bool passed = false;
  Tensor y;
  for (int64_t n = 0; !passed; ++n) {
    ASSERT_LT(n, 1000);
    cuda::emulated::fail_call(n, cudaErrorInvalidValue);
    try {
      y = run();
      cuda::emulated::fail_call(-1, cudaSuccess);
      passed = calls.contains("cudnnBackendExecute");
      if (!passed) y = {}, n = -1;  // once more, with the plan that was kept
    } catch (const cuda::CudnnError& e) {
      const std::string text = e.what();
      EXPECT_EQ(e.op(), "conv");
      EXPECT_NE(e.status, CUDNN_STATUS_SUCCESS);
      for (const char* part : {"CUDNN_STATUS_", "x f32[1,2,3,3] cuda:1", "weight f32[2,2,2,2] cuda:1"})
        EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
      const size_t end = text.find(" failed"), begin = text.rfind(' ', end - 1) + 1;
      calls.insert(text.substr(begin, end - begin));
    } catch (const cuda::CudaError&) {
    }
    cuda::emulated::fail_call(-1, cudaSuccess);
    synchronize(kSecond);
    if (!passed) {
      EXPECT_EQ(held(), before) << "after a failure of call " << n;
      // At most the plan that is kept.
      EXPECT_LE(cuda::emulated::count_descriptors(), descriptors + 1) << "after a failure of call " << n;
    }
  }
  for (const char* call : {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
                           "cudnnBackendGetAttribute", "cudnnBackendFinalize", "cudnnSetStream"})
    EXPECT_TRUE(calls.contains(call)) << call;
  EXPECT_EQ(values(y), values(raw::conv("conv2d", there(x, kCPU), there(w, kCPU), there(bias, kCPU), g)));
  EXPECT_EQ(values(run()), values(y));
}

// Images of more and more columns: the plan cache is bounded.
TEST(CudaPlansOfConvolutions, AreBounded) {
  constexpr int64_t kMost = 1024;
  const Tensor w = full({1, 1, 1, 1}, 2, {.device = kCuda});
  const auto convolve = [&](int64_t columns) {
    const Tensor x = ones({1, 1, 1, columns}, {.device = kCuda});
    return raw::conv("conv2d", x, w, {}, geometry({1, 1}, {0, 0}, {1, 1}));
  };
  int64_t columns = 1;
  while (columns <= kMost) convolve(columns++);
  const size_t descriptors = cuda::emulated::count_descriptors();
  while (columns <= kMost + 20) convolve(columns++);
  EXPECT_EQ(cuda::emulated::count_descriptors(), descriptors);
  EXPECT_EQ(values(convolve(3)), std::vector<double>(3, 2)) << "planned again";
  EXPECT_EQ(cuda::emulated::count_descriptors(), descriptors);
}

}  // namespace
}  // namespace gradus
