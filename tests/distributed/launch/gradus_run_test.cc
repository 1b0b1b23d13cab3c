// The launcher gradus-run, run on shell scripts as ranks: torchrun's options and environment, reports of the
// first failure, restarts, output, several nodes, and no process or file left, however it ends. Exit status:
// 1 for a failure of the ranks, 2 for wrong arguments, 128 + the signal that ended the launcher.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "gradus/distributed/launch/internal/numa_binding.h"
#include "gradus/distributed/launch/processes.h"
#include "gradus/distributed/launch/supervisor.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/distributed/subprocess.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;
using Arguments = std::vector<std::string>;

std::unique_ptr<Subprocess> start(const Arguments& arguments, const Subprocess::Variables& variables = {}) {
  Arguments all = {"distributed/launch/gradus-run"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return std::make_unique<Subprocess>(all, variables);
}

// Runs gradus-run to its end; no process may be left.
std::unique_ptr<Subprocess> run(const Arguments& arguments, const Subprocess::Variables& variables = {}) {
  auto process = start(arguments, variables);
  process->wait();
  EXPECT_THAT(process->left(), IsEmpty());
  return process;
}

Arguments shell(const std::string& script) { return {"sh", "-c", script}; }

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Parses a file of lines "NAME=value".
Subprocess::Variables variables_in(const std::string& file) {
  Subprocess::Variables variables;
  std::istringstream lines(read_whole(file));
  for (std::string line; std::getline(lines, line);)
    if (const size_t equals = line.find('='); equals != std::string::npos)
      variables[line.substr(0, equals)] = line.substr(equals + 1);
  return variables;
}

// ---- CPUs and memory ----

// A folder as /sys: NUMA nodes with these lists of CPUs, GPUs on these nodes.
void make_sys(const TestFolder& folder, const std::vector<std::string>& cpus,
              const std::vector<int>& gpus = {}) {
  const auto write = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder / file).parent_path());
    std::ofstream(folder / file) << text << '\n';
  };
  for (size_t node = 0; node < cpus.size(); ++node)
    write(concat("devices/system/node/node", node, "/cpulist"), cpus[node]);
  write("devices/system/node/online", "0-1");
  write("bus/pci/devices/0000:00:1f.0/vendor", "0x8086");
  for (size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    const std::string device = concat("bus/pci/devices/0000:", gpu, "0:00.0/");
    write(device + "vendor", "0x10de");
    write(device + "class", "0x030200");
    write(device + "numa_node", concat(gpus[gpu]));
  }
}

std::vector<int> cpus_of(const internal::NumaBinding& binding) {
  std::vector<int> cpus;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &binding.cpus)) cpus.push_back(i);
  return cpus;
}

// Only nodes with CPUs that this process may use count, so tests use its first two CPUs.
TEST(NumaBinding, DividesRanksAmongNodesOrFollowsGpus) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::vector<int> own;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &allowed)) own.push_back(i);
  if (own.size() < 2) GTEST_SKIP() << "there is one CPU";
  const std::string a = std::to_string(own[0]), b = std::to_string(own[1]);
  const auto binding = [](const TestFolder& sys, int rank, int nproc) {
    return internal::numa_binding(internal::NumaMode::kNode, rank, nproc, sys.path());
  };
  {
    TestFolder sys;
    make_sys(sys, {a, b + "-" + b + ",1022-99999,x", ""});  // the third has memory alone
    for (int rank = 0; rank < 4; ++rank) {
      const auto bound = binding(sys, rank, 4);
      ASSERT_TRUE(bound);
      EXPECT_EQ(cpus_of(*bound), std::vector<int>{own[size_t(rank / 2)]}) << rank;
      EXPECT_EQ(bound->node, rank / 2);
    }
  }
  {
    TestFolder sys;
    make_sys(sys, {a, b}, {1, 0, -1});
    EXPECT_EQ(binding(sys, 0, 3)->node, 1);
    EXPECT_EQ(binding(sys, 1, 3)->node, 0);
    EXPECT_EQ(binding(sys, 2, 3)->node, 1);  // unknown: the last third of the ranks
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    EXPECT_EQ(binding(sys, 0, 2)->node, 0);
    setenv("CUDA_VISIBLE_DEVICES", "GPU-1234", 1);
    EXPECT_EQ(binding(sys, 0, 1)->node, 0);
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  {
    TestFolder sys, empty;
    make_sys(sys, {a + "," + b});
    EXPECT_FALSE(binding(sys, 0, 2));
    EXPECT_FALSE(binding(empty, 0, 2));
  }
  {
    TestFolder sys;
    make_sys(sys, {a, "1023"});  // this process may use one node
    EXPECT_FALSE(binding(sys, 1, 2));
  }
  {
    TestFolder sys;
    make_sys(sys, {a, "1023", b}, {1, 1});
    EXPECT_EQ(binding(sys, 0, 2)->node, 0);
    EXPECT_EQ(binding(sys, 1, 2)->node, 2);
  }
  internal::NumaBinding first = {};
  CPU_SET(own[1], &first.cpus);
  std::thread([&] {
    internal::bind(first);
    cpu_set_t now;
    sched_getaffinity(0, sizeof now, &now);
    EXPECT_TRUE(CPU_EQUAL(&now, &first.cpus));
  }).join();
}

// A folder as /sys of nodes whose CPUs have cores, caches and packages. CPUs 0 to 7 may be used.
class NumaParts : public ::testing::Test {
 protected:
  static std::string list(const std::vector<int>& cpus) {
    std::string text = "8";  // a CPU that may not be used
    for (const int cpu : cpus) text += concat(',', cpu);
    return text;
  }
  void describe(int cpu, int package, const std::vector<int>& siblings, const std::vector<int>& cache) const {
    const auto write = [&](const std::string& name, const std::string& text) {
      const std::filesystem::path file = sys_ / concat("devices/system/cpu/cpu", cpu, '/', name);
      std::filesystem::create_directories(file.parent_path());
      std::ofstream(file) << text << '\n';
    };
    write("topology/physical_package_id", concat(package));
    write("topology/thread_siblings_list", list(siblings));
    for (const int level : {3, 1}) {
      write(concat("cache/index", level, "/level"), concat(level));
      write(concat("cache/index", level, "/shared_cpu_list"), level == 3 ? list(cache) : list({cpu}));
    }
  }
  std::vector<int> bound(internal::NumaMode mode, int rank, int nproc) const {
    cpu_set_t usable;
    CPU_ZERO(&usable);
    for (int cpu = 0; cpu < 8; ++cpu) CPU_SET(cpu, &usable);
    const auto binding = internal::numa_binding(mode, rank, nproc, sys_.path(), usable);
    return binding ? cpus_of(*binding) : std::vector<int>{-1};
  }

