// dist::launcher and dist::launch, by the program launch_program.cc and its scenarios: results, exit statuses
// and reports of failures, several calls in a program, other launchers, and no process left.
#include "gradus/distributed/launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "gradus/distributed/launch/spawn.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/distributed/subprocess.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kProgram = "tests/distributed/launch/launch_program";

std::unique_ptr<Subprocess> run(const std::string& kind, const std::string& argument = "",
                                const Subprocess::Variables& variables = {}) {
  auto process = std::make_unique<Subprocess>(std::vector<std::string>{kProgram, kind, argument}, variables);
  process->wait();
  EXPECT_THAT(process->left(), IsEmpty());
  return process;
}

// ---- results ----

TEST(Launcher, ResultsComeInTheRanksOrder) {
  const auto p = run("order", "4");
  EXPECT_EQ(p->wait(), 0) << p->err();
  EXPECT_EQ(p->out(), "results 10 110 210 310\n");
}

TEST(Launcher, RanksCanBeThreads) { EXPECT_EQ(run("local", "3")->out(), "results 6 106 206\n"); }

TEST(Launcher, LargeResultsArriveWhole) {
  const auto p = run("large");
  EXPECT_EQ(p->wait(), 0) << p->err();
  EXPECT_EQ(p->out(), "all there\n");
}

TEST(Launcher, AProgramMayCallItSeveralTimes) {
  const auto p = run("several");
  EXPECT_EQ(p->wait(), 0) << p->err();
  EXPECT_EQ(p->out(), "last 1038 1039\n");
}

TEST(Launcher, ARankThatReturnsNothingIsNamed) {
  EXPECT_EQ(run("no-result")->out(), "[launch] rank 1 exited with code 0 before its function returned\n");
}

TEST(Launcher, RanksShareTheCores) {
  const std::string share = std::to_string(std::max(1, usable_cores() / 2));
  EXPECT_EQ(run("threads", "0")->out(), share + " " + share + "\n");
  EXPECT_EQ(run("threads", "3")->out(), "3 3\n");
}

TEST(Launcher, RanksGetTheArgumentsOfTheFirstProcess) {
  for (const char* backend : {"gloo", "local"}) {
    const auto p = run("arguments", backend);
    EXPECT_EQ(p->wait(), 0) << p->err();
    EXPECT_EQ(p->out(), "right on 3 / 3 ranks\nright on 3 / 3 ranks\n");
  }
}

TEST(Launcher, UnderGradusRunTheArgumentsAreTheRanksOwn) {
  Subprocess p({"distributed/launch/gradus-run", "--nproc-per-node", "2", kProgram, "arguments", "gloo"});
  EXPECT_EQ(p.wait(), 0) << p.err();
  EXPECT_EQ(p.out(), "right on 3 / 3 ranks\nright on 3 / 3 ranks\n");
}

TEST(Launcher, HasADefaultNumberOfRanks) {
  EXPECT_EQ(run("bare", "", {{"CUDA_VISIBLE_DEVICES", ""}})->out(), "rank 0 of 1\n");
}

// ---- spawn ----

TEST(Spawn, ThrowsTheFirstFailure) {
  const std::pair<const char*, const char*> cases[] = {
      {"none", "no error\n"},
      {"throw",
       "raised by rank 1 with a pid: [spawn] rank 1 failed: ShapeError: [matmul] inner sizes 3 and 4 "
       "differ\n"},
      {"exit", "exit of rank 1 with a pid, code 3, signal 0 : [spawn] rank 1 exited with code 3\n"},
      {"kill",
       "exit of rank 1 with a pid, code -1, signal 9 SIGKILL: [spawn] rank 1 was killed by signal 9 "
       "(SIGKILL)\n"},
  };
  for (const auto& [how, text] : cases) {
    const auto p = run("spawn-ends", how);
    EXPECT_EQ(p->wait(), 0) << how << p->err();
    EXPECT_EQ(p->out(), text);
  }
  EXPECT_EQ(run("spawn-local", "throw")->out(),
            "raised by rank 1: [spawn] rank 1 failed: ShapeError: [matmul] inner sizes 3 and 4 differ\n");
}

TEST(Spawn, UnderGradusRunCallsTheFunction) {
  Subprocess p({"distributed/launch/gradus-run", "--nproc-per-node", "3", kProgram, "spawn-ends", "none"});
  EXPECT_EQ(p.wait(), 0) << p.err();
  EXPECT_EQ(p.out(), "no error\nno error\nno error\n");
}

