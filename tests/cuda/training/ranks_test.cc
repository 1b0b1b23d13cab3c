// Two ranks (threads) with tensors on emulated GPUs: averaging gradients and batch statistics over ranks is
// an error that names the device; broadcasts work, and one rank alone trains.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus {
namespace {

Device own_device() { return {DeviceType::kCUDA, int16_t(dist::get_rank())}; }

// Expects a DeviceError that names this rank's device. A failure does not block other ranks.
template <class F> void expect_device_error(const F& f) {
  try {
    f();
    ADD_FAILURE() << "no error on rank " << dist::get_rank();
  } catch (const DeviceError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find(to_string(own_device())), std::string::npos) << text;
  }
}

TEST(RanksOnGpus, AnAllReduceCallbackRefusesParameters) {
  dist::run_ranks(2, [] {
    GradManager gm;
    const auto callback = dist::make_allreduce_cb();
    const Tensor on_cpu = ones({3});
    gm.attach(on_cpu, callback);
    expect_device_error([&] { gm.attach(ones({3}, {.device = own_device()}), callback); });
    auto recording = gm.record();  // the others train on
    gm.backward(sum(on_cpu) * (dist::get_rank() + 1));
    EXPECT_EQ(on_cpu.grad().to_vector<float>(), std::vector<float>(3, 1.5f));
  });
}

TEST(RanksOnGpus, DistributedDataParallelRefusesModels) {
  dist::run_ranks(2, [] {
    nn::Linear net({.in = 3, .out = 2});
    net.to(own_device());
    expect_device_error([&] { dist::DistributedDataParallel ddp(net); });
  });
}

TEST(RanksOnGpus, AModelThatMovesLaterIsAnErrorOfTheBackward) {
  std::atomic<int> errors{0};
  dist::run_ranks(2, [&] {
    nn::Linear net({.in = 3, .out = 2});
    dist::DistributedDataParallel ddp(net);
    GradManager gm;
    ddp.attach(gm);
    net.to(own_device());
    auto recording = gm.record();
    const Tensor loss = sum(net(ones({4, 3}, {.device = own_device()})));
    try {
      gm.backward(loss);
      ADD_FAILURE() << "no error on rank " << dist::get_rank();
    } catch (const DeviceError&) {
      ++errors;
    } catch (const dist::DistributedError&) {  // the other rank was first
    }
  });
  EXPECT_GE(errors, 1);
}

TEST(RanksOnGpus, BatchNormOverRanksIsAnError) {
  dist::run_ranks(2, [] {
    nn::BatchNorm1d net({.features = 3});
    dist::convert_sync_batchnorm(net);
    net.to(own_device());
    expect_device_error([&] { net(ones({4, 3}, {.device = own_device()})); });
  });
}

TEST(RanksOnGpus, BroadcastsReachThem) {
  dist::run_ranks(2, [] {
    const Tensor x = full({3}, dist::get_rank() + 1, {.device = own_device()});
    const Tensor y = full({2, 2}, dist::get_rank() + 5, {.device = kCPU});
    dist::bcast_list_({x, y});
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(3, 1.f));
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(4, 5.f));
  });
}

TEST(RanksOnGpus, OneRankTrains) {
  dist::run_ranks(1, [] {
    nn::Linear net({.in = 3, .out = 2});
    net.to(own_device());
    dist::DistributedDataParallel ddp(net);
    GradManager gm;
    ddp.attach(gm);
    const Tensor w = ones({3}, {.device = own_device()});
    gm.attach(w, dist::make_allreduce_cb());
    auto recording = gm.record();
    gm.backward(sum(ddp(ones({4, 3}, {.device = own_device()}))) + sum(w));
    EXPECT_EQ(w.grad().to_vector<float>(), std::vector<float>(3, 1.f));
    EXPECT_EQ(net.weight.grad().to_vector<float>(), std::vector<float>(6, 4.f));
  });
}

}  // namespace
}  // namespace gradus
