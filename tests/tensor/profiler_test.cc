// Profiler: calls, times, bytes and FLOPs by op, shape, module and range; threads, devices, data loaders and
// ranks; Chrome traces; peak memory; errors. Times have lower bounds alone, from sleeps.
#include "gradus/tensor/profile/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <latch>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "gradus/gradus.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using testing::StartsWith;

// Null: no row has this name.
const ProfileRow* find(const std::vector<ProfileRow>& rows, const std::string& name) {
  for (const ProfileRow& r : rows)
    if (r.name == name) return &r;
  return nullptr;
}

std::vector<std::string> names_of(const std::vector<ProfileRow>& rows) {
  std::vector<std::string> names;
  for (const ProfileRow& r : rows) names.push_back(r.name);
  return names;
}

double total(const std::vector<ProfileRow>& rows) {
  double seconds = 0;
  for (const ProfileRow& r : rows) seconds += r.seconds;
  return seconds;
}

json trace_of(const Profiler& profiler) {
  std::string path = testing::TempDir() + "/trace-XXXXXX";
  close(mkstemp(path.data()));
  profiler.write_trace(path);
  std::ifstream file(path);
  json trace = json::parse(file);
  std::filesystem::remove(path);
  return trace;
}

struct Net : nn::Layer {
  nn::Conv2d conv{this, "conv", {.in = 3, .out = 8, .kernel = 3}};
  nn::Linear fc{this, "fc", {.in = 8 * 6 * 6, .out = 4}};
  Tensor forward(const Tensor& x) override { return fc(relu(flatten(conv(x), 1))); }
};

// A network and all that a training step needs.
struct Training {
  Net net;
  GradManager gm;
  optim::SGD opt{net.parameters(), {.lr = 0.1}};
  Tensor x = randn({4, 3, 8, 8}), y = randint(0, 4, {4});

  Training() { gm.attach(net.parameters()); }
  void step() {
    auto recording = gm.record();
    const Tensor loss = nn::cross_entropy(net(x), y);
    gm.backward(loss);
    opt.step().clear_grad();
  }
};

TEST(Profiler, RecordsNothingOutsideOfItsScope) {
  Profiler profiler;
  const Tensor x = randn({8});
  x + x;
  { auto scope = profiler.record(); }
  x + x;
  EXPECT_THAT(profiler.rows(), testing::IsEmpty());
  EXPECT_EQ(observer(), nullptr);
}

// Forward q k^T and w v; backward the gradients of these products, and q k^T again.
TEST(Profiler, CountsTheProductsOfAttention) {
  Profiler profiler;
  const Tensor q = randn({2, 9, 8}), k = randn({2, 10, 8}), v = randn({2, 10, 3});
  GradManager gm;
  gm.attach({q, k, v});
  {
    const auto scope = profiler.record();
    auto recording = gm.record();
    gm.backward(sum(scaled_dot_product_attention(q, k, v)));
  }
  const std::vector<ProfileRow> rows = profiler.rows();
  ASSERT_TRUE(find(rows, "attention") && find(rows, "attention_backward")) << profiler.table();
  EXPECT_EQ(find(rows, "attention")->flops, 2 * (2 * 9 * 10) * (8 + 3));
  EXPECT_EQ(find(rows, "attention_backward")->flops, 2 * (2 * 9 * 10) * (3 * 8 + 2 * 3));
}

TEST(Profiler, CountsCallsBytesAndFlops) {
  Profiler profiler;
  const Tensor a = randn({64, 32}), b = randn({32, 16}), row = randn({1, 16});
  {
    auto scope = profiler.record();
    for (int i = 0; i < 3; ++i) matmul(a, b) * row;
  }
  const std::vector<ProfileRow> rows = profiler.rows();
  const ProfileRow* product = find(rows, "matmul");
  ASSERT_TRUE(product) << profiler.table();
  EXPECT_EQ(product->calls, 3);
  EXPECT_EQ(product->flops, 3 * 2 * 64 * 32 * 16);
  EXPECT_EQ(product->bytes, 3 * 4 * (64 * 32 + 32 * 16 + 64 * 16));
  EXPECT_GT(product->seconds, 0);
  EXPECT_EQ(product->backward_seconds, 0);
  EXPECT_LE(total(rows), profiler.seconds());
}

