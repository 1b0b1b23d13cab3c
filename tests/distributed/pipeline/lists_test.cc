// Lists at random: a thousand that can run give the undivided model's gradients, and a thousand broken ones
// are refused before anything runs. A list's number is its seed.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>
#include <regex>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/pipeline/pipeline.h"
#include "gradus/distributed/pipeline/schedule_check.h"
#include "gradus/nn/nn.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

using testing::HasSubstr;

constexpr ActionKind F = ActionKind::kForward, B = ActionKind::kBackward, I = ActionKind::kInputGradient,
                     W = ActionKind::kWeightGradient;
constexpr int kLists = 1000, kMostRanks = 4, kMostStages = 3, kLayers = kMostRanks * kMostStages;
constexpr int64_t kRows = 7;

int ranks_of(int seed) { return 1 + seed % kMostRanks; }

struct RandomLists {
  ActionLists lists;
  std::map<std::pair<int, int>, bool> split;  // by stage and micro-batch: I and W instead of B

  // Returns what an action needs directly, by the rules alone.
  std::vector<Action> needs(const Action& a) const {
    const auto gradient = [&](int stage) {
      return Action{split.at({stage, a.micro_batch}) ? I : B, stage, a.micro_batch};
    };
    std::vector<Action> all;
    if (a.kind == F) {
      if (a.stage > 0) all.push_back({F, a.stage - 1, a.micro_batch});
    } else if (a.kind == W) {
      all.push_back({I, a.stage, a.micro_batch});
    } else {
      all.push_back({F, a.stage, a.micro_batch});
      if (a.stage + 1 < lists.stages()) all.push_back(gradient(a.stage + 1));
    }
    return all;
  }
  // Whether the rank of both runs `b` before `a`.
  bool in_order(const Action& b, const Action& a) const {
    const auto& list = lists.of_rank[size_t(lists.rank_of_stage[size_t(a.stage)])];
    const auto first = std::ranges::find(list, b), second = std::ranges::find(list, a);
    return second != list.end() && first < second;
  }
};

