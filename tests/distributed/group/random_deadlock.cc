// A seed makes a program of calls and messages for each rank. Which ranks deadlock is computed from the order
// of the calls alone, and compared with the errors of ranks that run the program in a simulation.
#include "gradus/tests/distributed/group/random_deadlock.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/world.h"
#include "gradus/distributed/simulation/simulation.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::dist {
namespace {

constexpr Milliseconds kTimeout{600'000}, kAtOnce{2'000};  // of virtual time
// Where a call is made: in the world, a copy of it, the ranks of equal parity, the lower or upper half of the
// ranks, a copy used on a second thread (if a rank has one), the store's barrier, or as a message between two
// ranks.
enum Lane { kAll, kCopy, kOdd, kHalf, kSide, kBarrier, kGroups, kMessage = kGroups, kLanes };
const char* const kNames[] = {"all", "copy", "odd", "half", "side", "barrier", "message"};

struct Action {
  enum Kind { kCompute, kIssue, kWait, kSend, kReceive } kind;
  Lane lane = kAll;
  int call = 0;          // number of the call in its lane, from 1
  int op = 0;            // 0 all_reduce, 1 barrier, 2 broadcast, 3 reduce
  bool async = false;    // kIssue: kWait is a later action
  Milliseconds time{};   // kCompute
  int from = 0, to = 0;  // of a message
};

// The actions of one rank, by thread.
using Threads = std::vector<std::vector<Action>>;

struct Program {
  int hosts = 1, world = 2;
  bool messages_only = false;
  std::vector<Threads> ranks;

