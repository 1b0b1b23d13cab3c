// GANs under every kind of data parallelism: static and dynamic ones, whole-model and per-module, with every
// value of the options that elsewhere decide whether that works. All of them must give what one process
// computes on the joined batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "gradus/distributed/data_parallel/separate_data_parallel.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/tests/distributed/data_parallel/small_gans.h"

namespace gradus::dist {
namespace {

// The weights are about 1 at most, and each the sum of some hundred products: their rounding is far below.
constexpr double kTolerance = 1e-12;

enum class Wrapper {
  kWhole,             // one model, one manager; each backward gives gradients to whatever its loss reaches
  kWholeNarrowed,     // the same, recordings narrowed to one network
  kWholeTwoManagers,  // one model, a manager for each network
  kSeparate,          // a reducer for each network
};

constexpr const char* kKindNames[] = {"Static", "Grows", "Skips", "Mixes"};
constexpr const char* kWrapperNames[] = {"Whole", "WholeNarrowed", "WholeTwoManagers", "Separate"};

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::isfinite(a[i]) ? std::max(largest, std::abs(a[i] - b[i])) : INFINITY;
  return largest;
}

// A GAN's recordings and backwards under one of the wrappers.
class Steps {
 public:
  Steps(Wrapper wrapper, SmallGan& gan, const DistributedDataParallelOptions& options) : wrapper_(wrapper) {
    if (wrapper == Wrapper::kSeparate) {
      separate_ = std::make_unique<SeparateDistributedDataParallel<SmallGan>>(gan, options);
      separate_->attach(gm_d_, gan.disc);
      separate_->attach(gm_g_, gan.gen);
      return;
    }
    whole_ = std::make_unique<DistributedDataParallel<SmallGan>>(gan, options);
    if (wrapper == Wrapper::kWholeTwoManagers) {
      whole_->attach(gm_d_, gan.disc);
      whole_->attach(gm_g_, gan.gen);
    } else {
      whole_->attach(gm_d_);
    }
  }

  // Whether D's step must cut the way to G itself: nothing else narrows it.
  bool detach_fake() const { return wrapper_ == Wrapper::kWhole; }

  template <class Loss> void backward_of_discriminator(SmallGan& gan, Loss loss) {
    backward(gm_d_, gan.disc, loss);
  }
  template <class Loss> void backward_of_generator(SmallGan& gan, Loss loss) {
    backward(wrapper_ == Wrapper::kWhole || wrapper_ == Wrapper::kWholeNarrowed ? gm_d_ : gm_g_, gan.gen,
             loss);
  }
  NoSync no_sync() { return whole_ ? whole_->no_sync() : separate_->no_sync(); }
  const ReducerStats& stats(const nn::Module& part) const {
    return whole_ ? whole_->stats() : separate_->stats(part);
  }

 private:
  template <class Loss> void backward(GradManager& gm, const nn::Module& part, Loss loss) {
    auto recording =
        wrapper_ == Wrapper::kWholeNarrowed ? gm.record({.only = part.parameters()}) : gm.record();
    gm.backward(loss());
  }

  const Wrapper wrapper_;
  std::unique_ptr<DistributedDataParallel<SmallGan>> whole_;
  std::unique_ptr<SeparateDistributedDataParallel<SmallGan>> separate_;
  GradManager gm_d_, gm_g_;
};

// --- the table ---

struct Cell {
  GanKind kind;
  Wrapper wrapper;
  bool find_unused_parameters, broadcast_buffers;
  int world;
};

std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (const GanKind kind : {GanKind::kStatic, GanKind::kGrows, GanKind::kSkips, GanKind::kMixes})
    for (const Wrapper wrapper :
         {Wrapper::kWhole, Wrapper::kWholeNarrowed, Wrapper::kWholeTwoManagers, Wrapper::kSeparate})
      for (const bool find : {false, true})
        for (const bool buffers : {false, true})
          for (const int world : {2, 3}) all.push_back({kind, wrapper, find, buffers, world});
  return all;
}

std::string name_of(const Cell& c) {
  return concat(kKindNames[int(c.kind)], '_', kWrapperNames[int(c.wrapper)],
                c.find_unused_parameters ? "_FindUnused" : "", c.broadcast_buffers ? "_BroadcastBuffers" : "",
                '_', c.world, "Ranks");
}

constexpr int kSteps = 5;

