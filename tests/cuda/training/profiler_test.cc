// The profiler on the emulator: kernels are timed by CUDA events, which are read only when results are
// requested; a failing event loses one time and nothing else.
#include "gradus/tensor/profile/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/cuda/training/steps.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace gradus {
namespace {

using cuda::emulated::fail_call_of;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr Device kCuda{DeviceType::kCUDA};
constexpr double kNap = 3e-3;  // s
constexpr uint64_t kOrders = 8;

size_t events() {
  const auto lock = cuda::emulated::Runtime::get().lock();
  return cuda::emulated::Runtime::get().events;
}
size_t streams() {
  const auto lock = cuda::emulated::Runtime::get().lock();
  return cuda::emulated::Runtime::get().streams();
}

// A kernel that takes kNap seconds, and one that contains it.
void take_a_nap(const Tensor& x) {
  current_stream(x.device()).enqueue([] {
    std::this_thread::sleep_for(std::chrono::duration<double>(kNap));
  });
}
KernelSlot<void(const Tensor&)> nap("nap");
void take_two(const Tensor& x) { take_a_nap(x), nap(x); }
KernelSlot<void(const Tensor&)> two_naps("two naps");
[[maybe_unused]] const bool is_set = (nap.cuda = &take_a_nap, two_naps.cuda = &take_two, true);

ProfileRow row_of(const Profiler& profiler, const std::string& name, Profiler::By by = Profiler::kOp) {
  for (const ProfileRow& row : profiler.rows(by))
    if (row.name == name) return row;
  ADD_FAILURE() << "no row " << name << " in\n" << profiler.table({.by = by});
  return {};
}

double total(const std::vector<ProfileRow>& rows) {
  double sum = 0;
  for (const ProfileRow& row : rows) sum += row.seconds;
  return sum;
}

std::vector<json> trace_of(const Profiler& profiler) {
  const std::string path = testing::TempDir() + "/cuda-trace.json";
  profiler.write_trace(path);
  std::ifstream file(path);
  const json trace = json::parse(file);
  std::filesystem::remove(path);
  return trace["traceEvents"];
}

std::vector<json> ranges(const std::vector<json>& trace, const std::string& category,
                         const std::string& name) {
  std::vector<json> found;
  for (const json& e : trace)
    if (e.value("cat", "") == category && e["name"] == name) found.push_back(e);
  return found;
}

double seconds(const json& range) { return 1e-6 * range["dur"].get<double>(); }

TEST(CudaProfiler, AKernelHasTheDevicesTime) {
  bool ever_launched_ahead = false;
  const Tensor x = zeros({4}, {.device = kCuda});
  for (uint64_t seed = 1; seed <= kOrders; ++seed) {
    cuda::emulated::set_seed(seed);
    Profiler profiler;
    {
      auto scope = profiler.record();
      for (int i = 0; i < 4; ++i) nap(x);
    }
    const ProfileRow row = row_of(profiler, "nap [cuda:0]");
    EXPECT_EQ(row.calls, 4);
    EXPECT_EQ(row.untimed, 0);
    EXPECT_GE(row.seconds, 4 * kNap);
    EXPECT_THAT(profiler.rows(), testing::SizeIs(1)) << "the launch is no row";
    const std::string table = profiler.table();
    EXPECT_THAT(table, HasSubstr(" launching them\n"));
    EXPECT_THAT(table, HasSubstr(", in kernels on cuda:0\n"));
    EXPECT_THAT(table, Not(HasSubstr("no time")));

    const std::vector<json> trace = trace_of(profiler), launches = ranges(trace, "launch", "launch nap"),
                            kernels = ranges(trace, "kernel", "nap");
    ASSERT_EQ(launches.size(), 4u);
    ASSERT_EQ(kernels.size(), 4u);
    double sum = 0;
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_GE(seconds(kernels[i]), kNap);
      EXPECT_NE(kernels[i]["tid"], launches[i]["tid"]);
      // Not before its launch began.
      EXPECT_GE(kernels[i]["ts"].get<double>() + kernels[i]["dur"].get<double>(),
                launches[i]["ts"].get<double>());
      ever_launched_ahead = ever_launched_ahead || seconds(launches[i]) < kNap / 2;
      sum += seconds(kernels[i]);
    }
    EXPECT_NEAR(sum, row.seconds, 1e-8);
  }
  EXPECT_TRUE(ever_launched_ahead) << "the test would not notice";
}

