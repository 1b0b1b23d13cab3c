// The real cuDNN, if installed, has a plan for each convolution of Gradus's models and of the op table, on an
// H100 and an A100. No GPU is needed: cuDNN accepts a file of device properties. Values are tested elsewhere,
// on the emulator.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gradus/autograd/functional.h"
#include "gradus/tensor/cuda/cudnn/cudnn.h"
#include "gradus/tensor/cuda/cudnn/plan_file.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/images/conv.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus {
namespace {

const Device kMeta = Device::parse("meta");

// n images of `in` channels and size^dims pixels; `out` filters of kernel^dims.
struct Layer {
  int64_t n, in, size, out, kernel, stride = 1, padding = 0;
  bool bias = false;
  int64_t groups = 1, dilation = 1;
  int dims = 2;

  auto operator<=>(const Layer&) const = default;
};
// A convolution of any shape.
struct Filtering {
  Shape x, w;
  bool bias;
  raw::ConvGeometry geometry;
};
using Layers = std::set<Layer>;

Layers mnist() { return {{64, 1, 28, 32, 3, 1, 0, true}, {64, 32, 26, 64, 3, 1, 0, true}}; }

// For ImageNet, with 224 x 224 pixels, or for CIFAR, with 32 x 32.
Layers resnet(bool imagenet, bool bottleneck, int64_t width, const std::vector<int>& stages) {
  const int64_t n = imagenet ? 32 : 128;
  int64_t size = imagenet ? 56 : 32, in = width;
  Layers all{imagenet ? Layer{n, 3, 224, width, 7, 2, 3} : Layer{n, 3, 32, width, 3, 1, 1}};
  for (size_t s = 0; s < stages.size(); ++s, width *= 2) {
    for (int block = 0; block < stages[s]; ++block) {
      const int64_t stride = s > 0 && block == 0 ? 2 : 1, out = bottleneck ? 4 * width : width;
      if (bottleneck) {
        all.insert({n, in, size, width, 1});
        all.insert({n, width, size, width, 3, stride, 1});
        all.insert({n, width, size / stride, out, 1});
      } else {
        all.insert({n, in, size, width, 3, stride, 1});
        all.insert({n, width, size / stride, width, 3, 1, 1});
      }
      if (stride != 1 || in != out) all.insert({n, in, size, out, 1, stride});
      in = out, size /= stride;
    }
  }
  return all;
}

// The discriminator's layers. The generator's are their input gradients, and its first layer, 1 to 4 x 4
// pixels.
Layers dcgan(int64_t size, int64_t channels, int64_t width) {
  Layers all{{64, channels, size, width, 4, 2, 1}, {64, channels, size, width, 4, 2, 1, true}};
  for (size /= 2; size > 4; size /= 2, width *= 2) all.insert({64, width, size, 2 * width, 4, 2, 1});
  all.insert({64, width, 4, 1, 4});
  all.insert({64, width, 4, 1, 4, 1, 0, true});
  all.insert({64, width, 4, 100, 4});
  return all;
}

Layers of_models() {
  Layers all;
  all.merge(mnist());
  all.merge(resnet(true, false, 64, {2, 2, 2, 2}));
  all.merge(resnet(true, true, 64, {3, 4, 6, 3}));
  for (const int n : {3, 5, 7, 9, 18}) all.merge(resnet(false, false, 16, {n, n, n}));
  all.merge(dcgan(64, 3, 64));
  all.merge(dcgan(32, 1, 64));
  all.merge(dcgan(32, 3, 128));
  return all;
}

// Properties that no model has: groups, dilation, 3 dims, single channels.
Layers others() {
  return {{2, 5, 9, 7, 3, 1, 1, true},
          {2, 6, 9, 4, 3, 1, 1, true, 2},
          {8, 64, 28, 64, 3, 1, 1, false, 64},
          {2, 5, 9, 7, 3, 1, 1, true, 1, 2},
          {2, 5, 9, 7, 3, 3, 2, false},
          {2, 4, 6, 6, 3, 1, 1, true, 1, 1, 3},
          {2, 4, 6, 6, 3, 2, 1, false, 2, 1, 3},
          {1, 1, 1, 1, 1},
          {3, 1, 5, 1, 2},
          {2, 4, 6, 6, 3, 1, 4, true}};
}

Filtering filtering(const Layer& l) {
  Filtering f{{l.n, l.in}, {l.out, l.in / l.groups}, l.bias, {}};
  for (int d = 0; d < l.dims; ++d) f.x.push_back(l.size), f.w.push_back(l.kernel);
  f.geometry.stride = Dims::filled(l.dims, l.stride);
  f.geometry.padding = Dims::filled(l.dims, l.padding);
  f.geometry.dilation = Dims::filled(l.dims, l.dilation);
  f.geometry.groups = l.groups;
  return f;
}

// The convolutions in the op table's rows and their gradients. The CPU's kernels are replaced by ones that
// record their shapes and return zeros.
class AskedByTheOpTable {
 public:
  static std::vector<Filtering> all() {
    const auto forward = raw::conv_kernel.cpu, forward_relu = raw::conv_relu_kernel.cpu;
    const auto input_grad = raw::conv_input_grad_kernel.cpu;
    const auto weight_grad = raw::conv_weight_grad_kernel.cpu;
    raw::conv_kernel.cpu = [](const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                              raw::ConvGeometry g) {
      add({x.shape(), w.shape(), bias.defined(), g});
      raw::fill_(y, 0);
    };
    raw::conv_input_grad_kernel.cpu = [](const Tensor& dx, const Tensor&, const Tensor& w, const Tensor&,
                                         raw::ConvGeometry g) {
      add({dx.shape(), w.shape(), false, g});
      raw::fill_(dx, 0);
    };
    raw::conv_weight_grad_kernel.cpu = [](const Tensor& dw, const Tensor& db, const Tensor&, const Tensor& x,
                                          raw::ConvGeometry g) {
      add({x.shape(), dw.shape(), false, g});
      raw::fill_(dw, 0);
      if (db) raw::fill_(db, 0);
    };
    raw::conv_relu_kernel.cpu = raw::conv_kernel.cpu;
    for (const optest::OpCase& row : optest::all_rows())
      for (size_t s = 0; s < row.samples.size(); ++s) run(row, optest::make_inputs(row, s, row.dtypes[0]));
    raw::conv_kernel.cpu = forward;
    raw::conv_relu_kernel.cpu = forward_relu;
    raw::conv_input_grad_kernel.cpu = input_grad;
    raw::conv_weight_grad_kernel.cpu = weight_grad;
    std::vector<Filtering> list;
    for (const auto& [text, f] : asked_) list.push_back(f);
    return list;
  }