  TestFolder sys_;
};

using Cpus = std::vector<int>;
using internal::NumaMode;

TEST_F(NumaParts, OfOneNode) {
  EXPECT_EQ(bound(NumaMode::kExclusive, 0, 1), Cpus{-1});  // no nodes
  make_sys(sys_, {list({0, 1})});
  EXPECT_EQ(bound(NumaMode::kCoreComplex, 0, 1), (Cpus{0, 1}));  // no caches
  describe(0, 0, {0}, {0, 1});
  describe(1, 0, {1}, {0, 1});
  EXPECT_EQ(bound(NumaMode::kExclusive, 0, 2), Cpus{0});
  EXPECT_EQ(bound(NumaMode::kExclusive, 1, 2), Cpus{1});
  EXPECT_EQ(bound(NumaMode::kExclusive, 0, 1), (Cpus{0, 1}));
  EXPECT_THROW(bound(NumaMode::kExclusive, 1, 3), ValueError);
  EXPECT_EQ(bound(NumaMode::kCoreComplex, 1, 2), (Cpus{0, 1}));
  EXPECT_EQ(bound(NumaMode::kSocket, 0, 2), Cpus{-1});  // all CPUs
  describe(0, 0, {0, 1}, {0, 1});
  describe(1, 0, {0, 1}, {0, 1});
  EXPECT_EQ(bound(NumaMode::kExclusive, 0, 1), (Cpus{0, 1}));
  EXPECT_THROW(bound(NumaMode::kExclusive, 0, 2), ValueError);  // one core of two threads
}

TEST_F(NumaParts, ASocketHasTheNodesOfItsPackage) {
  make_sys(sys_, {list({0}), list({1})});
  describe(0, 0, {0}, {0});
  describe(1, 0, {1}, {1});
  EXPECT_EQ(bound(NumaMode::kSocket, 1, 2), (Cpus{0, 1}));
  EXPECT_EQ(bound(NumaMode::kNode, 1, 2), Cpus{1});
  EXPECT_EQ(bound(NumaMode::kExclusive, 1, 2), Cpus{1});
  describe(1, 1, {1}, {1});
  EXPECT_EQ(bound(NumaMode::kSocket, 1, 2), Cpus{1});
}

// Threads of core i: CPUs i and i + 4. CPUs 0, 1, 4, 5 share a cache, as do 2, 6; CPU 3 and 7 are on another node.
TEST_F(NumaParts, OfManyCores) {
  make_sys(sys_, {list({0, 1, 2, 4, 5, 6}), list({3, 7})}, {0, 0, 1});
  for (int cpu = 0; cpu < 8; ++cpu)
    describe(cpu, 0, {cpu % 4, cpu % 4 + 4}, cpu % 4 < 2 ? Cpus{0, 1, 4, 5} : Cpus{2, 6});
  EXPECT_EQ(bound(NumaMode::kExclusive, 0, 3), (Cpus{0, 4}));
  EXPECT_EQ(bound(NumaMode::kExclusive, 1, 3), (Cpus{1, 2, 5, 6}));
  EXPECT_EQ(bound(NumaMode::kExclusive, 2, 3), (Cpus{3, 7}));
  EXPECT_EQ(bound(NumaMode::kCoreComplex, 1, 3), (Cpus{0, 1, 4, 5}));
}

TEST(GradusRun, BindsRanksToCpusOfNumaNodes) {
  for (const char* mode : {"node", "socket", "core-complex"})
    EXPECT_EQ(run(Arguments{"--nproc-per-node", "2", "--numa-binding", mode} + shell("true"))->wait(), 0)
        << mode;
  EXPECT_EQ(run(Arguments{"--numa-binding", "exclusive"} + shell("true"))->wait(), 0);
}

// ---- events ----

TEST(GradusRun, WritesTheStatesOfRanksAsJson) {
  const auto p =
      run(Arguments{"--nproc-per-node", "2", "--event-log-handler", "console", "--rdzv-id", "a\"b"} +
          shell("test $RANK = 0 || exit 3"));
  EXPECT_EQ(p->wait(), 1);
  EXPECT_THAT(p->err(),
              AllOf(HasSubstr("{\"name\":\"torchelastic.worker.status.SUCCEEDED\",\"source\":\"WORKER\""),
                    HasSubstr("\"run_id\":\"a\\\"b\",\"role\":\"default\",\"global_rank\":1,"),
                    HasSubstr("\"state\":\"FAILED\",\"exit_code\":3,")));
  const TestFolder folder;
  const auto piped = run(Arguments{"--nproc-per-node", "2", "--event-log-handler",
                                   "exec:cat > '" + (folder / "events") + "'; exit 4"} +
                         shell("true"));
  EXPECT_EQ(piped->wait(), 0);  // the job's result
  EXPECT_THAT(piped->err(),
              AllOf(HasSubstr("the event log handler 'cat > "), Not(HasSubstr("torchelastic"))));
  const std::string events = read_whole(folder / "events");
  EXPECT_EQ(std::ranges::count(events, '\n'), 2);
  EXPECT_THAT(events, HasSubstr("\"local_rank\":1,"));
  EXPECT_EQ(run(Arguments{"--event-log-handler", "exec:true"} + shell("true"))->wait(), 0);  // reads nothing
  EXPECT_THAT(run(Arguments{"--event-log-handler", "null"} + shell("true"))->err(),
              Not(HasSubstr("torchelastic")));
}

// ---- environment ----