TEST(CudaProfiler, AKernelWithinAKernelCountsOnce) {
  const Tensor x = zeros({4}, {.device = kCuda});
  Profiler profiler;
  {
    auto scope = profiler.record();
    two_naps(x);
  }
  const ProfileRow outer = row_of(profiler, "two naps [cuda:0]"), inner = row_of(profiler, "nap [cuda:0]");
  EXPECT_GE(outer.seconds, kNap);
  EXPECT_GE(inner.seconds, kNap);
  const std::vector<json> whole = ranges(trace_of(profiler), "kernel", "two naps");
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_NEAR(outer.seconds + inner.seconds, seconds(whole[0]), 1e-8);
}

TEST(CudaProfiler, StreamsAreLinesOfATrace) {
  const Stream side = Stream::create(kCuda);
  const Tensor x = zeros({4}, {.device = kCuda});
  for (uint64_t seed = 1; seed <= kOrders; ++seed) {
    cuda::emulated::set_seed(seed);
    Profiler profiler;
    {
      auto scope = profiler.record();
      for (int i = 0; i < 3; ++i) {
        nap(x);
        const StreamScope on_side(side);
        nap(x), exp(x);
      }
    }
    EXPECT_EQ(row_of(profiler, "nap [cuda:0]").calls, 6);
    EXPECT_GT(row_of(profiler, "exp [cuda:0]").seconds, 0);
    EXPECT_NEAR(total(profiler.rows()), total(profiler.rows(Profiler::kModule)), 1e-12);
    std::map<int64_t, std::vector<json>> lines;
    std::map<int64_t, std::string> names;
    for (const json& e : trace_of(profiler)) {
      if (e.value("cat", "") == "kernel") lines[e["tid"]].push_back(e);
      if (e["name"] == "thread_name") names[e["tid"]] = e["args"]["name"];
    }
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines.begin()->second.size(), 3u);
    EXPECT_EQ(lines.rbegin()->second.size(), 6u);
    EXPECT_EQ(names[lines.begin()->first], "cuda:0 stream 1");
    EXPECT_EQ(names[lines.rbegin()->first], "cuda:0 stream 2");
    for (const auto& [line, kernels] : lines)  // one after the other
      for (size_t i = 1; i < kernels.size(); ++i)
        EXPECT_GE(kernels[i]["ts"].get<double>() + 1e-3,
                  kernels[i - 1]["ts"].get<double>() + kernels[i - 1]["dur"].get<double>());
  }
}

TEST(CudaProfiler, DevicesAreRows) {
  const Device second{DeviceType::kCUDA, 1};
  const Tensor x = zeros({4}, {.device = kCuda}), y = zeros({4}, {.device = second});
  Profiler profiler;
  {
    auto scope = profiler.record();
    exp(x), exp(y), exp(zeros({4}));
  }
  for (const char* name : {"exp [cuda:0]", "exp [cuda:1]", "exp"}) {
    EXPECT_EQ(row_of(profiler, name).calls, 1) << name;
    EXPECT_GT(row_of(profiler, name).seconds, 0) << name;
  }
  EXPECT_THAT(profiler.table(),
              testing::AllOf(HasSubstr("in kernels on cuda:0\n"), HasSubstr("in kernels on cuda:1\n")));
}

TEST(CudaProfiler, AStepDoesNotWait) {
  const Step step = example("MNIST's network").make({kCuda, 2, 28});
  step(), step();
  cuda::HostCallScope calls;
  step();
  const cuda::HostCalls without = calls.total();
  const size_t events_before = events();
  calls.restart();
  {
    std::optional<Profiler> profiler(std::in_place);
    {
      auto scope = profiler->record();
      step(), profiler->step();
    }
    EXPECT_EQ(calls.total(), without) << calls.table();
    EXPECT_EQ(without.waits, 0);

    for (const auto by : {Profiler::kOp, Profiler::kOpAndShape, Profiler::kModule})
      for (const ProfileRow& row : profiler->rows(by)) {
        EXPECT_GT(row.seconds, 0) << row.name;
        EXPECT_EQ(row.untimed, 0) << row.name;
      }
    EXPECT_GT(calls.total().waits, 0) << "the rows needed the device";
    const ProfileRow product = row_of(*profiler, "matmul [cuda:0]");
    EXPECT_GT(product.flops, 0);
    EXPECT_GT(product.backward_seconds, 0);
    EXPECT_LT(product.backward_seconds, product.seconds);
    EXPECT_GT(row_of(*profiler, "conv_relu [cuda:0]").seconds, 0);

    // A second request does not wait, and neither does the end of a profiler whose rows are not requested.
    calls.restart();
    profiler->rows();
    EXPECT_EQ(calls.total().waits, 0);
    {
      auto scope = profiler->record();
      step();
    }
    profiler.reset();
  }
  EXPECT_EQ(calls.total().waits, 0);
  EXPECT_EQ(events(), events_before) << "an event is left over";
}

