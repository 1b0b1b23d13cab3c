// Two ranks (threads) with tensors on emulated GPUs, by NCCL and through host memory: what collectives and data-parallel
// training do there beyond //tests/distributed/data_parallel:devices_test: errors, asynchronous results, training as by
// one rank, calls of CUDA.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gradus/autograd/captured_step.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/bcast_list.h"
#include "gradus/distributed/data_parallel/distributed_data_parallel.h"
#include "gradus/distributed/data_parallel/sync_batch_norm.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/functional.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/devices.h"
#include "gradus/tensor/runtime/stream.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

using Tensors = std::vector<Tensor>;
using dist::ReduceOp;

// On a machine with one GPU the ranks share it.
Device own_device() { return {DeviceType::kCUDA, int16_t(dist::get_rank() % cuda_device_count())}; }
Tensor filled(const Shape& shape, double value) { return full(shape, value, {.device = own_device()}); }

// A network of f64 whose batch norm has the statistics of all ranks.
struct Net : nn::Layer {
  nn::Linear fc1{this, "fc1", {.in = 6, .out = 8}};
  nn::BatchNorm1d bn{this, "bn", {.features = 8}};
  nn::Linear fc2{this, "fc2", {.in = 8, .out = 2}};
  Tensor forward(const Tensor& x) override { return fc2(bn.relu(fc1(x))); }
};

// The weights after three steps on 8 rows, of which each rank has its part.
Tensors trained(Device device) {
  manual_seed(1);
  Net net;
  net.to(DType::kF64);
  dist::convert_sync_batchnorm(net);
  net.to(device);
  dist::DistributedDataParallel ddp(net);
  GradManager gm;
  ddp.attach(gm);
  const int64_t rows = 8 / dist::get_world_size();
  for (int step = 0; step < 3; ++step) {
    const Tensor x = random_tensor({8, 6}, DType::kF64, uint64_t(step + 1));
    auto recording = gm.record();
    gm.backward(mean(square(ddp(raw::to(narrow(x, 0, rows * dist::get_rank(), rows), device)))));
    for (const Tensor& p : net.parameters()) {
      const Tensor next = raw::to(detach(p) - 0.1 * p.grad(), device);
      raw::copy_(p, next);
      p.set_grad({});
    }
  }
  Tensors all;
  for (const Tensor& p : net.parameters()) all.push_back(raw::to(detach(p), kCPU));
  return all;
}

enum class Way { kNccl, kHost };
class RanksOnGpus : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (GetParam() == Way::kNccl && cuda_device_count() < 2) GTEST_SKIP() << "NCCL needs a GPU for each rank";
  }
  void run(int ranks, const std::function<void()>& body) {
    dist::run_ranks(ranks, body, {.nccl = GetParam() == Way::kNccl});
  }
};
INSTANTIATE_TEST_SUITE_P(Nccl, RanksOnGpus, testing::Values(Way::kNccl));
INSTANTIATE_TEST_SUITE_P(Host, RanksOnGpus, testing::Values(Way::kHost));

TEST_P(RanksOnGpus, TrainAsOneRankOnTheJoinedBatch) {
  Tensors want, got;
  run(1, [&] { want = trained(kCPU); });
  run(2, [&] {
    Tensors mine = trained(own_device());
    if (dist::get_rank() == 1) got = std::move(mine);
  });
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) expect_near(got[i], want[i], 1e-12);
}