 private:
  // Gradients of gradients are the same convolutions in other directions.
  static void run(const optest::OpCase& row, const std::vector<Tensor>& inputs) {
    if (inputs.empty()) return;
    std::vector<Tensor> followed;
    for (const Tensor& t : inputs)
      if (t.dtype() == row.dtypes[0]) followed.push_back(t);
    if (!row.differentiable || followed.empty() || !is_floating(row.run(inputs).dtype())) return;
    const auto f = [&](const std::vector<Tensor>& v) {
      std::vector<Tensor> all = inputs;
      size_t next = 0;
      for (Tensor& t : all)
        if (t.dtype() == row.dtypes[0]) t = v[next++];
      return sum(row.run(all));
    };
    autograd::grad(f, followed);
  }
  static void add(const Filtering& f) {
    const raw::ConvGeometry& g = f.geometry;
    asked_.emplace(concat(f.x, f.w, f.bias, g.stride, g.padding, g.dilation, g.groups), f);
  }

  static inline std::map<std::string, Filtering> asked_;
};

cuda::Convolution convolution(const Filtering& f, DType dtype, cuda::ConvPass pass) {
  const TensorOptions like{dtype, kMeta};
  cuda::Convolution c{pass};
  c.geometry = f.geometry;
  c.deterministic = true;  // fewer engines may run
  c.x = empty_channels_last(f.x, like), c.w = empty(f.w, like);
  if (f.bias && pass == cuda::ConvPass::kForward) c.bias = empty({f.w[0]}, like);
  c.y = empty_channels_last(raw::check_conv("conv", c.x, c.w, c.bias, c.geometry), like);
  return c;
}

std::string describe(const cuda::Convolution& c) {
  return concat(std::array{"forward", "input gradient", "weight gradient"}[static_cast<size_t>(c.pass)],
                " x ", gradus::describe(c.x), " w ", c.w.shape(), " stride ", c.geometry.stride, " padding ",
                c.geometry.padding, c.bias ? " with bias" : "");
}

struct CudnnPlans : testing::Test {
  void SetUp() override {
    try {
      library = &cuda::cudnn("conv2d");
    } catch (const DeviceError& e) {
      GTEST_SKIP() << e.what();
    }
  }

