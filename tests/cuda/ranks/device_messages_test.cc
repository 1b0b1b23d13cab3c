// Messages between ranks that have emulated GPUs, by NCCL and through host memory: what //tests/distributed/group's tests
// of messages, which run for GPUs in messages_test, do not look at: the way of the data, mixtures with collectives, faults.
#include <gtest/gtest.h>
#include <nccl.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/remote.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/stream.h"
#include "gradus/tests/distributed/rank_processes.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tools/cuda_emulator/call.h"

namespace gradus::dist {
namespace {

using Tensors = std::vector<Tensor>;

Device gpu(int index) { return {DeviceType::kCUDA, int16_t(index)}; }
Device own_device() { return gpu(get_rank()); }
Tensor filled(const Shape& shape, double value) { return full(shape, value, {.device = own_device()}); }
// Returns n elements of a dtype, made of the bytes that `seed` gives; bool has zeros and ones.
Tensor pattern(int64_t n, DType dtype, int seed) {
  const Tensor x = empty({n}, {.dtype = dtype});
  auto* const bytes = static_cast<uint8_t*>(x.raw_ptr());
  for (int64_t i = 0; i < x.nbytes(); ++i)
    bytes[i] = uint8_t((i * 7 + seed) % (dtype == DType::kBool ? 2 : 97));
  return x;
}
std::string bytes_of(const Tensor& x) {
  const Tensor host = raw::to(x, kCPU);
  return {static_cast<const char*>(host.raw_ptr()), size_t(host.nbytes())};
}

enum class Way { kNccl, kHost };
class MessagesOfGpus : public testing::TestWithParam<Way> {
 protected:
  bool nccl() const { return GetParam() == Way::kNccl; }
  void run(int ranks, const std::function<void()>& body) {
    run_ranks(ranks, body, {.timeout = Milliseconds(15'000), .nccl = nccl()});
  }
  // Runs the body on two ranks, and returns the calls of both between two barriers around the second call of `body`.
  cuda::HostCalls calls_of(const std::function<void()>& body) {
    cuda::HostCalls calls;
    run(2, [&] {
      body();
      synchronize(own_device());
      barrier();
      std::optional<cuda::HostCallScope> scope;
      if (get_rank() == 0) scope.emplace();
      barrier();
      body();
      barrier();
      if (scope) calls = scope->total();
    });
    return calls;
  }
};
INSTANTIATE_TEST_SUITE_P(Nccl, MessagesOfGpus, testing::Values(Way::kNccl));
INSTANTIATE_TEST_SUITE_P(Host, MessagesOfGpus, testing::Values(Way::kHost));

// Device of the sender, device of the receiver. The last row has two ranks on one GPU.
TEST_P(MessagesOfGpus, HaveTheBytesThatWereSent) {
  const std::vector<std::pair<Device, Device>> ways = {
      {gpu(0), gpu(1)}, {gpu(0), kCPU}, {kCPU, gpu(1)}, {gpu(1), gpu(1)}};
  for (const auto& [from, to] : ways)
    run(2, [&, from = from, to = to] {
      int seed = 0;
      for (DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI32,
                          DType::kI16, DType::kI8, DType::kU8, DType::kBool})
        for (const int64_t n : {0, 1, 333, 300'001}) {
          if (n > 1000 && dtype != DType::kF32 && dtype != DType::kU8) continue;
          const Tensor x = pattern(n, dtype, ++seed);
          if (get_rank() == 0) {
            send(raw::to(x, from), {.dst = 1});
          } else {
            const Tensor y = raw::to(pattern(n, dtype, 50), to);
            EXPECT_EQ(recv(y, {.src = 0}), 0);
            EXPECT_EQ(bytes_of(y), bytes_of(x)) << dtype << " " << n << " " << from << " " << to;
          }
        }
    });
}

// Layout and shape come with the message.
TEST_P(MessagesOfGpus, KeepTheirLayout) {
  run(2, [] {
    const Tensor x =
        channels_last(raw::to(reshape(pattern(2 * 3 * 4 * 5, DType::kF32, 1), {2, 3, 4, 5}), kCPU));
    if (get_rank() == 0) return remote_send(raw::to(x, own_device()), {.dest_rank = 1});
    const Tensor y = remote_recv({.src_rank = 0, .device = own_device()});
    EXPECT_EQ(y.device(), own_device());
    EXPECT_TRUE(y.is_channels_last());
    EXPECT_EQ(y.shape(), x.shape());
    EXPECT_EQ(bytes_of(raw::contiguous(y)), bytes_of(raw::contiguous(x)));
  });
}

TEST_P(MessagesOfGpus, WithTagsArriveInAnyOrder) {
  run(2, [] {
    std::vector<Work> works;
    Tensors xs;
    for (uint32_t i = 0; i < 6; ++i) {
      const uint32_t tag = get_rank() == 0 ? i : (i * 5 + 3) % 6;
      xs.push_back(filled({1000}, get_rank() == 0 ? tag : -1));
      works.push_back(get_rank() == 0 ? isend(xs[i], {.dst = 1, .tag = tag})
                                      : irecv(xs[i], {.src = 0, .tag = tag}));
    }
    for (uint32_t i = 6; i-- > 0;) {
      works[i].wait();
      if (get_rank() == 1) {
        EXPECT_EQ(xs[i].to_vector<float>(), std::vector<float>(1000, float((i * 5 + 3) % 6)));
      }
    }
  });
}

TEST_P(MessagesOfGpus, ComeFromAnyRankInTheOrderOfEachSender) {
  run(4, [] {
    if (get_rank() > 0) {
      for (int i = 0; i < 5; ++i) send(filled({500}, 10 * get_rank() + i), {.dst = 0});
      return;
    }
    std::vector<int> next(4, 0);
    for (int i = 0; i < 15; ++i) {
      const Tensor x = filled({500}, -1);
      const int source = recv(x);
      EXPECT_EQ(x.to_vector<float>(), std::vector<float>(500, float(10 * source + next[size_t(source)]++)));
    }
  });
}

TEST_P(MessagesOfGpus, GoInBothDirectionsAtOnce) {
  run(2, [] {
    const int other = 1 - get_rank();
    for (int round = 0; round < 10; ++round) {
      const Tensor x = filled({2000}, 10 * round + get_rank()), y = filled({2000}, -1);
      for (const Work& work :
           batch_isend_irecv({{P2POp::Kind::kSend, x, other}, {P2POp::Kind::kRecv, y, other}}))
        work.wait();
      raw::fill_(x, -2);
      EXPECT_EQ(y.to_vector<float>(), std::vector<float>(2000, float(10 * round + other)));
    }
  });
}

// Each rank starts the calls of a round in an order of its own: messages in both directions of three ranks, and
// collectives of two groups.
TEST_P(MessagesOfGpus, MixWithCollectivesInAnyOrderOfThePrograms) {
  run(3, [] {
    const int rank = get_rank();
    const Group second = new_group({0, 1, 2});
    std::mt19937 random(static_cast<unsigned>(rank));
    for (int round = 0; round < 6; ++round) {
      Tensors sums{filled({300}, rank), filled({400}, 10 * rank)};
      Tensors sent, received;
      std::vector<int> sources;
      std::vector<Work> works(2);
      std::vector<std::function<void()>> starts = {
          [&] { works[0] = all_reduce(sums[0], {.async_op = true}); },
          [&] { works[1] = all_reduce(sums[1], {.group = second, .async_op = true}); }};
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == rank) continue;
        sent.push_back(filled({500}, 100 * round + 10 * rank + peer));
        received.push_back(filled({500}, -1));
        sources.push_back(peer);
        starts.push_back([&, x = sent.back(), peer] { works.push_back(isend(x, {.dst = peer})); });
        starts.push_back([&, y = received.back(), peer] { works.push_back(irecv(y, {.src = peer})); });
      }
      std::shuffle(starts.begin(), starts.end(), random);
      for (const auto& start : starts) start();
      std::shuffle(works.begin(), works.end(), random);
      for (const Work& work : works) work.wait();
      EXPECT_EQ(sums[0].to_vector<float>(), std::vector<float>(300, 3));
      EXPECT_EQ(sums[1].to_vector<float>(), std::vector<float>(400, 30));
      for (size_t i = 0; i < received.size(); ++i)
        EXPECT_EQ(received[i].to_vector<float>(),
                  std::vector<float>(500, float(100 * round + 10 * sources[i] + rank)));
    }
  });
}

// A rank whose program is blocked in a collective still agrees on messages that it has started.
TEST_P(MessagesOfGpus, ProgressWhileTheProgramsAreInCollectives) {
  run(2, [] {
    for (int round = 0; round < 10; ++round) {
      const Tensor x = filled({300}, get_rank() == 0 ? round : -1), sum = filled({300}, 1);
      const Work work = get_rank() == 0 ? isend(x, {.dst = 1}) : irecv(x, {.src = 0});
      if (get_rank() == round % 2) std::this_thread::sleep_for(Milliseconds(2));
      all_reduce(sum);
      barrier();
      work.wait();
      EXPECT_EQ(x.to_vector<float>(), std::vector<float>(300, float(round)));
      EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(300, 2));
    }
  });
}

// From the second one on a message takes one call of NCCL on each rank. The host copies nothing and waits for no GPU.
TEST_P(MessagesOfGpus, TakeOneCallOfNccl) {
  const cuda::HostCalls calls = calls_of([] {
    const Tensor x = filled({1000}, 1);
    get_rank() == 0 ? send(x, {.dst = 1}) : void(recv(x, {.src = 0}));
    const Tensor y = filled({1000}, 1);
    get_rank() == 1 ? isend(y, {.dst = 0}).wait() : irecv(y, {.src = 1}).wait();
    if (get_rank() == 0) remote_send(x, {.dest_rank = 1});
    if (get_rank() == 1) remote_recv({.src_rank = 0, .device = own_device()});
  });
  EXPECT_EQ(calls.library_calls, nccl() ? 6 : 0);
  EXPECT_EQ(calls.copies_to_host, nccl() ? 0 : 3);
  EXPECT_EQ(calls.copies_to_device, nccl() ? 0 : 3);
  if (nccl()) {
    EXPECT_EQ(calls.pageable_copies, 0);
    EXPECT_EQ(calls.waits, 0);
    EXPECT_EQ(calls.allocations, 0);
  }
}

TEST_P(MessagesOfGpus, OfOneGpuGoThroughHostMemory) {
  const cuda::HostCalls calls = calls_of([] {
    const Tensor x = full({1000}, 3 + get_rank(), {.device = gpu(0)});
    get_rank() == 0 ? send(x, {.dst = 1}) : void(recv(x, {.src = 0}));
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(1000, 3));
  });
  EXPECT_EQ(calls.library_calls, 0);
}

// A GPU sends an object's place, and a rank on the CPU receives tensors of GPUs and of the host in order.
TEST_P(MessagesOfGpus, KeepTheirOrderWithThoseOfTheHost) {
  run(2, [] {
    for (int i = 0; i < 6; ++i) {
      const Device device = i % 2 ? own_device() : kCPU;
      const Tensor x = full({100}, get_rank() == 0 ? i : -1, {.device = device});
      if (get_rank() == 0) {
        isend(x, {.dst = 1});
      } else {
        const Tensor y = i % 3 ? x : raw::to(x, kCPU);
        recv(y, {.src = 0});
        EXPECT_EQ(y.to_vector<float>(), std::vector<float>(100, float(i)));
      }
    }
  });
}

// Tags are those of a group, and apart from what ranks tell each other about a message.
TEST_P(MessagesOfGpus, OfSeveralGroupsDoNotMix) {
  run(2, [] {
    const int rank = get_rank(), other = 1 - rank;
    std::vector<Group> groups{world()};
    for (int i = 0; i < 5; ++i) groups.push_back(world().duplicate());
    const auto value = [](size_t group, uint32_t tag, int sender) {
      return 100. * double(group) + 10 * tag + sender;
    };
    Tensors sent, received;
    std::vector<Work> works;
    for (uint32_t tag = 0; tag < 8; ++tag)
      for (size_t g = groups.size(); g-- > 0;) {
        received.push_back(filled({50}, -1));
        works.push_back(irecv(received.back(), {.src = other, .tag = tag, .group = groups[g]}));
      }
    for (uint32_t tag = 0; tag < 8; ++tag)
      for (size_t g = 0; g < groups.size(); ++g) {
        sent.push_back(filled({50}, value(g, tag, rank)));
        works.push_back(isend(sent.back(), {.dst = other, .tag = tag, .group = groups[g]}));
      }
    for (const Work& work : works) work.wait();
    size_t i = 0;
    for (uint32_t tag = 0; tag < 8; ++tag)
      for (size_t g = groups.size(); g-- > 0;)
        EXPECT_EQ(received[i++].to_vector<float>(), std::vector<float>(50, float(value(g, tag, other))));
  });
}

TEST_P(MessagesOfGpus, CarryGradientsBack) {
  run(2, [] {
    for (int round = 0; round < 4; ++round) {
      const Tensor w = filled({64}, round + 1);
      GradManager gm;
      gm.attach(w);
      auto recording = gm.record();
      if (get_rank() == 0) {
        remote_send(w * 2, {.dest_rank = 1});
        gm.backward();
        EXPECT_EQ(w.grad().to_vector<float>(), std::vector<float>(64, 2.f * float(round + 1)));
      } else {
        const Tensor y = remote_recv({.src_rank = 0, .device = own_device()});
        gm.backward(sum(y * w));
        EXPECT_EQ(w.grad().to_vector<float>(), std::vector<float>(64, 2.f * float(round + 1)));
      }
    }
  });
}

// The receiver's backward does not reach what it received, and the sender discards gradients, before or after it has left.
TEST_P(MessagesOfGpus, MayHaveNoGradient) {
  for (const bool is_late : {false, true})
    run(2, [=] {
      const Tensor w = filled({64}, 3);
      GradManager gm;
      gm.attach(w);
      {
        auto recording = gm.record();
        if (get_rank() == 0) {
          remote_send(w * 2, {.dest_rank = 1});
          gm.backward();
        } else {
          remote_recv({.src_rank = 0, .device = own_device()});
          gm.backward(sum(w));
        }
      }
      auto recording = gm.record();
      if (get_rank() == 0) {
        remote_send(w * 2, {.dest_rank = 1});
      } else {
        const Tensor loss = sum(remote_recv({.src_rank = 0, .device = own_device()}) * w);
        if (is_late) std::this_thread::sleep_for(Milliseconds(100));
        gm.backward(loss);
      }
    });
}

// The sender goes on without waiting; the message has what x was.
TEST_P(MessagesOfGpus, KeepDroppedTensors) {
  run(2, [] {
    for (int i = 0; i < 10; ++i) {
      if (get_rank() == 0) {
        isend(filled({3000}, i), {.dst = 1});
      } else {
        const Tensor x = filled({3000}, -1);
        recv(x, {.src = 0});
        EXPECT_EQ(x.to_vector<float>(), std::vector<float>(3000, float(i)));
      }
    }
  });
}

TEST_P(MessagesOfGpus, ArePolledAndHaveTimeouts) {
  run(2, [] {
    const Tensor x = filled({1000}, get_rank() == 0 ? 5 : -1);
    if (get_rank() == 0) {
      recv_object({.src = 1});
      const Work work = isend(x, {.dst = 1});
      while (!work.is_completed()) std::this_thread::yield();
      return work.wait(Milliseconds(5000));
    }
    const Work work = irecv(x, {.src = 0});
    EXPECT_FALSE(work.is_completed());
    EXPECT_THROW(work.wait(Milliseconds(20)), TimeoutError);
    send_object("now", {.dst = 0});
    work.wait(Milliseconds(5000));
    EXPECT_TRUE(work.is_completed());
    EXPECT_EQ(work.source_rank(), 0);
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(1000, 5));
  });
}