// Deals one to three stages to each rank. Runs actions in a random order in which each finds what it needs.
RandomLists random_lists(std::mt19937& random, int ranks) {
  const auto below = [&](int n) { return int(random() % uint32_t(n)); };
  RandomLists r;
  r.lists.micro_batches = 1 + below(6);
  r.lists.of_rank.resize(size_t(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    r.lists.rank_of_stage.insert(r.lists.rank_of_stage.end(), size_t(1 + below(kMostStages)), rank);
  std::ranges::shuffle(r.lists.rank_of_stage, random);
  std::vector<Action> left;
  for (int s = 0; s < r.lists.stages(); ++s)
    for (int k = 0; k < r.lists.micro_batches; ++k) {
      const bool split = r.split[{s, k}] = below(2);
      left.push_back({F, s, k});
      left.push_back({split ? I : B, s, k});
      if (split) left.push_back({W, s, k});
    }
  while (!left.empty()) {
    const size_t i = random() % left.size();
    const auto is_done = [&](const Action& a) { return std::ranges::find(left, a) == left.end(); };
    if (!std::ranges::all_of(r.needs(left[i]), is_done)) continue;
    r.lists.of_rank[size_t(r.lists.rank_of_stage[size_t(left[i].stage)])].push_back(left[i]);
    left.erase(left.begin() + std::ptrdiff_t(i));
  }
  return r;
}

// As many layers as there may be stages, with skips over three of them. The first one's weight is tied to
// that of the result.
// Shapes: x [N,3] -> [N,3].
struct Ladder : nn::Layer {
  struct Step : nn::Layer {
    using Layer::Layer;
    nn::Linear fc{this, "fc", {.in = 3, .out = 3}};
    Tensor forward(const Tensor& x) override { return tanh(fc(x)); }
  };
  nn::ModuleList<Step> steps{this, "steps"};
  Ladder() {
    for (int i = 0; i < kLayers; ++i) steps.add();
    to(DType::kF64);
  }
  Tensor forward(const Tensor& x) override {
    std::vector<Tensor> y = {x};
    for (size_t i = 0; i < kLayers; ++i) y.push_back(steps[i](i > 0 && i % 4 == 0 ? y[i] + y[i - 3] : y[i]));
    return linear(y.back(), steps[0].fc.weight);
  }
};

// Returns places for the cuts of so many stages.
std::vector<std::string> random_cuts(std::mt19937& random, int stages) {
  std::vector<int> places(kLayers - 1), chosen;
  std::iota(places.begin(), places.end(), 0);
  std::ranges::sample(places, std::back_inserter(chosen), stages - 1, random);
  std::vector<std::string> cuts;
  for (int place : chosen) cuts.push_back(concat("steps.", place));
  return cuts;
}

Tensor input() { return random_tensor({kRows, 3}, DType::kF64, 1); }
Tensor target() { return random_tensor({kRows, 3}, DType::kF64, 2); }

using Gradients = std::map<std::string, Tensor>;  // and "loss"

Gradients undivided() {
  manual_seed(5);
  Ladder model;
  GradManager gm;
  gm.attach(model.parameters());
  auto recording = gm.record();
  const Tensor loss = nn::mse_loss(model(input()), target());
  gm.backward(loss);
  Gradients all = {{"loss", detach(loss)}};
  for (const auto& [name, p] : model.named_parameters()) all[name] = p.grad();
  return all;
}

void expect_gradients(const PipelineOptions& options, const Gradients& want) {
  manual_seed(5);
  Pipeline<Ladder> pipe([] { return std::make_unique<Ladder>(); }, input(), options);
  GradManager gm;
  pipe.attach(gm);
  const auto expect = [&](const std::string& name, const Tensor& got) {
    ASSERT_TRUE(got.defined()) << name;
    const Tensor& wanted = want.at(name);
    EXPECT_LE(max(abs(to(got, kCPU) - wanted)).item<double>(), 1e-12 * max(abs(wanted)).item<double>())
        << name;
  };
  expect("loss", full({}, pipe.step(gm, input(), target(), nn::mse_loss), {.dtype = DType::kF64}));
  size_t count = 1;
  for (const auto& [name, p] : pipe.named_parameters()) ++count, expect(name, p.grad());
  if (pipe.grid().size("pipeline") == 1) {
    EXPECT_EQ(count, want.size());
  }
}

// Calls f(seed, devices) for each list: on ranks for one half, on devices of one process for the other.
template <class Function> void for_each_list(const Function& f) {
  const auto run = [&](int seed, std::vector<Device> devices) {
    SCOPED_TRACE(concat("list ", seed));
    try {
      f(seed, std::move(devices));
    } catch (Error& e) {
      e.add_context(concat("list ", seed));
      throw;
    }
  };
  for (int ranks = 1; ranks <= kMostRanks; ++ranks)
    run_ranks(ranks, [&] {
      for (int seed = ranks - 1; seed < kLists / 2; seed += kMostRanks) run(seed, {});
    });
  for (int seed = kLists / 2; seed < kLists; ++seed) {
    std::vector<Device> devices;
    for (int16_t i = 0; i < ranks_of(seed); ++i) devices.push_back({DeviceType::kCPU, i});
    run(seed, devices);
  }
}

TEST(RandomLists, AThousandGiveTheGradientsOfTheUndividedModel) {
  const Gradients want = undivided();
  for_each_list([&](int seed, const std::vector<Device>& devices) {
    std::mt19937 random{uint32_t(seed)};
    const RandomLists r = random_lists(random, ranks_of(seed));
    expect_gradients({.devices = devices,
                      .lists = to_text(r.lists),
                      .cut_after = random_cuts(random, r.lists.stages()),
                      .recompute = Recompute(seed / kMostRanks % 3)},
                     want);
  });
}

// ---- broken lists ----

struct Broken {
  RandomLists random;
  const char* says;  // the error
  bool is_circle = false;
};

Broken broken_lists(std::mt19937& random, int ranks, int how) {
  const auto below = [&](size_t n) { return size_t(random() % uint32_t(n)); };
  Broken broken{random_lists(random, ranks), ""};
  ActionLists& lists = broken.random.lists;
  const size_t rank = below(lists.of_rank.size());
  std::vector<Action>& list = lists.of_rank[rank];
  const Action a = list[below(list.size())];
  switch (how) {
    case 0: {
      broken.says = "no rank has ";
      const bool is_one = lists.stages() * lists.micro_batches == 1;  // forwards alone are whole
      std::erase(list, is_one ? Action{F, 0, 0} : a);
      break;
    }
    case 1:
      broken.says = "or a part of it twice";
      list.insert(list.begin() + std::ptrdiff_t(below(list.size() + 1)), a);
      break;
    case 2: {  // an input's gradient without those of the parameters
      broken.says = "no rank has ";
      std::erase(list, Action{W, a.stage, a.micro_batch});
      std::ranges::replace(list, Action{B, a.stage, a.micro_batch}, Action{I, a.stage, a.micro_batch});
      break;
    }
    case 3:
      if (ranks > 1) {
        broken.says = ", but stage ";
        auto& other = lists.of_rank[(rank + 1 + below(size_t(ranks - 1))) % size_t(ranks)];
        std::erase(list, a);
        other.insert(other.begin() + std::ptrdiff_t(below(other.size() + 1)), a);
        break;
      }
      [[fallthrough]];
    default:
      // Exchanges actions of a rank until some wait for each other: most often at once.
      broken.says = "actions wait for each other in a circle: ";
      broken.is_circle = true;
      for (bool can_run = true; can_run;) {
        auto& changed = lists.of_rank[below(lists.of_rank.size())];
        std::swap(changed[below(changed.size())], changed[below(changed.size())]);
        try {
          check_schedule(lists);
        } catch (const ScheduleError&) {
          can_run = false;
        }
      }
  }
  return broken;
}

// Whether each action of the circle waits for the next: by a rule, or because it comes later on its rank.
bool is_circle(const std::vector<Action>& cycle, const RandomLists& r) {
  if (cycle.size() < 2) return false;
  for (size_t i = 0; i < cycle.size(); ++i) {
    const Action &a = cycle[i], &b = cycle[(i + 1) % cycle.size()];
    if (!std::ranges::count(r.needs(a), b) && !r.in_order(b, a)) return false;
  }
  return true;
}

Action parse(const std::string& text) {
  int stage = -1, micro_batch = -1;
  char kind = 0;
  std::sscanf(text.c_str(), "%d%c%d", &stage, &kind, &micro_batch);
  return {kind == 'F' ? F : kind == 'B' ? B : kind == 'I' ? I : W, stage, micro_batch};
}

// Whether a text that was printed is a circle: "1F1 waits for 0F1, which comes after 0B0 on rank 0; 0B0 ...".
// Returns the ranks of what others wait for.
std::vector<int> printed_circle(const std::string& text, const RandomLists& r) {
  static const std::regex step(
      "(\\w+) waits for (\\w+)(?:, which comes after (\\w+) on rank (\\d+))?(?:; |$)");
  const std::string circle = text.substr(text.find("circle: ") + 8);
  std::vector<int> ranks;
  std::string read, last;
  for (std::sregex_iterator it(circle.begin(), circle.end(), step), end; it != end; ++it) {
    const std::smatch& m = *it;
    const Action waits = parse(m.str(1)), needed = parse(m.str(2));
    read += m.str(0);
    if (!last.empty() && m.str(1) != last) return {};  // each step begins where the one before it has ended
    last = m.str(m[3].matched ? 3 : 2);
    ranks.push_back(r.lists.rank_of_stage[size_t(needed.stage)]);
    if (!std::ranges::count(r.needs(waits), needed)) return {};
    if (m[3].matched && (!r.in_order(parse(last), needed) || m.str(4) != std::to_string(ranks.back())))
      return {};
  }
  const bool closes = circle.starts_with(last + " waits for ");
  return read == circle && closes ? ranks : std::vector<int>();
}

TEST(RandomLists, AThousandBrokenOnesAreRefusedBeforeAnythingRuns) {
  std::atomic<int> made = 0, circles = 0, over_ranks = 0;
  for_each_list([&](int seed, const std::vector<Device>& devices) {
    std::mt19937 random{uint32_t(seed)};
    const Broken broken = broken_lists(random, ranks_of(seed), seed / kMostRanks % 5);
    const auto make = [&] {
      ++made;
      return std::make_unique<Ladder>();
    };
    try {
      Pipeline<Ladder> pipe(make, input(),
                            {.devices = devices,
                             .lists = to_text(broken.random.lists),
                             .cut_after = random_cuts(random, broken.random.lists.stages())});
      ADD_FAILURE() << "not refused: " << testing::PrintToString(to_text(broken.random.lists));
    } catch (const ScheduleError& e) {
      EXPECT_THAT(e.what(), HasSubstr(broken.says));
      EXPECT_EQ(e.cycle.empty(), !broken.is_circle);
      if (!broken.is_circle) return;
      EXPECT_TRUE(is_circle(e.cycle, broken.random)) << e.what();
      const std::vector<int> ranks = printed_circle(e.what(), broken.random);
      EXPECT_FALSE(ranks.empty()) << e.what() << testing::PrintToString(to_text(broken.random.lists));
      ++circles;
      over_ranks += std::ranges::any_of(ranks, [&](int rank) { return rank != ranks[0]; });
    }
  });
  EXPECT_EQ(made, 0);
  EXPECT_GT(circles, 200);
  EXPECT_GT(over_ranks, 50);
}

// An evaluation's lists are whole, but no training.
TEST(RandomLists, ForwardsAloneDoNotTrain) {
  run_ranks(2, [] {
    Pipeline<Ladder> pipe([] { return std::make_unique<Ladder>(); }, input(),
                          {.lists = {"0F0 0F1", "1F0 1F1"}, .cut_after = {"steps.5"}});
    GradManager gm;
    pipe.attach(gm);
    pipe.eval_step(input(), target(), nn::mse_loss);
    EXPECT_THROW(pipe.step(gm, input(), target(), nn::mse_loss), ScheduleError);
  });
}

}  // namespace
}  // namespace gradus::dist
