// examples/ddp as a process. The program itself checks its results; here: that it ends well with processes or
// threads as ranks and under gradus-run, and prints all demonstrations. Exit code 2: bad option.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace gradus {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Result {
  int status = -1;
  std::string output;
};

Result run(const std::string& command) {
  Result r;
  FILE* program = popen((command + " 2>&1").c_str(), "r");
  if (!program) throw std::runtime_error("popen");
  char buffer[4096];
  while (size_t n = fread(buffer, 1, sizeof buffer, program)) r.output.append(buffer, n);
  const int status = pclose(program);
  r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return r;
}

const std::string kProgram = "examples/ddp";

void expect_all_shown(const Result& r) {
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("All results are right on all ranks."));
  for (const char* name :
       {"all_reduce, sum",
        "reduce:", "broadcast:", "scatter:", "gather:", "all_gather:", "reduce_scatter:", "all_to_all:",
        "barrier:", "broadcast_object:", "groups:", "send and recv:", "tags:", "ring all-reduce",
        "DistributedDataParallel:", "checkpoint:", "model parallel:", "remote_send and remote_recv:"})
    EXPECT_THAT(r.output, HasSubstr(name));
}

TEST(DdpProgram, RanksAreProcesses) {
  const Result r = run(kProgram + " --nproc 3");
  expect_all_shown(r);
  EXPECT_THAT(r.output, HasSubstr("3 ranks, backend gloo"));
  EXPECT_THAT(r.output, HasSubstr("  rank 0   [0 1 2]      ->   [30 33 36]\n"));
  EXPECT_THAT(r.output, HasSubstr("  rank 2   [20 21 22]   ->   [30 33 36]\n"));
}

TEST(DdpProgram, RanksAreThreads) {
  const Result r = run(kProgram + " --nproc 4 --backend local");
  expect_all_shown(r);
  EXPECT_THAT(r.output, HasSubstr("4 ranks, backend local"));
}

TEST(DdpProgram, RunsUnchangedUnderGradusRun) {
  const Result r = run("distributed/launch/gradus-run --nproc-per-node 2 " + kProgram);
  expect_all_shown(r);
  EXPECT_THAT(r.output, HasSubstr("2 ranks, backend gloo"));
}

TEST(DdpProgram, OneRankNeedsNoOthers) {
  const Result r = run(kProgram + " --nproc 1");
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("All results are right on all ranks."));
}

TEST(DdpProgram, OneDemonstrationAlone) {
  const Result r = run(kProgram + " --nproc 2 --only ring");
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("ring all-reduce"));
  EXPECT_THAT(r.output, Not(HasSubstr("broadcast:")));
}

// Returns the two numbers of each line below the title: "  rank 1   0.9   ->   0.5".
std::vector<std::pair<double, double>> numbers_below(const std::string& title, const std::string& output) {
  std::vector<std::pair<double, double>> all;
  const size_t at = output.find(title);
  if (at == std::string::npos) return all;
  std::istringstream lines(output.substr(at));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line.starts_with("  rank ")) {
    std::istringstream words(line.substr(7));
    int rank = 0;
    std::string arrow;
    std::pair<double, double> numbers;
    words >> rank >> numbers.first >> arrow >> numbers.second;
    all.push_back(numbers);
  }
  return all;
}

TEST(DdpProgram, TrainsAToyModel) {
  const Result r = run(kProgram + " --nproc 2 --only basic");
  EXPECT_EQ(r.status, 0) << r.output;
  const auto weights = numbers_below("DistributedDataParallel: all ranks start", r.output);
  ASSERT_EQ(weights.size(), 2u) << r.output;
  EXPECT_NE(weights[1].first, weights[0].first);
  EXPECT_EQ(weights[1].second, weights[0].first);
  const auto losses = numbers_below("the loss of each rank's own samples", r.output);
  ASSERT_EQ(losses.size(), 2u);
  for (const auto& [before, after] : losses) EXPECT_LT(after, 0.9 * before);
  EXPECT_THAT(r.output, HasSubstr("  rank 1   the largest difference   ->   within rounding\n"));
}

TEST(DdpProgram, GoesOnFromACheckpointOfRankZero) {
  const Result r = run(kProgram + " --nproc 2 --only checkpoint");
  EXPECT_EQ(r.status, 0) << r.output;
  const auto losses = numbers_below("checkpoint:", r.output);
  ASSERT_EQ(losses.size(), 2u) << r.output;
  for (const auto& [straight, resumed] : losses) EXPECT_EQ(resumed, straight);
}

TEST(DdpProgram, TrainsAModelOnTwoDevicesOfEachRank) {
  const Result r = run(kProgram + " --nproc 2 --only model-parallel");
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_THAT(r.output, HasSubstr("  rank 1   cpu   ->   cpu:1 and cpu:2\n"));
  const auto losses = numbers_below("the loss of each rank's own samples", r.output);
  ASSERT_EQ(losses.size(), 2u);
  for (const auto& [before, after] : losses) EXPECT_LT(after, before);
}

TEST(DdpProgram, TrainsALayerOnEachOfTwoRanks) {
  for (const char* backend : {"gloo", "local"}) {
    const Result r = run(kProgram + " --nproc 3 --only remote --backend " + backend);
    EXPECT_EQ(r.status, 0) << r.output;
    for (const char* title : {"remote_send and remote_recv:", "the same in 4 micro-batches"}) {
      const size_t at = r.output.find(title);
      ASSERT_NE(at, std::string::npos) << r.output;
      EXPECT_THAT(r.output.substr(at),
                  HasSubstr("  rank 1   the largest difference   ->   within rounding\n"));
    }
  }
}

TEST(DdpProgram, MistakesGiveAStatus) {
  EXPECT_EQ(run(kProgram + " --nproc none").status, 2);
  EXPECT_EQ(run(kProgram + " --backend smoke-signals").status, 2);
  EXPECT_EQ(run(kProgram + " --only painting").status, 2);
}

}  // namespace
}  // namespace gradus
