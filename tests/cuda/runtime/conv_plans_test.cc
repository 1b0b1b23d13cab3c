// Convolution plans that are measured, saved and loaded, on the emulated cuDNN, which reports the engine that
// ran and takes the time that a test sets. Four of its configurations may run in f32: engine 7 with three
// tile sizes, which the heuristic recommends first, and engine 0. Of gradients it recommends the
// nondeterministic engine 1 before them.
#include "gradus/tensor/cuda/cudnn/conv_plans.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gradus/tensor/cuda/cudnn/conv_choice.h"
#include "gradus/tensor/cuda/cudnn/cudnn.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/images/conv.h"
#include "gradus/tensor/ops/images/conv_benchmark.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_allocator.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/libraries/cudnn.h"
#include "gradus/tools/cuda_emulator/memory.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

const Device kCuda = Device::parse("cuda:0"), kSecond = Device::parse("cuda:1");

constexpr cudnnBackendKnobType_t kTile = CUDNN_KNOB_TYPE_TILE_SIZE;

// An engine as it ran: 0 or 1, or 70, 71, 72 for engine 7 with its tiles.
int64_t number(const cuda::emulated::Configuration& c) {
  if (c.knobs.empty()) return c.engine->index;
  for (const auto& k : c.knobs)
    if (k.type == kTile) return 10 * c.engine->index + k.value;
  return -1;
}
int64_t last_engine() { return number(cuda::emulated::last_executed()); }

// -1, 0 and 1: all sums are exact.
Tensor numbers(const Shape& shape, DType dtype, uint32_t seed) {
  std::vector<float> v(static_cast<size_t>(shape.product()));
  for (float& x : v)
    x = static_cast<float>(static_cast<int>((seed = seed * 1664525u + 1013904223u) >> 24) % 3 - 1);
  return raw::to(tensor(v, shape), dtype);
}
std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

raw::ConvGeometry geometry(int64_t padding = 0) {
  raw::ConvGeometry g;
  g.stride = {1, 1}, g.padding = {padding, padding}, g.dilation = {1, 1};
  return g;
}

struct ConvPlans : testing::Test {
  ConvPlans() { reset(); }
  ~ConvPlans() override {
    reset();
    fs::remove_all(folder);
  }
  void reset() {
    Context::current().deterministic = Context::current().tf32 = false;
    cuda::set_cudnn_benchmark(false);
    cuda::emulated::set_times(nullptr);
    cuda::clear_plans();
  }
  // Makes one engine the fastest.
  void prefer(int64_t engine) {
    cuda::emulated::set_times(
        [=](const cuda::emulated::Configuration& c) { return number(c) == engine ? 1.0 : 1000.0; });
  }
  // A convolution, whose result is right. Returns the engine that ran last.
  int64_t convolve(int64_t columns = 5, Device device = kCuda) {
    const Tensor x = numbers({2, 3, 4, columns}, DType::kF32, 1), w = numbers({4, 3, 3, 3}, DType::kF32, 2);
    const Tensor y = raw::conv("conv2d", raw::to(x, device), raw::to(w, device), {}, geometry(1));
    const int64_t engine = last_engine();
    EXPECT_EQ(values(y), values(raw::conv("conv2d", x, w, {}, geometry(1))));
    return engine;
  }
  // The engines that ran last for the gradients of input and weight, which are right.
  std::vector<int64_t> gradients() {
    const Tensor x = numbers({2, 3, 4, 5}, DType::kF32, 1), w = numbers({4, 3, 3, 3}, DType::kF32, 2);
    const Tensor dy = numbers({2, 4, 4, 5}, DType::kF32, 3), dy_there = raw::to(dy, kCuda);
    const auto g = geometry(1);
    std::vector<int64_t> engines;
    const Tensor dx = raw::conv_input_grad("conv2d", dy_there, raw::to(w, kCuda), {}, x.shape(), g);
    engines.push_back(last_engine());
    const Tensor dw = raw::conv_weight_grad("conv2d", dy_there, raw::to(x, kCuda), w.shape(), false, g).first;
    engines.push_back(last_engine());
    EXPECT_EQ(values(dx), values(raw::conv_input_grad("conv2d", dy, w, {}, x.shape(), g)));
    EXPECT_EQ(values(dw), values(raw::conv_weight_grad("conv2d", dy, x, w.shape(), false, g).first));
    return engines;
  }
  std::string saved() {
    cuda::save_plans(path);
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  void write(const std::string& text) { std::ofstream(path) << text; }
  // A file for the convolution of convolve() with another engine.
  void write_choice(const std::string& engine, const std::string& knobs) {
    convolve();
    const std::string text = saved();
    write(text.substr(0, text.find("engine")) + "engine " + engine + " knobs " + knobs + "\n");
    cuda::clear_plans();
  }
  // The error of loading the file.
  std::string refused() {
    try {
      cuda::load_plans(path);
    } catch (const FileError& e) {
      return e.what();
    }
    return "taken";
  }
  std::vector<std::string> files() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
    return names;
  }

