// Trainings of one process on two emulated GPUs: DataParallel, a Pipeline, and a network with layers on both.
// Losses equal those on two CPU devices within 1e-4 in f32 and 1e-10 in f64, and repeat bit for bit.
// Exceptions and value errors of the second GPU reach the caller. Copies carry values and gradients both ways.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/data_parallel.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/ops/values.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace gradus {
namespace {

using Devices = std::vector<Device>;
using Numbers = std::vector<double>;

const Devices kGpus = {{DeviceType::kCUDA, 0}, {DeviceType::kCUDA, 1}};
const Devices kCpus = {{DeviceType::kCPU, 1}, {DeviceType::kCPU, 2}};

// For convolutions that repeat bit for bit.
[[maybe_unused]] const bool is_deterministic = (Context::current().deterministic = true);

double tolerance(DType dtype) { return dtype == DType::kF64 ? 1e-10 : 1e-4; }

void expect_near(const Numbers& got, const Numbers& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i]))) << "number " << i;
}

std::optional<Device> g_failing_device;  // where the forward of Net throws

// Shapes: x [N,1,8,8] -> [N,3].
struct Net : nn::Layer {
  nn::Conv2d conv{this, "conv", {.in = 1, .out = 4, .kernel = 3, .stride = 2}};
  nn::BatchNorm2d norm{this, "norm", {.features = 4}};
  nn::Linear fc{this, "fc", {.in = 36, .out = 3}};
  Tensor forward(const Tensor& x) override {
    if (x.device() == g_failing_device) throw std::runtime_error("a broken image");
    return fc(flatten(relu(norm(conv(x))), 1));
  }
};

// Returns a function that makes a Net with parameters of a dtype.
auto make_net(DType dtype) {
  return [dtype] {
    auto net = std::make_unique<Net>();
    net->to(dtype);
    return net;
  };
}

// Random images and classes on the CPU.
struct Images {
  Images(int64_t rows, int step, DType dtype) {
    manual_seed(1000 + uint64_t(step));
    x = raw::to(randn({rows, 1, 8, 8}), dtype);
    target = randint(3, {rows});
  }
  Tensor x, target;
};

// A DataParallel network with its optimizer.
struct Replicas {
  Replicas(const Devices& d, DType t) : devices(d), dtype(t), net(make_net(t), {.device_ids = d}) {
    gm.attach(net->parameters());
  }

  double step(int64_t rows) {
    const Images images(rows, steps++, dtype);
    auto recording = gm.record();
    const Tensor loss = nn::cross_entropy(net(images.x), raw::to(images.target, devices[0]));
    gm.backward(loss);
    opt.step().clear_grad();
    return loss.item<double>();
  }

  const Devices devices;
  const DType dtype;
  dist::DataParallel<Net> net;
  GradManager gm;
  optim::SGD opt{net->parameters(), {.lr = 0.05, .momentum = 0.9}};
  int steps = 0;
};

// Returns the losses, then the running statistics and logits in evaluation mode.
Numbers train_replicas(const Devices& devices, DType dtype) {
  manual_seed(1);
  Replicas replicas(devices, dtype);
  Numbers numbers;
  // Even and uneven parts, and fewer rows than devices.
  for (const int64_t rows : {4, 5, 1, 2}) numbers.push_back(replicas.step(rows));
  for (const Tensor& buffer : replicas.net->buffers())
    for (const double v : buffer.to_vector<double>()) numbers.push_back(v);
  replicas.net->eval();
  for (const double v : replicas.net(Images(3, 100, dtype).x).to_vector<double>()) numbers.push_back(v);
  return numbers;
}

TEST(DataParallelOnGpus, TrainsAsOnCpuDevices) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Numbers got = train_replicas(kGpus, dtype);
    expect_near(got, train_replicas(kCpus, dtype), tolerance(dtype));
    EXPECT_EQ(train_replicas(kGpus, dtype), got);
  }
}

