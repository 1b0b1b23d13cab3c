// Random faults of data-parallel training on emulated GPUs (rank_fault.h), many times over. Prints a line for each
// fault after which a rank did not end as it must, and a summary. Exit status: 0 if there was no such fault, else 1.
//
//   tools/gpu-rank-faults.sh                                    500 faults
//   tools/gpu-rank-faults.sh --faults 1 --seed 17               repeats the one of seed 17
//   tools/gpu-rank-faults.sh --fault "nccl kill hook rank=2"    this one
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <random>
#include <vector>

#include "gradus/tests/cuda/ranks/rank_fault.h"

using namespace gradus::dist;

namespace {

RankFault random_fault(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  RankFault f{.point = Point::kAny, .way = Way::kKill, .rank = int(one_of(0, kRanks - 1)), .seed = seed};
  f.by_nccl = one_of(0, 1) != 0;
  f.rank_0_has_store = one_of(0, 3) == 0;
  f.step = int(one_of(0, kSteps - 1));
  if (one_of(0, 5) == 0) f.second = (f.rank + int(one_of(1, kRanks - 1))) % kRanks;
  const int64_t kind = one_of(0, 9);
  if (kind < 3) {
    f.count = one_of(0, 150'000);
    if (one_of(0, 3) == 0) f.way = one_of(0, 1) ? Way::kStop : Way::kPause;
  } else if (kind < 5) {
    f.point = Point::kCall;
    f.way = Way(one_of(int(Way::kSkip), int(Way::kOnHost)));
  } else if (kind == 5) {
    struct Call {
      const char* function;
      std::vector<int> statuses;
      int64_t max_count;
    };
    const std::vector<int> of_nccl = {ncclUnhandledCudaError, ncclSystemError, ncclInternalError,
                                      ncclRemoteError};
    const Call calls[] = {{"ncclAllReduce", of_nccl, 20},
                          {"ncclBroadcast", of_nccl, 20},
                          {"ncclAllGather", of_nccl, 10},
                          {"ncclReduceScatter", of_nccl, 3},
                          {"ncclCommInitRankConfig", of_nccl, 2},
                          {"ncclGetUniqueId", of_nccl, 1},
                          {"ncclCommFinalize", of_nccl, 1},
                          {"cudaEventRecord", {cudaErrorUnknown}, 200},
                          {"cudaStreamWaitEvent", {cudaErrorUnknown}, 100},
                          {"cudaMemcpyAsync", {cudaErrorUnknown}, 100},
                          {"cudaEventQuery", {cudaErrorUnknown}, 300}};
    const Call& call = calls[one_of(0, int64_t(std::size(calls)) - 1)];
    f.point = Point::kLibraryCall;
    f.way = Way::kLibraryError;
    f.function = call.function;
    f.status = call.statuses[size_t(one_of(0, int64_t(call.statuses.size()) - 1))];
    f.count = one_of(0, call.max_count);
  } else {
    f.point = Point(one_of(int(Point::kInit), int(Point::kLeaving)));
    f.way = Way(one_of(int(Way::kKill), int(Way::kLoseDevice)));
    if (f.point == Point::kHook) {
      f.count = one_of(0, 5);
      if (f.way == Way::kReturn) f.way = Way::kExit;  // a hook cannot return from main()
    }
  }
  return f;
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto code = run_as_rank(argc, argv)) return *code;
  int faults = 500, happened = 0, right = 0;
  uint64_t seed = 1;
  std::string one;
  CLI::App app{"Lets ranks that train on emulated GPUs fail, many times over"};
  app.add_option("--faults", faults, "their number")->capture_default_str()->check(CLI::Range(1, 1'000'000));
  app.add_option("--seed", seed, "of the first fault; the next one's is one more")->capture_default_str();
  app.add_option("--fault", one, "this fault, as failures print it");
  CLI11_PARSE(app, argc, argv);
  if (!one.empty()) faults = 1;
  for (int i = 0; i < faults; ++i, ++seed) {
    const RankFault fault = one.empty() ? random_fault(seed) : parse_fault(one);
    const FaultReport report = run_fault(fault);
    happened += report.has_happened;
    right += report.wrong.empty();
    if (report.wrong.empty()) continue;
    std::printf("--seed %llu: %s\n", static_cast<unsigned long long>(seed), describe(fault).c_str());
    for (const std::string& w : report.wrong) std::printf("  %s\n", w.c_str());
    std::fflush(stdout);
  }
  std::printf("%d faults (%d happened before the training ended): %d ended as they must\n", faults, happened,
              right);
  return right == faults ? 0 : 1;
}