  static fs::path made_folder() {
    std::string name = testing::TempDir() + "/plansXXXXXX";
    return ::mkdtemp(name.data());
  }
  const fs::path folder = made_folder();
  const fs::path path = folder / "plans.txt";
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

TEST_F(ConvPlans, TheHeuristicChoosesAtFirst) {
  EXPECT_FALSE(cuda::uses_cudnn_benchmark());
  prefer(0);
  cuda::emulated::take_calls();
  EXPECT_EQ(convolve(), 70);
  EXPECT_EQ(cuda::emulated::take_calls()["cudnnBackendExecute"], 1);
}

TEST_F(ConvPlans, TheFastestIsChosen) {
  cuda::set_cudnn_benchmark(true);
  EXPECT_TRUE(cuda::uses_cudnn_benchmark());
  for (const int64_t engine : {0, 70, 71, 72}) {
    cuda::clear_plans();
    prefer(engine);
    EXPECT_EQ(convolve(), engine);
  }
}

// A plan that was made without Context::deterministic is not used with it.
TEST_F(ConvPlans, NondeterministicEnginesMayBeForbidden) {
  using Engines = std::vector<int64_t>;
  for (int i = 0; i < 2; ++i) {
    Context::current().deterministic = false;
    EXPECT_EQ(gradients(), (Engines{1, 1}));
    Context::current().deterministic = true;
    EXPECT_EQ(gradients(), (Engines{70, 70}));
  }
  // A forbidden engine is not measured.
  cuda::set_cudnn_benchmark(true);
  Engines ran;
  for (const bool deterministic : {false, true}) {
    Context::current().deterministic = deterministic;
    cuda::clear_plans();
    ran.clear();
    cuda::emulated::set_times([&](const cuda::emulated::Configuration& c) {
      ran.push_back(number(c));
      return number(c) == 1 ? 1.0 : number(c) == 72 ? 10.0 : 1000.0;
    });
    EXPECT_EQ(gradients(), deterministic ? (Engines{72, 72}) : (Engines{1, 1}));
    EXPECT_EQ(std::count(ran.begin(), ran.end(), 1) > 0, !deterministic);
  }
  // A file cannot choose a forbidden engine.
  Context::current().deterministic = false;
  cuda::clear_plans();
  EXPECT_EQ(gradients(), (Engines{1, 1}));
  const std::string text = saved();
  cuda::clear_plans();
  cuda::set_cudnn_benchmark(false);
  write(replaced(text, "deterministic 0", "deterministic 1"));
  EXPECT_EQ(cuda::load_plans(path), 2);
  Context::current().deterministic = true;
  EXPECT_EQ(gradients(), (Engines{70, 70}));
}

// One wait, and none for the same convolution later, also with the benchmark off.
TEST_F(ConvPlans, AreMeasuredOnce) {
  prefer(71);
  const Tensor x = ones({1, 1, 2, 3}, {.device = kCuda}), w = ones({1, 1, 1, 2}, {.device = kCuda});
  const auto run = [&] {
    cuda::HostCallScope calls;
    raw::conv("conv2d", x, w, {}, geometry());
    return calls.total();
  };
  cuda::set_cudnn_benchmark(true);
  cuda::HostCalls calls = run();
  EXPECT_EQ(calls.waits, 1);
  EXPECT_EQ(calls.library_calls, 4 * 4 + 1);  // four runs of four plans, and the op's own
  calls = run();
  EXPECT_EQ(calls.waits, 0);
  EXPECT_EQ(calls.library_calls, 1);
  cuda::set_cudnn_benchmark(false);
  EXPECT_EQ(run().library_calls, 1);
  EXPECT_EQ(last_engine(), 71);
  cuda::set_cudnn_benchmark(true);
  EXPECT_EQ(convolve(), 71);  // another one
}

// The first run of a plan does not count: it loads kernels.
TEST_F(ConvPlans, TheFirstRunDoesNotCount) {
  int64_t runs = 0;
  cuda::emulated::set_times([&](const cuda::emulated::Configuration& c) {
    if (number(c) != 0) return 2.0;
    return ++runs == 1 ? 5000.0 : runs == 2 ? 3000.0 : 1.0;  // nor does a slow later run
  });
  cuda::set_cudnn_benchmark(true);
  EXPECT_EQ(convolve(), 0);
  cuda::clear_plans();
  runs = 0;
  cuda::emulated::set_times([&](const cuda::emulated::Configuration& c) {
    return number(c) == 0 && ++runs == 1 ? 1e-6 : number(c) == 0 ? 3000.0 : 1000.0;
  });
  EXPECT_NE(convolve(), 0);
}

// Each measured plan writes the result; the chosen one runs last.
TEST_F(ConvPlans, MeasuredOnesGiveTheSameNumbers) {
  cuda::set_cudnn_benchmark(true);
  internal::DeviceAllocator::of(kCuda).disable_caching(true);
  for (const DType t : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    const Tensor x = numbers({2, 3, 5, 6}, t, 1), w = numbers({4, 3, 3, 3}, t, 2), b = numbers({4}, t, 3);
    const Tensor dy = numbers({2, 4, 3, 4}, t, 4);
    const auto all = [&](Device d) {
      const Tensor xd = raw::to(x, d), wd = raw::to(w, d), bd = raw::to(b, d), dyd = raw::to(dy, d);
      const auto [dw, db] = raw::conv_weight_grad("conv2d", dyd, xd, w.shape(), true, geometry());
      return std::vector{values(raw::conv("conv2d", xd, wd, bd, geometry())),
                         values(raw::conv_input_grad("conv2d", dyd, wd, {}, x.shape(), geometry())),
                         values(dw), values(db)};
    };
    const auto want = all(kCPU);
    for (const int64_t engine : {0, 6, 70, 72}) {
      cuda::clear_plans();
      prefer(engine);
      EXPECT_EQ(all(kCuda), want) << name_of(t) << ' ' << engine;
    }
  }
  internal::DeviceAllocator::of(kCuda).disable_caching(false);
}

// Engines that may not run are not measured.
TEST_F(ConvPlans, WhatMayNotRunIsNotMeasured) {
  std::vector<int64_t> ran;
  cuda::emulated::set_times([&](const cuda::emulated::Configuration& c) {
    ran.push_back(number(c));
    return 1.0;
  });
  cuda::set_cudnn_benchmark(true);
  convolve();
  for (const int64_t engine : ran) EXPECT_TRUE(engine == 0 || engine >= 70) << engine;
  ran.clear();
  Context::current().tf32 = true;
  convolve();
  bool rounds = false;
  for (const int64_t engine : ran) {
    EXPECT_TRUE(engine == 0 || engine == 6 || engine >= 70) << engine;
    rounds = rounds || engine == 6;
  }
  EXPECT_TRUE(rounds);
}

TEST_F(ConvPlans, WhatFailsIsLeftOut) {
  cuda::set_cudnn_benchmark(true);
  prefer(70);
  cuda::emulated::fail_call_of("cudnnBackendExecute", 2, CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_NE(convolve(), 70);
  // No memory for the workspace of the first plan: another one runs.
  cuda::clear_plans();
  internal::DeviceAllocator::of(kCuda).disable_caching(true);
  const Tensor x = ones({1, 1, 2, 3}, {.device = kCuda}), w = ones({1, 1, 1, 2}, {.device = kCuda});
  cuda::emulated::fail_call_of("cudaMalloc", 2, cudaErrorMemoryAllocation, 2);
  EXPECT_EQ(values(raw::conv("conv2d", x, w, {}, geometry())), std::vector<double>(4, 2));
  EXPECT_NE(last_engine(), 70);
  EXPECT_GE(last_engine(), 0);
  // Every measurement fails.
  cuda::clear_plans();
  cuda::emulated::fail_call_of("cudaEventRecord", 0, cudaErrorInvalidValue, 4);
  EXPECT_EQ(values(raw::conv("conv2d", x, w, {}, geometry())), std::vector<double>(4, 2));
  EXPECT_EQ(last_engine(), 70) << "the heuristic's";
  internal::DeviceAllocator::of(kCuda).disable_caching(false);
  cuda::emulated::fail_call(-1, cudaSuccess);
}

TEST_F(ConvPlans, ComeBackFromAFile) {
  cuda::set_cudnn_benchmark(true);
  for (const int64_t engine : {0, 71, 72}) {
    cuda::clear_plans();
    prefer(engine);
    EXPECT_EQ(convolve(), engine);
    EXPECT_EQ(convolve(6), engine);
    const std::string text = saved();
    EXPECT_EQ(cuda::save_plans(path), 2);
    cuda::clear_plans();
    EXPECT_EQ(cuda::save_plans(folder / "none.txt"), 0);
    cuda::emulated::take_calls();
    prefer(70);
    EXPECT_EQ(cuda::load_plans(path), 2);
    EXPECT_EQ(convolve(), engine);
    EXPECT_EQ(convolve(6), engine);
    EXPECT_EQ(cuda::emulated::take_calls()["cudnnBackendExecute"], 2) << "measured again";
    EXPECT_EQ(saved(), text);
    EXPECT_EQ(cuda::load_plans(folder / "none.txt"), 0);
    EXPECT_EQ(convolve(), engine);
  }
}

// A file also replaces plans that were made already.
TEST_F(ConvPlans, AFileReplacesWhatWasChosen) {
  write_choice("0", "0");
  EXPECT_EQ(convolve(), 70);
  EXPECT_EQ(cuda::load_plans(path), 1);
  EXPECT_EQ(convolve(), 0);
  cuda::clear_plans();
  EXPECT_EQ(convolve(), 70);
}

// More plans than the cache keeps (1024).
TEST_F(ConvPlans, APlanThatWasDroppedIsMadeAgainTheSame) {
  prefer(0);
  cuda::set_cudnn_benchmark(true);
  EXPECT_EQ(convolve(), 0);
  cuda::set_cudnn_benchmark(false);
  const Tensor w = ones({1, 1, 1, 2}, {.device = kCuda});
  for (int64_t columns = 2; columns <= 1025; ++columns)
    raw::conv("conv2d", ones({1, 1, 1, columns}, {.device = kCuda}), w, {}, geometry());
  cuda::emulated::take_calls();
  EXPECT_EQ(convolve(), 0);
  const auto calls = cuda::emulated::take_calls();
  EXPECT_GT(calls.at("cudnnBackendFinalize"), 5) << "the plan was there";
}

// The second device uses the choice measured on the first.
TEST_F(ConvPlans, DevicesOfOneModelShareChoices) {
  cuda::set_cudnn_benchmark(true);
  prefer(72);
  EXPECT_EQ(convolve(), 72);
  prefer(0);
  EXPECT_EQ(convolve(5, kSecond), 72);
  EXPECT_EQ(cuda::save_plans(path), 1);
}

// A file names an engine that the library refuses or that may not run: the heuristic's runs instead.
TEST_F(ConvPlans, AFileCannotChooseWhatMayNotRun) {
  struct Wrong {
    const char *engine, *knobs, *why;
  };
  for (const Wrong& wrong : {Wrong{"1", "0", "is for gradients"},
                             {"2", "0", "rounds sums"},
                             {"3", "0", "rounds operands"},
                             {"4", "0", "compiles"},
                             {"5", "0", "has no plan"},
                             {"6", "0", "tensor cores without tf32"},
                             {"8", "0", "more than 1 GiB of workspace"},
                             {"99", "0", "does not exist"},
                             {"2147483648", "0", "does not exist"},
                             {"7", "1 2 4", "a knob beyond its range"},
                             {"7", "1 2 -1", "a knob below its range"},
                             {"7", "2 2 1 2 1", "a knob twice"},
                             {"7", "1 43 0", "a knob of other engines"},
                             {"7", "1 63 0", "a knob of none"},
                             {"0", "1 2 1", "a knob of another engine"}}) {
    write_choice(wrong.engine, wrong.knobs);
    EXPECT_EQ(cuda::load_plans(path), 1);
    EXPECT_EQ(convolve(), 70) << wrong.why;
    EXPECT_NE(saved().find("engine 7 knobs 2 2 0 14 4"), std::string::npos) << saved();
    cuda::clear_plans();
  }
  // Where f32 may be rounded, tensor cores may run.
  Context::current().tf32 = true;
  EXPECT_EQ(convolve(), 6);
  const std::string text = saved();
  cuda::clear_plans();
  write(replaced(text, "tf32 1", "tf32 0"));
  EXPECT_EQ(cuda::load_plans(path), 1);
  EXPECT_EQ(convolve(), 6);
  Context::current().tf32 = false;
  EXPECT_EQ(convolve(), 70);
}

// An unrelated failure does not drop the choice.
TEST_F(ConvPlans, AChoiceOutlivesAFailure) {
  write_choice("0", "0");
  cuda::load_plans(path);
  cuda::emulated::fail_call_of("cudnnBackendCreateDescriptor", 8, CUDNN_STATUS_INTERNAL_ERROR);
  EXPECT_THROW(convolve(), cuda::CudnnError);
  cuda::emulated::fail_call(-1, cudaSuccess);
  EXPECT_EQ(convolve(), 0);
}

TEST_F(ConvPlans, AFileOfAnotherLibraryOrDeviceIsRefused) {
  write_choice("0", "0");
  cuda::load_plans(path);
  const std::string good = saved(), device = cuda::model_of(kCuda).name;
  write(replaced(good, "91900", "91800"));
  EXPECT_EQ(refused(), "[load_plans] " + path.string() + ": expected plans for cuDNN 91900 on " + device +
                           " (9.0), got plans for cuDNN 91800 on " + device + " (9.0)");
  write(replaced(good, device, "other"));
  EXPECT_NE(refused().find("got plans for cuDNN 91900 on other (9.0)"), std::string::npos) << refused();
  write(replaced(good, "device 9 0", "device 8 0"));
  EXPECT_NE(refused().find("(8.0)"), std::string::npos) << refused();
  EXPECT_EQ(convolve(), 0) << "what was kept stays";
  cuda::clear_plans();
  EXPECT_EQ(convolve(), 70);
}

TEST_F(ConvPlans, WrongFilesAreRefused) {
  EXPECT_NE(refused().find(path.string() + ": cannot be read"), std::string::npos) << refused();
  write("{");
  EXPECT_NE(refused().find("line 1 is not"), std::string::npos) << refused();
  write(std::string((16 << 20) + 1, ' '));
  EXPECT_NE(refused().find("expected at most 16777216 bytes"), std::string::npos) << refused();
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(refused().find("expected a regular file"), std::string::npos) << refused();
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_NE(refused().find("expected a regular file"), std::string::npos) << refused();
  EXPECT_THROW(cuda::save_plans(path), FileError);
  EXPECT_THROW(cuda::save_plans(folder / "none" / "plans.txt"), FileError);
  EXPECT_EQ(files(), std::vector<std::string>{"plans.txt"}) << "nothing is left over";
}

// A file is replaced as a whole; a link is replaced, and not what it leads to.
TEST_F(ConvPlans, AFileIsReplaced) {
  convolve();
  std::ofstream(folder / "other") << "other";
  fs::create_symlink(folder / "other", path);
  EXPECT_EQ(cuda::save_plans(path), 1);
  EXPECT_FALSE(fs::is_symlink(path));
  EXPECT_EQ(fs::file_size(folder / "other"), 5u);
  EXPECT_EQ(cuda::load_plans(path), 1);
  EXPECT_EQ(cuda::save_plans(path), 1);
  EXPECT_EQ(files().size(), 2u);
}

// What training programs call, with a folder in the user's cache.
TEST_F(ConvPlans, AFolderHasAFileOfEachModel) {
  const fs::path cache = folder / "new" / "cache";
  raw::conv_benchmark.load(cache, kCuda);
  raw::conv_benchmark.save(cache, kCuda);
  EXPECT_FALSE(fs::exists(cache)) << "no convolution has run";
  raw::conv_benchmark.enable(true);
  prefer(71);
  EXPECT_EQ(convolve(), 71);
  raw::conv_benchmark.save(cache, kCuda);
  const fs::path file = cache / "Gradus_emulated_device_cudnn91900.txt";
  ASSERT_TRUE(fs::exists(file));
  cuda::clear_plans();
  prefer(0);
  raw::conv_benchmark.load(cache, kCuda);
  EXPECT_EQ(convolve(), 71);
  raw::conv_benchmark.enable(false);
  EXPECT_FALSE(cuda::uses_cudnn_benchmark());
  std::ofstream(file) << "other";
  EXPECT_THROW(raw::conv_benchmark.load(cache, kCuda), FileError);
  raw::conv_benchmark.save(cache, kCuda);
  EXPECT_EQ(cuda::load_plans(file), 1) << "replaced";
  write("not a folder");
  EXPECT_THROW(raw::conv_benchmark.save(path, kCuda), FileError);
}

TEST_F(ConvPlans, ThreadsMeasureOnce) {
  cuda::set_cudnn_benchmark(true);
  prefer(72);
  const Tensor x = ones({1, 1, 2, 3}, {.device = kCuda}), w = ones({1, 1, 1, 2}, {.device = kCuda});
  synchronize(kCuda);
  cuda::emulated::take_calls();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back(
        [&] { EXPECT_EQ(values(raw::conv("conv2d", x, w, {}, geometry())), std::vector<double>(4, 2)); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(cuda::emulated::take_calls()["cudnnBackendExecute"], 4 * 4 + 4);
  EXPECT_EQ(last_engine(), 72);
}

// Choices are loaded, forgotten and saved while threads compute by them.
TEST_F(ConvPlans, ThreadsMayChangeThem) {
  write_choice("0", "0");
  cuda::set_cudnn_benchmark(true);
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      while (!done) convolve(5 + i);
    });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(cuda::load_plans(path), 1);
    cuda::save_plans(folder / "another.txt");
    if (i % 2) cuda::clear_plans();
  }
  cuda::load_plans(path);
  done = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(convolve(), 0);
}

}  // namespace
}  // namespace gradus
