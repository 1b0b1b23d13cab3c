// gan::Watch, which warns of failures of a GAN's training: conditions, text, one warning per failure. And
// diversity, one of its inputs, against values computed by hand.
#include "gradus/train/gan/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "gradus/gradus.h"

namespace gradus {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Means = std::map<std::string, double>;
// Gives a braced list a type.
Means means(Means values) { return values; }

TEST(Watch, SaysOnceThatTheDiscriminatorHasWon) {
  gan::Watch watch;
  const Means won = means({{"d/real", 0.995}, {"d/fake", 0.002}});
  EXPECT_THAT(watch.update(won, 100), IsEmpty());
  EXPECT_THAT(watch.update(won, 100), IsEmpty());
  EXPECT_THAT(
      watch.update(won, 100),
      ElementsAre(AllOf(HasSubstr("the discriminator has won: for 300 steps d/real has been 0.9950 and "
                                  "d/fake 0.0020"))));
  EXPECT_THAT(watch.update(won, 100), IsEmpty());
}

TEST(Watch, BeginsAnewWhenThingsAreWellBetween) {
  gan::Watch watch;
  const Means won = means({{"d/real", 0.995}, {"d/fake", 0.002}});
  for (const Means& well :
       {means({{"d/real", 0.98}, {"d/fake", 0.002}}), means({{"d/real", 0.995}, {"d/fake", 0.02}})}) {
    EXPECT_THAT(watch.update(won, 299), IsEmpty());
    EXPECT_THAT(watch.update(well, 1), IsEmpty());
  }
  EXPECT_THAT(watch.update(won, 299), IsEmpty());
  EXPECT_EQ(watch.update(won, 1).size(), 1u);
}

TEST(Watch, DoesNotTakeScoresOfACriticForOpinions) {
  gan::Watch watch({.won = 0});  // off: scores of a WGAN critic are no probabilities
  EXPECT_THAT(watch.update(means({{"d/real", 5}, {"d/fake", -5}}), 1000), IsEmpty());
}

TEST(Watch, SaysOnceThatTheGeneratorMakesOneImage) {
  gan::Watch watch;
  EXPECT_THAT(watch.update(means({{"diversity", 0.11}}), 1000), IsEmpty());
  EXPECT_THAT(watch.update(means({{"diversity", 0.09}}), 299), IsEmpty());
  EXPECT_THAT(
      watch.update(means({{"diversity", 0.05}}), 1),
      ElementsAre(HasSubstr("the generator makes one image: for 300 steps its images have differed by "
                            "0.0500 of what real ones do")));
  EXPECT_THAT(watch.update(means({{"diversity", 0.01}}), 1000), IsEmpty());
}

TEST(Watch, SaysOnceThatThePenaltyGrows) {
  gan::Watch watch;
  const auto penalty = [&](double value, int64_t steps) {
    return watch.update(means({{"penalty", value}}), steps);
  };
  EXPECT_THAT(penalty(0.9, 100), IsEmpty());
  EXPECT_THAT(penalty(0.2, 100), IsEmpty());
  EXPECT_THAT(penalty(1.9, 1000), IsEmpty()) << "less than ten times the least";
  EXPECT_THAT(penalty(2.5, 299), IsEmpty());
  EXPECT_THAT(penalty(7, 1),
              ElementsAre(HasSubstr("the penalty grows: for 300 steps it has been above 10 times "
                                    "its least, 0.2000, and is now 7.0000")));
  EXPECT_THAT(penalty(70, 1000), IsEmpty());
  gan::Watch small;
  EXPECT_THAT(small.update(means({{"penalty", 0.001}}), 1), IsEmpty());
  EXPECT_THAT(small.update(means({{"penalty", 0.9}}), 1000), IsEmpty()) << "one is not much";
}

TEST(Watch, LooksAtWhatIsThere) {
  EXPECT_THAT(gan::Watch().update(means({{"loss/d", 0}}), 1000), IsEmpty());
  EXPECT_THROW(gan::Watch({.steps = 0}), ValueError);
}

TEST(Watch, IsToldByTheTraining) {
  struct Points : data::Dataset {
    int64_t size() const override { return 48; }
    data::Sample get(int64_t) const override { return {.input = ones({2})}; }
  };
  nn::Linear net({.in = 2, .out = 2});
  data::DataLoader loader(Points(), {.batch_size = 12});
  gan::Watch watch({.steps = 8});
  int64_t steps = 0;
  const auto warnings = [&](const training::Sums& recent, int64_t n) {
    steps += n;
    return watch.update(recent.means(), n);
  };
  // A checkpoint between two log lines does not change their means.
  const std::string folder = testing::TempDir() + "/watch_test";
  training::Training training(
      "gan", {.iterations = 12, .log_interval = 4, .checkpoint_dir = folder, .checkpoint_interval = 3},
      loader, {{"model", net}}, {.warnings = warnings});
  testing::internal::CaptureStdout();
  for (training::Step& s : training) s.log("diversity", s.number() % 4 == 1 ? 0.2 : 0.0);
  const std::string log = testing::internal::GetCapturedStdout();
  std::filesystem::remove_all(folder);
  EXPECT_THAT(
      log,
      HasSubstr("Warning: the generator makes one image: for 8 steps its images have differed by 0.0500"));
  EXPECT_EQ(steps, 12);
}

TEST(Diversity, IsTheFakesSpreadAsAShareOfTheReals) {
  const Tensor real = tensor(std::vector<float>{1, -1, 3, -3}, {2, 2});
  EXPECT_DOUBLE_EQ(gan::diversity(real, real).item<double>(), 1);
  // Variances of the columns: 1 and 0, mean 1/2; those of `real` are 1 and 1.
  const Tensor fake = tensor(std::vector<float>{1, 5, 3, 5}, {2, 2});
  EXPECT_NEAR(gan::diversity(real, fake).item<double>(), std::sqrt(0.5), 1e-7);
  EXPECT_DOUBLE_EQ(gan::diversity(real, zeros({2, 2})).item<double>(), 0);
  EXPECT_DOUBLE_EQ(gan::diversity(ones({1, 2}), zeros({1, 2})).item<double>(), 1) << "nothing to compare";
  EXPECT_DOUBLE_EQ(gan::diversity(zeros({2, 2}), fake).item<double>(), 1);
}

}  // namespace
}  // namespace gradus
