// Pipelines of all schedules train as the undivided model does: losses, gradients, parameters.
#include <gtest/gtest.h>

#include <set>

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/tests/distributed/pipeline/undivided.h"

namespace gradus::dist {
namespace {

template <class M> class Equality : public testing::Test {};
using Models = testing::Types<ResidualMLP, RowwiseUNet, TiedText>;
TYPED_TEST_SUITE(Equality, Models);

// Runs f on so many threads as ranks. Returns what each has trained.
template <class F> std::vector<Trained> on_ranks(int ranks, const F& f) {
  std::vector<Trained> all(static_cast<size_t>(ranks));
  run_ranks(ranks, [&] { all[size_t(get_rank())] = f(); });
  return all;
}

template <class M>
void expect_undivided(int64_t rows, int ranks, int micro_batches, bool on_devices = false) {
  const Trained want = undivided<M>(rows);
  for (const Schedule schedule : kSchedules) {
    PipelineOptions options = options_of<M>(schedule, ranks, micro_batches);
    for (int16_t i = 0; on_devices && i < ranks; ++i) options.devices.push_back({DeviceType::kCPU, i});
    std::set<std::string> parameters, state;
    for (const Trained& got :
         on_ranks(on_devices ? 1 : ranks, [&] { return trained_here<M>(options, rows); })) {
      EXPECT_LE(difference(got, want), 1e-12)
          << name_of(schedule) << " P " << ranks << " M " << micro_batches << " rows " << rows;
      for (const auto& [name, values] : got.grads) parameters.insert(name);
      for (const auto& [name, values] : got.state) state.insert(name);
    }
    EXPECT_EQ(parameters.size(), want.grads.size());
    EXPECT_EQ(state.size(), want.state.size());
  }
}

// Micro-batches of equal and of unequal sizes, fewer and more than there are stages.
TYPED_TEST(Equality, OnRanks) {
  expect_undivided<TypeParam>(13, 1, 4);
  for (const int ranks : {2, 4}) {
    for (const int micro_batches : {1, 4, 8}) expect_undivided<TypeParam>(13, ranks, micro_batches);
    expect_undivided<TypeParam>(16, ranks, 4);
  }
}
TYPED_TEST(Equality, OnSeveralDevices) { expect_undivided<TypeParam>(13, 4, 8, true); }

// Each of two replicas has half of the rows.
TYPED_TEST(Equality, OfReplicasOnTheJoinedBatch) {
  const Trained want = undivided<TypeParam>(16);
  for (const Schedule schedule : kSchedules)
    for (const Trained& got :
         on_ranks(4, [&] { return trained_here<TypeParam>(options_of<TypeParam>(schedule, 2, 3), 16); }))
      EXPECT_LE(difference(got, want), 1e-12) << name_of(schedule);
}

}  // namespace
}  // namespace gradus::dist
