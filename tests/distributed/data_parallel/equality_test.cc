// Training on W ranks gives the gradients, parameters and losses of training on one with the same global
// batches: to 1e-12 of each tensor's largest element in f64; in f32, gradients to 1e-5 and losses to 1 %.
// Deterministic runs are bit-equal. Ranks are threads, and processes at the end. Linked with the GPU emulator,
// each rank trains on a GPU, and the one rank on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <thread>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/data/dataloader.h"
#include "gradus/data/sets/digits.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/models/mnist_net.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/devices.h"
#include "gradus/tests/distributed/rank_processes.h"

namespace gradus::dist {
namespace {

// ---- networks

struct BatchNormNet : nn::Layer {
  nn::Conv2d conv1{this, "conv1", {.in = 1, .out = 4, .kernel = 5, .stride = 3, .bias = false}};
  nn::BatchNorm2d bn1{this, "bn1", {.features = 4}};
  nn::Conv2d conv2{this, "conv2", {.in = 4, .out = 6, .kernel = 3, .bias = false}};
  nn::BatchNorm2d bn2{this, "bn2", {.features = 6}};
  nn::Linear fc{this, "fc", {.in = 54, .out = 10}};
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu(bn2(conv2(relu(bn1(conv1(x))))));
    return fc(flatten(max_pool2d(h, {.kernel = 2}), 1));
  }
};

// A mixture of experts: the sum of a sample's pixels chooses one of three, so ranks reach different
// parameters.
struct Mixture : nn::Layer {
  nn::Linear shared{this, "shared", {.in = 784, .out = 12}};
  nn::Linear expert0{this, "expert0", {.in = 12, .out = 10}};
  nn::Linear expert1{this, "expert1", {.in = 12, .out = 10}};
  nn::Linear expert2{this, "expert2", {.in = 12, .out = 10}};
  nn::Linear unused{this, "unused", {.in = 12, .out = 10}};
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu(shared(flatten(x, 1)));
    std::vector<Tensor> rows;
    for (int64_t i = 0; i < x.size(0); ++i) {
      const auto ink = sum(narrow(x, 0, i, 1)).item<double>();
      nn::Linear* const experts[] = {&expert0, &expert1, &expert2};
      rows.push_back((*experts[std::abs(int64_t(ink)) % 3])(narrow(h, 0, i, 1)));
    }
    return cat(rows, 0);
  }
};

// ---- training

struct Task {
  std::function<std::unique_ptr<nn::Layer>()> make;
  int64_t global_batch = 8;
  DType dtype = DType::kF64;
  int steps = 20;
  double lr = 0.05;
  bool jitter = false;  // sleeps at random
  bool deterministic = false;
  double bucket_mb = 25;  // capacity of a bucket; small values give several buckets
};

struct Result {
  std::vector<double> losses;  // over all ranks
  nn::StateDict gradients;     // of the first step
  nn::StateDict state;         // parameters and buffers after the last
};

void sleep_now_and_then() {
  thread_local std::minstd_rand numbers{std::random_device{}()};
  if (numbers() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(numbers() % 2000));
}

const data::Dataset& digits() {
  static const data::GeneratedDigits digits({.size = 96});
  return digits;
}

int gpus() {
  static const int count = cuda_device_count();
  return count;
}

// At most 5 on emulated GPUs, which are slow.
int steps_of(const Task& task) { return gpus() > 0 ? std::min(task.steps, 5) : task.steps; }

