#include "gradus/tests/distributed/random_stall.h"

#include <random>

#include "gradus/distributed/client.h"
#include "gradus/distributed/collectives.h"
#include "gradus/distributed/process_group.h"
#include "gradus/distributed/simulation.h"
#include "gradus/distributed/world.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::dist {
namespace {

constexpr Milliseconds kTimeout{2'000}, kForever{std::chrono::hours(1)};
constexpr int kSteps = 8;

struct Stall {
  enum How { kComputes, kKey, kReceives, kOtherGroup, kPostedCall, kHows };
  int hosts = 1, world = 2;
  bool messages_only = false;
  int culprit = 0, step = 0;
  How how = kComputes;
  std::vector<int> ops;  // of the steps

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
    // Of two ranks that wait for each other none can be told from the other.
    if (world == 2 && (how == kReceives || how == kOtherGroup)) how = kComputes;
    for (int i = 0; i < kSteps; ++i) ops.push_back(below(8));
  }

  std::string text() const {
    const char* const hows[] = {"computes", "waits for a key", "receives", "is in another group's call",
                                "computes with a call under way"};
    std::string text = concat(world, " ranks on ", hosts, messages_only ? " hosts (messages only)" : " hosts",
                              ": rank ", culprit, ' ', hows[how], " before step ", step, " of");
    for (int op : ops) text += concat(' ', op);
    return text;
  }

  bool receives() const { return how == kReceives; }

  void run() const {
    const int rank = get_rank();
    const Group never = world_group().duplicate();
    const Group odd = world_group().split(rank % 2), half = world_group().split(rank < world / 2);
    for (int i = 0; i < kSteps; ++i) {
      if (rank == culprit && i == step) stall(never);
      const Group& group = ops[i] == 1 || ops[i] == 5 ? odd : ops[i] == 2 ? half : never_used_;
      Tensor x = full({ops[i] == 3 ? 40'000 : 16}, rank);
      if (ops[i] == 4) {
        group_barrier();
      } else if (ops[i] == 5) {
        const Work work = all_reduce(x, {.group = group, .async_op = true});
        work.wait();
      } else if (ops[i] == 6) {
        all_gather(x);
      } else if (ops[i] == 7) {
        broadcast(x, {.src = i % world});
      } else {
        all_reduce(x, {.group = group});
      }
    }
    barrier();
  }

 private:
  static Group world_group() { return dist::world(); }

  void stall(const Group& never) const {
    Tensor x = ones({4});
    if (how == kKey) get_client().user_get("never", 1, kForever);
    if (how == kReceives) recv(x, {.src = (culprit + 1) % world, .timeout = kForever});
    if (how == kOtherGroup) all_reduce(x, {.group = never, .timeout = kForever});
    if (how == kPostedCall) all_reduce(x, {.group = never, .async_op = true, .timeout = kForever});
    const Membership& job = *internal::World::current()->membership;
    internal::Simulation::current()->block([&] { return job.failed(); }, now() + kForever, "a stall");
  }

  const Group never_used_;  // the default group
};

}  // namespace

std::string try_stall(uint64_t seed) {
  const Stall stall(seed);
  const SimulationReport report = simulate(stall.world,
                                           {.seed = seed,
                                            .messages_only = stall.messages_only,
                                            .hosts = stall.hosts,
                                            .timeout = kTimeout,
                                            .give_up = std::chrono::hours(3)},
                                           [&] { stall.run(); });
  std::string wrong = report.hung ? "it hung\n" : "";
  for (int rank = 0; rank < stall.world; ++rank) {
    if (rank == stall.culprit) continue;
    std::string text = "no error";
    int named = -1;
    try {
      if (report.errors[size_t(rank)]) std::rethrow_exception(report.errors[size_t(rank)]);
    } catch (const DistributedError& error) {
      text = error.what();
      named = error.rank();
    } catch (const std::exception& error) {
      text = error.what();
    }
    // One that receives and one that does not send look alike: then the error lists both.
    const bool listed =
        stall.receives() && text.find(concat("rank ", stall.culprit, ": it is in recv")) != text.npos;
    if ((named != stall.culprit && !listed) || text.find(concat("rank ", stall.culprit)) == std::string::npos)
      wrong += concat("rank ", rank, "'s error names rank ", named, ": ", text, '\n');
  }
  return wrong.empty() ? "" : concat("stall ", seed, ", ", stall.text(), ":\n", wrong);
}

}  // namespace gradus::dist