TEST(CudaProfiler, EventsAreUsedAgain) {
  const Tensor x = zeros({4}, {.device = kCuda});
  constexpr int kUnderWay = 20, kMost = 2 * kUnderWay + 10;  // a kernel has two events
  const size_t before = events();
  Profiler profiler;
  auto scope = profiler.record();
  fail_call_of("cudaEventCreateWithFlags", kMost, cudaErrorInvalidValue);  // one more costs a time
  for (int i = 0; i < 400; ++i) {
    exp(x);
    if (i % kUnderWay == kUnderWay - 1) Stream::of(kCuda).synchronize();
  }
  fail_call_of("", -1, 0);
  EXPECT_LT(events() - before, kMost);
  EXPECT_EQ(row_of(profiler, "exp [cuda:0]").calls, 400);
  EXPECT_EQ(row_of(profiler, "exp [cuda:0]").untimed, 0);
}

TEST(CudaProfiler, AnEventThatFailsCostsATime) {
  struct Failing {
    const char* call;
    int64_t n;
  };
  const Tensor x = ones({4}, {.device = kCuda});
  const std::vector<float> right = exp(ones({4})).to_vector<float>();
  for (const Failing& f :
       {Failing{"cudaEventCreateWithFlags", 0}, Failing{"cudaEventCreateWithFlags", 1},
        Failing{"cudaEventRecord", 0}, Failing{"cudaEventRecord", 1}, Failing{"cudaEventRecord", 3}}) {
    const std::string where = concat(f.call, ' ', f.n);
    Profiler profiler;
    {
      auto scope = profiler.record();
      fail_call_of(f.call, f.n, cudaErrorInvalidValue);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(exp(x).to_vector<float>(), right) << where;
    }
    fail_call_of("", -1, 0);
    const ProfileRow row = row_of(profiler, "exp [cuda:0]");
    EXPECT_EQ(row.calls, 3) << where;
    EXPECT_EQ(row.untimed, 1) << where;
    EXPECT_GT(row.seconds, 0) << where;
    EXPECT_THAT(profiler.table(),
                HasSubstr(concat("\n1 kernel has no time: [exp] ", f.call, " failed on cuda:0")));
    const std::vector<json> trace = trace_of(profiler);
    EXPECT_EQ(ranges(trace, "kernel", "exp").size(), 2u) << where;
    EXPECT_EQ(ranges(trace, "launch", "launch exp").size(), 3u) << where;
  }
}

TEST(CudaProfiler, ATimeThatCannotBeReadIsMissing) {
  const Tensor x = zeros({4}, {.device = kCuda});
  for (int64_t n = 0; n < 6; ++n) {
    Profiler profiler;
    {
      auto scope = profiler.record();
      exp(x), exp(x), exp(x);
    }
    fail_call_of("cudaEventElapsedTime", n, cudaErrorInvalidValue);
    const ProfileRow row = row_of(profiler, "exp [cuda:0]");
    fail_call_of("", -1, 0);
    EXPECT_EQ(row.calls, 3);
    EXPECT_LE(row.untimed, 1) << "call " << n;  // a call may have asked too early
    EXPECT_GT(row.seconds, 0);
    if (row.untimed > 0) {
      EXPECT_THAT(profiler.table(), HasSubstr("cudaEventElapsedTime failed"));
    }
  }
}

TEST(CudaProfiler, AWaitThatFailsCanBeRepeated) {
  const Tensor x = zeros({4}, {.device = kCuda});
  bool ever_missing = false;
  for (uint64_t seed = 1; seed <= kOrders; ++seed) {
    cuda::emulated::set_seed(seed);
    Profiler profiler;
    {
      auto scope = profiler.record();
      exp(x), exp(x), exp(x);
    }
    fail_call_of("cudaEventSynchronize", 0, cudaErrorInvalidValue);
    const std::string table = profiler.table();
    ever_missing = ever_missing || table.find("cudaEventSynchronize failed") != std::string::npos;
    const ProfileRow row = row_of(profiler, "exp [cuda:0]");
    EXPECT_EQ(row.calls, 3);
    EXPECT_EQ(row.untimed, 0);
    EXPECT_GT(row.seconds, 0);
  }
  EXPECT_TRUE(ever_missing) << "the test would not notice";
}