// Called on every rank; or, `alone`, on one rank without any communication.
Result train(const Task& task, bool alone) {
  Context::current().deterministic = task.deterministic;
  manual_seed(alone ? 3 : 3 + get_rank());  // weights come from rank 0
  const Device device = gpus() > 0 && !alone ? Device{DeviceType::kCUDA, int16_t(get_rank() % gpus())} : kCPU;
  const std::unique_ptr<nn::Layer> net = task.make();
  net->to(task.dtype).to(device);
  for (auto& [name, module] : net->named_modules())
    if (auto* dropout = dynamic_cast<nn::Dropout*>(module)) dropout->eval();
  if (!alone) {
    bcast_list_(*net);
    convert_sync_batchnorm(*net);
  }
  GradManager gm;
  if (alone) {
    gm.attach(net->parameters());
  } else {
    const auto wait = [&task](const Tensor&, const Tensor& grad) {
      if (task.jitter) sleep_now_and_then();
      return grad;
    };
    gm.attach(net->parameters(), wait,
              make_allreduce_cb(ReduceOp::kMean, {.bucket_cap_mb = task.bucket_mb,
                                                  .first_bucket_mb = std::min(task.bucket_mb, 1.0)}));
  }
  optim::SGD optimizer(net->parameters(), {.lr = task.lr, .momentum = 0.9});

  data::DataLoaderOptions options{.global_batch_size = task.global_batch, .shuffle = true, .seed = 11};
  if (alone) options.rank = 0, options.world_size = 1;
  data::DataLoader loader(digits(), options);

  Result result;
  while (std::ssize(result.losses) < steps_of(task))
    for (const data::Batch& batch : loader) {
      if (task.jitter) sleep_now_and_then();
      Tensor loss;
      {
        auto recording = gm.record();
        loss = nn::cross_entropy((*net)(raw::to(raw::to(batch.input, task.dtype), device)),
                                 raw::to(batch.target, device));
        gm.backward(loss);
      }
      loss = raw::clone(detach(loss));
      if (!alone) all_reduce(loss, {.op = ReduceOp::kMean});
      result.losses.push_back(loss.item<double>());
      if (result.gradients.empty())
        for (const auto& [name, parameter] : net->named_parameters())
          if (parameter.grad().defined())
            result.gradients.emplace_back(name, raw::to(raw::clone(parameter.grad()), kCPU));
      optimizer.step().clear_grad();
      if (std::ssize(result.losses) == steps_of(task)) break;
    }
  for (const auto& [name, x] : net->state_dict())
    result.state.emplace_back(name, raw::to(raw::clone(x), kCPU));
  if (!alone) check_synchronized(*net);
  return result;
}

Result train_on(int world, const Task& task) {
  Result of_first;
  run_ranks(world, [&] {
    Result result = train(task, false);
    if (get_rank() == 0) of_first = std::move(result);
  });
  return of_first;
}
Result train_alone(const Task& task) {
  Result result;
  run_ranks(1, [&] { result = train(task, true); });
  return result;
}

// The largest difference of each tensor is at most `tolerance` times its largest element.
void expect_equal(const nn::StateDict& given, const nn::StateDict& expected, double tolerance) {
  ASSERT_EQ(given.size(), expected.size());
  for (size_t i = 0; i < given.size(); ++i) {
    ASSERT_EQ(given[i].first, expected[i].first);
    const std::vector<double> a = given[i].second.to_vector<double>(),
                              b = expected[i].second.to_vector<double>();
    ASSERT_EQ(a.size(), b.size());
    double scale = 0, difference = 0;
    for (size_t j = 0; j < a.size(); ++j) {
      scale = std::max(scale, std::abs(b[j]));
      difference = std::max(difference, std::isfinite(a[j]) ? std::abs(a[j] - b[j]) : HUGE_VAL);
    }
    EXPECT_LE(difference, tolerance * scale) << given[i].first;
  }
}

// Guards against a training without gradients, whose comparison could not fail.
void expect_gradients(const Result& result) {
  double largest = 0;
  for (const auto& [name, gradient] : result.gradients)
    for (const double g : gradient.to_vector<double>()) largest = std::max(largest, std::abs(g));
  EXPECT_GT(largest, 1e-3);
}

const Task kMnist{.make = [] { return std::make_unique<models::MnistNet>(); }, .steps = 8, .lr = 0.01};
const Task kBatchNorm{.make = [] { return std::make_unique<BatchNormNet>(); }, .bucket_mb = 0.001};
const Task kMixture{.make = [] { return std::make_unique<Mixture>(); }, .bucket_mb = 0.001};

// The emulator is too slow for MnistNet, which has 1.2 million parameters.
std::vector<Task> tasks() {
  std::vector<Task> tasks = {kBatchNorm, kMixture};
  if (gpus() == 0) tasks.push_back(kMnist);
  return tasks;
}