// One rank has its tensor on the host: all ranks get one error.
TEST_P(RanksOnGpus, CallsWithTensorsOnTheHostDoNotMatch) {
  const std::vector<std::pair<std::string, std::function<void(Device)>>> calls = {
      {"all_reduce", [](Device d) { dist::all_reduce(ones({2}, {.device = d})); }},
      {"broadcast", [](Device d) { dist::broadcast(ones({2}, {.device = d}), {.src = 0}); }},
      {"all_gather", [](Device d) { dist::all_gather(ones({2}, {.device = d})); }},
      {"functional::all_reduce", [](Device d) { dist::functional::all_reduce(ones({2}, {.device = d})); }},
      {"functional::broadcast",
       [](Device d) {
         dist::functional::broadcast(dist::get_rank() == 0 ? ones({2}, {.device = d}) : Tensor(),
                                     {.root = 0, .device = d});
       }},
  };
  for (const auto& [name, call] : calls) {
    std::atomic<int> errors{0};
    try {
      run(2, [&] {
        try {
          call(dist::get_rank() == 0 ? kCPU : own_device());
          ADD_FAILURE() << name << ": no error on rank " << dist::get_rank();
        } catch (const dist::MismatchError& e) {
          EXPECT_NE(std::string(e.what()).find(" on cuda"), std::string::npos) << e.what();
          ++errors;
        }
      });
    } catch (const Error&) {  // the job has failed
    }
    EXPECT_EQ(errors, 2) << name;
  }
}

// Through host memory one NaN makes the result NaN; NCCL ignores it.
TEST_P(RanksOnGpus, MinAndMaxOfNaN) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  run(2, [&] {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      const Tensor x =
          raw::to(tensor({dist::get_rank() == 0 ? 1.f : kNan, kNan, float(dist::get_rank())}), own_device());
      dist::all_reduce(x, {.op = op});
      const std::vector<float> y = x.to_vector<float>();
      EXPECT_TRUE(GetParam() == Way::kNccl ? y[0] == 1 : std::isnan(y[0])) << y[0];
      EXPECT_TRUE(std::isnan(y[1])) << y[1];
      EXPECT_EQ(y[2], op == ReduceOp::kMax);
    }
  });
}

TEST_P(RanksOnGpus, AListIsOnOneKindOfDevice) {
  run(2, [] {
    EXPECT_THROW(dist::all_reduce_coalesced({filled({2}, 1), ones({2})}), DeviceError);
    EXPECT_THROW(dist::all_reduce(ones({2}, {.device = "meta"})), DeviceError);
  });
}

TEST_P(RanksOnGpus, AnAsynchronousResultIsThereAfterWaitOrWhenPolled) {
  run(2, [] {
    const Tensor x = filled({1000}, dist::get_rank() + 1);
    const dist::Work waited = dist::all_reduce(x, {.async_op = true});
    waited.wait();
    EXPECT_EQ((x * 2).to_vector<float>(), std::vector<float>(1000, 6));
    const dist::Work polled = dist::all_reduce(x, {.async_op = true});
    while (!polled.is_completed()) std::this_thread::yield();
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(1000, 6));
    polled.wait();
    raw::fill_(x, 0);
    polled.wait();
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(1000, 0));
  });
}

// Each thread's stream waits for the result.
TEST_P(RanksOnGpus, ThreadsWaitForOneWorkOnTheirStreams) {
  run(2, [] {
    for (int round = 0; round < 20; ++round) {
      const Tensor x = filled({1000}, 1);
      const dist::Work work = dist::all_reduce(x, {.async_op = true});
      const auto sum_on_a_stream = [&](double* sum_of_x) {
        const Stream stream = Stream::create(own_device());
        const StreamScope scope(stream);
        work.wait();
        *sum_of_x = sum(x).item<double>();
      };
      double one = 0, two = 0;
      std::thread other([&] { sum_on_a_stream(&one); });
      sum_on_a_stream(&two);
      other.join();
      EXPECT_EQ(one, 2000);
      EXPECT_EQ(two, 2000);
    }
  });
}

// Nobody waits for the work: it is done all the same.
TEST_P(RanksOnGpus, AWorkMayBeDropped) {
  run(2, [] {
    const Tensor x = filled({4}, 1);
    dist::all_reduce(x, {.async_op = true});
    dist::barrier();  // then it is queued
    synchronize(own_device());
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(4, 2));
  });
}

TEST_P(RanksOnGpus, ACaptureRefusesCollectivesThroughTheHost) {
  if (GetParam() == Way::kNccl) GTEST_SKIP() << "captured_ranks_test";
  run(2, [] {
    CapturedStep step([](const Tensors& xs) {
      const Tensor y = xs[0] * 1;
      dist::all_reduce(y);
      return Tensors{y};
    });
    const Tensor x = filled({4}, 1);
    for (int i = 0; i < 3; ++i) step({x});
    EXPECT_THROW(step({x}), StateError);
  });
}