TEST(DataParallelOnGpus, TakesAllGpusByDefault) {
  Context context = Context::current().snapshot();
  context.device = kGpus[1];
  const ContextScope scope(context);
  dist::DataParallel<Net> net([] { return std::make_unique<Net>(); });
  EXPECT_EQ(net->conv.weight.device(), kGpus[1]);
  net->eval();
  g_failing_device = kGpus[0];
  EXPECT_THROW(net(ones({2, 1, 8, 8})), Error) << "the second half is on the other GPU";
  g_failing_device = {};
  EXPECT_EQ(net(ones({2, 1, 8, 8})).device(), kGpus[1]);
}

TEST(DataParallelOnGpus, AStepAfterAnExceptionOfAReplicaIsUnchanged) {
  const auto train = [](bool fails) {
    manual_seed(2);
    Replicas replicas(kGpus, DType::kF32);
    Numbers losses = {replicas.step(4)};
    if (fails) {
      g_failing_device = kGpus[1];
      {
        const Images images(4, 200, DType::kF32);
        auto recording = replicas.gm.record();
        EXPECT_ERROR(Error, replicas.net(images.x), "[DataParallel] on cuda:1: a broken image");
      }
      g_failing_device.reset();
    }
    for (int i = 0; i < 2; ++i) losses.push_back(replicas.step(4));
    return losses;
  };
  EXPECT_EQ(train(true), train(false));
}

struct Lookup : nn::Layer {
  nn::Embedding table{this, "table", {.num_embeddings = 3, .embedding_dim = 2}};
  Tensor forward(const Tensor& x) override { return table(x); }
};

// A kernel on cuda:1 reports the index; the host waits for cuda:0.
TEST(DataParallelOnGpus, ValueErrorsOfTheSecondGpuAreThrownWhereResultsAreRead) {
  dist::DataParallel<Lookup> net([] { return std::make_unique<Lookup>(); }, {.device_ids = kGpus});
  const auto indices = [](int64_t last) { return tensor(std::vector<int64_t>{0, 1, 2, last}, {4}); };
  const Tensor bad = net(indices(3));
  EXPECT_THROW(bad.to_vector<float>(), IndexError);
  const std::vector<float> table = net->table.weight.to_vector<float>();
  std::vector<float> want = table;  // rows 0, 1, 2, 1
  want.insert(want.end(), table.begin() + 2, table.begin() + 4);
  EXPECT_EQ(net(indices(1)).to_vector<float>(), want);
}

// Returns the losses and norms of gradients of three steps, and the loss of an evaluation.
Numbers train_pipeline(const Devices& devices, DType dtype, dist::Schedule schedule,
                       dist::Recompute recompute) {
  manual_seed(3);
  dist::Pipeline<Net> pipe(make_net(dtype), zeros({2, 1, 8, 8}, {.dtype = dtype}),
                           {.devices = devices,
                            .schedule = schedule,
                            .micro_batches = 3,
                            .cut_after = {"conv"},
                            .recompute = recompute});
  EXPECT_EQ(pipe.module().conv.weight.device(), devices[0]);
  EXPECT_EQ(pipe.module().fc.weight.device(), devices[1]);
  GradManager gm;
  pipe.attach(gm);
  optim::SGD opt(pipe.parameters(), {.lr = 0.05, .momentum = 0.9});
  Numbers numbers;
  for (int step = 0; step < 3; ++step) {
    const Images images(5, step, dtype);
    numbers.push_back(pipe.step(gm, images.x, images.target, nn::cross_entropy));
    numbers.push_back(pipe.clip_grad_norm_(0.5));
    opt.step().clear_grad();
  }
  pipe.eval();
  const Images images(3, 100, dtype);
  numbers.push_back(pipe.eval_step(images.x, images.target, nn::cross_entropy));
  return numbers;
}