void expect_equal_on_ranks(const Task& task) {
  const bool f64 = task.dtype == DType::kF64;
  const Result one = train_alone(task);
  expect_gradients(one);
  for (int world : {2, 4}) {
    SCOPED_TRACE(testing::Message() << world << " ranks");
    const Result many = train_on(world, task);
    expect_equal(many.gradients, one.gradients, f64 ? 1e-12 : 1e-5);
    if (f64) expect_equal(many.state, one.state, 1e-12);
    for (int step = 0; step < steps_of(task); ++step)
      EXPECT_NEAR(many.losses[step], one.losses[step], f64 ? 1e-12 : 0.01 * one.losses[step]) << step;
  }
}

class Equality : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Equality, testing::Values(DType::kF64, DType::kF32));

TEST_P(Equality, OfNetworksWithDropoutWithBatchNormAndWithDifferentParametersOnEachRank) {
  for (Task task : tasks()) {
    task.dtype = GetParam();
    expect_equal_on_ranks(task);
  }
}

// ---- the same bits from run to run

std::vector<Task> deterministic_tasks() {
  std::vector<Task> deterministic = tasks();
  for (Task& task : deterministic) {
    task.dtype = DType::kF32;
    task.steps = 5;
    task.deterministic = true;
    task.bucket_mb = 0.01;
  }
  return deterministic;
}

// The FNV-1a hash of all bits of the final state and the losses.
std::string fingerprint(const Result& result) {
  uint64_t hash = 14695981039346656037u;
  const auto add = [&](const void* data, size_t size) {
    for (size_t i = 0; i < size; ++i)
      hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
  };
  for (const auto& [name, x] : result.state) {
    const Tensor dense = raw::contiguous(x);
    add(dense.raw_ptr(), size_t(dense.nbytes()));
  }
  add(result.losses.data(), result.losses.size() * sizeof(double));
  return std::to_string(hash);
}

TEST(Deterministic, RunsOfThreadsAreBitEqualWhateverTheTiming) {
  for (Task task : deterministic_tasks()) {
    const std::string first = fingerprint(train_on(4, task));
    task.jitter = true;
    for (int run = 0; run < 2; ++run) EXPECT_EQ(fingerprint(train_on(4, task)), first);
    task.steps = 4;
    EXPECT_NE(fingerprint(train_on(4, task)), first);
  }
}

// ---- processes

// Functions that run_processes calls in each rank's process. Environment: JITTER makes ranks sleep at random.
const RankFunction equality{"equality", [] {
                              join_job();
                              for (Task task : {kBatchNorm, kMixture}) {
                                const Result many = train(task, false);
                                const Result one = train(task, true);
                                expect_gradients(one);
                                expect_equal(many.gradients, one.gradients, 1e-12);
                                expect_equal(many.state, one.state, 1e-12);
                              }
                              destroy_process_group();
                              return int(testing::Test::HasFailure());
                            }};
const RankFunction bits{"bits", [] {
                          join_job();
                          for (Task task : deterministic_tasks()) {
                            task.steps = 3;
                            task.jitter = std::getenv("JITTER") != nullptr;
                            std::cout << fingerprint(train(task, false)) << std::endl;
                          }
                          destroy_process_group();
                          return 0;
                        }};

std::vector<RankEnd> run_job(const char* function, int world, bool jitter = false) {
  return run_processes(function, world,
                       job_options(false, jitter ? Variables{{"JITTER", "1"}} : Variables()));
}

TEST(Processes, TrainAsOne) {
  for (int world : {2, 4})
    for (const RankEnd& end : run_job("equality", world)) EXPECT_EQ(end.exit_code, 0) << end.output;
}

TEST(Processes, RunsAreBitEqualWhateverTheTiming) {
  std::string first;
  for (bool jitter : {false, true})
    for (const RankEnd& end : run_job("bits", 4, jitter)) {
      ASSERT_EQ(end.exit_code, 0) << end.output;
      if (first.empty()) first = end.output;
      EXPECT_EQ(end.output, first);
    }
}

}  // namespace
}  // namespace gradus::dist
