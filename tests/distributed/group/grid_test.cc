// Grid, a multidimensional array of ranks with named axes: the groups of its rows, and its axis "replica", by
// which loaders share samples and dropout draws masks. Ranks are threads.
#include "gradus/distributed/group/grid.h"

#include <gmock/gmock.h>

#include "gradus/data/dataloader.h"
#include "gradus/data/sampler.h"
#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Grid, RowsOfTheLastAxisAreNeighbors) {
  run_ranks(6, [] {
    const int rank = get_rank();
    const Grid grid({{"replica", 2}, {"pipeline", 3}});
    EXPECT_EQ(grid.describe(), "replica 2 x pipeline 3");
    EXPECT_EQ(grid.index("replica"), rank / 3);
    EXPECT_EQ(grid.index("pipeline"), rank % 3);
    EXPECT_EQ(grid.size("pipeline"), 3);
    const int first = rank / 3 * 3;
    EXPECT_THAT(grid.group("pipeline").ranks(), ElementsAre(first, first + 1, first + 2));
    EXPECT_THAT(grid.group("replica").ranks(), ElementsAre(rank % 3, rank % 3 + 3));
    EXPECT_EQ(grid.group("pipeline").rank(), rank % 3);
    const Tensor sum = scalar(double(rank));
    all_reduce(sum, {.group = grid.group("replica")});
    EXPECT_EQ(sum.item<double>(), 2 * (rank % 3) + 3);
    EXPECT_EQ(grid.size("tensor"), 1);
    EXPECT_EQ(grid.index("tensor"), 0);
    EXPECT_THAT(error_of<ValueError>([&] { grid.group("tensor"); }),
                HasSubstr("no axis 'tensor' in replica 2 x pipeline 3"));
  });
}

TEST(Grid, HasRoomForFurtherAxesAndFillsOne) {
  run_ranks(8, [] {
    const int rank = get_rank();
    const Grid grid({{"pipeline", 2}, {"replica", -1}, {"tensor", 2}});
    EXPECT_EQ(grid.size("replica"), 2);
    EXPECT_THAT(grid.group("pipeline").ranks(), ElementsAre(rank % 4, rank % 4 + 4));
    EXPECT_EQ(grid.index("replica"), rank / 2 % 2);
    EXPECT_THAT(grid.group("tensor").ranks(), ElementsAre(rank / 2 * 2, rank / 2 * 2 + 1));
    const int first = rank / 4 * 4 + rank % 2;
    EXPECT_THAT(grid.group("replica").ranks(), ElementsAre(first, first + 2));
    EXPECT_EQ(Job::current()->replica(), (Replica{rank / 2 % 2, 2}));
  });
}

TEST(Grid, OfOneProcess) {
  const Grid grid({{"replica", -1}, {"pipeline", 1}});
  EXPECT_EQ(grid.size("replica"), 1);
  EXPECT_THAT(grid.group("pipeline").ranks(), ElementsAre(0));
}

TEST(Grid, RefusesAxesThatDoNotFillTheJob) {
  run_ranks(4, [] {
    const auto text = [](std::vector<Grid::Axis> axes) {
      return error_of<ValueError>([&] { Grid grid(std::move(axes)); });
    };
    EXPECT_THAT(text({}), HasSubstr("expected 1 to 8 axes, got 0"));
    EXPECT_THAT(text({{"a", 3}}), HasSubstr("the job's 4 ranks cannot be cut into a 3"));
    EXPECT_THAT(text({{"a", 3}, {"b", -1}}), HasSubstr("4 ranks cannot be cut into a 3 x b -1"));
    EXPECT_THAT(text({{"a", 8}, {"b", -1}}), HasSubstr("cannot be cut into"));
    EXPECT_THAT(text({{"a", -1}, {"b", -1}}), HasSubstr("only one axis may have size -1, got 'a' and 'b'"));
    EXPECT_THAT(text({{"a", 2}, {"a", 2}}), HasSubstr("two axes have the name 'a'"));
    EXPECT_THAT(text({{"", 4}}), HasSubstr("an axis needs a name"));
    EXPECT_THAT(text({{"a", 0}, {"b", 4}}), HasSubstr("axis 'a' has size 0"));
    EXPECT_THAT(text({{"a", 1 << 30}, {"b", 1 << 30}, {"c", 16}}), HasSubstr("cannot be cut into"));
  });
}

