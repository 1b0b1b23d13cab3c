// The program of the ranks of rendezvous_test and stalls_test. `collectives` checks every collective. `reduce
// TIMEOUT` (ms) all-reduces until that fails. With `stall HOW`, rank 3 of 4 does not make the call that the
// others wait for. Exit status: 0, 1 for an error or a wrong result, 2 for unknown arguments.
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <thread>

#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/distributed/group/collective_cases.h"

namespace gradus::dist {
namespace {

void say(const std::string& line) { std::cout << line + '\n' << std::flush; }

int check_collectives() {
  init_process_group({.timeout = Milliseconds(60'000)});
  int wrong = 0;
  // One dtype of each kind; collectives_test covers the others.
  for (const CollectiveCase& one : collective_cases({.dtypes = {DType::kF32, DType::kBF16, DType::kI64}})) {
    const std::string text = one.run();
    if (text.empty()) continue;
    say(concat("rank ", get_rank(), ": ", one.op, ' ', one.name, ": ", text));
    ++wrong;
  }
  say(concat("finished on local rank ", get_local_rank(), " of ", get_local_world_size()));
  destroy_process_group();
  return wrong ? 1 : 0;
}

// Writes the file $STARTED after four calls. Prints the error and its time (ms of the steady clock).
int reduce_until_failure(Milliseconds timeout) {
  init_process_group({.timeout = timeout, .init_timeout = Milliseconds(30'000)});
  try {
    for (int i = 0;; ++i) {
      const Tensor x = ones({100'000});
      all_reduce(x);
      if (i == 3) std::ofstream(std::getenv("STARTED")) << "yes";
    }
  } catch (const DistributedError& error) {
    const auto when = std::chrono::steady_clock::now().time_since_epoch() / Milliseconds(1);
    const char* kind = dynamic_cast<const TimeoutError*>(&error) ? "TimeoutError"
                       : dynamic_cast<const PeerError*>(&error)  ? "PeerError"
                                                                 : "DistributedError";
    say(concat("failed ", when, ' ', kind, ' ', error.what()));
  }
  return 0;
}

// Rank 2 waits for rank 3 in an all_reduce of their half; ranks 0 and 1 wait for both in a barrier. Rank 3 is
// in another call, receives, computes, or goes on to the barrier. Each rank prints the rank that its error
// names.
int stall(const std::string& how) {
  init_process_group({.timeout = Milliseconds(2'000), .init_timeout = Milliseconds(30'000)});
  const Milliseconds long_time{60'000};
  const int rank = get_rank();
  const Group never = world().duplicate(), half = world().split(rank / 2);
  const Tensor x = ones({4});
  try {
    barrier();
    if (rank == 3) {
      if (how == "elsewhere") all_reduce(x, {.group = never, .timeout = long_time});
      if (how == "receives") recv(x, {.src = 0, .timeout = long_time});
      // Until the job has failed.
      for (int i = 0; how == "computes"; ++i) {
        get_client().user_set("i", i);
        std::this_thread::sleep_for(Milliseconds(20));
      }
    }
    if (rank < 3 || how != "goes-on") all_reduce(x, {.group = half});
    barrier();
  } catch (const DistributedError& error) {
    const std::string text = error.what();
    say(concat("rank ", rank, " blames ", error.rank(), ": ", text.substr(0, text.find('\n'))));
  }
  return 0;
}

}  // namespace
}  // namespace gradus::dist

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "collectives") return gradus::dist::check_collectives();
    if (what == "reduce" && argc > 2)
      return gradus::dist::reduce_until_failure(gradus::dist::Milliseconds(std::stoi(argv[2])));
    if (what == "stall" && argc > 2) return gradus::dist::stall(argv[2]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
  return 2;
}