TEST_P(RanksOnGpus, PremulSumMultipliesOnTheGpu) {
  run(2, [] {
    const int rank = dist::get_rank();  // 1 * 0.5 + 2 * 1.5 = 3.5
    for (const dist::ReduceOperation& op :
         {dist::premul_sum(rank + 0.5), dist::premul_sum(scalar(rank + 0.5)),
          dist::premul_sum(filled({1}, rank + 0.5))})
      for (const bool async : {false, true}) {
        const Tensor x = filled({5}, rank + 1), root = filled({2}, rank + 1), xs = filled({4}, rank + 1);
        const Tensor part = filled({2}, 0), parts = filled({2}, 0), list = filled({3}, rank + 1);
        const Tensor half = full({3}, rank + 1, {.dtype = DType::kF16, .device = own_device()});
        dist::all_reduce(x, {.op = op, .async_op = async}).wait();
        dist::all_reduce(half, {.op = op, .async_op = async}).wait();
        dist::reduce(root, {.dst = 0, .op = op, .async_op = async}).wait();
        dist::reduce_scatter_tensor(part, xs, {.op = op, .async_op = async}).wait();
        dist::reduce_scatter_tensor_coalesced({parts}, {xs}, {.op = op, .async_op = async}).wait();
        dist::all_reduce_coalesced({list}, {.op = op, .async_op = async}).wait();
        for (const Tensor& y : {x, raw::to(half, DType::kF32), part, parts, list})
          EXPECT_EQ(y.to_vector<float>(), std::vector<float>(size_t(y.numel()), 3.5f));
        EXPECT_EQ(root.to_vector<float>(), std::vector<float>(2, rank == 0 ? 3.5f : 2.f));
        EXPECT_EQ(xs.to_vector<float>(), std::vector<float>(4, float(rank + 1)));
      }
  });
}

TEST_P(RanksOnGpus, CoalescedCallsHaveTheirOwnResults) {
  run(2, [] {
    const int rank = dist::get_rank();
    const Tensor a = filled({3}, rank), b = filled({2, 2}, 10 * rank), c = filled({2}, rank),
                 d = filled({2}, rank);
    const Tensor gathered = filled({4}, 0), received = filled({2}, 0);
    dist::coalesced([&] {
      dist::all_reduce(a);
      dist::all_reduce(b);
      dist::broadcast_coalesced({c, d}, {.src = 1});
      dist::all_gather_into_tensor_coalesced({gathered}, {filled({2}, rank)});
    });
    EXPECT_EQ((a * 1).to_vector<float>(), std::vector<float>(3, 1));
    EXPECT_EQ((b * 1).to_vector<float>(), std::vector<float>(4, 10));
    EXPECT_EQ((c + d).to_vector<float>(), std::vector<float>(2, 2));
    EXPECT_EQ((gathered * 1).to_vector<float>(), (std::vector<float>{0, 0, 1, 1}));
    dist::coalesced([&] {
      dist::send(filled({2}, rank), {.dst = 1 - rank});
      dist::recv(received, {.src = 1 - rank});
    });
    EXPECT_EQ((received * 1).to_vector<float>(), std::vector<float>(2, float(1 - rank)));
    const Tensors all = dist::gather(filled({rank + 1}, rank), {.dst = 1});
    ASSERT_EQ(all.size(), rank == 1 ? 2u : 0u);
    if (rank == 1) {
      EXPECT_EQ(all[1].to_vector<float>(), std::vector<float>(2, 1));
    }
  });
}

