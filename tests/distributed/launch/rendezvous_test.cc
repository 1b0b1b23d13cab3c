// Jobs over several hosts, which are network namespaces of this machine joined by a bridge: every collective
// on three hosts with two ranks each, a host whose link goes down, a host whose ranks are killed. Skipped
// without root, `ip` or `nsenter`. The ranks run rendezvous_program.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <utility>

#include "gradus/tests/distributed/subprocess.h"

namespace gradus::dist {
namespace {

using testing::HasSubstr;
using Clock = Subprocess::Clock;
using Seconds = std::chrono::duration<double>;

bool is_ok(const std::string& command) { return std::system((command + " > /dev/null 2>&1").c_str()) == 0; }

// The network namespace of a sleeping child process, which dies with this process.
class Network {
 public:
  Network() {
    int ready[2];
    if (pipe(ready) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const char ok = unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
      (void)!write(ready[1], &ok, 1);
      for (;;) pause();
    }
    close(ready[1]);
    char ok = 'n';
    works_ = read(ready[0], &ok, 1) == 1 && ok == 'y' && ip("link set lo up");
    close(ready[0]);
  }
  ~Network() {
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Network(const Network&) = delete;

  bool works() const { return works_; }
  pid_t pid() const { return pid_; }
  // Returns the command that runs argv in the namespace.
  std::vector<std::string> enter(std::vector<std::string> argv) const {
    std::vector<std::string> all = {"/usr/bin/nsenter", "--net=/proc/" + std::to_string(pid_) + "/ns/net",
                                    "--"};
    all.insert(all.end(), argv.begin(), argv.end());
    return all;
  }
  bool ip(const std::string& arguments) const {
    return is_ok("/usr/bin/nsenter --net=/proc/" + std::to_string(pid_) + "/ns/net -- ip " + arguments);
  }

 private:
  pid_t pid_ = -1;
  bool works_ = false;
};

// Hosts 10.77.0.1, 10.77.0.2, ... on one bridge.
class Hosts {
 public:
  explicit Hosts(int count) {
    works_ = switch_.works() && switch_.ip("link add br0 type bridge") && switch_.ip("link set br0 up");
    for (int i = 0; i < count; ++i) {
      const auto& host = hosts_.emplace_back(std::make_unique<Network>());
      works_ = works_ && host->works() &&
               switch_.ip("link add " + port(i) + " type veth peer name eth0 netns " +
                          std::to_string(host->pid())) &&
               switch_.ip("link set " + port(i) + " master br0 up") &&
               host->ip("addr add " + address(i) + "/24 dev eth0") && host->ip("link set eth0 up");
    }
  }
  bool work() const { return works_; }
  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
  const Network& operator[](int host) const { return *hosts_[size_t(host)]; }
  void pull_cable(int host) const { EXPECT_TRUE(switch_.ip("link set " + port(host) + " down")); }