TEST(Profiler, ABroadcastOperandIsReadOnce) {
  Profiler profiler;
  const Tensor x = randn({64, 16}), row = randn({1, 16});
  {
    auto scope = profiler.record();
    x + row;
  }
  ASSERT_EQ(profiler.rows().size(), 1u) << profiler.table();
  EXPECT_EQ(profiler.rows()[0].bytes, 4 * (2 * 64 * 16 + 16));
}

TEST(Profiler, GroupsByShapeAndDType) {
  Profiler profiler;
  const Tensor x = randn({8}), y = randn({2, 3}), z = randn({8}, {.dtype = DType::kF64}), s = scalar(1);
  {
    auto scope = profiler.record();
    exp(x), exp(x), exp(y), exp(z), exp(s);
  }
  EXPECT_THAT(names_of(profiler.rows()), ElementsAre("exp"));
  EXPECT_THAT(names_of(profiler.rows(Profiler::kOpAndShape)),
              testing::UnorderedElementsAre("exp f32[8] f32[8]", "exp f32[2,3] f32[2,3]", "exp f64[8] f64[8]",
                                            "exp f32[] f32[]"));
  EXPECT_EQ(find(profiler.rows(Profiler::kOpAndShape), "exp f32[8] f32[8]")->calls, 2);
}

TEST(Profiler, NamesTheKernelOfAConvolution) {
  Profiler profiler;
  const Tensor x = randn({2, 3, 8, 8}, {.dtype = DType::kF64}),
               w = randn({4, 3, 3, 3}, {.dtype = DType::kF64});
  const Tensor half = channels_last(to(x, DType::kF16));
  {
    auto scope = profiler.record();
    conv2d(x, w);
    conv2d(half, to(w, DType::kF16));
  }
  const auto names = names_of(profiler.rows(Profiler::kOpAndShape));
  EXPECT_THAT(names, Contains("conv f64[2,4,6,6] f64[2,3,8,8] f64[4,3,3,3] (im2col)"));
  EXPECT_THAT(names, Contains(StartsWith("conv f16[2,4,6,6] f16[2,3,8,8] f16[4,3,3,3] (f32, onednn, ")));

  EXPECT_THAT(trace_of(profiler).dump(), HasSubstr("\"kernel\":\"im2col\""));
}

TEST(Profiler, GivesATrainingStepToItsModulesForwardAndBackward) {
  Training training;
  training.step();
  Profiler profiler;
  {
    auto scope = profiler.record();
    training.step();
  }
  const std::vector<ProfileRow> ops = profiler.rows(), modules = profiler.rows(Profiler::kModule),
                                ranges = profiler.rows(Profiler::kRange);
  EXPECT_THAT(names_of(ops), IsSupersetOf({"conv", "matmul", "relu", "sgd_step"}));
  EXPECT_THAT(names_of(modules), IsSupersetOf({"conv", "fc", "(no module)"}));
  for (const char* name : {"conv", "fc"}) {
    const ProfileRow* module = find(modules, name);
    EXPECT_GT(module->backward_seconds, 0) << name;
    EXPECT_LT(module->backward_seconds, module->seconds) << name;
  }
  EXPECT_EQ(find(ops, "sgd_step")->backward_seconds, 0);
  EXPECT_GT(find(ops, "conv_weight_grad")->flops, 0);
  EXPECT_EQ(find(ops, "conv_weight_grad")->seconds, find(ops, "conv_weight_grad")->backward_seconds);
  EXPECT_THAT(names_of(ranges), testing::UnorderedElementsAre("backward", "optimizer step"));
  EXPECT_NEAR(total(ops), total(modules), 1e-9);
  EXPECT_NEAR(total(ops), total(profiler.rows(Profiler::kOpAndShape)), 1e-9);
  EXPECT_LE(total(ops), profiler.seconds());
}