// The device is lost in a child process.
TEST(CudaProfilerDeathTest, ALostDeviceCostsTimesAndNothingElse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto lose = [] {
    const Tensor x = zeros({4}, {.device = kCuda}), y = zeros({4});
    {
      Profiler profiler;
      {
        auto scope = profiler.record();
        exp(x), exp(y);
        cuda::emulated::lose_device(cudaErrorIllegalAddress);
        EXPECT_THROW(exp(x), cuda::CudaError);
        exp(y);
      }
      EXPECT_EQ(row_of(profiler, "exp").calls, 2);
      EXPECT_GT(row_of(profiler, "exp").seconds, 0);
      EXPECT_EQ(row_of(profiler, "exp [cuda:0]").calls - row_of(profiler, "exp [cuda:0]").untimed, 0);
      EXPECT_THAT(profiler.table(), HasSubstr("the device is lost for this process"));
      EXPECT_EQ(ranges(trace_of(profiler), "kernel", "exp").size(), 2u);
      profiler.clear();
      EXPECT_THAT(profiler.rows(), testing::IsEmpty());
    }
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(lose(), testing::ExitedWithCode(0), "");
}

TEST(CudaProfiler, AStreamMayEndBeforeItsTimesAreRead) {
  const Tensor x = zeros({4}, {.device = kCuda});
  const size_t before = streams();
  Profiler profiler;
  {
    auto scope = profiler.record();
    for (int i = 0; i < 3; ++i) {
      const StreamScope other(Stream::create(kCuda));
      nap(x);
    }
  }
  const ProfileRow row = row_of(profiler, "nap [cuda:0]");
  EXPECT_EQ(row.calls, 3);
  EXPECT_EQ(row.untimed, 0);
  EXPECT_GE(row.seconds, 3 * kNap);
  synchronize(kCuda);
  EXPECT_EQ(streams(), before) << "the profiler holds a stream";
  EXPECT_EQ(ranges(trace_of(profiler), "kernel", "nap").size(), 3u);
}

TEST(CudaProfiler, OfNestedScopesTheInnermostTimes) {
  const Tensor x = zeros({4}, {.device = kCuda});
  Profiler outer, inner;
  {
    auto scope = outer.record();
    exp(x);
    {
      auto inner_scope = inner.record();
      nap(x);
    }
    exp(x);
  }
  EXPECT_EQ(row_of(outer, "exp [cuda:0]").calls, 2);
  EXPECT_EQ(outer.rows().size(), 1u);
  EXPECT_GE(row_of(inner, "nap [cuda:0]").seconds, kNap);
  EXPECT_EQ(inner.rows().size(), 1u);
}

TEST(CudaProfiler, WhatIsClearedIsNotRead) {
  const Tensor x = zeros({4}, {.device = kCuda});
  Profiler profiler;
  {
    auto scope = profiler.record();
    nap(x);
    profiler.clear();
    exp(x);
  }
  EXPECT_EQ(profiler.rows().size(), 1u) << profiler.table();
  EXPECT_GT(row_of(profiler, "exp [cuda:0]").seconds, 0);
}

// Reading times waits for this work, which must be able to record meanwhile (no deadlock).
TEST(CudaProfiler, WorkThatADeviceWaitsForIsRecordedMeanwhile) {
  const Device worker{DeviceType::kCPU, 1};
  const Tensor x = zeros({4}, {.device = kCuda}), y = to(ones({4}), worker);
  Profiler profiler;
  {
    auto scope = profiler.record();
    for (int i = 0; i < 10; ++i) {
      Stream::of(worker).enqueue([] { std::this_thread::sleep_for(std::chrono::duration<double>(kNap)); });
      exp(y);
      Stream::of(kCuda).wait(Event::record(Stream::of(worker)));
      Stream::of(kCuda).enqueue([context = Context::current().snapshot()]() mutable {
        const ContextScope in_context(context);
        sin(ones({4}));
      });
      exp(x);
    }
  }
  EXPECT_EQ(row_of(profiler, "exp [cuda:0]").untimed, 0);
  EXPECT_EQ(row_of(profiler, "exp [cpu:1]").calls, 10);
}

// Two threads on each stream: one records events of a kernel while the other collects finished ones.
TEST(CudaProfiler, ThreadsLaunchAtOnceAndMayReadMeanwhile) {
  constexpr int kThreads = 4, kCalls = 5000;
  const Stream side = Stream::create(kCuda);
  Profiler profiler;
  {
    auto scope = profiler.record();
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([t, side, context = Context::current().snapshot()]() mutable {
        const ContextScope in_context(context);
        const StreamScope on(t % 2 == 0 ? Stream::of(kCuda) : side);
        const Tensor x = zeros({4}, {.device = kCuda});
        for (int i = 0; i < kCalls; ++i) exp(x);
      });
    for (int i = 0; i < 10; ++i) profiler.table();
    for (std::thread& t : threads) t.join();
  }
  const ProfileRow row = row_of(profiler, "exp [cuda:0]");
  EXPECT_EQ(row.calls, kThreads * kCalls);
  EXPECT_EQ(row.untimed, 0);
}

}  // namespace
}  // namespace gradus