  explicit Program(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](int n) { return int(random() % uint64_t(n)); };
    hosts = 1 + below(2);
    world = std::max(2, hosts * (1 + below(3)));
    messages_only = below(4) == 0;
    // Calls in the order of most ranks.
    std::vector<Action> calls;
    std::map<Lane, int> counts;
    for (int i = 0, n = 2 + below(6); i < n; ++i) {
      const Lane lane = Lane(below(kLanes));
      if (lane == kMessage) {
        const int from = below(world), to = (from + 1 + below(world - 1)) % world;
        calls.push_back({.kind = Action::kSend, .lane = lane, .from = from, .to = to});
        continue;
      }
      calls.push_back({.kind = Action::kIssue,
                       .lane = lane,
                       .call = ++counts[lane],
                       .op = below(4),
                       .async = lane != kBarrier && below(3) == 0});
    }
    // Some ranks swap neighboring calls of different groups, or messages, which may deadlock.
    const int swaps = below(2) ? 1 + below(2) : 0;
    std::vector<std::vector<Action>> orders(world, calls);
    for (int i = 0; i < swaps; ++i) {
      std::vector<Action>& order = orders[below(world)];
      const int at = below(int(order.size()) - 1);
      const bool same = order[at].lane == order[at + 1].lane && order[at].from == order[at + 1].from;
      if (!same) std::swap(order[at], order[at + 1]);
    }
    const bool is_slow = below(2) == 0;
    for (int rank = 0; rank < world; ++rank) {
      const bool has_side = below(3) == 0;
      Threads threads(has_side ? 2 : 1);
      std::vector<std::vector<Action>> to_wait(threads.size());
      for (const Action& call : orders[rank]) {
        if (call.lane == kMessage && rank != call.from && rank != call.to) continue;
        const size_t t = has_side && call.lane == kSide;
        if (is_slow && below(3) == 0)
          threads[t].push_back({.kind = Action::kCompute, .time = Milliseconds(below(30'000))});
        threads[t].push_back(call);
        Action wait = call;
        wait.kind = Action::kWait;
        if (call.lane == kMessage)
          threads[t].back().kind = rank == call.from ? Action::kSend : Action::kReceive;
        else if (call.async)
          to_wait[t].push_back(wait);
        else
          threads[t].push_back(wait);
        if (!to_wait[t].empty() && below(2)) {
          threads[t].push_back(to_wait[t].front());
          to_wait[t].erase(to_wait[t].begin());
        }
      }
      for (size_t t = 0; t < threads.size(); ++t)
        threads[t].insert(threads[t].end(), to_wait[t].begin(), to_wait[t].end());
      ranks.push_back(std::move(threads));
    }
  }

  std::vector<int> members(Lane lane, int rank) const {
    std::vector<int> members;
    for (int other = 0; other < world; ++other)
      if (lane == kOdd    ? other % 2 == rank % 2
          : lane == kHalf ? (other < world / 2) == (rank < world / 2)
                          : true)
        members.push_back(other);
    return members;
  }

  // The ranks that can never end, by the order of calls alone. Sets `open` if a rank is stuck only on its
  // second thread: the main thread joins it, a wait that is not reported.
  std::set<int> deadlocked(bool* open) const {
    std::vector<std::vector<size_t>> next;                    // action, by rank and thread
    std::map<std::pair<int, Lane>, std::vector<int>> issued;  // and not done, in order
    std::map<std::pair<int, Lane>, std::set<int>> done;
    std::map<std::pair<int, int>, int> under_way;  // messages
    for (const Threads& threads : ranks) next.emplace_back(threads.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < world; ++rank)
        for (size_t t = 0; t < ranks[rank].size(); ++t) {
          const std::vector<Action>& actions = ranks[rank][t];
          size_t& at = next[rank][t];
          if (at == actions.size()) continue;
          const Action& action = actions[at];
          if (action.kind == Action::kWait && !done[{rank, action.lane}].contains(action.call)) continue;
          if (action.kind == Action::kSend) ++under_way[{action.from, action.to}];
          if (action.kind == Action::kReceive && under_way[{action.from, action.to}]-- == 0) {
            ++under_way[{action.from, action.to}];
            continue;
          }
          if (action.kind == Action::kIssue) issued[{rank, action.lane}].push_back(action.call);
          ++at;
          moved = true;
        }
      for (int rank = 0; rank < world; ++rank)
        for (int lane = 0; lane < kGroups; ++lane) {
          const std::vector<int> all = members(Lane(lane), rank);
          const auto is_here = [&](int member) { return !issued[{member, Lane(lane)}].empty(); };
          if (!std::ranges::all_of(all, is_here)) continue;
          for (int member : all) {
            std::vector<int>& calls = issued[{member, Lane(lane)}];
            done[{member, Lane(lane)}].insert(calls.front());
            calls.erase(calls.begin());
          }
          moved = true;
        }
    }
    std::set<int> stuck;
    for (int rank = 0; rank < world; ++rank)
      for (size_t t = 0; t < ranks[rank].size(); ++t)
        if (next[rank][t] < ranks[rank][t].size()) {
          stuck.insert(rank);
          *open = *open || (t == 1 && next[rank][0] == ranks[rank][0].size());
        }
    return stuck;
  }

  std::string text() const {
    std::string text =
        concat(world, " ranks on ", hosts, messages_only ? " hosts (messages only)" : " hosts", '\n');
    for (int rank = 0; rank < world; ++rank)
      for (size_t t = 0; t < ranks[rank].size(); ++t) {
        text += concat("  rank ", rank, t == 0 ? ":" : ", another thread:");
        for (const Action& a : ranks[rank][t])
          text += a.kind == Action::kCompute   ? concat(' ', a.time.count(), "ms")
                  : a.kind == Action::kSend    ? concat(" to", a.to)
                  : a.kind == Action::kReceive ? concat(" from", a.from)
                                               : concat(a.kind == Action::kIssue ? " " : " (", kNames[a.lane],
                                                        '#', a.call, a.kind == Action::kIssue ? "" : ")");
        text += '\n';
      }
    return text;
  }
};

struct Ledger {
  std::map<std::pair<int, size_t>, TimePoint> came;  // (rank, thread) -> begin of its last action
  std::map<int, TimePoint> failed;                   // rank -> time of its error
};

void compute(Milliseconds time) {
  const Membership& job = *internal::World::current()->membership;
  internal::Simulation::current()->block([&] { return job.failed(); }, now() + time, "computing");
  job.check("compute");
}

void run_thread(const Program& program, size_t thread, const std::vector<Group>& groups, Ledger& ledger) {
  const int rank = get_rank();
  std::map<std::pair<Lane, int>, Work> works;
  for (const Action& action : program.ranks[rank][thread]) {
    if (!internal::World::current()->membership->failed()) ledger.came[{rank, thread}] = now();
    if (action.kind == Action::kCompute) {
      compute(action.time);
    } else if (action.kind == Action::kSend) {
      isend(full({16}, rank), {.dst = action.to});
    } else if (action.kind == Action::kReceive) {
      recv(full({16}, rank), {.src = action.from});
    } else if (action.kind == Action::kWait) {
      if (const auto work = works.find({action.lane, action.call}); work != works.end()) work->second.wait();
    } else if (action.lane == kBarrier) {
      group_barrier(groups[kAll]);
    } else {
      const Group& group = groups[action.lane];
      const Tensor x = full({16}, rank);
      Work& work = works[{action.lane, action.call}];
      if (action.op == 0)
        work = all_reduce(x, {.group = group, .async_op = action.async});
      else if (action.op == 1)
        work = barrier({.group = group, .async_op = action.async});
      else if (action.op == 2)
        work = broadcast(x, {.src = group.ranks()[0], .group = group, .async_op = action.async});
      else
        work = reduce(x, {.dst = group.ranks()[0], .group = group, .async_op = action.async});
    }
  }
}

void run_rank(const Program& program, Ledger& ledger) {
  const int rank = get_rank();
  const Group all = world();
  const std::vector<Group> groups{all, all.duplicate(), all.split(rank % 2),
                                  all.split(rank < program.world / 2), all.duplicate()};
  std::exception_ptr error;
  std::thread side;
  if (program.ranks[rank].size() > 1)
    side = internal::start_thread([&] {
      const WaitScope thread(*internal::World::current()->membership, Wait::program_thread());
      try {
        run_thread(program, 1, groups, ledger);
      } catch (const Error&) {
        error = std::current_exception();
      }
    });
  struct Join {
    std::thread& thread;
    ~Join() {
      if (thread.joinable()) internal::join_thread(thread);
    }
  };
  try {
    Join join{side};
    run_thread(program, 0, groups, ledger);
  } catch (const Error&) {
    ledger.failed[rank] = now();
    throw;
  }
  if (error) {
    ledger.failed[rank] = now();
    std::rethrow_exception(error);
  }
}

// The number of different groups and messages that an error names.
int calls_named(const std::string& text) {
  std::set<std::string> names;
  for (size_t at = text.find("of group '"); at != text.npos; at = text.find("of group '", at + 1)) {
    // A barrier of the store is another call of the same group.
    const size_t call = text.rfind(' ', at - 2);
    names.insert((text.substr(call + 1).starts_with("group_barrier") ? "barrier of " : "") +
                 text.substr(at, text.find('\'', at + 10) - at));
  }
  constexpr std::string_view kReceive = "recv from rank ";
  for (size_t at = text.find(kReceive); at != text.npos; at = text.find(kReceive, at + 1))
    names.insert(text.substr(at, text.find('(', at) - at));
  return int(names.size());
}

}  // namespace

DeadlockReport try_deadlock(uint64_t seed) {
  const Program program(seed);
  Ledger ledger;
  const SimulationReport report = simulate(program.world,
                                           {.seed = seed,
                                            .messages_only = program.messages_only,
                                            .hosts = program.hosts,
                                            .timeout = kTimeout,
                                            .give_up = std::chrono::hours(3)},
                                           [&] { run_rank(program, ledger); });
  bool open = false;
  const std::set<int> stuck = program.deadlocked(&open);
  std::string wrong = report.hung ? "it hung\n" : "";
  TimePoint all_came{};
  for (const auto& [thread, time] : ledger.came)
    if (stuck.contains(thread.first)) all_came = std::max(all_came, time);
  for (int rank = 0; rank < program.world; ++rank) {
    std::string text;
    bool is_mismatch = false;
    try {
      if (report.errors[size_t(rank)]) std::rethrow_exception(report.errors[size_t(rank)]);
    } catch (const MismatchError& error) {
      text = error.what();
      is_mismatch = true;
    } catch (const std::exception& error) {
      text = error.what();
    }
    const bool has_failed = ledger.failed.contains(rank);
    if (stuck.empty() ? !text.empty()
                      : !open && stuck.contains(rank) && (!is_mismatch || calls_named(text) < 2))
      wrong += concat("rank ", rank, stuck.empty() ? " has an error: " : " is not told: ", text, '\n');
    if (!open && has_failed && stuck.contains(rank) && ledger.failed[rank] - all_came > kAtOnce)
      wrong += concat("rank ", rank, " is told late: ", text, '\n');
  }
  if (!wrong.empty()) wrong = concat("deadlock ", seed, ", ", program.text(), wrong);
  return {wrong, !stuck.empty()};
}

}  // namespace gradus::dist