TEST(Profiler, TablesHaveTheLongestRowsTheRestAndTotals) {
  Training training;
  Profiler profiler;
  {
    auto scope = profiler.record();
    for (int i = 0; i < 2; ++i) training.step(), profiler.step();
  }
  const std::vector<ProfileRow> rows = profiler.rows();
  for (size_t i = 1; i < rows.size(); ++i) EXPECT_GE(rows[i - 1].seconds, rows[i].seconds);
  const std::string table = profiler.table({.limit = 2});
  EXPECT_THAT(table,
              AllOf(HasSubstr(rows[0].name + " "), HasSubstr(rows[1].name + " "), HasSubstr("\n2 steps of "),
                    HasSubstr(concat("(", rows.size() - 2, " more)")), HasSubstr("\npeak memory ")));
  EXPECT_THAT(table, Not(HasSubstr("\n" + rows[2].name + " ")));
  EXPECT_THAT(profiler.table({.by = Profiler::kModule}), HasSubstr("\nconv "));
  EXPECT_THAT(Profiler().table(), HasSubstr("0.000 ms recorded"));
}

TEST(Profiler, RecordsTheStepsThatItIsAskedFor) {
  Profiler profiler({.skip = 2, .steps = 3});
  const Tensor x = randn({8});
  {
    auto scope = profiler.record();
    for (int i = 0; i < 9; ++i) {
      for (int k = 0; k <= i; ++k) exp(x);
      profiler.step();
    }
  }
  EXPECT_EQ(profiler.steps(), 3);
  EXPECT_EQ(find(profiler.rows(), "exp")->calls, 3 + 4 + 5);
  profiler.clear();
  EXPECT_EQ(profiler.steps(), 0);
  EXPECT_EQ(profiler.seconds(), 0);
  EXPECT_THAT(profiler.rows(), testing::IsEmpty());
  EXPECT_THROW(Profiler({.skip = -1}), ValueError);
}

