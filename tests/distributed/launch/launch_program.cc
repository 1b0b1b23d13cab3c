// The program that launcher_test runs: launch_program KIND [ARGUMENT]. Each KIND is a scenario of
// dist::launcher or dist::launch; the test compares the exit status, the output and the remaining processes.
//
// The launcher starts this program again for every rank, with the same arguments, so main also runs in every
// rank. With the backend "local", ranks are threads. Exit status: the job's if launcher is called, 0 after
// launch, 2 for an unknown KIND, 3, 4 or 9 if the results of launch are not as expected.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <numeric>
#include <thread>

#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/launch/launcher.h"
#include "gradus/distributed/launch/spawn.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/parallel.h"

using namespace gradus;
using namespace gradus::dist;

namespace {

// All-reduces rank + 1 over the job, which needs all ranks. Returns the rank, and the sum in `sum`.
int rank_and_sum(int64_t* sum = nullptr) {
  Tensor x = full({3}, get_rank() + 1, {.dtype = DType::kI64});
  all_reduce(x);
  if (sum) *sum = x.data<int64_t>()[0];
  return get_rank();
}

template <class T> void print(const char* what, const std::vector<T>& values) {
  std::cout << what;
  for (const T& v : values) std::cout << ' ' << v;
  std::cout << std::endl;
}

// Prints 100 * rank + sum of all n ranks. Rank 0 ends last, although its result comes first.
int order(int n, const std::string& backend) {
  print("results", launch<int64_t>({.nproc_per_node = n, .backend = backend}, [] {
          int64_t sum = 0;
          const int rank = rank_and_sum(&sum);
          std::this_thread::sleep_for(std::chrono::milliseconds(rank == 0 ? 50 : 0));
          return 100 * rank + sum;
        }));
  return 0;
}

// Results of 90 MiB, which exceed the 64 MiB that the store allows for one value.
int large() {
  const auto results = launch<std::pair<std::string, Tensor>>({.nproc_per_node = 2}, [] {
    const size_t size = (90 << 20) + size_t(get_rank());
    return std::pair(std::string(size, char('a' + get_rank())), full({1000}, get_rank()));
  });
  for (size_t i = 0; i < results.size(); ++i) {
    const auto& [text, tensor] = results[i];
    if (text != std::string((90 << 20) + i, char('a' + i))) return 3;
    if (tensor.size(0) != 1000 || tensor.data<float>()[999] != float(i)) return 4;
  }
  std::cout << "all there" << std::endl;
  return 0;
}

// Five calls in one program. The ranks of the last call get the results of the earlier calls, without running
// their functions.
int several() {
  const std::vector<int> first = launch<int>({.nproc_per_node = 2}, [] { return rank_and_sum() + 1; });
  const int status = launcher({.nproc_per_node = 3}, [] { rank_and_sum(); });
  int failed = 0;
  try {
    launch<int>({.nproc_per_node = 2}, []() -> int { throw ValueError("first", "no"); });
  } catch (const LaunchError&) {
    failed = 1;
  }
  const std::vector<int> local =
      launch<int>({.nproc_per_node = 2, .backend = "local"}, [] { return get_rank() + 7; });
  // In the ranks of this call, the variables below have the launcher's values.
  print("last", launch<int>({.nproc_per_node = 2}, [&] {
          return 1000 * failed + 100 * status + 10 * (first[0] + first[1]) + local[1] + rank_and_sum();
        }));
  return 0;
}

// All ranks leave the job regularly and end at about the same time. argument, "8 barrier": the number of
// ranks to launch (0: this process is a rank that another launcher started), and how the ranks leave: destroy
// (the process group), barrier, or return.
int ends_in_order(const std::string& argument) {
  const size_t space = argument.find(' ');
  const int ranks = std::stoi(argument.substr(0, space));
  const std::string how = argument.substr(space + 1);
  const auto body = [&how] {
    if (how == "destroy") return destroy_process_group();
    rank_and_sum();
    if (how == "barrier") group_barrier();
  };
  if (ranks > 0) return launcher({.nproc_per_node = ranks}, body);
  init_process_group();
  body();
  return 0;
}

[[gnu::noinline]] void write_to(volatile int* p) { *p = 1; }
[[gnu::noinline]] void crash_here(int* p) {
  write_to(p);
  std::cerr << "crashed" << std::endl;  // so that this frame stays
}
char recurse(volatile bool* forever) {
  volatile char frame[4096] = {};
  if (*forever) frame[1] = recurse(forever);
  return frame[1];
}
void overflow() {
  volatile bool forever = true;
  recurse(&forever);
}
struct Stops {
  ~Stops() { throw_here(); }
  [[gnu::noinline]] static void throw_here() { throw StateError("thread", "of its own"); }
};

// Rank 1 of 3 ends as `how` names, while the other ranks wait for it in a collective.
int ends(const std::string& how) {
  if (how == "earlier handler") signal(SIGSEGV, [](int) { _exit(7); });
  return launcher({.nproc_per_node = 3}, [&] {
    rank_and_sum();
    if (get_rank() == 1) {
      if (how == "throw") throw ShapeError("matmul", "inner sizes 3 and 4 differ");
      if (how == "throw-int") throw 3;
      if (how == "exit") std::exit(3);
      if (how == "exit0") std::exit(0);
      if (how == "_exit0") _exit(0);
      if (how == "kill") kill(getpid(), SIGKILL);
      if (how == "terminate") std::thread([] { throw StateError("thread", "of its own"); }).join();
      if (how == "segfault" || how == "earlier handler") crash_here(reinterpret_cast<int*>(16));
      if (how == "segfault in a thread") std::thread([] { crash_here(reinterpret_cast<int*>(16)); }).join();
      if (how == "abort") std::abort();
      if (how == "overflow") overflow();
      if (how == "throw in a destructor") Stops();
      if (how == "own handler") {
        signal(SIGSEGV, [](int) { _exit(7); });
        crash_here(reinterpret_cast<int*>(16));
      }
      if (how == "child") {  // its crash is none of the rank's
        const pid_t child = fork();
        if (child == 0) crash_here(reinterpret_cast<int*>(16));
        waitpid(child, nullptr, 0);
        std::exit(3);
      }
      if (how == "return") return;
      if (how == "static") {  // the destructor of a static object calls exit again, with status 0
        static struct Last {
          ~Last() { std::exit(0); }
        } last;
        std::exit(0);
      }
    }
    std::cerr << "rank " << get_rank() << " was here" << std::endl;
    rank_and_sum();
  });
}

// argument, "HOW RANK": rank RANK ends with status 0 before it joins the job, by HOW: return, exit or _exit.
// The other ranks wait for it.
int never_joins(const std::string& argument) {
  const size_t space = argument.find(' ');
  const char* rank = std::getenv("RANK");
  if (rank && rank == argument.substr(space + 1)) {
    const std::string how = argument.substr(0, space);
    if (how == "return") return 0;
    if (how == "exit") std::exit(0);
    if (how == "_exit") _exit(0);
  }
  return launcher({.nproc_per_node = 3}, [] { rank_and_sum(); });
}

// Rank 1 throws. Prints the rank and text of the LaunchError that launch throws.
int fails() {
  try {
    launch<int>({.nproc_per_node = 2}, [] {
      if (get_rank() == 1) throw ShapeError("matmul", "inner sizes 3 and 4 differ");
      return rank_and_sum();
    });
  } catch (const LaunchError& e) {
    std::cout << "rank " << e.rank() << ": " << e.what() << std::endl;
    return 0;
  }
  return 9;
}

// The ranks get the values that the first process computed, such as its pid.
int arguments(const std::string& backend) {
  const Tensor x = full({2}, getpid(), {.dtype = DType::kI64});
  const std::map<std::string, std::vector<double>> options = {{"lr", {0.5, double(getpid())}}};
  const auto body = [](pid_t pid, const std::string& text, const Tensor& x,
                       const std::map<std::string, std::vector<double>>& options) {
    const bool is_started = std::getenv("GRADUS_LAUNCH") != nullptr;
    const bool right = pid == (is_started ? getppid() : getpid()) && text == "text" && x.numel() == 2 &&
                       x.data<int64_t>()[1] == pid && options.at("lr").at(1) == double(pid);
    x.ptr<int64_t>()[1] = 0;  // of this rank alone
    barrier();
    if (!right) throw ValueError("arguments", "rank ", get_rank(), " got other values");
    int64_t sum = 0;
    if (rank_and_sum(&sum) == 0) std::cout << "right on " << sum << " / 3 ranks" << std::endl;
  };
  const int first = launcher({.nproc_per_node = 2, .backend = backend}, body, getpid(), "text", x, options);
  return first + launcher({.nproc_per_node = 2, .backend = backend}, body, getpid(), "text", x, options);
}

// argument: how rank 1 of 3 ends, in words of `ends`, or "none". Prints the error that spawn throws.
int spawn_ends(const std::string& how, const std::string& backend = "cpu:gloo,cuda:nccl") {
  try {
    spawn(
        {.nprocs = 3, .backend = backend},
        [](int rank, const std::string& how) {
          if (rank == 1) {
            if (how == "throw") throw ShapeError("matmul", "inner sizes 3 and 4 differ");
            if (how == "exit") std::exit(3);
            if (how == "kill") kill(getpid(), SIGKILL);
          }
          rank_and_sum();
        },
        how);
    std::cout << "no error" << std::endl;
  } catch (const ProcessRaisedError& e) {
    std::cout << "raised by rank " << e.rank() << (e.pid() > 0 ? " with a pid: " : ": ") << e.what()
              << std::endl;
  } catch (const ProcessExitedError& e) {
    std::cout << "exit of rank " << e.rank() << (e.pid() > 0 ? " with a pid" : "") << ", code "
              << e.exit_code() << ", signal " << e.signal() << ' ' << e.signal_name() << ": " << e.what()
              << std::endl;
  }
  return 0;
}

// spawn without join, beside the program, and then another call.
int spawn_context() {
  SpawnContext context = spawn(
      {.nprocs = 2, .join = false},
      [](int rank, std::chrono::milliseconds::rep pause) {
        std::this_thread::sleep_for(std::chrono::milliseconds(pause));
        if (rank_and_sum() != rank) throw ValueError("spawn", "another rank");
      },
      int64_t(1000));
  const bool early =
      context.join(Milliseconds(1));  // true in the ranks of the next call, which get the outcome
  while (!early && context.pids().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const size_t pids = context.pids().size();
  if (!context.join() || !context.join(Milliseconds(1))) return 4;
  return launcher(
      {.nproc_per_node = 2},
      [](size_t pids, bool early) {
        if (rank_and_sum() == 0)
          std::cout << "spawned " << pids << " ranks, " << (early ? "late" : "and then launched")
                    << std::endl;
      },
      pids, early);
}

// Ranks that never end are ended by the destructor of a daemon's context, and of any context while an exception unwinds.
int spawn_abandons(bool throws) {
  try {
    SpawnContext context = spawn({.nprocs = 2, .join = false, .daemon = !throws}, [](int) { pause(); });
    if (throws) throw std::runtime_error("not joined");
  } catch (const std::runtime_error& error) {
    std::cout << error.what() << ", ";
  }
  std::cout << "ended" << std::endl;
  return 0;
}

// Runs the scenario `kind` and returns the exit status. Scenarios without a function are named after their
// case.
int run(const std::string& kind, const std::string& argument) {
  if (kind == "order") return order(std::stoi(argument), "gloo");
  if (kind == "local") return order(std::stoi(argument), "local");
  if (kind == "twice") return order(2, "gloo") + order(2, "gloo");
  if (kind == "large") return large();
  if (kind == "several") return several();
  if (kind == "ends") return ends(argument);
  if (kind == "never-joins") return never_joins(argument);
  if (kind == "fails") return fails();
  if (kind == "arguments") return arguments(argument);
  if (kind == "spawn-ends") return spawn_ends(argument);
  if (kind == "spawn-local") return spawn_ends(argument, "local");
  if (kind == "spawn-context") return spawn_context();
  if (kind == "spawn-daemon") return spawn_abandons(false);
  if (kind == "spawn-throws") return spawn_abandons(true);
  if (kind == "bare")  // as many ranks as GPUs: one here
    return launcher([] { std::cout << "rank 0 of " << get_world_size() << std::endl; });
  if (kind == "local-fails")
    return launcher({.nproc_per_node = 2, .backend = "local"}, [] {
      if (get_rank() == 1) throw ShapeError("matmul", "inner sizes 3 and 4 differ");
      rank_and_sum();
    });
  if (kind == "ends-in-order") return ends_in_order(argument);
  if (kind == "no-result") {  // rank 1 exits with status 0 before its function returns
    try {
      launch<int>({.nproc_per_node = 2}, [] {
        if (get_rank() == 1) std::exit(0);
        return 1;
      });
    } catch (const LaunchError& e) {
      std::cout << e.what() << std::endl;
      return 0;
    }
    return 9;
  }
  if (kind == "threads")  // argument: threads_per_rank; prints what rank 0 gets
    return launcher({.nproc_per_node = 2, .threads_per_rank = std::stoi(argument)}, [] {
      if (get_rank() == 0) std::cout << std::getenv("OMP_NUM_THREADS") << ' ' << num_threads() << std::endl;
    });
  if (kind == "nested")  // a rank must not launch ranks
    return launcher({.nproc_per_node = 1}, [] { launcher({.nproc_per_node = 1}, [] {}); });
  if (kind == "local-restart")  // argument: max_restarts; rank 1 fails in attempts 0 and 1
    return launcher({.nproc_per_node = 2, .backend = "local", .max_restarts = std::stoi(argument)}, [] {
      const std::string attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
      if (get_rank() == 1 && attempt != "2") throw ValueError("attempt", "number ", attempt);
      rank_and_sum();
      if (get_rank() == 0) std::cout << "done in attempt " << attempt << std::endl;
    });
  if (kind == "node") {  // argument, "PORT:NUMBER": the master's port, and this node's number of 2
    const size_t colon = argument.find(':');
    print("results", launch<int>({.nproc_per_node = 2,
                                  .nnodes = 2,
                                  .node_rank = std::stoi(argument.substr(colon + 1)),
                                  .master_port = std::stoi(argument.substr(0, colon))},
                                 [] { return 10 * get_rank() + rank_and_sum(); }));
    return 0;
  }
  if (kind == "megengine") {  // argument, "PORT:START": MegEngine's options; START: first rank, 0 or 1
    const size_t colon = argument.find(':');
    const int start = std::stoi(argument.substr(colon + 1));
    print("results", launch<int>({.n_gpus = start ? 2 : 1,
                                  .world_size = 3,
                                  .rank_start = start,
                                  .master_ip = "localhost",
                                  .port = std::stoi(argument.substr(0, colon))},
                                 [] { return rank_and_sum(); }));
    return 0;
  }
  std::cerr << "unknown kind " << kind << std::endl;
  return 2;
}

}  // namespace

int main(int argc, char** argv) { return run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : ""); }