 private:
  static std::string port(int host) { return "port" + std::to_string(host); }
  Network switch_;
  std::vector<std::unique_ptr<Network>> hosts_;
  bool works_ = false;
};

constexpr const char* kProgram = "tests/distributed/group/rendezvous_program";

class Rendezvous : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    if (!is_ok("ip -V") || !is_ok("nsenter -V")) GTEST_SKIP() << "ip or nsenter is missing";
  }
};

void check_collectives(int count) {
  const Hosts hosts(count);
  if (!hosts.work()) GTEST_SKIP() << "no network namespaces here";
  std::vector<std::unique_ptr<Subprocess>> launchers;
  for (int host = 0; host < count; ++host)
    launchers.push_back(std::make_unique<Subprocess>(
        hosts[host].enter({"distributed/launch/gradus-run", "--nnodes", std::to_string(count), "--node-rank",
                           std::to_string(host), "--nproc-per-node", "2", "--master-addr", Hosts::address(0),
                           "--master-port", "29500", kProgram, "collectives"}),
        Subprocess::Variables{{"GRADUS_TOKEN", "secret"}}));
  for (const auto& launcher : launchers) {
    EXPECT_EQ(launcher->wait(), 0) << launcher->out() << launcher->err();
    EXPECT_THAT(launcher->out(), HasSubstr("finished on local rank 0 of 2\n"));
    EXPECT_THAT(launcher->out(), HasSubstr("finished on local rank 1 of 2\n"));
  }
}
TEST_F(Rendezvous, EveryCollectiveIsRightOnThreeHostsWithTwoRanksEach) { check_collectives(3); }

// Two ranks on each of two hosts, without a launcher, that all-reduce until an error. Rank 0 has the store.
class Reducing {
 public:
  // Returns once all have begun to reduce.
  Reducing(const Hosts& hosts, int timeout_ms) {
    for (int rank = 0; rank < 4; ++rank) {
      const Subprocess::Variables variables = {
          {"RANK", std::to_string(rank)},     {"WORLD_SIZE", "4"},
          {"MASTER_ADDR", Hosts::address(0)}, {"MASTER_PORT", "29500"},
          {"GRADUS_TOKEN", "secret"},         {"STARTED", folder_ / std::to_string(rank)}};
      const auto argv = hosts[rank / 2].enter({kProgram, "reduce", std::to_string(timeout_ms)});
      ranks_.push_back(std::make_unique<Subprocess>(argv, variables));
    }
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_TRUE(wait_for_file(folder_ / std::to_string(rank), 30)) << rank;
  }
  void kill(int rank) { ranks_[size_t(rank)]->kill(SIGKILL); }

  // Returns the error that a rank printed, and its time in seconds after `since` (1e9 if it printed none).
  std::pair<std::string, double> failure(int rank, Clock::time_point since) {
    Subprocess& process = *ranks_[size_t(rank)];
    EXPECT_EQ(process.wait(), 0) << process.err();
    std::istringstream out(process.out());
    std::string word, text;
    int64_t when = 0;
    out >> word >> when;
    std::getline(out, text);
    if (word != "failed") return {process.out(), 1e9};
    return {text, Seconds(Clock::time_point(std::chrono::milliseconds(when)) - since).count()};
  }

 private:
  const TestFolder folder_;
  std::vector<std::unique_ptr<Subprocess>> ranks_;
};

void check_cut(int cut) {
  const Hosts hosts(2);
  if (!hosts.work()) GTEST_SKIP() << "no network namespaces here";
  Reducing ranks(hosts, 3000);
  const auto start = Clock::now();
  hosts.pull_cable(cut);
  for (int rank = 0; rank < 4; ++rank) {
    const auto [text, seconds] = ranks.failure(rank, start);
    std::cout << "rank " << rank << " after " << seconds << " s:" << text << std::endl;
    EXPECT_THAT(text, HasSubstr("Error"));
    EXPECT_LT(seconds, 3 + 2) << rank;
    // The first host has the store, which knows the silent ranks. The second host cannot reach the store.
    EXPECT_THAT(text, HasSubstr(rank < 2 ? "no sign of life" : "is this host cut off?"));
  }
}
TEST_F(Rendezvous, AHostThatIsCutOffIsAnErrorEverywhereSoonAfterTheTimeout) { check_cut(1); }
TEST_F(Rendezvous, AFirstHostThatIsCutOffIsAnErrorEverywhereSoonAfterTheTimeout) { check_cut(0); }

TEST_F(Rendezvous, AHostThatDiesIsAnErrorOnTheOthersWithinTwoSeconds) {
  const Hosts hosts(2);
  if (!hosts.work()) GTEST_SKIP() << "no network namespaces here";
  Reducing ranks(hosts, 60'000);
  const auto start = Clock::now();
  for (const int rank : {2, 3}) ranks.kill(rank);
  for (const int rank : {0, 1}) {
    const auto [text, seconds] = ranks.failure(rank, start);
    std::cout << "rank " << rank << " after " << seconds << " s:" << text << std::endl;
    EXPECT_THAT(text, HasSubstr("PeerError"));
    EXPECT_LT(seconds, 2);
  }
}

}  // namespace
}  // namespace gradus::dist