TEST_P(RanksOnGpus, AGroupMayKeepToHostMemory) {
  run(2, [&] {
    const auto library_calls = [](const dist::Group& group) {
      const Tensor x = filled({4}, 1);
      dist::all_reduce(x, {.group = group});  // connects the GPUs
      dist::barrier();
      std::optional<cuda::HostCallScope> scope;
      if (dist::get_rank() == 0) scope.emplace();
      dist::barrier();
      dist::all_reduce(x, {.group = group});
      dist::barrier();
      EXPECT_EQ(x.to_vector<float>(), std::vector<float>(4, 4));
      return scope ? scope->total().library_calls : -1;
    };
    const bool nccl = GetParam() == Way::kNccl;
    const dist::Group by_default = dist::new_group({0, 1}),
                      by_host = dist::new_group({0, 1}, {.backend = "gloo"});
    // Any member decides for all.
    const dist::Group by_one = dist::new_group({0, 1}, {.backend = dist::get_rank() == 0 ? "" : "gloo"});
    const int64_t of_default = library_calls(by_default), of_host = library_calls(by_host),
                  of_one = library_calls(by_one), of_copy = library_calls(by_host.duplicate());
    if (dist::get_rank() != 0) return;
    EXPECT_EQ(of_default, nccl ? 2 : 0);
    EXPECT_EQ(of_host, 0);
    EXPECT_EQ(of_one, 0);
    EXPECT_EQ(of_copy, 0);
  });
}

// The other rank learns who failed in the middle of a step.
TEST_P(RanksOnGpus, AFailedRankIsNamed) {
  std::string text;
  try {
    run(2, [&] {
      nn::Linear net({.in = 3, .out = 2});
      net.to(own_device());
      dist::DistributedDataParallel ddp(net);
      GradManager gm;
      ddp.attach(gm);
      auto recording = gm.record();
      const Tensor loss = sum(ddp(filled({4, 3}, 1)));
      try {
        dist::barrier();
        if (dist::get_rank() == 1) throw ValueError("loss", "a mistake");
        gm.backward(loss);  // may be canceled: the other rank's recording has ended
        dist::barrier();
      } catch (const dist::DistributedError& e) {
        text = e.what();
        throw;
      }
    });
    ADD_FAILURE() << "no error";
  } catch (const Error&) {
  }
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("a mistake"), std::string::npos) << text;
}

// An error that a kernel finds in a backward of several buckets: its rank throws it, and the other one names the rank.
TEST_P(RanksOnGpus, AnErrorOfAKernelIsNamed) {
  std::string text;
  std::atomic<bool> is_index_error{false};
  try {
    run(2, [&] {
      const Tensor table = filled({4, 2}, 1);
      Tensors all{table};
      for (int i = 0; i < 4; ++i) all.push_back(filled({3}, 1));
      GradManager gm;
      gm.attach(all,
                dist::make_allreduce_cb(ReduceOp::kSum, {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6}));
      auto recording = gm.record();
      const Tensor rows =
          raw::to(tensor(std::vector<int64_t>{1, dist::get_rank() == 1 ? 9 : 2}, {2}), own_device());
      Tensor loss = sum(embedding(rows, table));
      for (const Tensor& x : all) loss = loss + sum(x);
      try {
        gm.backward(loss);
        synchronize(own_device());
        dist::barrier();
      } catch (const IndexError&) {
        is_index_error = dist::get_rank() == 1;
        throw;
      } catch (const dist::DistributedError& e) {
        if (dist::get_rank() == 0) text = e.what();
        throw;
      }
    });
    ADD_FAILURE() << "no error";
  } catch (const Error&) {
  }
  EXPECT_TRUE(is_index_error);
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("index 9"), std::string::npos) << text;
}

// A kernel that was queued before the call reads x, on another stream than that of the thread that waits.
TEST_P(RanksOnGpus, AResultIsWrittenAfterEarlierUsesOfItsTensor) {
  run(2, [] {
    for (int round = 0; round < 20; ++round) {
      const Tensor x = filled({5000}, 1 + dist::get_rank());
      synchronize(own_device());
      const Stream reads = Stream::create(own_device()), waits = Stream::create(own_device());
      Tensor y;
      dist::Work work;
      {
        const StreamScope scope(reads);
        y = x * 2;
        work = dist::broadcast(x, {.src = 0, .async_op = true});
      }
      {
        const StreamScope scope(waits);
        work.wait();
      }
      reads.synchronize(), waits.synchronize();
      EXPECT_EQ(y.to_vector<float>(), std::vector<float>(5000, dist::get_rank() == 0 ? 2 : 4));
      EXPECT_EQ(x.to_vector<float>(), std::vector<float>(5000, 1));
    }
  });
}