TEST(Spawn, MayReturnBeforeTheRanksEnd) {
  const auto p = run("spawn-context");
  EXPECT_EQ(p->wait(), 0) << p->err();
  EXPECT_EQ(p->out(), "spawned 2 ranks, and then launched\n");
}

TEST(Spawn, EndsDaemonsWithTheirContext) {
  const auto p = run("spawn-daemon");
  EXPECT_EQ(p->wait(), 0) << p->err();
  EXPECT_EQ(p->out(), "ended\n");
  EXPECT_LT(p->seconds(), 10);
}

TEST(Spawn, EndsRanksThatAnExceptionAbandons) {
  const auto p = run("spawn-throws");
  EXPECT_EQ(p->wait(), 0) << p->err();
  EXPECT_EQ(p->out(), "not joined, ended\n");
  EXPECT_LT(p->seconds(), 10);
}

// ---- failures ----

TEST(Launcher, TheFirstFailureIsTheOneThatCounts) {
  const std::pair<const char*, const char*> cases[] = {
      {"throw", "launcher: rank 1 failed: ShapeError: [matmul] inner sizes 3 and 4 differ\n"},
      {"throw-int", "launcher: rank 1 failed: an exception of type int\n"},
      {"exit", "launcher: rank 1 exited with code 3\n"},
      {"kill", "launcher: rank 1 was killed by signal 9 (SIGKILL)\n"},
      {"terminate", "launcher: rank 1 failed: StateError: [thread] of its own\n"},
      {"exit0", "launcher: rank 1 has left the job, and rank"},
      {"_exit0", "launcher: rank 1 exited with code 0 without leaving the job"},
      {"return", "launcher: rank 1 has left the job, and rank"},
      {"static", "launcher: rank 1 has left the job, and rank"},
  };
  for (const auto& [how, text] : cases) {
    const auto p = run("ends", how);
    EXPECT_EQ(p->wait(), 1) << how;
    EXPECT_LT(p->seconds(), 5) << how;
    EXPECT_THAT(p->err(),
                AllOf(HasSubstr(text), HasSubstr("rank 0 was here"), HasSubstr("first failure: rank 1")));
    if (how != std::string("throw")) continue;
    for (const char* other : {"0", "2"})
      EXPECT_THAT(p->err(), testing::ContainsRegex(concat("rank ", other,
                                                          " +process [0-9]+ +exit code 1 "
                                                          "+because of it")));
  }
}

// Sanitizers have handlers of their own.
TEST(Launcher, ShowsWhereARankCrashed) {
  struct Case {
    const char* how;
    std::vector<const char*> parts;
  };
  const Case cases[] = {
      {"segfault",
       {"rank 1 was killed by signal 11 (SIGSEGV)\n", "\n  signal 11 (SIGSEGV) at address 0x10\n",
        "#0 (anonymous namespace)::write_to(int volatile*)+", "#1 (anonymous namespace)::crash_here(int*)+",
        " (launch_program)\n"}},
      {"segfault in a thread",
       {"(SIGSEGV)\n", "at address 0x10\n", "#1 (anonymous namespace)::crash_here(int*)+"}},
      {"overflow", {"(SIGSEGV)\n", "#1 (anonymous namespace)::recurse(bool volatile*)+"}},
      {"abort", {"rank 1 was killed by signal 6 (SIGABRT)\n", "\n  signal 6 (SIGABRT)\n", " abort+"}},
      {"throw in a destructor",
       {"StateError: [thread] of its own\n", "\n  traceback:\n", "Stops::throw_here()+"}},
      {"terminate", {"StateError: [thread] of its own\n", "\n  traceback:\n", "launch_program"}},
  };
  for (const Case& c : cases) {
    const auto p = run("ends", c.how);
    EXPECT_EQ(p->wait(), 1) << c.how;
    EXPECT_LT(p->seconds(), 5) << c.how;
    for (const char* part : c.parts) EXPECT_THAT(p->err(), HasSubstr(part)) << c.how;
  }
}

TEST(Launcher, LeavesHandlersOfTheProgramAndCrashesOfChildrenAlone) {
  for (const auto& [how, code] : {std::pair("own handler", 7), {"earlier handler", 7}, {"child", 3}}) {
    const auto p = run("ends", how);
    EXPECT_EQ(p->wait(), 1);
    EXPECT_THAT(p->err(), AllOf(HasSubstr(concat("rank 1 exited with code ", code)),
                                Not(HasSubstr("traceback")), Not(HasSubstr("#0"))));
  }
}

