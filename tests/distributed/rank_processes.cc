// Starts rank processes of the test program and collects their output. main() runs the tests, or, if the
// variable GRADUS_TEST_FUNCTION names one, a rank's function.
#include "gradus/tests/distributed/rank_processes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <map>
#include <stdexcept>

#include "gradus/distributed/group/process_group.h"

extern char** environ;

namespace gradus::dist {
namespace {

std::map<std::string, std::function<int()>>& functions() {
  static auto& functions = *new std::map<std::string, std::function<int()>>;
  return functions;
}

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

struct Rank {
  pid_t pid = -1;
  int out = -1;
  RankEnd end;
};

Rank start(const std::string& function, int rank, int world, const Variables& variables) {
  std::vector<std::string> environment;
  for (char** at = environ; *at; ++at) environment.push_back(*at);
  const auto set = [&](const std::string& name, const std::string& value) {
    std::erase_if(environment, [&](const std::string& v) { return v.starts_with(name + "="); });
    environment.push_back(name + "=" + value);
  };
  // Removes the variables of a launcher that may run the tests.
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    std::erase_if(environment, [&](const std::string& v) { return v.starts_with(std::string(name) + "="); });
  set("GRADUS_TEST_FUNCTION", function);
  set("GRADUS_TEST_RANK", std::to_string(rank));
  set("GRADUS_TEST_WORLD", std::to_string(world));
  for (const auto& [name, value] : variables) set(name, value);
  std::vector<char*> pointers;
  for (std::string& v : environment) pointers.push_back(v.data());
  pointers.push_back(nullptr);

  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  char name[] = "rank";
  char* const arguments[] = {name, nullptr};
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(99);  // the parent died before prctl
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    execve("/proc/self/exe", arguments, pointers.data());
    _exit(98);  // execve failed
  }
  close(ends[1]);
  return {pid, ends[0], {}};
}

}  // namespace

RankFunction::RankFunction(const std::string& name, std::function<int()> body) {
  functions()[name] = std::move(body);
}

int test_rank() { return std::atoi(variable("GRADUS_TEST_RANK")); }
int test_world() { return std::atoi(variable("GRADUS_TEST_WORLD")); }

std::vector<RankEnd> run_processes(const std::string& function, int world, const ProcessOptions& options) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.push_back(start(function, rank, world, options.variables ? options.variables(rank) : Variables()));

  const auto deadline = std::chrono::steady_clock::now() + options.limit;
  bool killed = false;
  for (;;) {
    std::vector<pollfd> open;
    std::vector<Rank*> who;
    for (Rank& rank : ranks)
      if (rank.out >= 0) {
        open.push_back({rank.out, POLLIN, 0});
        who.push_back(&rank);
      }
    if (open.empty()) break;
    poll(open.data(), open.size(), 100);
    for (size_t i = 0; i < open.size(); ++i) {
      if (!open[i].revents) continue;
      char bytes[4096];
      const ssize_t n = read(open[i].fd, bytes, sizeof bytes);
      if (n > 0) {
        who[i]->end.output.append(bytes, n);
      } else {
        close(open[i].fd);
        who[i]->out = -1;
      }
    }
    if (!killed && std::chrono::steady_clock::now() > deadline) {
      killed = true;
      for (Rank& rank : ranks) {
        rank.end.output += "\n(killed: the time was over)";
        kill(rank.pid, SIGKILL);
      }
    }
  }
  std::vector<RankEnd> ends;
  for (Rank& rank : ranks) {
    int status = 0;
    waitpid(rank.pid, &status, 0);
    if (WIFEXITED(status)) rank.end.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) rank.end.signal = WTERMSIG(status);
    ends.push_back(std::move(rank.end));
  }
  return ends;
}

ProcessOptions job_options(bool shared_memory, Variables more) {
  more.emplace_back("MEETING", fresh_path("meeting"));
  more.emplace_back("OMP_NUM_THREADS", "1");
  if (shared_memory) more.emplace_back("SHARED_MEMORY", "1");
  return {.variables = [more](int) { return more; }};
}

void join_job(Milliseconds timeout, bool nccl) {
  init_process_group({.backend = nccl ? "cpu:gloo,cuda:nccl" : "gloo",
                      .init_method = std::string("file://") + variable("MEETING"),
                      .world_size = test_world(),
                      .rank = test_rank(),
                      .timeout = timeout,
                      .shared_memory = *variable("SHARED_MEMORY") != 0});
}

std::string fresh_path(const std::string& name) {
  namespace fs = std::filesystem;
  static const std::string folder = [] {
    std::string pattern = (fs::temp_directory_path() / "gradus_ranks_XXXXXX").string();
    if (const char* given = std::getenv("TEST_TMPDIR")) pattern = std::string(given) + "/ranks_XXXXXX";
    if (!mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp");
    static struct Remove {
      std::string path;
      pid_t owner = getpid();
      ~Remove() {
        std::error_code ignored;
        if (getpid() == owner) fs::remove_all(path, ignored);
      }
    } remove{pattern};
    return pattern;
  }();
  static std::atomic<int> count{0};
  return folder + "/" + name + std::to_string(count.fetch_add(1));
}

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw std::runtime_error("bind");
  close(fd);
  return ntohs(address.sin_port);
}

}  // namespace gradus::dist

int main(int argc, char** argv) {
  const std::string function = gradus::dist::variable("GRADUS_TEST_FUNCTION");
  if (function.empty()) {
    testing::InitGoogleMock(&argc, argv);
    return RUN_ALL_TESTS();
  }
  try {
    return gradus::dist::functions().at(function)();
  } catch (const std::exception& error) {
    std::cout << "exception: " << error.what() << std::endl;
    return 3;
  }
}