// From the third step on a step allocates nothing, and the gradients of a bucket travel at once: by NCCL the host waits
// for nothing and copies nothing, with three calls more than one rank makes; else it makes one copy in each direction.
TEST_P(RanksOnGpus, AStepMakesFewCalls) {
  const auto calls_of_a_step = [&](int ranks) {
    cuda::HostCalls calls;  // of all ranks
    run(ranks, [&] {
      manual_seed(1);
      Net net;
      net.to(own_device());
      dist::DistributedDataParallel ddp(net, {.broadcast_buffers = false});
      GradManager gm;
      ddp.attach(gm);
      const Tensor x = filled({4, 6}, 1);
      const auto step = [&] {
        auto recording = gm.record();
        gm.backward(sum(square(ddp(x))));
        for (const Tensor& p : net.parameters()) p.set_grad({});
      };
      for (int i = 0; i < 3; ++i) step();
      dist::barrier();
      std::optional<cuda::HostCallScope> scope;
      if (dist::get_rank() == 0) scope.emplace();
      dist::barrier();
      step();
      dist::barrier();
      if (scope) calls = scope->total();
    });
    return calls;
  };
  const cuda::HostCalls one = calls_of_a_step(1), two = calls_of_a_step(2);
  const bool nccl = GetParam() == Way::kNccl;
  EXPECT_EQ(two.allocations, 0);
  EXPECT_EQ(two.pageable_copies, 0);
  EXPECT_EQ(two.copies_to_host, nccl ? 0 : 2);
  EXPECT_EQ(two.copies_to_device - 2 * one.copies_to_device, nccl ? 0 : 2);
  EXPECT_EQ(two.library_calls - 2 * one.library_calls, nccl ? 2 : 0);
  EXPECT_EQ(two.launches - 2 * one.launches, 4);  // a copy into the bucket and one out of it
  if (nccl) {
    EXPECT_EQ(two.waits, 0);
  }
}

// With the buffers of batch norm, too, a step waits for no GPU and allocates nothing.
TEST_P(RanksOnGpus, AStepWithBuffersDoesNotWait) {
  if (GetParam() != Way::kNccl) GTEST_SKIP() << "through host memory the host waits for the data";
  cuda::HostCalls calls;
  run(2, [&] {
    Net net;
    net.to(own_device());
    dist::DistributedDataParallel ddp(net);
    GradManager gm;
    ddp.attach(gm);
    const Tensor x = filled({4, 6}, 1);
    const auto step = [&] {
      auto recording = gm.record();
      gm.backward(sum(square(ddp(x))));
      for (const Tensor& p : net.parameters()) p.set_grad({});
    };
    for (int i = 0; i < 3; ++i) step();
    dist::barrier();
    std::optional<cuda::HostCallScope> scope;
    if (dist::get_rank() == 0) scope.emplace();
    dist::barrier();
    step();
    dist::barrier();
    if (scope) calls = scope->total();
  });
  EXPECT_EQ(calls.waits, 0);
  EXPECT_EQ(calls.allocations, 0);
  EXPECT_EQ(calls.copies_to_host, 0);
  EXPECT_EQ(calls.pageable_copies, 0);
}