TEST(PipelineOnGpus, TrainsAsOnCpuDevices) {
  for (const auto& [dtype, schedule, recompute] :
       {std::tuple(DType::kF32, dist::Schedule::k1F1B, dist::Recompute::kNever),
        {DType::kF64, dist::Schedule::kZeroBubbleH1, dist::Recompute::kAlways}}) {
    const Numbers got = train_pipeline(kGpus, dtype, schedule, recompute);
    expect_near(got, train_pipeline(kCpus, dtype, schedule, recompute), tolerance(dtype));
    EXPECT_EQ(train_pipeline(kGpus, dtype, schedule, recompute), got);
  }
}

// The first layer on one device, the last on another. Both compute at the same time, on splits of the batch.
struct TwoDeviceNet : nn::Layer {
  nn::Conv2d conv{this, "conv", {.in = 1, .out = 4, .kernel = 3, .stride = 2}};
  nn::Linear fc{this, "fc", {.in = 36, .out = 3}};
  explicit TwoDeviceNet(const Devices& d) : devices(d) {
    conv.to(devices[0]);
    fc.to(devices[1]);
  }
  Tensor forward(const Tensor& x) override {
    std::vector<Tensor> results;
    for (const Tensor& part : split(gradus::to(x, devices[0]), 2))
      results.push_back(fc(flatten(gradus::to(relu(conv(part)), devices[1]), 1)));
    return cat(results);
  }
  const Devices devices;
};

Numbers train_on_two(const Devices& devices) {
  manual_seed(4);
  TwoDeviceNet net(devices);
  GradManager gm;
  gm.attach(net.parameters());
  optim::SGD opt(net.parameters(), {.lr = 0.05, .momentum = 0.9});
  Numbers losses;
  for (int step = 0; step < 3; ++step) {
    const Images images(5, step, DType::kF32);
    auto recording = gm.record();
    const Tensor loss = nn::cross_entropy(net(images.x), raw::to(images.target, devices[1]));
    gm.backward(loss);
    opt.step().clear_grad();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

TEST(ModelParallelOnGpus, TrainsAsOnCpuDevices) {
  const Numbers got = train_on_two(kGpus);
  expect_near(got, train_on_two(kCpus), tolerance(DType::kF32));
  EXPECT_EQ(train_on_two(kGpus), got);
}

// Returns square(x^T) w, computed on `there` from x on `here`, and the gradients of x and w.
std::vector<std::vector<float>> there_and_back(Device here, Device there) {
  const Tensor x = raw::to(random_tensor({3, 4}), here);
  const Tensor w = raw::to(random_tensor({3, 2}, DType::kF32, 2), there);
  GradManager gm;
  gm.attach({x, w});
  auto recording = gm.record();
  const Tensor y = to(matmul(square(to(transpose(x, 0, 1), there)), w), here);
  EXPECT_EQ(y.device(), here);
  gm.backward(sum(square(y)));
  EXPECT_EQ(x.grad().device(), here);
  EXPECT_EQ(w.grad().device(), there);
  return {y.to_vector<float>(), x.grad().to_vector<float>(), w.grad().to_vector<float>()};
}

TEST(CopiesBetweenGpus, CarryValuesAndGradientsBothWays) {
  const uint64_t seed = cuda::emulated::seed();
  const auto want = there_and_back(kCpus[0], kCpus[1]);
  for (uint64_t order = 1; order <= 20; ++order) {
    cuda::emulated::set_seed(order);
    for (const auto& [here, there] : {std::pair(kGpus[0], kGpus[1]), {kGpus[1], kGpus[0]}}) {
      const auto got = there_and_back(here, there);
      for (size_t i = 0; i < want.size(); ++i)
        expect_near(Numbers(got[i].begin(), got[i].end()), Numbers(want[i].begin(), want[i].end()), 1e-5);
    }
  }
  cuda::emulated::set_seed(seed);
}

}  // namespace
}  // namespace gradus
