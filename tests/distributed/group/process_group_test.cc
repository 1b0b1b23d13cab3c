// Joining and leaving a job: init methods, wrong or missing ranks, deaths of ranks, and forked children. The
// ranks are processes that run one of the RankFunctions below. Exit codes: 3 an exception, 7 an expected
// error.
#include "gradus/distributed/group/process_group.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <optional>
#include <thread>
#include <tuple>

#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/store/file_store.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/distributed/rank_processes.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Field;
using testing::HasSubstr;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

InitOptions options(const std::string& method) {
  return {.init_method = method,
          .world_size = test_world(),
          .rank = test_rank(),
          .timeout = Milliseconds(20'000)};
}

// A first collective; prints "sum N local RANK/SIZE".
void show_sum() {
  const Tensor x = scalar(get_rank() + 1);
  all_reduce(x);
  std::cout << "sum " << x.item<int>() << " local " << get_local_rank() << "/" << get_local_world_size()
            << std::endl;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

auto succeeded(const std::string& text) {
  return AllOf(Field("exit code", &RankEnd::exit_code, 0),
               Field("output", &RankEnd::output, HasSubstr(text)));
}
// A socket that listens on loopback until it is gone.
class Listener {
 public:
  explicit Listener(int port = 0) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(fd_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(fd_, 8) != 0 ||
        getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0)
      throw std::runtime_error("listen");
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(fd_); }
  int port() const { return port_; }

 private:
  int fd_, port_;
};

// ---- ways to find each other

// By tcp://ADDRESS. The variables INIT_TIMEOUT (ms) and WORLD replace the default values.
int by_tcp() {
  InitOptions o = options("tcp://" + variable("ADDRESS"));
  if (!variable("INIT_TIMEOUT").empty()) o.init_timeout = Milliseconds(std::stoi(variable("INIT_TIMEOUT")));
  if (!variable("WORLD").empty()) o.world_size = std::stoi(variable("WORLD"));
  init_process_group(o);
  show_sum();
  return 0;
}
const RankFunction by_tcp_function{"tcp", by_tcp};
const RankFunction by_query{
    "query", [] {
      init_process_group({.init_method = concat("tcp://", variable("ADDRESS"), "?rank=", test_rank(),
                                                "&world_size=", test_world())});
      show_sum();
      return 0;
    }};
int by_env() {
  init_process_group({.timeout = Milliseconds(20'000)});
  show_sum();
  std::cout << "threads " << num_threads() << std::endl;
  return 0;
}
const RankFunction by_env_function{"env", by_env};
const RankFunction by_env_briefly{"env briefly", [] {
                                    init_process_group({.init_timeout = Milliseconds(1'500)});
                                    return 0;
                                  }};
// By the file MEETING; with STORE, by a store of the caller's; with SOCKETS, without shared memory.
InitOptions meeting() {
  InitOptions o = options("file://" + variable("MEETING"));
  o.shared_memory = variable("SOCKETS").empty();
  if (variable("STORE").empty()) return o;
  o.init_method = "env://";
  o.store = open_file_store(variable("MEETING"), Milliseconds(10'000));
  return o;
}
int by_file() {
  init_process_group(meeting());
  show_sum();
  return 0;
}
const RankFunction by_file_function{"file", by_file};

// All ranks get these variables, and the path of a fresh file to meet by.
ProcessOptions at_meeting(Variables variables = {}) {
  variables.emplace_back("MEETING", fresh_path("meeting"));
  return {.variables = [variables](int) { return variables; }};
}
// All ranks get these variables, and one ADDRESS.
ProcessOptions at_port(const std::function<Variables(int rank)>& more = {}) {
  return {.variables = [more, address = concat("127.0.0.1:", free_port())](int rank) {
    Variables variables = more ? more(rank) : Variables();
    variables.emplace_back("ADDRESS", address);
    return variables;
  }};
}
std::function<Variables(int)> torchrun_variables(int world, int port) {
  return [=](int rank) {
    return Variables{{"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(world)},
                     {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(world)},
                     {"MASTER_ADDR", "localhost"},         {"MASTER_PORT", std::to_string(port)}};
  };
}

TEST(InitProcessGroup, ByTcp) {
  EXPECT_THAT(run_processes("tcp", 3, at_port()), Each(succeeded("sum 6 local ")));
  EXPECT_THAT(run_processes("query", 2, at_port()), Each(succeeded("sum 3 local ")));
}

TEST(InitProcessGroup, ByTheEnvironmentOfTorchrun) {
  const auto ends = run_processes("env", 4, {.variables = torchrun_variables(4, free_port())});
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_THAT(ends[rank], succeeded(concat("sum 10 local ", rank, "/4")));
}

TEST(InitProcessGroup, RanksOfAHostShareItsCores) {
  unsetenv("OMP_NUM_THREADS");
  const int world = 2, share = std::max(1, usable_cores() / world);
  const auto plain = [variables = torchrun_variables(world, free_port())](int rank) {
    Variables v = variables(rank);
    std::erase_if(v, [](const auto& one) { return one.first.starts_with("LOCAL_"); });
    return v;
  };
  EXPECT_THAT(run_processes("env", world, {.variables = plain}),
              Each(succeeded(concat("threads ", share, '\n'))));
  const auto told = [variables = torchrun_variables(world, free_port())](int rank) {
    Variables v = variables(rank);
    v.push_back({"OMP_NUM_THREADS", std::to_string(3 + rank)});
    return v;
  };
  const auto ends = run_processes("env", world, {.variables = told});
  for (int rank = 0; rank < world; ++rank)
    EXPECT_THAT(ends[rank], succeeded(concat("threads ", 3 + rank, '\n')));
}

TEST(InitProcessGroup, ByTheEnvironmentOfSlurmAndMpi) {
  const int port = free_port();
  const auto slurm = [&](int rank) {
    return Variables{{"SLURM_PROCID", std::to_string(rank)},
                     {"SLURM_NTASKS", "2"},
                     {"SLURM_LOCALID", std::to_string(rank)},
                     {"SLURM_STEP_TASKS_PER_NODE", "2"},
                     {"SLURM_NNODES", "1"},
                     {"MASTER_ADDR", "127.0.0.1"},
                     {"MASTER_PORT", std::to_string(port)}};
  };
  EXPECT_THAT(run_processes("env", 2, {.variables = slurm}), Each(succeeded("sum 3")));
  const auto mpi = [&](int rank) {
    return Variables{{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                     {"OMPI_COMM_WORLD_SIZE", "2"},
                     {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                     {"MASTER_PORT", std::to_string(port)}};
  };
  EXPECT_THAT(run_processes("env", 2, {.variables = mpi}), Each(succeeded("sum 3")));
}

TEST(InitProcessGroup, ByAFileWhichIsRemoved) {
  const std::string meeting = fresh_path("meeting");
  const auto variables = [&](int) { return Variables{{"MEETING", meeting}}; };
  for (int again = 0; again < 2; ++again)
    EXPECT_THAT(run_processes("file", 3, {.variables = variables}), Each(succeeded("sum 6")));
  EXPECT_FALSE(std::filesystem::exists(meeting));
}

TEST(InitProcessGroup, ByAGivenStore) {
  EXPECT_THAT(run_processes("file", 2, at_meeting({{"STORE", "1"}})), Each(succeeded("sum 3")));
}

TEST(InitProcessGroup, AJobWithANameEndsWhenItsPortIsTaken) {
  for (int job = 1'000;; ++job) {
    std::optional<Listener> other;  // which never answers
    try {
      other.emplace(15'000 + job);
    } catch (const std::runtime_error&) {
      continue;
    }
    const auto slurm = [&](int rank) {
      return Variables{{"SLURM_PROCID", std::to_string(rank)},
                       {"SLURM_NTASKS", "2"},
                       {"SLURM_LOCALID", std::to_string(rank)},
                       {"SLURM_STEP_TASKS_PER_NODE", "2"},
                       {"SLURM_NODEID", "0"},
                       {"SLURM_JOB_ID", std::to_string(job)}};
    };
    const auto ends = run_processes("env briefly", 2, {.variables = slurm});
    EXPECT_EQ(ends[0].exit_code, 3);
    EXPECT_THAT(ends[0].output,
                HasSubstr(concat(':', 15'000 + job, ": the port is taken by another process")));
    return;
  }
}

TEST(InitProcessGroup, OfOneRankNeedsNoPort) {
  init_process_group({.init_method = "tcp://nowhere.invalid:1", .world_size = 1, .rank = 0});
  EXPECT_TRUE(is_initialized());
  EXPECT_EQ(get_backend(), "none");
  EXPECT_EQ(get_client().user_set("a", "b"), 1);
  EXPECT_EQ(get_client().user_get("a"), "b");
  const Tensor x = scalar(3);
  all_reduce(x);
  EXPECT_EQ(x.item<int>(), 3);
  EXPECT_THROW(init_process_group(), StateError);
  destroy_process_group();
  EXPECT_FALSE(is_initialized());
}

// Prints MIXED if ranks of different jobs (variable JOB) have met.
int with_a_tag() {
  init_process_group({.timeout = Milliseconds(20'000), .init_timeout = Milliseconds(5'000)});
  for (const std::string& tag : all_gather_object(variable("JOB")))
    if (tag != variable("JOB")) std::cout << "MIXED" << std::endl;
  std::this_thread::sleep_for(Milliseconds(500));
  barrier();
  std::cout << "together" << std::endl;
  return 0;
}
const RankFunction with_a_tag_function{"tagged", with_a_tag};

// Two jobs of two ranks each, at once.
std::vector<RankEnd> two_jobs(const std::function<Variables(int job, int rank)>& variables) {
  const auto of = [&](int job) {
    return [&, job](int rank) {
      Variables v = variables(job, rank);
      v.emplace_back("JOB", std::to_string(job));
      return v;
    };
  };
  std::vector<RankEnd> first, second;
  std::thread thread([&] { first = run_processes("tagged", 2, {.variables = of(0)}); });
  second = run_processes("tagged", 2, {.variables = of(1)});
  thread.join();
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(InitProcessGroup, TwoJobsOnNeighboringPortsDoNotMeet) {
  const int port = free_port();
  EXPECT_THAT(two_jobs([&](int job, int rank) { return torchrun_variables(2, port + job)(rank); }),
              Each(succeeded("together")));
}

TEST(InitProcessGroup, TwoJobsAtOnePortAreAnErrorAndNeverMixed) {
  const int port = free_port();
  const auto ends = two_jobs([&](int, int rank) { return torchrun_variables(2, port)(rank); });
  int failed = 0;
  for (const RankEnd& end : ends) {
    EXPECT_THAT(end.output, testing::Not(HasSubstr("MIXED")));
    failed += end.exit_code != 0;
  }
  EXPECT_GE(failed, 2) << "a port is one job's at most";
}

int64_t milliseconds() {
  return std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Prints the time (ms) and text of the error that it receives, and the time at which it has left.
int hears_of_two_jobs() {
  try {
    init_process_group({.timeout = Milliseconds(40'000)});
    for (;;) barrier();
  } catch (const DistributedError& error) {
    std::cout << "told " << milliseconds() << ' ' << error.what() << std::endl;
  }
  destroy_process_group();
  std::cout << "left " << milliseconds() << std::endl;
  return 0;
}
const RankFunction hears_of_two_jobs_function{"hears", hears_of_two_jobs};

int64_t number_after(const std::string& output, const std::string& word) {
  const size_t at = output.find(word);
  return at == std::string::npos ? -1 : std::stoll(output.substr(at + word.size()));
}

TEST(InitProcessGroup, OfTwoJobsAtOnePortAllRanksReceiveTheErrorAndRankZeroEndsSoon) {
  // After a failure rank 0 stays for half a second at most. Waits notice the failure in slices of 200 ms.
  constexpr int64_t kLimit = 500 + 200 + 1'000;
  const int port = free_port();
  const auto comes_as = [port](int rank) {
    return Variables{{"RANK", std::to_string(rank)},
                     {"WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "localhost"},
                     {"MASTER_PORT", std::to_string(port)}};
  };
  const auto is_told = HasSubstr("two processes came as rank 1 at once");
  const auto ends =
      run_processes("hears", 3, {.variables = [&](int process) { return comes_as(std::min(process, 1)); }});
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const RankEnd& end : ends) {
    EXPECT_THAT(end.output, is_told);
    first = std::min(first, number_after(end.output, "told "));
  }
  EXPECT_LT(number_after(ends[0].output, "left ") - first, kLimit);
}

// Prints how long joining took, and how long it was until the first call had ended.
const RankFunction joins_and_calls{"joins", [] {
                                     const int64_t begin = milliseconds();
                                     init_process_group({.timeout = Milliseconds(20'000)});
                                     std::cout << "joined " << milliseconds() - begin << std::endl;
                                     barrier();
                                     std::cout << "called " << milliseconds() - begin << std::endl;
                                     return 0;
                                   }};

TEST(InitProcessGroup, ByAPortAloneReturnsAtOnceAndOnlyTheFirstCallWaits) {
  constexpr int64_t kHalfASecond = 500;
  int64_t shortest = kHalfASecond;
  // On a busy machine a join may take longer: the fastest of up to 10 jobs counts.
  for (int i = 0; i < 10 && shortest >= kHalfASecond; ++i)
    for (const RankEnd& end : run_processes("joins", 2, {.variables = torchrun_variables(2, free_port())})) {
      EXPECT_EQ(end.exit_code, 0) << end.output;
      shortest = std::min(shortest, number_after(end.output, "joined "));
      EXPECT_GE(number_after(end.output, "called "), kHalfASecond) << end.output;
    }
  EXPECT_LT(shortest, kHalfASecond);
}

TEST(InitProcessGroup, JobsWithNamesRefuseEachOthersRanks) {
  const int port = free_port();
  const auto ends = two_jobs([&](int job, int rank) {
    Variables v = torchrun_variables(2, port)(rank);
    v.emplace_back("GRADUS_JOB_ID", job ? "second" : "first");
    return v;
  });
  for (const RankEnd& end : ends)
    EXPECT_THAT(end.output, testing::AnyOf(HasSubstr("together"), HasSubstr("it belongs to job '"),
                                           HasSubstr("each job needs a port of its own"),
                                           HasSubstr("did not come within")));
  for (const RankEnd& end : ends) EXPECT_THAT(end.output, testing::Not(HasSubstr("MIXED")));
}

// ---- what goes wrong

std::string error_of(const InitOptions& options) {
  try {
    init_process_group(options);
  } catch (const Error& error) {
    return error.what();
  }
  destroy_process_group();
  return "";
}

TEST(InitProcessGroup, RefusesWhatDoesNotFit) {
  EXPECT_THAT(error_of({.backend = "mpi"}), HasSubstr("backend is 'mpi'; expected"));
  EXPECT_THAT(error_of({.backend = "local"}), HasSubstr("dist::run_ranks"));
  EXPECT_THAT(error_of({.init_method = "udp://x"}),
              HasSubstr("init_method must be env://, tcp://host:port or file://"));
  EXPECT_THAT(error_of({.init_method = "file://relative", .world_size = 1, .rank = 0}),
              HasSubstr("absolute path"));
  EXPECT_THAT(error_of({.init_method = "tcp://host", .world_size = 2, .rank = 0}),
              HasSubstr("must be host:port"));
  EXPECT_THAT(error_of({.init_method = "tcp://host:x", .world_size = 2, .rank = 0}), HasSubstr("got 'x'"));
  EXPECT_THAT(error_of({.init_method = "tcp://host:99999", .world_size = 2, .rank = 0}),
              HasSubstr("got '99999'"));
  EXPECT_THAT(error_of({.init_method = "tcp://host:1?size=2"}), HasSubstr("unknown 'size=2'"));
  EXPECT_THAT(error_of({.init_method = "tcp://host:1?rank=x"}), HasSubstr("got 'x'"));
  EXPECT_THAT(error_of({.init_method = "tcp://host:1"}), HasSubstr("got rank -1 and world_size -1"));
  EXPECT_THAT(error_of({.init_method = "tcp://host:1?rank=2&world_size=2"}),
              HasSubstr("got rank 2 and world_size 2"));
}

TEST(InitProcessGroup, NamesTheMissingVariable) {
  EXPECT_THAT(error_of({}), HasSubstr("env://: the environment variable RANK is not set"));
  EXPECT_THAT(error_of({.world_size = 2, .rank = 0}),
              HasSubstr("the environment variable MASTER_ADDR is not set"));
  setenv("RANK", "0", 1);
  EXPECT_THAT(error_of({}), HasSubstr("WORLD_SIZE"));
  setenv("WORLD_SIZE", "2", 1);
  EXPECT_THAT(error_of({}), HasSubstr("MASTER_ADDR"));
  setenv("WORLD_SIZE", "two", 1);
  EXPECT_THAT(error_of({}), AllOf(HasSubstr("WORLD_SIZE"), HasSubstr("two")));
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
}

TEST(InitProcessGroup, AnUnreachableMasterIsAnErrorInTime) {
  const auto start = std::chrono::steady_clock::now();
  const int port = free_port();
  EXPECT_THAT(error_of({.init_method = concat("tcp://127.0.0.1:", port),
                        .world_size = 2,
                        .rank = 1,
                        .init_timeout = Milliseconds(400)}),
              AllOf(HasSubstr(concat("127.0.0.1:", port)), HasSubstr("within 400 ms"),
                    HasSubstr("rank 0, which opens the job's store, has not come")));
  EXPECT_LT(seconds_since(start), 3);
}

TEST(InitProcessGroup, ATakenPortIsAnErrorOfRankZero) {
  const Listener other;  // which never answers
  EXPECT_THAT(error_of({.init_method = concat("tcp://127.0.0.1:", other.port()), .world_size = 2, .rank = 0}),
              AllOf(HasSubstr(concat(":", other.port(), ": the port is taken by another process")),
                    HasSubstr("each job needs a port of its own")));
}

TEST(InitProcessGroup, SeveralHostsNeedASecret) {
  EXPECT_THAT(error_of({.init_method = "tcp://10.1.2.3:29500", .world_size = 2, .rank = 0}),
              HasSubstr("GRADUS_TOKEN"));
}

TEST(InitProcessGroup, NamesTheRanksThatDoNotCome) {
  EXPECT_THAT(error_of({.init_method = concat("tcp://127.0.0.1:", free_port()),
                        .world_size = 3,
                        .rank = 0,
                        .init_timeout = Milliseconds(200)}),
              HasSubstr("ranks 1, 2 of 3 did not come within 200 ms"));
  const std::string meeting = fresh_path("meeting");
  EXPECT_THAT(error_of({.init_method = "file://" + meeting,
                        .world_size = 2,
                        .rank = 1,
                        .init_timeout = Milliseconds(200)}),
              HasSubstr("rank 0 of 2 did not come within 200 ms"));
  EXPECT_THAT(error_of({.init_method = "file://" + meeting, .world_size = 2, .rank = 1}),
              AllOf(HasSubstr("rank 1 has come before by file " + meeting), HasSubstr("remove it")));
}

// Rank 2 does not join. Rank 0's timeout passes before rank 1's and closes the store.
int incomplete() {
  if (test_rank() == 2) return 0;
  InitOptions o = options("tcp://" + variable("ADDRESS"));
  o.init_timeout = Milliseconds(test_rank() == 0 ? 2'000 : 60'000);
  try {
    init_process_group(o);
  } catch (const TimeoutError& error) {
    std::cout << "rank " << error.rank() << ": " << error.what() << std::endl;
    return 7;
  }
  return 0;
}
const RankFunction incomplete_function{"incomplete", incomplete};

TEST(InitProcessGroup, AllSayWhoDidNotComeAsTheFirstOneDoes) {
  const auto ends = run_processes("incomplete", 3, at_port());
  for (int rank : {0, 1}) {
    EXPECT_EQ(ends[rank].exit_code, 7);
    EXPECT_THAT(
        ends[rank].output,
        HasSubstr(
            "rank 2: [init_process_group] rank 2 of 3 did not come within 2000 ms (store at 127.0.0.1:"));
  }
}

TEST(InitProcessGroup, AWrongTokenIsRefused) {
  const auto ends = run_processes(
      "tcp", 2, at_port([](int rank) {
        return Variables{{"INIT_TIMEOUT", "1500"}, {"GRADUS_TOKEN", rank == 1 ? "wrong" : "right"}};
      }));
  EXPECT_EQ(ends[1].exit_code, 3);
  EXPECT_THAT(ends[1].output, HasSubstr("token"));
  EXPECT_THAT(ends[0].output,
              AllOf(HasSubstr("rank 1 of 2 did not come"),
                    HasSubstr("somebody who came was refused: the token was not this job's")));
}

// Rank 1 becomes a process of another user. They meet by the file MEETING, which rank 1 makes, or by env://.
int with_a_stranger() {
  const std::string meeting = variable("MEETING");
  if (test_rank() == 1) {
    if (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0) {
      std::cout << "stays root" << std::endl;
      return 0;
    }
    unsetenv("HOME");
    unsetenv("XDG_RUNTIME_DIR");
  } else if (!meeting.empty()) {
    for (int i = 0; i < 1000 && !std::filesystem::exists(meeting); ++i)
      std::this_thread::sleep_for(Milliseconds(10));
  }
  InitOptions o{.init_timeout = Milliseconds(2'000)};
  if (!meeting.empty()) o = options("file://" + meeting), o.init_timeout = Milliseconds(2'000);
  init_process_group(o);
  show_sum();
  return 0;
}
const RankFunction with_a_stranger_function{"stranger", with_a_stranger};

TEST(InitProcessGroup, OtherUsersCannotJoinWithoutTheSecret) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  const auto ends = run_processes("stranger", 2, {.variables = torchrun_variables(2, free_port())});
  if (ends[1].output.find("stays root") != std::string::npos) GTEST_SKIP() << "there are no other users here";
  EXPECT_EQ(ends[0].exit_code, 3);
  EXPECT_THAT(ends[0].output, HasSubstr("rank 1 of 2 did not come"));
  EXPECT_EQ(ends[1].exit_code, 3);
  EXPECT_THAT(ends[1].output,
              HasSubstr("the token is not this job's (the one here is that of /tmp/gradus-65534"));
}

TEST(InitProcessGroup, AMeetingThatAnotherUserPreparedIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to be somebody else";
  std::string folder = "/tmp/gradus_meeting_XXXXXX";
  ASSERT_TRUE(mkdtemp(folder.data()));
  ASSERT_EQ(chmod(folder.c_str(), 01777), 0);
  const auto ends = run_processes("stranger", 2, {.variables = [&](int) {
                                    return Variables{{"MEETING", folder + "/meeting"}};
                                  }});
  std::filesystem::remove_all(folder);
  if (ends[1].output.find("stays root") != std::string::npos) GTEST_SKIP() << "there are no other users here";
  EXPECT_THAT(ends[0].output, HasSubstr("is a file of another user (65534)"));
  EXPECT_THAT(ends[1].output, HasSubstr("rank 0 of 2 did not come"));
}

TEST(InitProcessGroup, RanksAgreeOnTheirNumber) {
  const auto other_size = [](int rank) {
    return Variables{{"INIT_TIMEOUT", "1000"}, {"WORLD", std::to_string(2 + rank)}};
  };
  const auto ends = run_processes("tcp", 2, at_port(other_size));
  EXPECT_THAT(ends[0].output + ends[1].output, HasSubstr("has world_size"));
}

// ---- how ranks end

// Rank 1 (0, if WHO is set) ends by HOW. The others call barrier until that fails, and print the error.
int endings() {
  init_process_group(meeting());
  const std::string how = variable("HOW");
  try {
    barrier();
    if (test_rank() == (variable("WHO").empty() ? 1 : 0)) {
      if (how == "throw") std::thread([] { throw ShapeError("matmul", "inner sizes differ"); }).join();
      if (how == "exit 5") std::exit(5);
      if (how == "_exit 5") _exit(5);
      if (how == "kill") raise(SIGKILL);
      if (how == "return") return 0;
    }
    for (;;) barrier();
  } catch (const DistributedError& error) {
    std::cout << "rank " << error.rank() << ": " << error.what() << std::endl;
    return 7;
  }
}
const RankFunction endings_function{"endings", endings};

std::vector<RankEnd> end_by(const std::string& how, bool sockets, bool rank_0 = false) {
  return run_processes(
      "endings", 3, at_meeting({{"HOW", how}, {"SOCKETS", sockets ? "1" : ""}, {"WHO", rank_0 ? "0" : ""}}));
}

// Rows: how rank 1 ends, a part of the other ranks' output, whether data goes through sockets.
TEST(RankEnd, IsAnErrorOnAllOthersThatSaysHow) {
  const std::tuple<const char*, const char*, bool> ways[] = {
      {"throw", "rank 1: [barrier] rank 1 failed: ShapeError: [matmul] inner sizes differ", false},
      {"exit 5", "rank 1: [barrier] rank 1 exited with code 5", true},
      {"_exit 5", "rank 1: [barrier] rank 1 died", false},
      {"kill", "rank 1: [barrier] rank 1 died", false},
      {"kill", "rank 1: [barrier] rank 1 died", true},
      {"return", "rank 1: [barrier] rank 1 has left the job", true},
  };
  for (const auto& [how, text, sockets] : ways) {
    SCOPED_TRACE(concat(how, sockets ? " over sockets" : ""));
    const auto start = std::chrono::steady_clock::now();
    const auto ends = end_by(how, sockets);
    EXPECT_LT(seconds_since(start), 10);
    for (int rank : {0, 2}) {
      EXPECT_EQ(ends[rank].exit_code, 7);
      EXPECT_THAT(ends[rank].output, HasSubstr(text));
    }
  }
}

TEST(RankEnd, OfTheStoresHostIsAnErrorToo) {
  const std::pair<const char*, const char*> ways[] = {
      {"throw", "rank 0 failed: ShapeError: [matmul] inner sizes differ"},
      {"kill", "rank 0"},
  };
  for (const auto& [how, text] : ways) {
    SCOPED_TRACE(how);
    const auto ends = end_by(how, false, true);
    for (int rank : {1, 2}) {
      EXPECT_EQ(ends[rank].exit_code, 7);
      EXPECT_THAT(ends[rank].output, HasSubstr(text));
    }
  }
}

// Calls that only a rank may make, in a child that rank 1 has forked. Prints the outcome of each.
void try_as_a_rank(const Group& group, const Work& pending) {
  const Tensor x = scalar(100);
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"all_reduce", [&] { all_reduce(x); }},
      {"async", [&] { all_reduce(x, {.async_op = true}).wait(); }},
      {"barrier", [&] { barrier({.group = group}); }},
      {"send", [&] { send(x, {.dst = 0}); }},
      {"recv", [&] { recv(x, {.src = 0}); }},
      {"new_group",
       [&] {
         new_group({0, 1});
       }},
      {"user_set", [&] { get_client().user_set("key", "of the child"); }},
      {"wait", [&] { pending.wait(); }},
  };
  for (const auto& [name, call] : calls) {
    try {
      call();
      std::cout << name << ": NO ERROR" << std::endl;
    } catch (const Error& error) {
      const bool is_ours = std::string(error.what()).find("by fork()") != std::string::npos;
      std::cout << name << ": " << (is_ours ? "an error" : error.what()) << std::endl;
    }
  }
}

int forks() {
  init_process_group(meeting());
  const std::string how = variable("HOW");
  {
    const Group group = new_group({0, 1});
    const Tensor y = scalar(1), z = scalar(0);
    all_reduce(y, {.group = group, .async_op = true}).wait();  // the group has a thread now
    const int other = 1 - test_rank();
    const Work pending = irecv(z, {.src = other});
    if (const pid_t child = test_rank() == 1 ? fork() : -1; child == 0) {
      alarm(60);
      try_as_a_rank(group, pending);
      if (how == "destroy") destroy_process_group();
      if (how == "exit") std::exit(0);
      if (how == "_exit") _exit(0);
      return 0;  // the group and the message go
    } else if (child > 0) {
      int status = 0;
      waitpid(child, &status, 0);
      std::cout << "child " << (WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status)) << std::endl;
    }
    const Tensor x = scalar(test_rank());
    send(x, {.dst = other});
    pending.wait();
    std::cout << "got " << z.item<int>() << std::endl;
  }
  show_sum();
  return 0;
}
const RankFunction forks_function{"forks", forks};

TEST(RankEnd, AForkedChildIsNoRank) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "a forked child may find the lock of AddressSanitizer's allocator taken by a thread that it "
         "has not";
#endif
  for (const auto& [how, sockets] :
       {std::pair("destroy", ""), {"exit", "1"}, {"_exit", ""}, {"return", "1"}}) {
    SCOPED_TRACE(how);
    const auto ends = run_processes("forks", 2, at_meeting({{"HOW", how}, {"SOCKETS", sockets}}));
    EXPECT_THAT(ends[0], succeeded("got 1\nsum 3"));
    EXPECT_THAT(ends[1], succeeded("child 0\ngot 0\nsum 3"));
    for (const char* call :
         {"all_reduce", "async", "barrier", "send", "recv", "new_group", "user_set", "wait"})
      EXPECT_THAT(ends[1].output, HasSubstr(concat(call, ": an error")));
  }
}

// A rank is killed while its child lives on. The others must detect its death.
int survived() {
  init_process_group(meeting());
  barrier();
  const std::string done = variable("MEETING") + ".done";
  if (test_rank() == 1) {
    if (fork() == 0) {
      for (int i = 0; i < 800 && !std::filesystem::exists(done); ++i)
        std::this_thread::sleep_for(Milliseconds(10));
      _exit(0);
    }
    raise(SIGKILL);
  }
  const auto start = std::chrono::steady_clock::now();
  try {
    barrier();
  } catch (const DistributedError& error) {
    std::cout << (seconds_since(start) < 6 ? "in time, rank " : "late, rank ") << error.rank() << ": "
              << error.what() << std::endl;
    std::ofstream(done) << "done";
    return 7;
  }
  return 0;
}
const RankFunction survived_function{"survived", survived};

TEST(RankEnd, IsNotHiddenByAForkedChildThatLives) {
  const auto ends = run_processes("survived", 2, at_meeting());
  EXPECT_EQ(ends[0].exit_code, 7);
  EXPECT_THAT(ends[0].output, AllOf(HasSubstr("in time"), HasSubstr("rank 1 died")));
}

// Rank 0, which hosts the store, returns first; the others still use the store.
int host_first() {
  init_process_group(options("tcp://" + variable("ADDRESS")));
  barrier();
  if (test_rank() == 0) return 0;
  std::this_thread::sleep_for(Milliseconds(300));
  Client client = get_client();
  const Group rest = Group();
  if (test_rank() == 1) client.user_set("late", "value");
  std::cout << client.user_get("late") << std::endl;
  const Tensor x = scalar(test_rank());
  if (test_rank() == 1) send(x, {.dst = 2});
  if (test_rank() == 2) recv(x, {.src = 1});
  return 0;
}
const RankFunction host_first_function{"host first", host_first};

TEST(RankEnd, OfTheStoresHostWaitsForTheOthers) {
  const auto ends = run_processes("host first", 3, at_port());
  for (const RankEnd& end : ends) EXPECT_EQ(end.exit_code, 0) << end.output;
  EXPECT_THAT(ends[2].output, HasSubstr("value"));
}

int again() {
  for (int round = 0; round < 3; ++round) {
    init_process_group(options(concat("file://", variable("MEETING"), round)));
    show_sum();
    destroy_process_group();
    destroy_process_group();
  }
  return 0;
}
const RankFunction again_function{"again", again};

TEST(DestroyProcessGroup, AllowsAnotherJob) {
  EXPECT_THAT(run_processes("again", 3, at_meeting()), Each(succeeded("sum 6")));
}

// A rank leaves while a call that it has posted is pending, soon after a barrier with the others. Their
// reports about that barrier must not be taken for a wait for this rank.
int posts_and_leaves() {
  init_process_group(meeting());
  const Group pair = new_group({0, 1});
  const Tensor x = scalar(1);
  if (test_rank() == 2) std::this_thread::sleep_for(Milliseconds(1'000));
  barrier();
  if (test_rank() == 1) std::this_thread::sleep_for(Milliseconds(350));
  if (test_rank() < 2) all_reduce(x, {.group = pair, .async_op = true});
  destroy_process_group();
  std::cout << "left in order" << std::endl;
  return 0;
}
const RankFunction posts_and_leaves_function{"posts-and-leaves", posts_and_leaves};

TEST(DestroyProcessGroup, WaitsForPostedCallsThatOthersComeToLater) {
  EXPECT_THAT(run_processes("posts-and-leaves", 3, at_meeting()), Each(succeeded("left in order")));
}

}  // namespace
}  // namespace gradus::dist