// The all-reduce of the last layer's bucket is queued before the first layer's gradient exists.
TEST_P(RanksOnGpus, TheFirstBucketTravelsDuringBackward) {
  if (GetParam() != Way::kNccl) GTEST_SKIP() << "counts calls of NCCL";
  run(2, [&] {
    const Tensor first = filled({3}, 2), last = filled({3}, 3);
    std::optional<cuda::HostCallScope> scope;
    bool is_queued = false;
    const auto look = [&](const Tensor&, const Tensor& grad) {
      for (int i = 0; i < 2000 && !is_queued; ++i) {
        is_queued = scope->total().library_calls >= 1;
        if (!is_queued) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return grad;
    };
    const auto all_reduce =
        dist::make_allreduce_cb(ReduceOp::kSum, {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6});
    GradManager gm;
    if (dist::get_rank() == 0)
      gm.attach(Tensors{first}, look, all_reduce);
    else
      gm.attach(Tensors{first}, all_reduce);
    gm.attach(Tensors{last}, all_reduce);
    for (int step = 0; step < 2; ++step) {
      dist::barrier();
      if (dist::get_rank() == 0) scope.emplace();
      dist::barrier();
      is_queued = false;
      first.set_grad({}), last.set_grad({});
      auto recording = gm.record();
      gm.backward(sum(last * (first * 2)));
      dist::barrier();
      scope.reset();
    }
    EXPECT_TRUE(is_queued || dist::get_rank() != 0);
    EXPECT_EQ(first.grad().to_vector<float>(), std::vector<float>(3, 12.f));
    EXPECT_EQ(last.grad().to_vector<float>(), std::vector<float>(3, 8.f));
  });
}

TEST_P(RanksOnGpus, AModelMayMoveAfterItWasAttached) {
  run(2, [] {
    nn::Linear net({.in = 3, .out = 2});
    dist::DistributedDataParallel ddp(net);
    GradManager gm;
    ddp.attach(gm);
    net.to(own_device());
    auto recording = gm.record();
    gm.backward(sum(net(filled({4, 3}, dist::get_rank()))));
    EXPECT_EQ(net.weight.grad().to_vector<float>(), std::vector<float>(6, 2.f));
    EXPECT_EQ(net.weight.grad().device(), own_device());
  });
}

TEST_P(RanksOnGpus, BroadcastsReachThem) {
  run(2, [] {
    const Tensor x = filled({3}, dist::get_rank() + 1);
    const Tensor y = full({2, 2}, dist::get_rank() + 5, {.device = kCPU});
    dist::bcast_list_({x, y});
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(3, 1.f));
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(4, 5.f));
  });
}

// A parameter of rank 1 that has -0 for 0 is named, by a call and by a backward.
TEST_P(RanksOnGpus, ParametersThatDifferAreNamed) {
  for (const bool in_backward : {false, true}) {
    std::vector<std::string> texts(2);
    try {
      run(2, [&] {
        Net net;
        net.to(own_device());
        dist::DistributedDataParallel ddp(net, {.check_divergence_every = 1});
        GradManager gm;
        ddp.attach(gm);
        raw::fill_(detach(net.fc2.bias), 0);
        dist::check_synchronized(net);
        if (dist::get_rank() == 1) raw::fill_(narrow(detach(net.fc2.bias), 0, 1, 1), -0.0);
        try {
          if (!in_backward) return dist::check_synchronized(net);
          auto recording = gm.record();
          gm.backward(sum(square(ddp(filled({4, 6}, 1)))));
        } catch (const dist::MismatchError& e) {
          texts[size_t(dist::get_rank())] = e.what();
          throw;
        }
      });
    } catch (const Error&) {
    }
    for (const std::string& text : texts) {
      EXPECT_NE(text.find("fc2.bias"), std::string::npos) << text;
      EXPECT_EQ(text.find("fc2.weight"), std::string::npos) << text;
    }
  }
}

// Ranks may compare tensors of a GPU with tensors of the host.
TEST_P(RanksOnGpus, ParametersOfTheHostAndOfAGpuAreCompared) {
  run(2, [] {
    manual_seed(1);
    Net net;
    if (dist::get_rank() == 1) net.to(own_device());
    dist::check_synchronized(net);
  });
}

TEST_P(RanksOnGpus, OneRankTrains) {
  run(1, [] {
    nn::Linear net({.in = 3, .out = 2});
    net.to(own_device());
    dist::DistributedDataParallel ddp(net);
    GradManager gm;
    ddp.attach(gm);
    const Tensor w = filled({3}, 1);
    gm.attach(w, dist::make_allreduce_cb());
    auto recording = gm.record();
    gm.backward(sum(ddp(filled({4, 3}, 1))) + sum(w));
    EXPECT_EQ(w.grad().to_vector<float>(), std::vector<float>(3, 1.f));
    EXPECT_EQ(net.weight.grad().to_vector<float>(), std::vector<float>(6, 4.f));
  });
}

}  // namespace
}  // namespace gradus