TEST(Profiler, RangesOfOnesOwnHaveAllThatIsInThem) {
  Profiler profiler;
  const Tensor x = randn({1000});
  {
    auto scope = profiler.record();
    auto outer = profile_range("outer");
    for (int i = 0; i < 2; ++i) {
      auto inner = profile_range("inner \"quoted\"");
      exp(x);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  const std::vector<ProfileRow> ranges = profiler.rows(Profiler::kRange);
  ASSERT_THAT(names_of(ranges), ElementsAre("outer", "inner \"quoted\""));
  EXPECT_EQ(ranges[0].calls, 1);
  EXPECT_EQ(ranges[1].calls, 2);
  EXPECT_GT(ranges[1].seconds, 0.004);
  EXPECT_GE(ranges[0].seconds, ranges[1].seconds);
  EXPECT_LT(total(profiler.rows()), ranges[1].seconds);
}

TEST(Profiler, ARangeThatOutlivesClearOrTheScopeIsLeftOut) {
  Profiler profiler;
  const Tensor x = randn({8});
  RunningRange kept;
  {
    auto scope = profiler.record();
    kept = profile_range("kept");
    profiler.clear();
    exp(x);
  }
  EXPECT_THAT(names_of(profiler.rows()), ElementsAre("exp"));
  kept = RunningRange();
  EXPECT_THAT(profiler.rows(Profiler::kRange), testing::IsEmpty());
}

TEST(Profiler, AScopeMayBeMovedAndEndsOnce) {
  Profiler profiler;
  const Tensor x = randn({8});
  std::optional<Profiler::Scope> kept;
  kept.emplace(profiler.record());
  exp(x);
  EXPECT_THROW(static_cast<void>(profiler.record()), StateError) << "it is open";
  kept.reset();
  sin(x);
  EXPECT_THAT(names_of(profiler.rows()), ElementsAre("exp"));
}

TEST(Profiler, OfNestedScopesTheInnermostRecords) {
  Profiler outer, inner;
  const Tensor x = randn({8});
  auto outer_scope = outer.record();
  exp(x);
  {
    auto scope = inner.record();
    sin(x);
  }
  cos(x);
  EXPECT_THAT(names_of(outer.rows()), testing::UnorderedElementsAre("exp", "cos"));
  EXPECT_THAT(names_of(inner.rows()), ElementsAre("sin"));
  EXPECT_THROW(static_cast<void>(outer.record()), StateError);
}

TEST(Profiler, AnExceptionEndsItsRanges) {
  struct Outer : nn::Layer {
    nn::Linear fc{this, "fc", {.in = 3, .out = 4}};
    Tensor forward(const Tensor& x) override { return fc(x); }
  } net;
  Profiler profiler;
  const Tensor x = randn({2, 8});
  {
    auto scope = profiler.record();
    EXPECT_THROW(net(x), ShapeError);
    exp(x);
  }
  EXPECT_THAT(names_of(profiler.rows(Profiler::kModule)), ElementsAre("(no module)"));
}

TEST(Profiler, TimesQueuedKernelsWhereTheyRun) {
  Profiler profiler;
  const Device device{DeviceType::kCPU, 1};
  {
    auto scope = profiler.record();
    const Tensor x = to(randn({256, 256}), device);
    exp(matmul(x, x));
    synchronize(device);
  }
  const std::vector<ProfileRow> rows = profiler.rows();
  ASSERT_TRUE(find(rows, "matmul [cpu:1]")) << profiler.table();
  EXPECT_EQ(find(rows, "matmul [cpu:1]")->flops, 2 * 256 * 256 * 256);
  EXPECT_TRUE(find(rows, "exp [cpu:1]"));
}

TEST(Profiler, SeesLoadersAndTheWaitForThem) {
  struct Slow : data::Dataset {
    int64_t size() const override { return 8; }
    data::Sample get(int64_t) const override {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return {exp(ones({4})), scalar(0, {.dtype = DType::kI64})};
    }
  };
  for (const int workers : {0, 2}) {
    Profiler profiler;
    {
      auto scope = profiler.record();
      for (const data::Batch& batch : data::DataLoader(Slow(), {.batch_size = 2, .num_workers = workers}))
        EXPECT_EQ(batch.size(), 2);
    }
    const std::vector<ProfileRow> rows = profiler.rows();
    const ProfileRow* read = find(rows, workers ? "read batch [data loader]" : "read batch");
    ASSERT_TRUE(read) << profiler.table();
    EXPECT_EQ(read->calls, 4);
    EXPECT_GT(read->seconds, 4 * 0.004);
    EXPECT_EQ(find(rows, workers ? "exp [data loader]" : "exp")->calls, 8);
    if (workers) {
      ASSERT_TRUE(find(rows, "wait for batch"));
      EXPECT_GT(find(rows, "wait for batch")->seconds, 0.002);
    }
  }
}

TEST(Profiler, RanksAreProcessesOfATrace) {
  std::mutex mutex;
  json events = json::array();
  dist::run_ranks(2, [&] {
    Profiler profiler;
    {
      auto scope = profiler.record();
      Tensor x = ones({1000});
      dist::all_reduce(x);
      dist::all_reduce(x, {.async_op = true}).wait();
    }
    EXPECT_GE(find(profiler.rows(), "all_reduce")->calls, 1);
    EXPECT_EQ(find(profiler.rows(), "all_reduce")->bytes % 4000, 0);
    const json trace = trace_of(profiler);
    const std::lock_guard lock(mutex);
    for (const json& e : trace["traceEvents"]) events.push_back(e);
  });
  std::map<int, int> calls;
  for (const json& e : events)
    if (e.value("cat", "") == "collective" && e["name"] == "all_reduce") ++calls[e["pid"].get<int>()];
  EXPECT_EQ(calls, (std::map<int, int>{{0, 2}, {1, 2}}));
}

TEST(Profiler, ThreadsRecordAtOnceAndMayReadMeanwhile) {
  Profiler profiler;
  constexpr int kThreads = 4, kCalls = 200;
  {
    auto scope = profiler.record();
    std::latch start(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, context = Context::current().snapshot()]() mutable {
        name_thread("worker");
        const ContextScope in_context(context);
        context.threads = 1;
        const Tensor x = ones({16});
        start.arrive_and_wait();
        for (int i = 0; i < kCalls; ++i) {
          auto range = profile_range("work");
          exp(x);
        }
      });
    for (int i = 0; i < 10; ++i) profiler.table();
    for (std::thread& t : threads) t.join();
  }
  EXPECT_EQ(find(profiler.rows(), "exp [worker]")->calls, kThreads * kCalls);
}

TEST(Profiler, ATraceNestsAndNamesEverything) {
  Training training;
  training.step();
  Profiler profiler;
  {
    auto scope = profiler.record();
    auto range = profile_range("step");
    training.step();
  }
  const json trace = trace_of(profiler);
  struct Span {
    int64_t begin, end;
    std::string name, category;
  };
  std::map<int64_t, std::vector<Span>> threads;
  std::set<std::string> kinds, names;
  const auto ns = [](const json& us) { return std::llround(us.get<double>() * 1000); };
  for (const json& e : trace["traceEvents"]) {
    kinds.insert(e["ph"]);
    names.insert(e["name"]);
    if (e["ph"] == "X")
      threads[e["tid"]].push_back({ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]), e["name"], e["cat"]});
    if (e["name"] == "conv" && e["cat"] == "kernel") {
      EXPECT_EQ(e["args"]["module"], "conv");
      EXPECT_THAT(e["args"]["shapes"].get<std::string>(), HasSubstr("f32[4,3,8,8]"));
      EXPECT_GT(e["args"]["flops"], 0);
    }
  }
  EXPECT_THAT(kinds, IsSupersetOf({"M", "X", "C"}));
  EXPECT_THAT(names, IsSupersetOf({"process_name", "thread_name", "conv (Conv2d)", "fc (Linear)", "conv",
                                   "conv2d backward", "conv_weight_grad", "backward", "live memory cpu"}));
  ASSERT_EQ(threads.size(), 1u);
  std::vector<Span> open;
  std::map<std::string, std::string> parents;  // by kind and name
  for (const Span& s : threads.begin()->second) {
    while (!open.empty() && open.back().end <= s.begin) open.pop_back();
    if (!open.empty()) {
      EXPECT_GE(s.begin, open.back().begin) << s.name;
      EXPECT_LE(s.end, open.back().end + 2) << s.name << " in " << open.back().name;
      parents.emplace(s.category + " " + s.name, open.back().category + " " + open.back().name);
    }
    open.push_back(s);
  }
  EXPECT_EQ(parents["kernel conv"], "module conv (Conv2d)");
  EXPECT_EQ(parents["backward conv2d backward"], "user backward");
  EXPECT_EQ(parents["kernel conv_weight_grad"], "backward conv2d backward");
}

