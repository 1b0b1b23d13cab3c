// Every collective on every backend: one list of cases (collective_cases.h), run by ranks as threads and by
// processes. All cases of a backend and world size run in one job; each op's results are a test of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/tests/distributed/group/collective_cases.h"
#include "gradus/tests/distributed/rank_processes.h"

namespace gradus::dist {
namespace {

struct Outcome {
  std::map<std::string, std::string> wrong;  // by op
  std::map<std::string, int> cases;          // number by op
  int finished = 0;                          // ranks
};

// Runs all cases on the calling rank. `report` takes lines: "ran OP COUNT", "wrong OP TEXT", "finished".
void run_cases(const CaseLimits& limits, const std::function<void(const std::string&)>& report) {
  std::map<std::string, int> ran;
  bool stop = false;
  for (const CollectiveCase& c : collective_cases(limits)) {
    std::string wrong;
    try {
      wrong = c.run();
    } catch (const std::exception& error) {
      wrong = error.what();
      stop = true;  // the ranks are no longer in step
    }
    std::ranges::replace(wrong, '\n', ' ');
    if (!wrong.empty()) report(concat("wrong ", c.op, " rank ", get_rank(), ": ", c.name, ": ", wrong));
    ++ran[c.op];
    if (stop) return;
  }
  for (const auto& [op, count] : ran) report(concat("ran ", op, ' ', count));
  report("finished");
}

void read_report(const std::string& line, Outcome& outcome) {
  std::istringstream words(line);
  std::string kind, op, rest;
  words >> kind >> op;
  std::getline(words, rest);
  if (kind == "wrong") outcome.wrong[op] += rest + '\n';
  if (kind == "ran") outcome.cases[op] = std::atoi(rest.c_str());
  if (kind == "finished") ++outcome.finished;
}

Outcome run_threads(int world, const RunRanksOptions& options) {
  Outcome outcome;
  std::mutex mutex;
  const auto report = [&](const std::string& line) {
    std::lock_guard lock(mutex);
    read_report(line, outcome);
  };
  try {
    run_ranks(
        world, [&] { run_cases({}, report); }, options);
  } catch (const std::exception& error) {
    outcome.wrong["start"] += error.what();
  }
  return outcome;
}

int run_rank() {
  join_job();
  // Sockets carry bytes. Other dtypes are tested with threads that use messages.
  CaseLimits limits;
  if (!std::getenv("SHARED_MEMORY")) limits.dtypes = {DType::kF32, DType::kU8};
  run_cases(limits, [](const std::string& line) { std::cout << line + '\n' << std::flush; });
  destroy_process_group();
  return 0;
}
const RankFunction rank_function{"cases", run_rank};

Outcome run_as_processes(int world, bool shared_memory) {
  ProcessOptions options = job_options(shared_memory);
  options.limit = Milliseconds(240'000);
  Outcome outcome;
  for (const RankEnd& end : run_processes("cases", world, options)) {
    std::istringstream lines(end.output);
    for (std::string line; std::getline(lines, line);) read_report(line, outcome);
    if (end.exit_code != 0)
      outcome.wrong["start"] += concat("exit code ", end.exit_code, ", signal ", end.signal, ": ",
                                       end.output.substr(0, 2000), '\n');
  }
  return outcome;
}

// Runs a job once and keeps its outcome. Threads: "local" shared memory, "messages", "hosts" and
// "three_hosts" simulated hosts. Processes: "gloo" shared memory, "sockets".
const Outcome& run_job(const std::string& backend, int world) {
  static std::map<std::pair<std::string, int>, Outcome> done;
  const auto [it, fresh] = done.try_emplace({backend, world});
  if (!fresh) return it->second;
  Outcome& outcome = it->second;
  const Milliseconds timeout(60'000);
  if (backend == "local") outcome = run_threads(world, {.timeout = timeout});
  if (backend == "messages") outcome = run_threads(world, {.timeout = timeout, .messages_only = true});
  if (backend == "hosts") outcome = run_threads(world, {.timeout = timeout, .hosts = 2});
  if (backend == "three_hosts") outcome = run_threads(world, {.timeout = timeout, .hosts = 3});
  if (backend == "gloo") outcome = run_as_processes(world, true);
  if (backend == "sockets") outcome = run_as_processes(world, false);
  return outcome;
}

struct Parameter {
  std::string backend;
  int world;
  std::string op;
};
std::ostream& operator<<(std::ostream& out, const Parameter& p) { return out << p.op << " of " << p.world; }

class Collectives : public testing::TestWithParam<Parameter> {};

TEST_P(Collectives, GiveTheClosedForm) {
  const auto& [backend, world, op] = GetParam();
  const Outcome& outcome = run_job(backend, world);
  const auto text = [&](const std::string& of) {
    const auto it = outcome.wrong.find(of);
    return it == outcome.wrong.end() ? "" : it->second.substr(0, 4000);
  };
  EXPECT_EQ(text(op), "");
  EXPECT_EQ(text("start"), "");
  // A rank that stopped at another op has not run all cases of this op.
  EXPECT_EQ(outcome.finished, world) << "not all ranks came to the end";
  const bool needs_peer = op == "send_recv" || op == "batch_isend_irecv";
  EXPECT_TRUE(world == 1 && needs_peer ? true : outcome.cases.contains(op)) << "no cases";
}

std::vector<Parameter> parameters(const char* backend, const std::vector<int>& worlds) {
  std::vector<Parameter> all;
  for (int world : worlds)
    for (const std::string& op : collective_ops()) all.push_back({backend, world, op});
  return all;
}
std::string name_of(const testing::TestParamInfo<Parameter>& info) {
  return concat(info.param.op, "_world", info.param.world);
}

// Numbers of ranks that are powers of two and others, and hosts with equal and unequal shares.
INSTANTIATE_TEST_SUITE_P(Local, Collectives, testing::ValuesIn(parameters("local", {1, 2, 3, 5, 8})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Messages, Collectives, testing::ValuesIn(parameters("messages", {2, 3, 5, 8})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Hosts, Collectives, testing::ValuesIn(parameters("hosts", {3, 4, 7})), name_of);
INSTANTIATE_TEST_SUITE_P(ThreeHosts, Collectives, testing::ValuesIn(parameters("three_hosts", {5, 6})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Gloo, Collectives, testing::ValuesIn(parameters("gloo", {1, 2, 3, 8})), name_of);
INSTANTIATE_TEST_SUITE_P(Sockets, Collectives, testing::ValuesIn(parameters("sockets", {2, 3, 5})), name_of);

}  // namespace
}  // namespace gradus::dist
