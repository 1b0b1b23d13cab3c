// Ranks that are processes: starts this test program again, once per rank, to run one of its functions.
//
//   const RankFunction sums{"sums", [] { init_process_group(...); ...; return 0; }};
//   TEST(Sums, Add) {
//     for (const RankEnd& end : run_processes("sums", 3)) EXPECT_EQ(end.exit_code, 0) << end.output;
//   }
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gradus/distributed/base/deadline.h"

namespace gradus::dist {

// Names a function that ranks can run. Its result, or 3 for an exception, is the process's exit code.
struct RankFunction {
  RankFunction(const std::string& name, std::function<int()> body);
};

// In a rank: its number, and how many there are.
int test_rank();
int test_world();

struct RankEnd {
  int exit_code = -1;
  int signal = 0;
  std::string output;  // stdout and stderr
};

using Variables = std::vector<std::pair<std::string, std::string>>;
struct ProcessOptions {
  std::function<Variables(int rank)> variables;  // of the environment, for each rank
  Milliseconds limit{60'000};                    // then all are killed
};
// Returns when all ranks have ended, in their order.
std::vector<RankEnd> run_processes(const std::string& function, int world,
                                   const ProcessOptions& options = {});

// Options for ranks that call join_job(), with a fresh rendezvous file. `more`: further variables.
ProcessOptions job_options(bool shared_memory, Variables more = {});
// In a rank: initializes the process group of such a job. `nccl`: collectives between GPUs may use NCCL.
void join_job(Milliseconds timeout = Milliseconds(60'000), bool nccl = true);

// Returns an unused path in a temporary folder of this process.
std::string fresh_path(const std::string& name);
// Returns a free TCP port of the loopback interface.
int free_port();

}  // namespace gradus::dist