// ---- faults ----

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What the two ranks do, and parts of the texts of their errors ("" if the rank needs none).
struct Fault {
  const char* name;
  std::function<void()> rank_0, rank_1;
  std::vector<std::string> error_0, error_1;
};

// A rank that fails is named within 2 s, or of the timeout of 300 ms. Then the GPUs work in a new job.
TEST_P(MessagesOfGpus, NameTheRankAtFault) {
  const auto x = [] { return filled({1000}, 1); };
  const std::vector<Fault> faults = {
      {"size",
       [&] { send(x(), {.dst = 1}); },
       [] { recv(filled({999}, 1), {.src = 0}); },
       {"rank 0 sent f32[1000], where rank 1 receives f32[999]"},
       {"[recv] rank 0 sent f32[1000]"}},
      {"size, without a wait",
       [&] { send(x(), {.dst = 1}); },
       [] {
         const Work work = irecv(filled({999}, 1), {.src = 0});
         std::this_thread::sleep_for(Milliseconds(600));
         barrier();
       },
       {"where rank 1 receives f32[999]"},
       {"where rank 1 receives f32[999]"}},
      {"leaves", [&] { send(x(), {.dst = 1}); }, [] {}, {"[send] rank 1 has left"}, {}},
      {"sender leaves", [] {}, [&] { recv(x(), {.src = 0}); }, {}, {"[recv] rank 0 has left"}},
      {"throws",
       [&] { send(x(), {.dst = 1}); },
       [] { throw ValueError("a test", "a mistake"); },
       {"[send]", "rank 1", "a mistake"},
       {}},
      {"throws when its receive has started",
       [&] {
         isend(x(), {.dst = 1}).wait();
         recv(x(), {.src = 1});
       },
       [&] {
         const Work work = irecv(x(), {.src = 0});
         throw ValueError("a test", "a mistake");
       },
       {"rank 1", "a mistake"},
       {}},
      {"does not come",
       [&] { send(x(), {.dst = 1, .timeout = Milliseconds(300)}); },
       [] { std::this_thread::sleep_for(Milliseconds(800)), barrier(); },
       {"[send] ", "rank 1"},
       {"rank 1"}},
      {"sender does not come",
       [] { std::this_thread::sleep_for(Milliseconds(800)), barrier(); },
       [&] { recv(x(), {.src = 0, .timeout = Milliseconds(300)}); },
       {"rank 0"},
       {"[recv] rank 0"}},
  };
  for (const Fault& fault : faults) {
    // Through host memory a message without a wait is not looked at.
    if (!nccl() && fault.name == std::string("size, without a wait")) continue;
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<std::string> errors =
        errors_of(2, [&] { get_rank() == 0 ? fault.rank_0() : fault.rank_1(); },
                  {.timeout = Milliseconds(20'000), .nccl = nccl()});
    EXPECT_LT(seconds_since(begin), 2.8) << fault.name;
    const bool is_error_of_rank_0 = nccl() || std::string(fault.name).find("leaves") == 0;
    if (is_error_of_rank_0 || fault.error_1.empty()) {
      for (const std::string& part : fault.error_0)
        if (nccl() || !errors[0].empty()) {
          EXPECT_NE(errors[0].find(part), std::string::npos) << fault.name << ": " << errors[0];
        }
    }
    for (const std::string& part : fault.error_1)
      if (nccl() || !errors[1].empty()) {
        EXPECT_NE(errors[1].find(part), std::string::npos) << fault.name << ": " << errors[1];
      }
  }
  run(2, [&] {
    const Tensor y = x();
    get_rank() == 0 ? send(y * 2, {.dst = 1}) : void(recv(y, {.src = 0}));
    EXPECT_EQ(y.to_vector<float>()[999], get_rank() + 1.f);
  });
}

// A call of NCCL fails on one of the ranks, which is named; then messages work in a new job.
TEST_P(MessagesOfGpus, NameTheRankWhoseLibraryFails) {
  if (!nccl()) GTEST_SKIP() << "no calls of NCCL";
  for (const std::string function : {"ncclCommInitRankConfig", "ncclSend", "ncclRecv", "ncclGroupEnd"}) {
    cuda::emulated::fail_call_of(function, 0, ncclSystemError);
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<std::string> errors =
        errors_of(2,
                  [&] {
                    const Tensor x = filled({1000}, 1);
                    get_rank() == 0 ? send(x, {.dst = 1}) : void(recv(x, {.src = 0}));
                    synchronize(own_device());
                    barrier();
                  },
                  {.timeout = Milliseconds(20'000), .nccl = true});
    cuda::emulated::fail_call_of("", -1, 0);
    EXPECT_LT(seconds_since(begin), 2) << function;
    for (const std::string& error : errors) {
      EXPECT_NE(error.find(function + " failed"), std::string::npos) << function << ": " << error;
      EXPECT_NE(error.find("failed in "), std::string::npos) << function << ": " << error;
    }
  }
  run(2, [&] {
    const Tensor y = filled({10}, 1 + get_rank());
    get_rank() == 0 ? send(y, {.dst = 1}) : void(recv(y, {.src = 0}));
    EXPECT_EQ(y.to_vector<float>()[9], 1);
  });
}

// ---- ranks that are processes ----

// The fault of rank 1, from the environment: "none", or where it is killed or stopped.
void fail_at(const std::string& point) {
  if (test_rank() != 1) return;
  const std::string fault = std::getenv("TEST_FAULT");
  if (fault == "kill " + point) raise(SIGKILL);
  if (fault == "stop " + point) raise(SIGSTOP);
  if (fault == "exit " + point) std::exit(3);
}

int exchange_messages() {
  join_job(Milliseconds(1'500), std::getenv("TEST_WAY") == std::string("nccl"));
  const Device device = gpu(test_rank());
  const int other = 1 - test_rank();
  const auto begin = std::chrono::steady_clock::now();
  try {
    for (int round = 0; round < 20; ++round) {
      const Tensor x = full({5000}, round + test_rank(), {.device = device}),
                   y = full({5000}, -1, {.device = device});
      if (round == 3) fail_at("before");
      const Work send = isend(x, {.dst = other}), receive = irecv(y, {.src = other});
      if (round == 5) fail_at("between");
      const Tensor sum = full({10}, 1, {.device = device});
      if (round % 3 == 0) all_reduce(sum);
      receive.wait(), send.wait();
      if (y.to_vector<float>() != std::vector<float>(5000, float(round + other))) return 4;
      if (round == 7) fail_at("after");
    }
    destroy_process_group();
    std::cout << "finished\n";
  } catch (const DistributedError& e) {
    std::cout << "error of rank " << e.rank() << " after " << seconds_since(begin) << " s: " << e.what()
              << std::endl;
    synchronize(device);
    if ((full({10}, 1, {.device = device}) * 2).to_vector<float>()[9] != 2) return 5;
    _exit(6);
  }
  return 0;
}
const RankFunction exchange{"exchange_messages", exchange_messages};

std::vector<RankEnd> exchange_with(const std::string& fault, bool nccl, Milliseconds limit) {
  ProcessOptions options = job_options(true, {{"TEST_FAULT", fault}, {"TEST_WAY", nccl ? "nccl" : "host"}});
  options.limit = limit;
  return run_processes("exchange_messages", 2, options);
}

TEST_P(MessagesOfGpus, GoBetweenProcesses) {
  for (const RankEnd& end : exchange_with("none", nccl(), Milliseconds(30'000))) {
    EXPECT_EQ(end.exit_code, 0) << end.output;
    EXPECT_NE(end.output.find("finished"), std::string::npos) << end.output;
  }
}

TEST_P(MessagesOfGpus, NameAProcessThatEndsOrStops) {
  for (const std::string way : {"kill", "exit", "stop"})
    for (const std::string point : {"before", "between", "after"}) {
      const bool stops = way == "stop";
      const RankEnd end =
          exchange_with(concat(way, ' ', point), nccl(), Milliseconds(stops ? 7'000 : 30'000))[0];
      EXPECT_EQ(end.exit_code, 6) << way << " " << point << ": " << end.output;
      EXPECT_NE(end.output.find("error of rank 1"), std::string::npos)
          << way << " " << point << ": " << end.output;
      const size_t after = end.output.find("after ");
      const double seconds = after == std::string::npos ? 99 : std::atof(end.output.c_str() + after + 6);
      EXPECT_LT(seconds, stops ? 5 : 2.5) << way << " " << point << ": " << end.output;
    }
}

}  // namespace
}  // namespace gradus::dist