const std::vector<std::vector<double>>& joined(GanKind kind, int world) {
  static std::map<std::pair<GanKind, int>, std::vector<std::vector<double>>> known;
  auto& result = known[{kind, world}];
  if (result.empty())
    result = train_joined(
        world, kSteps, false, [=](int rank, int step) { return batch_of(kind, rank, step); },
        [=](int step) { return grows_before(kind, step); });
  return result;
}

class GanTable : public testing::TestWithParam<Cell> {};

TEST_P(GanTable, RanksComeToWhatTheJoinedBatchGives) {
  const Cell c = GetParam();
  const auto& expected = joined(c.kind, c.world);
  run_ranks(c.world, [&] {
    const int rank = get_rank();
    manual_seed(1 + rank);  // ranks start apart, and grow apart: rank 0's weights count
    GanTraining t;
    Steps steps(
        c.wrapper, t.gan,
        {.broadcast_buffers = c.broadcast_buffers, .find_unused_parameters = c.find_unused_parameters});
    for (int step = 0; step < kSteps; ++step) {
      if (grows_before(c.kind, step)) t.grow();
      const GanBatch batch = batch_of(c.kind, rank, step);
      steps.backward_of_discriminator(
          t.gan, [&] { return discriminator_loss(t.gan, batch, false, steps.detach_fake()); });
      const double seen = t.gan.disc.seen.item<double>();
      const std::string first = broadcast_object(std::to_string(t.gan.disc.seen_here));
      EXPECT_NEAR(seen, c.broadcast_buffers ? std::stod(first) : t.gan.disc.seen_here, 1e-5)
          << "step " << step;
      t.opt_d.step();
      t.clear_grad();
      EXPECT_LE(difference(t.weights(), expected[2 * step]), kTolerance)
          << "rank " << rank << " after the discriminator's step " << step;

      steps.backward_of_generator(t.gan, [&] { return generator_loss(t.gan, batch); });
      t.opt_g.step();
      t.clear_grad();
      EXPECT_LE(difference(t.weights(), expected[2 * step + 1]), kTolerance)
          << "rank " << rank << " after the generator's step " << step;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, GanTable, testing::ValuesIn(cells()),
                         [](const auto& info) { return name_of(info.param); });

// --- a training with a bit of everything, and what it sends ---

// Steps 0 and 1: as they are, with a gradient penalty; 2: with a layer that was not there before; 3: the last
// rank skips one; 4: all ranks skip it.
GanBatch eventful_batch(int world, int rank, int step) {
  GanBatch b = batch_of(GanKind::kStatic, rank, step);
  b.path.fade = 0.5;
  b.path.skip_block = step == 4 || (step == 3 && rank == world - 1);
  return b;
}

int64_t bytes(const nn::Module& m) { return 8 * m.num_parameters(); }

// Ways that the gradients take.
struct Way {
  const char* name;
  DistributedDataParallelOptions options = {};
  RunRanksOptions ranks = {};
};
const Way kWays[] = {{"ByDefault"},
                     {"ByMessages", {}, {.messages_only = true}},
                     {"InTinyBuckets", {.bucket_cap_mb = 1e-6}},
                     {"AsBucketViews", {.gradient_as_bucket_view = true}},
                     {"AfterBackward", {.bucket_cap_mb = 1e-4, .overlap = false}}};

class EventfulGan : public testing::TestWithParam<std::tuple<Wrapper, int, Way>> {};

TEST_P(EventfulGan, IsTrainedAsOnTheJoinedBatchAndSendsWhatItTouches) {
  const auto& [wrapper, world, way] = GetParam();
  const auto batch = [world = world](int rank, int step) { return eventful_batch(world, rank, step); };
  const auto grows = [](int step) { return step == 2; };
  const auto expected = train_joined(world, kSteps, true, batch, grows);
  const auto train = [&, wrapper = wrapper, way = way] {
    const int rank = get_rank();
    manual_seed(1 + rank);
    GanTraining t;
    Steps steps(wrapper, t.gan, way.options);
    for (int step = 0; step < kSteps; ++step) {
      if (grows(step)) t.grow();
      const GanBatch b = batch(rank, step);
      steps.backward_of_discriminator(
          t.gan, [&] { return discriminator_loss(t.gan, b, true, steps.detach_fake()); });
      // A layer that all ranks skip is not sent; one that some of them skip is.
      const int64_t of_d = bytes(t.gan.disc) - (step == 4 ? bytes(t.gan.disc.block) : 0);
      const int64_t of_g =
          bytes(t.gan.gen) - bytes(t.gan.gen.second_style) - (step == 4 ? bytes(t.gan.gen.block) : 0);
      EXPECT_EQ(steps.stats(t.gan.disc).bytes, of_d) << "step " << step;
      t.opt_d.step();
      t.clear_grad();
      EXPECT_LE(difference(t.weights(), expected[2 * step]), kTolerance)
          << "rank " << rank << " step " << step;

      steps.backward_of_generator(t.gan, [&] { return generator_loss(t.gan, b); });
      // Without narrowing the generator's loss reaches the discriminator too.
      EXPECT_EQ(steps.stats(t.gan.gen).bytes, of_g + (wrapper == Wrapper::kWhole ? of_d : 0))
          << "step " << step;
      t.opt_g.step();
      t.clear_grad();
      EXPECT_LE(difference(t.weights(), expected[2 * step + 1]), kTolerance)
          << "rank " << rank << " step " << step;
    }
  };
  run_ranks(world, train, way.ranks);
}

const auto kWrappers =
    testing::Values(Wrapper::kWhole, Wrapper::kWholeNarrowed, Wrapper::kWholeTwoManagers, Wrapper::kSeparate);

std::string eventful_name(const testing::TestParamInfo<std::tuple<Wrapper, int, Way>>& info) {
  const auto& [wrapper, world, way] = info.param;
  return concat(kWrapperNames[int(wrapper)], '_', world, "Ranks_", way.name);
}
INSTANTIATE_TEST_SUITE_P(All, EventfulGan,
                         testing::Combine(kWrappers, testing::Values(2, 3), testing::ValuesIn(kWays)),
                         eventful_name);

// --- several batches per step ---

class AccumulatingGan : public testing::TestWithParam<std::tuple<Wrapper, GanKind>> {};

TEST_P(AccumulatingGan, TwoBatchesAreOneTwiceAsLargeAndAreSentOnce) {
  const auto [wrapper, kind] = GetParam();
  constexpr int kWorld = 2, kBatches = 2;
  const auto batch = [kind = kind](int part, int step) { return batch_of(kind, part, step); };
  const auto grows = [kind = kind](int step) { return grows_before(kind, step); };
  const auto expected = train_joined(kWorld * kBatches, kSteps, false, batch, grows);
  run_ranks(kWorld, [&, wrapper = wrapper] {
    const int rank = get_rank();
    manual_seed(1 + rank);
    GanTraining t;
    Steps steps(wrapper, t.gan, {});
    const auto accumulate = [&](int step, auto backward) {
      for (int k = 0; k < kBatches; ++k) {
        const GanBatch b = batch(kBatches * rank + k, step);
        if (k + 1 == kBatches) {
          backward(b);
        } else {
          const NoSync kept_back = steps.no_sync();
          backward(b);
        }
      }
    };
    for (int step = 0; step < kSteps; ++step) {
      if (grows(step)) t.grow();
      accumulate(step, [&](const GanBatch& b) {
        steps.backward_of_discriminator(
            t.gan, [&] { return discriminator_loss(t.gan, b, false, steps.detach_fake()) / kBatches; });
      });
      t.opt_d.step();
      t.clear_grad();
      EXPECT_LE(difference(t.weights(), expected[2 * step]), kTolerance)
          << "rank " << rank << " step " << step;
      accumulate(step, [&](const GanBatch& b) {
        steps.backward_of_generator(t.gan, [&] { return generator_loss(t.gan, b) / kBatches; });
      });
      t.opt_g.step();
      t.clear_grad();
      EXPECT_LE(difference(t.weights(), expected[2 * step + 1]), kTolerance)
          << "rank " << rank << " step " << step;
    }
    EXPECT_EQ(steps.stats(t.gan.gen).backwards, wrapper == Wrapper::kSeparate ? kSteps : 2 * kSteps);
  });
}

std::string accumulating_name(const testing::TestParamInfo<std::tuple<Wrapper, GanKind>>& info) {
  const auto [wrapper, kind] = info.param;
  return concat(kKindNames[int(kind)], '_', kWrapperNames[int(wrapper)]);
}
INSTANTIATE_TEST_SUITE_P(All, AccumulatingGan,
                         testing::Combine(kWrappers, testing::Values(GanKind::kStatic, GanKind::kGrows,
                                                                     GanKind::kSkips, GanKind::kMixes)),
                         accumulating_name);

}  // namespace
}  // namespace gradus::dist