TEST(Profiler, KnowsWhenTensorsHeldMost) {
  Profiler profiler;
  const int64_t before = memory_stats().live_bytes;
  {
    auto scope = profiler.record();
    const Tensor large = empty({1 << 20});
    randn({16}) + 1;
  }
  EXPECT_GE(profiler.peak_bytes(), before + (4 << 20));
  EXPECT_LT(profiler.peak_bytes(), before + (5 << 20));
}

TEST(Profiler, SaysWhereItCannotWrite) {
  EXPECT_ERROR(FileError, Profiler().write_trace("/nowhere/trace.json"), "/nowhere/trace.json",
               "No such file");
  EXPECT_THROW(Profiler().write_trace("/dev/full"), FileError);
}

// TraceFile blocks SIGXFSZ, which such a write would raise.
TEST(Profiler, ATraceBeyondTheLimitOfFileSizesIsAnError) {
  const std::string path = testing::TempDir() + "/limited-trace";
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit{4, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_THROW(Profiler().write_trace(path), FileError);
  setrlimit(RLIMIT_FSIZE, &before);
  std::filesystem::remove(path);
}

TEST(Profiler, IsNotDisturbedByASummary) {
  Net net;
  Profiler profiler;
  {
    auto scope = profiler.record();
    EXPECT_GT(nn::summary(net, {1, 3, 8, 8}).forward_flops, 0);
  }
  EXPECT_EQ(profiler.rows().size(), 0u) << profiler.table();
}

}  // namespace
}  // namespace gradus
