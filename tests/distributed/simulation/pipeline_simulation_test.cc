// Steps of pipelines under a scheduler that a seed drives. `tools/simulate.sh --pipelines 10000` tries more.
#include <gtest/gtest.h>

#include "gradus/tests/distributed/simulation/random_pipeline.h"
#include "gradus/tests/distributed/simulation/random_program.h"

namespace gradus::dist {
namespace {

TEST(PipelineSimulation, StepsEndWithTheRightGradientsOrTheRightError) {
  int killed = 0, lost = 0, trained = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    const PipelineReport report = try_pipeline(seed);
    EXPECT_EQ(report.wrong, "") << describe(report.run);
    killed += report.run.killed >= 0;
    lost += report.run.dropped;
    trained += report.trained;
  }
  // Enough goes wrong, and enough goes right, for the test to mean something.
  EXPECT_GT(killed, 7);
  EXPECT_GT(lost, 3);
  EXPECT_GT(trained, 22);
}

}  // namespace
}  // namespace gradus::dist