TEST(GradusRun, RanksGetTorchrunsEnvironmentAndGradusOwn) {
  TestFolder folder;
  const auto p = run(
      Arguments{"--nproc-per-node", "3", "--max-restarts", "2", "--rdzv-id", "my-run", "--role", "trainer"} +
      shell("env > " + folder / "$RANK"));
  ASSERT_EQ(p->wait(), 0) << p->err();
  std::set<std::string> jobs;
  for (int rank = 0; rank < 3; ++rank) {
    auto v = variables_in(folder / std::to_string(rank));
    const std::string r = std::to_string(rank);
    EXPECT_EQ(v["RANK"], r);
    EXPECT_EQ(v["LOCAL_RANK"], r);
    EXPECT_EQ(v["ROLE_RANK"], r);
    EXPECT_EQ(v["ROLE_NAME"], "trainer");
    for (const char* size : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"})
      EXPECT_EQ(v[size], "3") << size;
    EXPECT_EQ(v["GROUP_RANK"], "0");
    EXPECT_EQ(v["GROUP_WORLD_SIZE"], "1");
    EXPECT_EQ(v["MASTER_ADDR"], "127.0.0.1");
    EXPECT_GT(std::atoi(v["MASTER_PORT"].c_str()), 0);
    EXPECT_EQ(v["TORCHELASTIC_RESTART_COUNT"], "0");
    EXPECT_EQ(v["TORCHELASTIC_MAX_RESTARTS"], "2");
    EXPECT_EQ(v["TORCHELASTIC_RUN_ID"], "my-run");
    EXPECT_EQ(v["TORCHELASTIC_USE_AGENT_STORE"], "False");
    EXPECT_EQ(v["TORCH_NCCL_ASYNC_ERROR_HANDLING"], "1");
    EXPECT_NE(v["TORCHELASTIC_ERROR_FILE"], "");
    EXPECT_EQ(v["TORCHELASTIC_ERROR_FILE"], v["GRADUS_ERROR_FILE"]);
    EXPECT_EQ(v["OMP_NUM_THREADS"], std::to_string(std::max(1, usable_cores() / 3)));
    EXPECT_THAT(v["GRADUS_STORE"], StartsWith("127.0.0.1:"));
    EXPECT_NE(v["GRADUS_STORE"], "127.0.0.1:" + v["MASTER_PORT"]);
    EXPECT_GE(v["GRADUS_TOKEN"].size(), 32u);
    EXPECT_GE(v["GRADUS_JOB_ID"].size(), 32u);
    jobs.insert(v["GRADUS_JOB_ID"] + v["MASTER_PORT"] + v["GRADUS_STORE"]);
  }
  EXPECT_EQ(jobs.size(), 1u);
}

TEST(Supervisor, ItsOwnVariablesOverrideThoseOfTheCaller) {
  TestFolder folder;
  internal::SupervisorOptions spec;
  spec.path = "/bin/cp";
  spec.argv = {"cp", "/proc/self/environ", folder / "environ"};
  spec.variables = {"RANK=7", "OTHER=a=b"};
  const internal::Outcome outcome = internal::supervise(spec);
  EXPECT_TRUE(outcome.ok) << outcome.failure.text;
  std::set<std::string> lines;
  std::istringstream environment(read_whole(folder / "environ"));
  for (std::string line; std::getline(environment, line, '\0');) lines.insert(line);
  EXPECT_TRUE(lines.count("RANK=0"));
  EXPECT_FALSE(lines.count("RANK=7"));
  EXPECT_TRUE(lines.count("OTHER=a=b"));
}

TEST(GradusRun, OneRankHasAllCoresAndWhatTheUserSetStays) {
  EXPECT_EQ(run(shell("echo $OMP_NUM_THREADS"))->out(), std::to_string(usable_cores()) + "\n");
  EXPECT_EQ(run(shell("echo $OMP_NUM_THREADS"), {{"OMP_NUM_THREADS", "7"}})->out(), "7\n");
}

TEST(GradusRun, OptionsHaveTorchrunsSpellingsAndVariables) {
  const Arguments count = shell("[ $RANK = 0 ] && echo $WORLD_SIZE $ROLE_NAME; true");
  EXPECT_EQ(run(Arguments{"--nproc_per_node=2", "--role", "a"} + count)->out(), "2 a\n");
  EXPECT_EQ(run(count, {{"PET_NPROC_PER_NODE", "2"}, {"PET_ROLE", "b"}})->out(), "2 b\n");
  EXPECT_EQ(run(Arguments{"--nproc-per-node", "1"} + count, {{"PET_NPROC_PER_NODE", "2"}})->out(),
            "1 default\n");
  EXPECT_EQ(
      run(Arguments{"--no-python", "--use_env", "--start-method", "spawn", "--monitor-interval", "0.5"} +
          count)
          ->out(),
      "1 default\n");
  EXPECT_EQ(run(Arguments{"--standalone", "--nnodes", "1:1", "--"} + count)->out(), "1 default\n");
}

TEST(GradusRun, EverythingAfterTheProgramIsItsOwn) {
  EXPECT_EQ(run({"echo", "--nproc-per-node", "5", "-t", "--", "x y"})->out(),
            "--nproc-per-node 5 -t -- x y\n");
  EXPECT_EQ(run({"--nproc-per-node", "1", "--pass-local-rank", "echo", "a"})->out(), "--local-rank=0 a\n");
}

TEST(GradusRun, NumbersOfRanksCanBeCounted) {
  const Arguments count = shell("[ $RANK = 0 ] && echo $WORLD_SIZE; true");
  const std::string cores = std::to_string(usable_cores()) + "\n";
  const int gpus = internal::gpu_count();
  EXPECT_EQ(run(Arguments{"--nproc-per-node", "cpu"} + count)->out(), cores);
  EXPECT_EQ(run(Arguments{"--nproc-per-node", "auto"} + count)->out(),
            gpus ? std::to_string(gpus) + "\n" : cores);
  const auto p = run(Arguments{"--nproc-per-node", "gpu"} + count, {{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(p->wait(), 2);
  EXPECT_THAT(p->err(), HasSubstr("no GPU"));
}

// ---- programs ----

TEST(GradusRun, RunsWhateverAShellWouldRun) {
  TestFolder folder;
  const std::string script = folder / "no first line";
  write_file(script, "echo \"$1\"\n");
  auto p = run({script, "x"});
  EXPECT_EQ(p->wait(), 2);
  EXPECT_THAT(p->err(), HasSubstr("not executable (chmod +x"));
  ASSERT_EQ(chmod(script.c_str(), 0755), 0);
  EXPECT_EQ(run({script, "x"})->out(), "x\n");

  EXPECT_THAT(run({"surely-no-program"})->err(),
              HasSubstr("there is no program 'surely-no-program' in PATH"));
  EXPECT_THAT(run({"./surely-no-file"})->err(), HasSubstr("No such file"));
  EXPECT_THAT(run({folder.path()})->err(), HasSubstr("it is no file"));
  write_file(folder / "binary", std::string("\x7f"
                                            "ELF\0\0",
                                            6));
  ASSERT_EQ(chmod((folder / "binary").c_str(), 0755), 0);
  EXPECT_NE(run({folder / "binary"})->wait(), 0);
}

// ---- failures ----

TEST(GradusRun, TheFirstFailureEndsAllAndIsShown) {
  const auto p = run(Arguments{"--nproc-per-node", "3"} +
                     shell("[ $RANK = 1 ] || exec sleep 100; echo the last line >&2; exit 7"));
  EXPECT_EQ(p->wait(), 1);
  EXPECT_LT(p->seconds(), 5);
  EXPECT_THAT(p->err(),
              AllOf(HasSubstr("gradus-run: rank 1 exited with code 7\n"), HasSubstr("host "),
                    HasSubstr("last lines of rank 1's stderr:\n    | the last line\n"), HasSubstr("rank 0 "),
                    HasSubstr("rank 2 "), HasSubstr("ended by the launcher (SIGTERM)")));
}

TEST(GradusRun, TheErrorFileSaysWhy) {
  const auto p =
      run(Arguments{"--nproc-per-node", "2"} +
          shell("[ $RANK = 0 ] && exec sleep 100;"
                "printf '%s' '{\"message\": {\"message\": \"RuntimeError: no luck\", \"extraInfo\": "
                "{\"py_callstack\": \"line 1\\nline 2\", \"timestamp\": \"1\"}}}' > "
                "$TORCHELASTIC_ERROR_FILE; exit 1"));
  EXPECT_EQ(p->wait(), 1);
  EXPECT_THAT(p->err(), AllOf(HasSubstr("gradus-run: rank 1 failed: RuntimeError: no luck\n"),
                              HasSubstr("    line 2\n")));
}

TEST(GradusRun, AMalformedErrorFileIsNoObstacle) {
  for (const char* content : {"", "[[[[", "{\"message\": {\"message\": []}}"}) {
    const auto p =
        run(shell(std::string("printf '%s' '") + content + "' > $TORCHELASTIC_ERROR_FILE; exit 3"));
    EXPECT_EQ(p->wait(), 1);
    EXPECT_THAT(p->err(), HasSubstr("rank 0 exited with code 3"));
  }
}

TEST(GradusRun, ARankThatEndsEarlyInOrderIsNoFailure) {
  const auto p =
      run(Arguments{"--nproc-per-node", "3"} + shell("[ $RANK = 1 ] && exit 0; sleep 0.5; echo done"));
  EXPECT_EQ(p->wait(), 0);
  EXPECT_EQ(p->out(), "done\ndone\n");
}

TEST(GradusRun, RanksThatIgnoreSigtermAreKilledWithinFiveSeconds) {
  const auto p = run(Arguments{"--nproc-per-node", "2"} +
                     shell("trap '' TERM; [ $RANK = 1 ] && exit 1; while true; do sleep 0.1; done"));
  EXPECT_EQ(p->wait(), 1);
  EXPECT_LT(p->seconds(), 5);
}

TEST(GradusRun, StoppedRanksAreEndedToo) {
  const auto p =
      run(Arguments{"--nproc-per-node", "2"} + shell("[ $RANK = 0 ] && kill -STOP $$; sleep 0.3; exit 1"));
  EXPECT_EQ(p->wait(), 1);
  EXPECT_LT(p->seconds(), 4);  // SIGTERM reaches it
  EXPECT_THAT(p->err(), HasSubstr("stopped (SIGSTOP), ended by the launcher"));
}

TEST(GradusRun, ExitCodesAreKeptWhereChildrenWereToBeIgnored) {
  // A shell cannot ignore SIGCHLD for others; env can.
  Subprocess p(
      {"/usr/bin/env", "--ignore-signal=CHLD", "distributed/launch/gradus-run", "sh", "-c", "exit 5"});
  EXPECT_EQ(p.wait(), 1);
  EXPECT_THAT(p.err(), HasSubstr("rank 0 exited with code 5"));
}

// ---- restarts ----

TEST(GradusRun, ARankThatGoesOnForEverWhenOthersHaveEndedIsNamed) {
  const auto p = run(Arguments{"--nproc-per-node", "2", "--exit-timeout", "0.5"} +
                     shell("[ $RANK = 0 ] && exit 0; exec sleep 1000"));
  EXPECT_EQ(p->wait(), 1);
  EXPECT_LT(p->seconds(), 30);
  EXPECT_THAT(p->err(), HasSubstr("rank 1 has not ended within 500 ms after rank 0 had"));
}

TEST(GradusRun, AllRanksStartAgainAfterAFailure) {
  TestFolder folder;
  const std::string script =
      "echo $TORCHELASTIC_RESTART_COUNT >> " + folder / "$RANK" +
      "; [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0; [ $RANK = 1 ] && exit 3; exec sleep 100";
  const auto p = run(Arguments{"--nproc-per-node", "2", "--max-restarts", "3"} + shell(script));
  EXPECT_EQ(p->wait(), 0) << p->err();
  for (const char* rank : {"0", "1"}) EXPECT_EQ(read_whole(folder / rank), "0\n1\n2\n");
  EXPECT_THAT(p->err(), AllOf(HasSubstr("rank 1 exited with code 3; all ranks start again (restart 2 of 3)"),
                              Not(HasSubstr("restart 3"))));
}

// ---- output ----

TEST(GradusRun, TeePutsTheRankBeforeEveryLine) {
  const auto p = run(Arguments{"--nproc-per-node", "2", "--tee", "0:3,1:1", "--role", "r"} +
                     shell("printf 'a\\nb'; echo c >&2"));
  EXPECT_THAT(p->out(), AllOf(HasSubstr("[r0]:a\n"), HasSubstr("[r0]:b\n"), HasSubstr("[r1]:a\n"),
                              HasSubstr("[r1]:b\n")));
  EXPECT_THAT(p->err(), AllOf(HasSubstr("[r0]:c\n"), Not(HasSubstr("[r1]"))));
  const auto named =
      run(Arguments{"-t", "1"} + shell("echo a"),
          {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${rank} ${local_rank} ${role_name}> "}});
  EXPECT_EQ(named->out(), "<0 0 default> a\n");
}

TEST(GradusRun, LogsLieInFoldersPerAttemptAndRank) {
  TestFolder folder;
  const auto p = run(Arguments{"--nproc-per-node", "2", "--max-restarts", "1", "--log-dir", folder.path(),
                               "--rdzv-id", "a/b", "-r", "0:3", "-t", "1:1"} +
                     shell("echo out $RANK; echo err $RANK >&2; echo '{\"message\": \"why\"}' > "
                           "$GRADUS_ERROR_FILE; exit $RANK"));
  EXPECT_EQ(p->wait(), 1);
  const auto find = [&](const std::string& name) {
    FILE* pipe = popen(("cat " + folder.path() + "/a_b_*/" + name + " 2>&1").c_str(), "r");
    char text[1000] = "";
    text[fread(text, 1, sizeof text - 1, pipe)] = 0;
    pclose(pipe);
    return std::string(text);
  };
  for (const std::string attempt : {"attempt_0", "attempt_1"}) {
    EXPECT_EQ(find(attempt + "/0/stdout.log"), "out 0\n");
    EXPECT_EQ(find(attempt + "/0/stderr.log"), "err 0\n");
    EXPECT_EQ(find(attempt + "/1/stdout.log"), "out 1\n");
    EXPECT_THAT(find(attempt + "/1/stderr.log"), HasSubstr("No such file"));
    EXPECT_THAT(find(attempt + "/1/error.json"), HasSubstr("why"));
  }
  EXPECT_THAT(p->out(), AllOf(HasSubstr("[default1]:out 1\n"), Not(HasSubstr("out 0"))));
  EXPECT_THAT(p->err(), AllOf(HasSubstr("err 1\n"), Not(HasSubstr("err 0\n")),
                              HasSubstr("rank 1 failed: why"), HasSubstr("attempt_1/1/error.json")));
}

// A full disk: the ranks continue, and the lost output is an error at the end.
TEST(GradusRun, OutputThatCannotBeWrittenIsAnError) {
  const std::string run_all = "exec distributed/launch/gradus-run --nproc-per-node 2 ";
  {
    Subprocess p({"/bin/sh", "-c", run_all + "--tee 1 sh -c 'echo a; echo b' >/dev/full"});
    EXPECT_EQ(p.wait(), 1);
    EXPECT_THAT(p.err(), MatchesRegex("(gradus-run: output of rank [01] is lost: cannot write to stdout: "
                                      "No space left on device\n){2}"))
        << "once when it happens, and at the end";
  }
  {
    Subprocess p({"/bin/sh", "-c", run_all + "sh -c 'echo a >&2' 2>/dev/full"});
    EXPECT_EQ(p.wait(), 1) << "though there is no place for the message";
  }
  {  // a file that may not grow; sanitizers write smaller ones themselves
    TestFolder folder;
    const std::string script = "sh -c 'seq 400000; echo done >" + folder.path() + "/done$RANK'";
    Subprocess p({"/bin/sh", "-c",
                  "ulimit -f 4096; " + run_all + "--redirects 1 --log-dir " + folder.path() + " " + script});
    EXPECT_EQ(p.wait(), 1);
    EXPECT_THAT(p.err(), HasSubstr("stdout.log: File too large"));
    EXPECT_TRUE(wait_for_file(folder / "done0") && wait_for_file(folder / "done1")) << "the ranks went on";
  }
}

TEST(GradusRun, AReaderThatHasGoneIsNoError) {
  Subprocess p(
      {"/bin/sh", "-c",
       "{ distributed/launch/gradus-run --tee 1 sh -c 'sleep 0.3; echo a; echo b'; echo $? >&2; } | true"});
  p.wait();
  EXPECT_EQ(p.err(), "0\n");
}

TEST(GradusRun, OnlySomeRanksAreShown) {
  const auto p = run(Arguments{"--nproc-per-node", "3", "--local-ranks-filter", "0,2"} +
                     shell("echo out $RANK; echo err $RANK >&2"));
  EXPECT_THAT(p->out(), AllOf(HasSubstr("out 0"), HasSubstr("out 2"), Not(HasSubstr("out 1"))));
  EXPECT_THAT(p->err(), AllOf(HasSubstr("err 0"), HasSubstr("err 2"), Not(HasSubstr("err 1"))));
}

TEST(GradusRun, MuchOutputArrivesWhole) {
  const auto p = run(Arguments{"--nproc-per-node", "2", "-t", "3"} +
                     shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"));
  EXPECT_EQ(std::count(p->out().begin(), p->out().end(), '\n'), 40000);
  EXPECT_THAT(p->out(), HasSubstr("[default1]:line 19999\n"));
}

TEST(GradusRun, AConsoleThatNobodyReadsHoldsUpNoSupervision) {
  Arguments all = {"distributed/launch/gradus-run", "--nproc-per-node", "2"};
  Subprocess p(all + shell("[ $RANK = 0 ] && { yes >&2; exit 1; }; sleep 0.3; exit 1"), {},
               /*read_stderr=*/false);
  EXPECT_EQ(p.wait(), 1);
  EXPECT_LT(p.seconds(), 6);
  EXPECT_THAT(p.left(), IsEmpty());
}

// ---- signals, and processes and files that are left ----

class GradusRunSignal : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, GradusRunSignal, testing::Values(SIGTERM, SIGINT, SIGHUP));

TEST_P(GradusRunSignal, ReachesTheRanksAndEndsTheJob) {
  TestFolder folder;
  const auto p = start(Arguments{"--nproc-per-node", "2"} +
                       shell("trap 'echo got it; exit 0' " + std::to_string(GetParam()) + "; echo x > " +
                             folder / "$RANK" + "; while true; do sleep 0.05; done"));
  ASSERT_TRUE(wait_for_file(folder / "0") && wait_for_file(folder / "1"));
  p->kill(GetParam());
  EXPECT_EQ(p->wait(), 128 + GetParam());
  EXPECT_THAT(p->left(), IsEmpty());
  EXPECT_LT(p->seconds(), 5);
  EXPECT_EQ(p->out(), "got it\ngot it\n");
  EXPECT_THAT(p->err(), HasSubstr("ended by signal " + std::to_string(GetParam())));
}

// A rank's script with descendants in other sessions and environments, that ignore all signals they can
// ignore.
const char* const kStubborn =
    "trap '' TERM INT HUP QUIT;"
    "sleep 1000 & setsid sleep 1001 & setsid sh -c 'trap \"\" TERM; sleep 1002' & env -i sleep 1003 &"
    "(setsid sh -c 'sleep 1004 & sleep 1005 &' &);";

TEST(GradusRun, NothingSurvivesTheLaunchersOwnDeath) {
  TestFolder folder;
  const auto p =
      start(Arguments{"--nproc-per-node", "2"} +
            shell(std::string(kStubborn) + "echo x > " + folder / "$RANK" + "; sleep 1000; sleep 1000"));
  ASSERT_TRUE(wait_for_file(folder / "0") && wait_for_file(folder / "1"));
  EXPECT_GE(p->left().size(), 12u);
  p->kill(SIGKILL);
  EXPECT_EQ(p->wait(), -SIGKILL);
  EXPECT_LT(p->until_none_left(5), 5);
}

TEST(GradusRun, NothingSurvivesTheLaunchersDeathAtAnyMoment) {
  for (int milliseconds = 0; milliseconds < 40; milliseconds += 6) {
    const auto p = start(Arguments{"--nproc-per-node", "2"} +
                         shell("while true; do setsid sh -c 'sleep 50; sleep 50' & sleep 0.005; done"));
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    p->kill(SIGKILL);
    p->wait();
    ASSERT_LT(p->until_none_left(5), 5) << "killed after " << milliseconds << " ms";
  }
}

TEST(GradusRun, NothingSurvivesTheEndOfTheRanks) {
  const auto p = run(Arguments{"--nproc-per-node", "2"} + shell(std::string(kStubborn) + "exit 0"));
  EXPECT_EQ(p->wait(), 0);
  EXPECT_LT(p->seconds(), 5);
}

// A rank's script that starts a daemon in a session and an environment of its own, and writes its pid to
// `file`.
std::string start_daemon(const std::string& file) {
  return "(env -i setsid sh -c 'echo $$ > " + file + "; exec sleep 1000' &);" + "while [ ! -s " + file +
         " ]; do sleep 0.01; done;";
}

// Waits up to 10 s until the process whose pid is in `file` has ended; else kills it and returns false.
bool ends_soon(const std::string& file) {
  const int pid = std::atoi(read_whole(file).c_str());
  for (int i = 0; pid > 0 && i < 1000; ++i) {
    const std::string stat = read_whole("/proc/" + std::to_string(pid) + "/stat");
    if (stat.empty() || stat.find(") Z") != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  kill(pid, SIGKILL);
  return false;
}

TEST(GradusRun, ADaemonInAnEnvironmentOfItsOwnEndsWithTheJob) {
  for (const char* end : {"exit 0", "exit 3", "kill -9 $$"}) {
    TestFolder folder;
    const auto p = start(Arguments{"--nproc-per-node", "1"} + shell(start_daemon(folder / "daemon") + end));
    p->wait();
    EXPECT_TRUE(ends_soon(folder / "daemon")) << end;
  }
}

TEST(GradusRun, ADaemonInAnEnvironmentOfItsOwnEndsWithTheLauncher) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    TestFolder folder;
    const auto p =
        start(Arguments{"--nproc-per-node", "1"} +
              shell(start_daemon(folder / "daemon") + "echo x > " + folder / "ready" + "; exec sleep 1000"));
    ASSERT_TRUE(wait_for_file(folder / "ready", 60));
    std::this_thread::sleep_for(std::chrono::milliseconds(1'500));  // the guard looks once a second
    p->kill(signal);
    p->wait();
    EXPECT_TRUE(ends_soon(folder / "daemon")) << signal;
  }
}

TEST(GradusRun, ProcessesThatWereThereBeforeItAreNotItsOwn) {
  TestFolder folder;
  Subprocess p({"/bin/sh", "-c",
                "setsid sh -c 'echo $$ > " + folder / "before" + "; exec sleep 1000' & while [ ! -s " +
                    folder / "before" + " ]; do sleep 0.01; done; exec distributed/launch/gradus-run true"});
  EXPECT_EQ(p.wait(), 0) << p.err();
  const int pid = std::atoi(read_whole(folder / "before").c_str());
  ASSERT_GT(pid, 0);
  EXPECT_EQ(kill(pid, SIGKILL), 0);
}

TEST(GradusRun, ALauncherInARankEndsWithIt) {
  TestFolder folder;
  const std::string inner =
      "distributed/launch/gradus-run --nproc-per-node 2 sh -c 'setsid sleep 1000 & echo x > " +
      folder / "$RANK" + "; sleep 1000'";
  const auto p = start({"sh", "-c", inner});
  ASSERT_TRUE(wait_for_file(folder / "0") && wait_for_file(folder / "1"));
  p->kill(SIGKILL);
  p->wait();
  EXPECT_LT(p->until_none_left(5), 5);
}

// The pid of the launcher's guard process, which ends the job's processes if the launcher dies; -1: none.
int guard_of(const Subprocess& p) {
  for (const int pid : p.left())
    if (read_whole("/proc/" + std::to_string(pid) + "/cmdline").starts_with("gradus-guard")) return pid;
  return -1;
}

TEST(GradusRun, WithoutItsGuardTheJobGoesOn) {
  TestFolder folder;
  const auto p = start(Arguments{"--nproc-per-node", "2"} +
                       shell("echo x > " + folder / "$RANK" + "; sleep 0.5; echo done"));
  ASSERT_TRUE(wait_for_file(folder / "0"));
  const int guard = guard_of(*p);
  ASSERT_GT(guard, 0);
  kill(guard, SIGKILL);
  EXPECT_EQ(p->wait(), 0);
  EXPECT_EQ(p->out(), "done\ndone\n");
  EXPECT_THAT(p->left(), IsEmpty());
}

TEST(GradusRun, RanksDieWithTheLauncherWithoutAGuard) {
  TestFolder folder;
  const auto p = start(Arguments{"--nproc-per-node", "2"} +
                       Arguments{"sh", "-c", "echo x > " + folder / "$RANK" + "; exec sleep 1000"});
  ASSERT_TRUE(wait_for_file(folder / "0") && wait_for_file(folder / "1"));
  const int guard = guard_of(*p);
  ASSERT_GT(guard, 0);
  kill(guard, SIGKILL);
  p->kill(SIGKILL);
  p->wait();
  EXPECT_LT(p->until_none_left(5), 5);
}

TEST(GradusRun, NoFileIsLeft) {
  TestFolder folder;
  for (const char* end : {"exit 0", "exit 1", "kill -9 $$", "kill -9 $PPID; sleep 1"}) {
    const auto p = start(Arguments{"--nproc-per-node", "2"} + shell(end), {{"TMPDIR", folder.path()}});
    p->wait();
    p->until_none_left(5);
    FILE* pipe = popen(("find " + folder.path() + " -mindepth 1").c_str(), "r");
    char found[1000] = "";
    found[fread(found, 1, sizeof found - 1, pipe)] = 0;
    pclose(pipe);
    EXPECT_STREQ(found, "") << end;
  }
}

// ---- ports ----

TEST(GradusRun, TwoJobsOnOneMachineDoNotMeet) {
  TestFolder folder;
  const std::string script = "echo $MASTER_PORT $GRADUS_STORE $GRADUS_JOB_ID $GRADUS_TOKEN > $OUT; sleep 0.5";
  const auto a = start(shell(script), {{"OUT", folder / "a"}}),
             b = start(shell(script), {{"OUT", folder / "b"}});
  EXPECT_EQ(a->wait(), 0);
  EXPECT_EQ(b->wait(), 0);
  std::istringstream of_a(read_whole(folder / "a")), of_b(read_whole(folder / "b"));
  for (int i = 0; i < 4; ++i) {
    std::string x, y;
    of_a >> x;
    of_b >> y;
    EXPECT_FALSE(x.empty());
    EXPECT_NE(x, y);
  }
}

TEST(GradusRun, TheMasterPortIsTheOneAskedForOrAnError) {
  TakenPort port;
  auto p = run(Arguments{"--master-port", port.port()} + shell("echo $MASTER_PORT"));
  EXPECT_EQ(p->wait(), 1);
  EXPECT_THAT(p->err(), HasSubstr("port " + port.port() + " of 127.0.0.1 is taken by another process"));
  EXPECT_EQ(p->out(), "");
  p = run(Arguments{"--standalone", "--master-port", port.port()} + shell("echo $MASTER_PORT"));
  EXPECT_EQ(p->wait(), 0);
  EXPECT_NE(p->out(), port.port() + "\n");
  for (const std::string& endpoint :
       Arguments{"localhost:0", "localhost:" + port.port(), "some-host:29400"}) {
    p = run(Arguments{"--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint} + shell("echo $MASTER_PORT"));
    EXPECT_EQ(p->wait(), 0) << p->err();
    EXPECT_NE(p->out(), port.port() + "\n");
  }
  port.release();
  EXPECT_EQ(run(Arguments{"--master-port", port.port()} + shell("echo $MASTER_PORT"))->out(),
            port.port() + "\n");
}

// ---- several nodes, as launchers of one machine ----

struct TwoNodes {
  std::unique_ptr<Subprocess> first, second;
};

TwoNodes start_two(const Arguments& options, const std::string& script,
                   const Subprocess::Variables& variables = {}) {
  const Arguments common = Arguments{"--nnodes", "2", "--master-port", unused_port()} + options;
  return {start(common + Arguments{"--node-rank", "0"} + shell(script), variables),
          start(common + Arguments{"--node-rank", "1"} + shell(script), variables)};
}

TEST(GradusRunNodes, RanksAreCountedOverAllNodes) {
  TestFolder folder;
  const auto [a, b] = start_two({"--nproc-per-node", "2"}, "env > " + folder / "$RANK");
  EXPECT_EQ(a->wait(), 0) << a->err();
  EXPECT_EQ(b->wait(), 0) << b->err();
  std::set<std::string> ports, stores;
  for (int rank = 0; rank < 4; ++rank) {
    auto v = variables_in(folder / std::to_string(rank));
    EXPECT_EQ(v["RANK"], std::to_string(rank));
    EXPECT_EQ(v["LOCAL_RANK"], std::to_string(rank % 2));
    EXPECT_EQ(v["GROUP_RANK"], std::to_string(rank / 2));
    EXPECT_EQ(v["WORLD_SIZE"], "4");
    EXPECT_EQ(v["LOCAL_WORLD_SIZE"], "2");
    EXPECT_EQ(v["GROUP_WORLD_SIZE"], "2");
    EXPECT_EQ(v["MASTER_ADDR"], "127.0.0.1");
    ports.insert(v["MASTER_PORT"]);
    stores.insert(v["GRADUS_STORE"]);
  }
  EXPECT_EQ(ports.size(), 1u);
  EXPECT_EQ(stores.size(), 1u);
  EXPECT_NE("127.0.0.1:" + *ports.begin(), *stores.begin());
}

TEST(GradusRunNodes, MeetInOrderOfArrivalAtAnEndpoint) {
  TestFolder folder;
  const Arguments arguments = Arguments{"--nnodes",        "1:3",
                                        "--rdzv-backend",  "c10d",
                                        "--rdzv-endpoint", "localhost:" + unused_port(),
                                        "--rdzv-conf",     "last_call_timeout=2"} +
                              shell("echo $GROUP_RANK > " + folder / "$RANK" + "; [ $WORLD_SIZE = 2 ]");
  const auto a = start(arguments), b = start(arguments);
  EXPECT_EQ(a->wait(), 0) << a->err();
  EXPECT_EQ(b->wait(), 0) << b->err();
  EXPECT_EQ(read_whole(folder / "0"), "0\n");
  EXPECT_EQ(read_whole(folder / "1"), "1\n");
}

TEST(GradusRunNodes, AFailureOnOneEndsAll) {
  for (const char* failing : {"0", "1"}) {
    const auto [a, b] =
        start_two({}, std::string("sleep 0.5; [ $RANK = ") + failing + " ] && kill -9 $$; exec sleep 100");
    EXPECT_EQ(a->wait(), 1);
    EXPECT_EQ(b->wait(), 1);
    for (const auto* p : {&a, &b}) {
      EXPECT_LT((*p)->seconds(), 8);
      EXPECT_THAT((*p)->err(),
                  HasSubstr(std::string("rank ") + failing + " was killed by signal 9 (SIGKILL)"));
      EXPECT_THAT((*p)->left(), IsEmpty());
    }
  }
}

TEST(GradusRunNodes, ALauncherThatDiesEndsAll) {
  for (const bool kill_first : {true, false}) {
    TestFolder folder;
    const auto [a, b] = start_two({}, "echo x > " + folder / "$RANK" + "; exec sleep 100");
    ASSERT_TRUE(wait_for_file(folder / "0") && wait_for_file(folder / "1"));
    const auto begin = Subprocess::Clock::now();
    (kill_first ? a : b)->kill(SIGKILL);
    const auto& other = kill_first ? b : a;
    EXPECT_EQ(other->wait(), 1);
    EXPECT_LT(Subprocess::Clock::now() - begin, std::chrono::seconds(6));
    EXPECT_THAT(other->err(), HasSubstr("launcher")) << other->err();
    EXPECT_LT(a->until_none_left(5) + b->until_none_left(5), 5);
  }
}

TEST(GradusRunNodes, ASignalToOneEndsAllSoon) {
  for (const bool interrupt_first : {true, false}) {
    TestFolder folder;
    const auto [a, b] = start_two({}, "echo x > " + folder / "$RANK" + "; exec sleep 100");
    ASSERT_TRUE(wait_for_file(folder / "0", 30) && wait_for_file(folder / "1", 30));
    const auto begin = Subprocess::Clock::now();
    (interrupt_first ? a : b)->kill(SIGINT);
    EXPECT_EQ((interrupt_first ? a : b)->wait(), 128 + SIGINT);
    const auto& other = interrupt_first ? b : a;
    EXPECT_EQ(other->wait(), 1);
    EXPECT_LT(Subprocess::Clock::now() - begin, std::chrono::seconds(10));
    EXPECT_THAT(other->err(), HasSubstr("launcher"));
  }
}

TEST(GradusRunNodes, ANodeThatGoesOnForEverIsNamed) {
  for (const char* stuck : {"0", "1"}) {
    const auto [a, b] = start_two({"--exit-timeout", "0.5"},
                                  std::string("[ $RANK = ") + stuck + " ] && exec sleep 1000; exit 0");
    EXPECT_EQ(a->wait(), 1);
    EXPECT_EQ(b->wait(), 1);
    for (const auto* p : {&a, &b}) {
      EXPECT_LT((*p)->seconds(), 30);
      EXPECT_THAT((*p)->err(),
                  HasSubstr(std::string("the ranks of node ") + stuck + " have not ended within 500 ms"));
    }
  }
}

TEST(GradusRunNodes, RestartTogether) {
  TestFolder folder;
  const auto [a, b] =
      start_two({"--max-restarts", "1"},
                "echo $TORCHELASTIC_RESTART_COUNT >> " + folder / "$RANK" +
                    "; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; sleep 0.3; [ $RANK = 1 ] && exit 3; "
                    "exec sleep 100");
  EXPECT_EQ(a->wait(), 0) << a->err();
  EXPECT_EQ(b->wait(), 0) << b->err();
  EXPECT_EQ(read_whole(folder / "0"), "0\n1\n");
  EXPECT_EQ(read_whole(folder / "1"), "0\n1\n");
}

TEST(GradusRunNodes, ANodeThatDoesNotComeIsNamed) {
  const auto p = run(Arguments{"--nnodes", "3", "--node-rank", "0", "--master-port", unused_port(),
                               "--rdzv-conf", "join_timeout=1"} +
                     shell("true"));
  EXPECT_EQ(p->wait(), 1);
  EXPECT_THAT(p->err(), HasSubstr("only 1 of 3 nodes came within 1 s; missing: node 1, 2"));
}

TEST(GradusRunNodes, ASignalEndsTheWaitForOthers) {
  for (const char* node : {"0", "1"}) {
    const auto p = start(Arguments{"--nnodes", "2", "--node-rank", node, "--master-port", unused_port()} +
                         shell("true"));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    p->kill(SIGINT);
    EXPECT_EQ(p->wait(), 128 + SIGINT);
    EXPECT_LT(p->seconds(), 4);
  }
}

TEST(GradusRunNodes, NeedASecretOffThisMachine) {
  const auto p = run({"--nnodes", "2", "--node-rank", "0", "--master-addr", "192.0.2.1", "true"});
  EXPECT_EQ(p->wait(), 2);
  EXPECT_THAT(p->err(), HasSubstr("set GRADUS_TOKEN to the same value on all of them"));
}

TEST(GradusRunNodes, AnotherSecretIsRefused) {
  const std::string port = unused_port();
  const auto options = [&](const char* node) {
    return Arguments{"--nnodes",    "2",  "--master-port", port, "--rdzv-conf", "join_timeout=3",
                     "--node-rank", node, "true"};
  };
  const auto a = start(options("0"), {{"GRADUS_TOKEN", "one"}}),
             b = start(options("1"), {{"GRADUS_TOKEN", "two"}});
  EXPECT_EQ(b->wait(), 1);
  EXPECT_THAT(b->err(), HasSubstr("token"));
  EXPECT_EQ(a->wait(), 1);
  EXPECT_THAT(a->err(), AllOf(HasSubstr("missing: node 1"),
                              HasSubstr("somebody who came was refused: the token was not this job's")));
}

TEST(GradusRunNodes, AFirstNodeThatDoesNotComeIsToldWithTheTimeThatWasGiven) {
  const auto p = run(Arguments{"--nnodes", "2", "--node-rank", "1", "--master-port", unused_port(),
                               "--rdzv-conf", "join_timeout=2"} +
                     shell("true"));
  EXPECT_EQ(p->wait(), 1);
  EXPECT_THAT(p->err(), HasSubstr("within 2000 ms"));
}

TEST(GradusRunNodes, ATakenPortIsAnError) {
  TakenPort port;
  const auto p = run({"--nnodes", "2", "--node-rank", "0", "--master-port", port.port(), "true"});
  EXPECT_EQ(p->wait(), 1);
  EXPECT_THAT(p->err(), HasSubstr(port.port()));
}

// ---- bad values ----

TEST(GradusRun, BadValuesAreRefusedByName) {
  const std::pair<Arguments, const char*> cases[] = {
      {{}, "which program?"},
      {{"--nproc-per-node", "2"}, "which program?"},
      {{"--no-such-option", "true"}, "unknown option --no-such-option"},
      {{"--nproc-per-node", "0", "true"}, "--nproc-per-node is '0'"},
      {{"--nproc-per-node", "-1", "true"}, "--nproc-per-node is '-1'"},
      {{"--nproc-per-node", "two", "true"}, "expected a number, auto, cpu or gpu"},
      {{"--nproc-per-node", "100000", "true"}, "--nproc-per-node is '100000'"},
      {{"--nnodes", "0", "true"}, "--nnodes is '0'"},
      {{"--nnodes", "2:1", "true"}, "the least is more than the most"},
      {{"--nnodes", "1:2:3", "true"}, "expected N or MIN:MAX"},
      {{"--nnodes", "1:", "true"}, "expected N or MIN:MAX"},
      {{"--nnodes", "1:2", "true"}, "needs --rdzv-backend c10d"},
      {{"--nnodes", "2", "--node-rank", "2", "true"}, "--node-rank is 2, but --nnodes is 2"},
      {{"--nnodes", "2", "--rdzv-backend", "c10d", "true"}, "needs --rdzv-endpoint"},
      {{"--nnodes", "2", "--standalone", "true"}, "--standalone is for one machine"},
      {{"--rdzv-backend", "etcd", "true"}, "etcd is not supported"},
      {{"--rdzv-backend", "zeus", "true"}, "expected static or c10d"},
      {{"--rdzv-endpoint", ":1", "true"}, "expected HOST or HOST:PORT"},
      {{"--rdzv-endpoint", "host:port", "true"}, "port"},
      {{"--rdzv-conf", "a=1", "true"}, "known are join_timeout"},
      {{"--rdzv-conf", "join_timeout", "true"}, "expected key=value"},
      {{"--master-port", "70000", "true"}, "master-port"},
      {{"--max-restarts", "-1", "true"}, "max-restarts"},
      {{"--redirects", "4", "true"}, "--redirects is '4'"},
      {{"--redirects", "3", "true"}, "--redirects needs --log-dir"},
      {{"--tee", "1:1", "true"}, "--tee is '1'; expected a number between 0 and 0"},
      {{"--tee", "0:1:2", "true"}, "--tee is '0:1:2'"},
      {{"--local-ranks-filter", "1", "true"}, "--local-ranks-filter is '1'"},
      {{"--signals-to-handle", "SIGFOO", "true"}, "'SIGFOO', which is no signal's name"},
      {{"--signals-to-handle", "SIGKILL", "true"}, "cannot be handled"},
      {{"--start-method", "teleport", "true"}, "start-method"},
      {{"--shutdown-timeout", "-1", "true"}, "shutdown-timeout"},
      {{"-m", "module"}, "-m is not supported: it starts programs"},
      {{"--run-path", "x", "true"}, "--run-path is not supported"},
      {{"--numa-binding", "core", "true"}, "numa-binding"},
      {{"--event-log-handler", "kafka", "true"}, "event-log-handler"},
      {{"--log-dir", "/proc/nowhere", "true"}, "/proc/nowhere"},
  };
  for (const auto& [arguments, text] : cases) {
    const auto p = run(arguments);
    EXPECT_THAT(p->wait(), AnyOf(1, 2)) << text;
    EXPECT_THAT(p->err(), HasSubstr(text));
  }
  EXPECT_THAT(run({"true"}, {{"PET_NPROC_PER_NODE", "none"}})->err(),
              HasSubstr("--nproc-per-node is 'none'"));
}

}  // namespace
}  // namespace gradus::dist
