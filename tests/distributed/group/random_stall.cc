#include "gradus/tests/distributed/group/random_stalls.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/world.h"
#include "gradus/distributed/simulation/simulation.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::dist {
namespace {

constexpr Milliseconds kTimeout{10'000}, kForever{std::chrono::hours(1)};
constexpr int kSteps = 8;

// What ranks did until the job failed, written down by their program: nothing of it comes from the reports of
// which errors are made.
class Ledger {
 public:
  using Ranks = std::vector<int>;

  // This rank comes to its next call with these others, and waits there.
  void comes(const std::string& what, const Ranks& members) {
    posts(what, members);
    awaits(what, members);
  }
  // It comes, and does not wait yet.
  void posts(const std::string& what, const Ranks& members) {
    if (!failed()) ++calls_[{what, members}][get_rank()];
  }
  void awaits(const std::string& what, const Ranks& members) {
    if (!failed()) waits_[get_rank()] = Wait{{what, members}, calls_[{what, members}][get_rank()]};
  }
  // It waits for a message from one of them; `any`: from whoever sends first.
  void receives(const Ranks& sources, bool any) {
    if (!failed()) waits_[get_rank()] = Wait{{}, 0, sources, any};
  }
  void goes_on() {
    if (!failed()) waits_.erase(get_rank());
  }

  // Those who wait for each other in collectives or for messages of given ranks, and would for ever.
  std::set<int> deadlocked(int world) const {
    std::set<int> going;
    for (int rank = 0; rank < world; ++rank)
      if (!waits_.contains(rank) || waits_.at(rank).any) going.insert(rank);
    spread(going);
    std::set<int> deadlocked;
    for (int rank = 0; rank < world; ++rank)
      if (!going.contains(rank)) deadlocked.insert(rank);
    return deadlocked;
  }

  // Who may have held the others up. Those who wait for nobody; else each rank that, by coming wherever
  // others wait for it, would have let all of them go on, one by one. Of ranks that are in a deadlock,
  // these alone count.
  std::set<int> suspects(int world) const {
    const std::set<int> stuck = deadlocked(world);
    std::set<int> suspects, others;
    for (int rank = 0; rank < world; ++rank) {
      if (!waits_.contains(rank)) suspects.insert(rank);
      if (!stuck.empty() && !stuck.contains(rank)) others.insert(rank);
    }
    if (stuck.empty() && !suspects.empty()) return suspects;
    suspects.clear();
    for (int one = 0; one < world; ++one) {
      std::set<int> going = others;
      if (!going.insert(one).second) continue;
      spread(going);
      if (int(going.size()) == world) suspects.insert(one);
    }
    return suspects;
  }

 private:
  using Call = std::pair<std::string, Ranks>;
  struct Wait {
    Call call;
    int number = 0;  // of the rank's calls of this kind
    Ranks sources = {};
    bool any = false;
  };

  // Adds those for whom these are enough.
  void spread(std::set<int>& going) const {
    for (bool more = true; more;) {
      more = false;
      for (const auto& [rank, wait] : waits_)
        if (ends(wait, going)) more = going.insert(rank).second || more;
    }
  }

  bool ends(const Wait& wait, const std::set<int>& going) const {
    const auto goes = [&](int rank) { return going.contains(rank); };
    if (!wait.sources.empty()) return std::ranges::any_of(wait.sources, goes);
    const auto& counts = calls_.at(wait.call);
    const auto came = [&](int rank) { return counts.contains(rank) ? counts.at(rank) : 0; };
    const auto& members = wait.call.second;
    // Calls run in order: this one, or one before it, is for whom the fewest have come.
    const int next = came(*std::ranges::min_element(members, {}, came)) + 1;
    return std::ranges::all_of(
        members, [&](int rank) { return came(rank) >= std::min(next, wait.number) || goes(rank); });
  }

  static bool failed() { return internal::World::current()->membership->failed(); }

  std::map<Call, std::map<int, int>> calls_;  // how many of each, by rank
  std::map<int, Wait> waits_;                 // by rank
};

struct Stall {
  enum How { kComputes, kKey, kReceives, kReceivesAny, kOtherGroup, kPostedCall, kSkips, kHows };
  enum Op {
    kAllReduce,
    kOdd,
    kHalf,
    kLarge,
    kGroupBarrier,
    kOddPosted,
    kAllGather,
    kBroadcast,
    kOddLater,
    kOps
  };
  int hosts = 1, world = 2;
  bool messages_only = false;
  int culprit = 0, step = 0;
  How how = kComputes;
  std::vector<Op> ops;  // of the steps
  mutable Ledger ledger;

  explicit Stall(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](int n) { return int(random() % uint64_t(n)); };
    hosts = 1 + below(3);
    const int each = 1 + below(4);
    world = std::max(2, hosts * each);
    messages_only = below(4) == 0;
    culprit = below(world);
    step = below(kSteps);
    how = How(below(kHows));
    for (int i = 0; i < kSteps; ++i) ops.push_back(Op(below(kOps)));
    // What all are in cannot be left out without a mismatch.
    const int members = int(members_of(ops[step], culprit).size());
    if (how == kSkips && (members == 1 || members == world)) how = kComputes;
  }

  std::string text() const {
    const char* const hows[] = {"computes",
                                "waits for a key",
                                "receives",
                                "receives from anyone",
                                "is in another group's call",
                                "computes with a call under way",
                                "leaves a call out and goes on"};
    std::string text = concat(world, " ranks on ", hosts, messages_only ? " hosts (messages only)" : " hosts",
                              ": rank ", culprit, ' ', hows[how], " before step ", step, " of");
    for (int op : ops) text += concat(' ', op);
    return text;
  }

  void run() const {
    const int rank = get_rank();
    const Group all = dist::world(), never = all.duplicate();
    const Group odd = all.split(rank % 2), half = all.split(rank < world / 2);
    std::optional<Work> later;
    const auto finish_later = [&] {
      if (!later) return;
      ledger.awaits("odd", members_of(kOdd, rank));
      later->wait();
      later.reset();
    };
    for (int i = 0; i < kSteps; ++i) {
      if (rank == culprit && i == step) {
        if (how == kSkips) continue;
        stall(never);
      }
      const Op op = ops[i];
      const Group& group = op == kHalf ? half : op == kOdd || op == kOddPosted || op == kOddLater ? odd : all;
      const std::string what = op == kGroupBarrier ? "barrier"
                               : &group == &odd    ? "odd"
                               : &group == &half   ? "half"
                                                   : "all";
      const std::vector<int> members = members_of(op, rank);
      Tensor x = full({op == kLarge ? 40'000 : 16}, rank);
      if (op == kOddLater) {
        finish_later();
        ledger.posts(what, members);
        later = all_reduce(x, {.group = group, .async_op = true});
        ledger.goes_on();
        continue;
      }
      ledger.comes(what, members);
      if (op == kGroupBarrier) {
        group_barrier();
      } else if (op == kOddPosted) {
        all_reduce(x, {.group = group, .async_op = true}).wait();
      } else if (op == kAllGather) {
        all_gather(x);
      } else if (op == kBroadcast) {
        broadcast(x, {.src = i % world});
      } else {
        all_reduce(x, {.group = group});
      }
      finish_later();
      ledger.goes_on();
    }
    finish_later();
    ledger.comes("all", members_of(kAllReduce, rank));
    barrier();
  }

 private:
  std::vector<int> members_of(Op op, int rank) const {
    std::vector<int> members;
    for (int other = 0; other < world; ++other) {
      const bool same_odd = other % 2 == rank % 2, same_half = (other < world / 2) == (rank < world / 2);
      if (op == kHalf ? same_half : op == kOdd || op == kOddPosted || op == kOddLater ? same_odd : true)
        members.push_back(other);
    }
    return members;
  }

  void stall(const Group& never) const {
    Tensor x = ones({4});
    std::vector<int> others = members_of(kAllReduce, culprit);
    if (how == kOtherGroup) {
      ledger.comes("never", others);
      all_reduce(x, {.group = never, .timeout = kForever});
    }
    std::erase(others, culprit);
    if (how == kReceives) {
      ledger.receives({(culprit + 1) % world}, false);
      recv(x, {.src = (culprit + 1) % world, .timeout = kForever});
    }
    if (how == kReceivesAny) {
      ledger.receives(others, true);
      recv(x, {.timeout = kForever});
    }
    if (how == kKey) get_client().user_get("never", 1, kForever);
    if (how == kPostedCall) all_reduce(x, {.group = never, .async_op = true, .timeout = kForever});
    const Membership& job = *internal::World::current()->membership;
    internal::Simulation::current()->block([&] { return job.failed(); }, now() + kForever, "a stall");
  }
};

// The ranks that an error's first words name: "[op] rank 1 or rank 2 holds up", "[op] ranks 1, 2
// did not come to".
std::set<int> named_in(const std::string& text) {
  const size_t begin = text.find("] "), end = std::min(text.find(" did not come to "), text.find(" hold"));
  std::set<int> named;
  if (begin == text.npos || end == text.npos) return named;
  for (size_t i = begin; i < end; ++i)
    if (std::isdigit(text[i]) && !std::isdigit(text[i - 1])) named.insert(std::stoi(text.substr(i)));
  return named;
}

}  // namespace

StallReport try_stall(uint64_t seed) {
  const Stall stall(seed);
  const SimulationReport report = simulate(stall.world,
                                           {.seed = seed,
                                            .messages_only = stall.messages_only,
                                            .hosts = stall.hosts,
                                            .timeout = kTimeout,
                                            .give_up = std::chrono::hours(3)},
                                           [&] { stall.run(); });
  const std::set<int> suspects = stall.ledger.suspects(stall.world);
  const bool is_deadlock = !stall.ledger.deadlocked(stall.world).empty();
  std::string wrong = report.hung ? "it hung\n" : "";
  std::string may = "it may be";
  for (int rank : suspects) may += concat(' ', rank);
  if (!suspects.contains(stall.culprit)) wrong += may + '\n';
  for (int rank = 0; rank < stall.world; ++rank) {
    std::string text = "no error";
    int at_fault = -1;
    try {
      if (report.errors[size_t(rank)]) std::rethrow_exception(report.errors[size_t(rank)]);
    } catch (const DistributedError& error) {
      text = error.what();
      if (is_deadlock ? dynamic_cast<const MismatchError*>(&error) != nullptr
                      : dynamic_cast<const TimeoutError*>(&error) != nullptr)
        at_fault = error.rank();
    } catch (const std::exception& error) {
      text = error.what();
    }
    if (!suspects.contains(at_fault) || named_in(text) != suspects)
      wrong += concat("rank ", rank, "'s error has rank ", at_fault, ", ", may, ": ", text, '\n');
  }
  if (!wrong.empty()) wrong = concat("stall ", seed, ", ", stall.text(), ":\n", wrong);
  return {wrong, int(suspects.size())};
}

}  // namespace gradus::dist