  cuda::Descriptor device(const std::string& file) {
    std::ifstream in("tests/cuda/" + file);
    const std::string json((std::istreambuf_iterator<char>(in)), {});
    EXPECT_FALSE(json.empty()) << file;
    cudnnBackendDescriptor_t made = nullptr;
    EXPECT_EQ(library->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(
        library->cudnnBackendSetAttribute(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                          static_cast<int64_t>(json.size()), json.data()),
        CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(library->cudnnBackendFinalize(made), CUDNN_STATUS_SUCCESS);
    return {*library, made};
  }
  void expect_plans(const std::vector<Filtering>& all, const std::string& file) {
    const cuda::Descriptor properties = device(file);
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
      for (const auto pass :
           {cuda::ConvPass::kForward, cuda::ConvPass::kInputGrad, cuda::ConvPass::kWeightGrad}) {
        for (const Filtering& f : all) {
          cuda::Convolution c = convolution(f, dtype, pass);
          for (const bool tf32 : {false, true}) {
            c.tf32 = tf32;
            if (tf32 && dtype != DType::kF32) continue;
            const auto plans = cuda::recommended_plans("conv2d", *library, c, nullptr, properties, 1);
            ASSERT_EQ(plans.size(), 1U) << file << ": " << describe(c);
            EXPECT_LT(plans[0].workspace, int64_t(1) << 30) << file << ": " << describe(c);
          }
        }
      }
    }
  }
  void expect_plans(const Layers& layers, const std::string& file) {
    std::vector<Filtering> all;
    for (const Layer& l : layers) all.push_back(filtering(l));
    expect_plans(all, file);
  }

  const cuda::Cudnn* library = nullptr;
};

const std::string kH100 = "runtime/h100_properties.json", kA100 = "runtime/a100_properties.json";

TEST_F(CudnnPlans, ModelsOnH100) { expect_plans(of_models(), kH100); }
TEST_F(CudnnPlans, ModelsOnA100) { expect_plans(of_models(), kA100); }
TEST_F(CudnnPlans, OthersOnH100) { expect_plans(others(), kH100); }
TEST_F(CudnnPlans, OthersOnA100) { expect_plans(others(), kA100); }

TEST_F(CudnnPlans, OpTable) {
  const std::vector<Filtering> all = AskedByTheOpTable::all();
  EXPECT_GT(all.size(), 50U);
  std::cout << all.size() << " convolutions\n";  // a number in docs/cuda.md
  expect_plans(all, kH100);
  expect_plans(all, kA100);
}

// Tensors aligned to the size of one element only.
TEST_F(CudnnPlans, Misaligned) {
  const cuda::Descriptor properties = device(kH100);
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    for (const auto pass :
         {cuda::ConvPass::kForward, cuda::ConvPass::kInputGrad, cuda::ConvPass::kWeightGrad}) {
      cuda::Convolution c = convolution(filtering({2, 8, 9, 8, 3, 1, 1, true}), dtype, pass);
      for (Tensor* t : {&c.x, &c.w, &c.y, &c.bias})
        if (*t) *t = view_as_strided(empty({t->numel() + 1}, {dtype, kMeta}), t->shape(), t->strides(), 1);
      EXPECT_EQ(cuda::recommended_plans("conv2d", *library, c, nullptr, properties, 1).size(), 1U)
          << describe(c);
    }
  }
}

// Convolution, bias and relu in one graph, in 2 dims.
TEST_F(CudnnPlans, BiasAndRelu) {
  std::vector<Filtering> all = AskedByTheOpTable::all();
  for (const Layers& layers : {of_models(), others()})
    for (const Layer& l : layers) all.push_back(filtering(l));
  std::erase_if(all, [](const Filtering& f) { return f.geometry.rank() != 2; });
  for (Filtering& f : all) f.bias = true;
  for (const std::string& file : {kH100, kA100}) {
    const cuda::Descriptor properties = device(file);
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
      for (const Filtering& f : all) {
        cuda::Convolution c = convolution(f, dtype, cuda::ConvPass::kForward);
        c.relu = true;
        for (const bool tf32 : {false, true}) {
          c.tf32 = tf32;
          if (tf32 && dtype != DType::kF32) continue;
          EXPECT_EQ(cuda::recommended_plans("conv2d_relu", *library, c, nullptr, properties, 1).size(), 1U)
              << file << ": " << describe(c);
        }
      }
    }
  }
}

