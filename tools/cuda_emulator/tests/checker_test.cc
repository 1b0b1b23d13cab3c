// Tests that the checker finds each fault of planted.h in 20 orders of threads, and none in correct kernels;
// and the form of reports.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tools/cuda_emulator/counters.h"
#include "gradus/tools/cuda_emulator/order.h"
#include "planted.h"

namespace {

using namespace gradus::cuda::emulated;  // NOLINT

constexpr uint64_t kSeeds = 20;

TEST(Checker, FindsEachFaultInEveryOrderAndNothingElse) {
  for (const planted::Case& c : planted::cases()) {
    SCOPED_TRACE(c.name);
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      set_seed(seed);
      FaultScope faults;
      const bool right = c.run();
      const std::vector<Fault> found = faults.take();
      if (!c.fault) {
        EXPECT_TRUE(right) << "seed " << seed;
        EXPECT_TRUE(found.empty()) << found[0].text;
        continue;
      }
      ASSERT_EQ(found.size(), 1u) << "seed " << seed;
      // In some orders the racing read comes first, and reads uninitialized memory.
      if (c.fault == FaultKind::kRace && found[0].kind == FaultKind::kUnwritten) continue;
      EXPECT_EQ(found[0].kind, *c.fault) << found[0].text;
      EXPECT_NE(found[0].text.find(c.says), std::string::npos) << found[0].text;
    }
  }
}

const char* const kFaulty = "blocks write one place";

// Aborts with a report. Runs only in the child processes of the next test.
TEST(Report, EndsAProgram) {
  if (!std::getenv("GRADUS_TEST_REPORTS")) GTEST_SKIP() << "ends the program";
  const gradus::OpCall call("conv2d");  // whose memory it is
  for (const planted::Case& c : planted::cases())
    if (c.name == kFaulty) c.run();
}

// Returns the report of a process that runs kFaulty with a seed.
std::string report_with_seed(const std::string& seed) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "GRADUS_TEST_REPORTS=1 GRADUS_EMULATED_SEED=" + seed + " '" + program +
                              "' --gtest_filter=Report.EndsAProgram 2>&1";
  std::FILE* const output = popen(command.c_str(), "r");
  std::string text;
  for (char line[4096]; std::fgets(line, sizeof line, output);) text += line;
  pclose(output);
  const size_t begin = text.find("gradus emulated device: ");
  return begin == std::string::npos ? "no report: " + text : text.substr(begin);
}

TEST(Report, HasAllThatFindsTheFaultAndItsSeedRepeatsIt) {
  const std::regex expected(
      "gradus emulated device: a race: [^\n]*block \\d+, thread \\d+[^\n]*\n"
      "  at \\S*(cuda_emulator/tests/planted\\.cu\\.cc):(\\d+), block (\\d+), thread (\\d+)\n"
      "  op (\\w+), kernel [^\n]*one_place\\(float\\*\\), 2 blocks of 1 threads, 0 bytes of shared memory, "
      "device 0\n"
      "  memory device 0, allocation \\d+ of 4 bytes for conv2d, byte 0\n"
      "  repeat with GRADUS_EMULATED_SEED=(\\d+)\n[^]*");
  std::vector<std::string> source(1);  // lines are counted from 1
  std::ifstream file("tools/cuda_emulator/tests/planted.cu.cc");
  for (std::string line; std::getline(file, line);) source.push_back(line);
  std::set<std::string> blocks;
  for (int seed = 1; seed <= 8; ++seed) {
    const std::string text = report_with_seed(std::to_string(seed));
    std::smatch parts;
    ASSERT_TRUE(std::regex_match(text, parts, expected)) << text;
    const size_t line = std::stoul(parts[2]);
    ASSERT_LT(line, source.size());
    EXPECT_NE(source[line].find("y[0] = float(blockIdx.x)"), std::string::npos) << source[line];
    EXPECT_EQ(report_with_seed(parts[6]), text);
    blocks.insert(parts[3]);
  }
  EXPECT_GT(blocks.size(), 1u) << "the test would not notice another order";
}

TEST(Launch, OutOfLimitsIsAnErrorThatNamesTheOp) {
  planted::launch_nothing(1, 1024, 232448);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (const auto& [blocks, threads, bytes] :
       {std::array<int64_t, 3>{0, 1, 0}, {1, 1025, 0}, {1, 0, 0}, {1, 1, 232449}}) {
    try {
      planted::launch_nothing(blocks, static_cast<int>(threads), bytes);
      ADD_FAILURE() << blocks << " blocks, " << threads << " threads, " << bytes << " bytes";
    } catch (const gradus::cuda::CudaError& e) {
      EXPECT_EQ(e.status, cudaErrorInvalidValue);
      EXPECT_STREQ(e.what(), "[planted] launch failed on cuda:0: invalid argument (cudaErrorInvalidValue)");
    }
  }
  cudaGetLastError();
}

}  // namespace