TEST(Launcher, KeepsTheBacktraceInTheErrorFile) {
  TestFolder logs;
  Subprocess p({"distributed/launch/gradus-run", "--nproc-per-node", "3", "--log-dir", logs.path(), kProgram,
                "ends", "segfault"});
  EXPECT_EQ(p.wait(), 1);
  EXPECT_THAT(p.err(), HasSubstr("crash_here(int*)+"));
  std::string content;
  for (const auto& file : std::filesystem::recursive_directory_iterator(logs.path()))
    if (file.path().filename() == "error.json" && file.path().parent_path().filename() == "1")
      content = read_whole(file.path());
  EXPECT_THAT(content,
              AllOf(testing::StartsWith(R"({"message": {"message": "signal 11 (SIGSEGV) at address 0x10",)"),
                    HasSubstr("launch_program+0x"), testing::EndsWith("}")));
}

// The limit of 30 s is far below the timeout of ten minutes.
TEST(Launcher, ARankThatEndsBeforeItJoinsIsKnownAtOnceByName) {
  for (const auto& [how, rank] : {std::pair("return", 0), {"exit", 1}, {"_exit", 1}}) {
    const auto p = run("never-joins", concat(how, ' ', rank));
    EXPECT_EQ(p->wait(), 1) << how;
    EXPECT_LT(p->seconds(), 30) << how;
    EXPECT_THAT(p->err(), HasSubstr(concat("launcher: rank ", rank,
                                           " exited with code 0 before init_process_group\n")));
  }
}

TEST(Launcher, LaunchThrowsTheFirstFailure) {
  EXPECT_EQ(run("fails")->out(),
            "rank 1: [launch] rank 1 failed: ShapeError: [matmul] inner sizes 3 and 4 differ\n");
}

TEST(Launcher, ThreadsFailAsProcessesDo) {
  const auto p = run("local-fails");
  EXPECT_EQ(p->wait(), 1);
  EXPECT_EQ(p->err(), "launcher: rank 1 failed: ShapeError: [matmul] inner sizes 3 and 4 differ\n");
}

TEST(Launcher, ManyRanksThatEndAtOnceAreNoFailure) {
  for (const char* how : {"barrier", "destroy", "return"}) {
    const auto p = run("ends-in-order", std::string("16 ") + how);
    EXPECT_EQ(p->wait(), 0) << how << ": " << p->err();
  }
}

TEST(Launcher, RestartsRanksThatAreThreads) {
  const auto p = run("local-restart", "2");
  EXPECT_EQ(p->wait(), 0) << p->err();
  EXPECT_EQ(p->out(), "done in attempt 2\n");
  EXPECT_EQ(
      p->err(),
      "launcher: rank 1 failed: ValueError: [attempt] number 0; all ranks start again (restart 1 of 2)\n"
      "launcher: rank 1 failed: ValueError: [attempt] number 1; all ranks start again (restart 2 of 2)\n");
  const auto q = run("local-restart", "1");
  EXPECT_EQ(q->wait(), 1);
  EXPECT_THAT(q->err(), HasSubstr("launcher: rank 1 failed: ValueError: [attempt] number 1\n"));
}

TEST(Launcher, RanksCannotLaunch) {
  const auto p = run("nested");
  EXPECT_EQ(p->wait(), 1);
  EXPECT_THAT(p->err(), HasSubstr("cannot launch ranks"));
}

// ---- other launchers ----

TEST(Launcher, UnderGradusRunNothingIsStarted) {
  Subprocess p({"distributed/launch/gradus-run", "--nproc-per-node", "2", kProgram, "order", "7"});
  EXPECT_EQ(p.wait(), 0) << p.err();
  EXPECT_THAT(p.left(), IsEmpty());
  EXPECT_EQ(p.out(), "results 3 103\nresults 3 103\n");  // every rank has all results
}

TEST(Launcher, UnderGradusRunAProgramMayCallItSeveralTimes) {
  Subprocess p({"distributed/launch/gradus-run", "--nproc-per-node", "2", kProgram, "twice"});
  EXPECT_EQ(p.wait(), 0) << p.err();
  EXPECT_EQ(std::count(p.out().begin(), p.out().end(), '\n'), 4) << p.out();
}

TEST(Launcher, UnderGradusRunAllNodesLearnOfARankThatNeverJoins) {
  const std::string port = unused_port();
  const auto node = [&](const char* number) {
    return std::make_unique<Subprocess>(std::vector<std::string>{
        "distributed/launch/gradus-run", "--nnodes", "2", "--node-rank", number, "--nproc-per-node", "2",
        "--master-port", port, kProgram, "never-joins", "return 3"});
  };
  const auto first = node("0"), second = node("1");
  for (Subprocess* p : {first.get(), second.get()}) {
    EXPECT_EQ(p->wait(), 1);
    EXPECT_LT(p->seconds(), 30);
    EXPECT_THAT(p->err(), HasSubstr("gradus-run: rank 3 exited with code 0 before init_process_group\n"));
  }
}