TEST(Grid, DiffersBetweenRanks) {
  // Both grids have the same rows, but other axes.
  const std::string text = error_of<MismatchError>([] {
    run_ranks(4, [] {
      if (get_rank() == 2)
        Grid grid({{"pipeline", 2}, {"replica", 2}});
      else
        Grid grid({{"replica", 2}, {"pipeline", 2}});
    });
  });
  EXPECT_THAT(text, HasSubstr("rank 2 makes a grid of pipeline 2 x replica 2, where rank 0 makes one of "
                              "replica 2 x pipeline 2"));
}

struct Numbers : data::Dataset {
  int64_t size() const override { return 12; }
  data::Sample get(int64_t i) const override { return {.input = scalar(double(i))}; }
};

std::vector<double> samples_of(data::DataLoader& loader) {
  std::vector<double> all;
  for (const data::Batch& b : loader)
    for (double v : b.input.to_vector<double>()) all.push_back(v);
  return all;
}

TEST(Grid, RanksOfAReplicaGetTheSameSamples) {
  run_ranks(4, [] {
    const Grid grid({{"replica", 2}, {"pipeline", 2}});
    data::DataLoader loader(Numbers(), {.global_batch_size = 4});
    EXPECT_EQ(samples_of(loader), get_rank() / 2 == 0 ? std::vector<double>({0, 2, 4, 6, 8, 10})
                                                      : std::vector<double>({1, 3, 5, 7, 9, 11}));
    const data::DistributedSampler sampler(12);
    EXPECT_EQ(sampler.share()->world_size, 2);
    EXPECT_EQ(sampler.share()->rank, get_rank() / 2);
  });
  run_ranks(2, [] {
    const Grid grid({{"pipeline", 2}});  // without replicas: all ranks have all samples
    data::DataLoader loader(Numbers(), {.batch_size = 4});
    EXPECT_EQ(samples_of(loader).size(), 12);
  });
}

TEST(Grid, RanksOfAReplicaDropTheSameElements) {
  std::vector<std::vector<int32_t>> masks(4);
  run_ranks(4, [&] {
    const Grid grid({{"replica", 2}, {"pipeline", 2}});
    manual_seed(5);
    masks[size_t(get_rank())] = raw::dropout_mask(empty({64, 64}), .5).to_vector<int32_t>();
  });
  EXPECT_EQ(masks[0], masks[1]);
  EXPECT_EQ(masks[2], masks[3]);
  EXPECT_NE(masks[0], masks[2]);
}

TEST(Grid, ComesBeforeLoaders) {
  run_ranks(2, [] {
    data::DataLoader loader(Numbers(), {.batch_size = 4});
    const std::string text = error_of<StateError>([] { Grid grid({{"pipeline", 2}}); });
    EXPECT_THAT(text, HasSubstr("works for replica"));
    EXPECT_THAT(text, HasSubstr("a loader or sampler has taken its share already; make the grid before it"));
    const Grid alike({{"replica", 2}});  // the share that the loader has
    EXPECT_EQ(alike.size("replica"), 2);
  });
  run_ranks(2, [] {
    data::DataLoader everything(Numbers(), {.batch_size = 4, .world_size = 1});
    const Grid grid({{"pipeline", 2}});
    EXPECT_THAT(error_of<StateError>([] {
                  Grid other({{"replica", 2}});
                }),
                HasSubstr("a job has one number of replicas"));
  });
}

}  // namespace
}  // namespace gradus::dist