// Layers of a ResNet-18: the first, an inner one, one with a stride.
Layers some_of_resnet() {
  return {{32, 3, 224, 64, 7, 2, 3}, {32, 64, 56, 64, 3, 1, 1}, {32, 64, 56, 128, 1, 2}};
}

// Each recommended plan is rebuilt from its engine and knobs in a file.
TEST_F(CudnnPlans, ChoicesComeBackFromAFile) {
  const auto version = static_cast<int64_t>(library->cudnnGetVersion());
  const std::string path = testing::TempDir() + "/gradus_plans.txt";
  int64_t plans = 0;
  for (const std::string& file : {kH100, kA100}) {
    const cuda::Descriptor properties = device(file);
    for (const Layer& l : some_of_resnet()) {
      for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
        for (const auto pass :
             {cuda::ConvPass::kForward, cuda::ConvPass::kInputGrad, cuda::ConvPass::kWeightGrad}) {
          const cuda::Convolution c = convolution(filtering(l), dtype, pass);
          const auto all = cuda::recommended_plans("conv2d", *library, c, nullptr, properties, 8);
          ASSERT_GE(all.size(), 1U) << describe(c);
          ASSERT_LE(all.size(), 8U) << describe(c);
          for (const cuda::ConvPlan& p : all) {
            const cuda::DeviceModel model{"a card", 9, 0};
            cuda::ConvKey key;
            key.x = c.x.shape(), key.w = c.w.shape(), key.alignments = {16, 16, 16, 0};
            key.stride = l.stride, key.padding = l.padding, key.dilation = l.dilation;
            for (Dims* d : {&key.stride, &key.padding, &key.dilation}) d->push_back((*d)[0]);
            cuda::write_plan_file("test", path, {version, model, {{key, p.choice}}});
            const cuda::ConvChoice stored = cuda::read_plan_file("test", path).choices.at(key);
            EXPECT_EQ(stored, p.choice);
            const auto again = cuda::plan_of_choice("conv2d", *library, c, stored, nullptr, properties);
            ASSERT_TRUE(again.plan) << file << ": " << describe(c) << " engine " << stored.engine;
            EXPECT_EQ(again.workspace, p.workspace) << file << ": " << describe(c);
            EXPECT_EQ(again.choice, p.choice);
            ++plans;
          }
        }
      }
    }
  }
  std::cout << plans << " plans\n";  // a number in docs/cuda.md
}

// Choices that a file may name but that must not run.
TEST_F(CudnnPlans, WrongChoicesAreRefused) {
  const cuda::Descriptor properties = device(kH100);
  cuda::Convolution c =
      convolution(filtering({32, 64, 56, 64, 3, 1, 1}), DType::kF32, cuda::ConvPass::kForward);
  const auto plan = [&](const cuda::ConvChoice& choice) {
    return bool(
        cuda::plan_of_choice("conv2d", *library, c, choice, nullptr, properties).plan.operator void*());
  };
  c.tf32 = true;
  const cuda::ConvChoice rounds =
      cuda::recommended_plans("conv2d", *library, c, nullptr, properties, 1).at(0).choice;
  EXPECT_TRUE(plan(rounds));
  c.tf32 = false;
  EXPECT_FALSE(plan(rounds)) << "tensor cores without tf32";
  const cuda::ConvChoice right =
      cuda::recommended_plans("conv2d", *library, c, nullptr, properties, 1).at(0).choice;
  EXPECT_TRUE(plan(right));
  ASSERT_FALSE(right.knobs.empty());
  for (const int64_t engine : {-1, 99999}) EXPECT_FALSE(plan({engine, {}})) << engine;
  for (const int64_t value : {-5, 9999}) {
    cuda::ConvChoice wrong = right;
    wrong.knobs[0].value = value;
    EXPECT_FALSE(plan(wrong)) << value;
  }
  for (const int64_t type : {int64_t(CUDNN_KNOB_TYPE_SWAP_AB), int64_t(63), right.knobs[0].type}) {
    cuda::ConvChoice wrong = right;
    wrong.knobs.push_back({type, 1});
    EXPECT_FALSE(plan(wrong)) << type;
  }
}

}  // namespace
}  // namespace gradus