TEST(Launcher, UnderASchedulerNothingIsStarted) {
  const std::string port = unused_port();
  const auto variables = [&](const char* rank) {
    return Subprocess::Variables{
        {"SLURM_PROCID", rank},        {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", rank}, {"SLURM_NODEID", "0"},
        {"SLURM_TASKS_PER_NODE", "2"}, {"MASTER_PORT", port}, {"SLURM_STEP_ID", "0"}};
  };
  Subprocess first({kProgram, "order", "7"}, variables("0")),
      second({kProgram, "order", "7"}, variables("1"));
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_EQ(first.out(), "results 3 103\n");
}

// ---- several machines, as launchers of one ----

TEST(Launcher, ResultsComeFromAllMachines) {
  for (const char* kind : {"node", "megengine"}) {
    const std::string port = unused_port();
    Subprocess first({kProgram, kind, port + ":0"}), second({kProgram, kind, port + ":1"});
    EXPECT_EQ(first.wait(), 0) << first.err();
    EXPECT_EQ(second.wait(), 0) << second.err();
    const char* expected = kind == std::string("node") ? "results 0 11 22 33\n" : "results 0 1 2\n";
    EXPECT_EQ(first.out(), expected);
    EXPECT_EQ(second.out(), expected);
    EXPECT_THAT(first.left(), IsEmpty());
    EXPECT_THAT(second.left(), IsEmpty());
  }
}

// ---- options ----

TEST(Launcher, OptionsThatDoNotFitAreRefused) {
  const auto error_of = [](const LauncherOptions& options) {
    return gradus::error_of<ValueError>([&] { launcher(options, [] {}); });
  };
  EXPECT_EQ(error_of({.nproc_per_node = 2, .n_gpus = 3}),
            "[launcher] nproc_per_node is 2, but n_gpus is 3: they mean the same");
  EXPECT_THAT(error_of({.master_addr = "a", .master_ip = "b"}), HasSubstr("they mean the same"));
  EXPECT_THAT(error_of({.master_port = 1, .port = 2}), HasSubstr("they mean the same"));
  EXPECT_THAT(error_of({.nproc_per_node = -1}), HasSubstr("nproc_per_node is -1"));
  EXPECT_THAT(error_of({.nnodes = 0}), HasSubstr("nnodes is 0"));
  EXPECT_THAT(error_of({.nnodes = 2, .node_rank = 2}), HasSubstr("node_rank is 2"));
  EXPECT_THAT(error_of({.node_rank = 1}), HasSubstr("node_rank is 1"));
  EXPECT_THAT(error_of({.nproc_per_node = 2, .nnodes = 2}), HasSubstr("need a master_port"));
  EXPECT_THAT(error_of({.nproc_per_node = 2, .nnodes = 2, .world_size = 5, .port = 1}),
              HasSubstr("world_size is 5"));
  EXPECT_THAT(error_of({.nproc_per_node = 4, .world_size = 2}), HasSubstr("world_size is 2"));
  EXPECT_THAT(error_of({.rank_start = 1}), HasSubstr("rank_start is 1"));
  EXPECT_THAT(error_of({.n_gpus = 1, .world_size = 4, .rank_start = 2}), HasSubstr("need a master_port"));
  EXPECT_THAT(error_of({.world_size = 4, .rank_start = 2}), HasSubstr("say with n_gpus"));
  EXPECT_THAT(error_of({.port = 65536}), HasSubstr("port is 65536"));
  EXPECT_THAT(error_of({.backend = "smoke"}), HasSubstr("backend is 'smoke'"));
  EXPECT_THAT(error_of({.nproc_per_node = 1, .nnodes = 2, .port = 1, .backend = "local"}),
              HasSubstr("backend is local"));
  EXPECT_THAT(error_of({.max_restarts = -1}), HasSubstr("max_restarts is -1"));
  EXPECT_THAT(error_of({.threads_per_rank = -1}), HasSubstr("threads_per_rank is -1"));
  EXPECT_THAT(error_of({.timeout = Milliseconds(0)}), HasSubstr("timeout is 0"));
  EXPECT_THAT(error_of({.shutdown_timeout = Milliseconds(-1)}), HasSubstr("shutdown_timeout is -1"));
  EXPECT_EQ(gradus::error_of<ValueError>([] { spawn({.nprocs = 0}, [](int) {}); }),
            "[spawn] nprocs must be at least 1, got 0");
}

}  // namespace
}  // namespace gradus::dist
