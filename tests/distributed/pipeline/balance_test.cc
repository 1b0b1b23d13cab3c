// balance(), which partitions units of a model into pipeline stages, against a search of all partitions.
#include "gradus/distributed/pipeline/internal/auto_cut.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

namespace gradus::dist::internal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Its time, and the bytes that cross a cut after it.
struct Unit {
  double seconds, bytes_after;
};

// Returns the stages' ends. A stage's time is the sum of its units', or infinite unless fits() is true.
template <class Fits>
std::vector<int> balanced(const std::vector<Unit>& units, int stages, const Fits& fits) {
  std::vector<double> bytes;
  for (const Unit& u : units) bytes.push_back(u.bytes_after);
  return balance(bytes, stages, [&](int stage, int begin, int end) {
    if (!fits(stage, begin, end)) return double(INFINITY);
    double sum = 0;
    for (int u = begin; u < end; ++u) sum += units[size_t(u)].seconds;
    return sum;
  });
}

bool always(int, int, int) { return true; }

double slowest_of(const std::vector<Unit>& units, const std::vector<int>& ends) {
  double slowest = 0;
  for (size_t s = 0, begin = 0; s < ends.size(); begin = size_t(ends[s++])) {
    double sum = 0;
    for (size_t u = begin; u < size_t(ends[s]); ++u) sum += units[u].seconds;
    slowest = std::max(slowest, sum);
  }
  return slowest;
}

double bytes_of(const std::vector<Unit>& units, const std::vector<int>& ends) {
  double bytes = 0;
  for (size_t s = 0; s + 1 < ends.size(); ++s) bytes += units[size_t(ends[s]) - 1].bytes_after;
  return bytes;
}

// Calls f(ends) for all ways to cut n units into stages.
template <class F> void each_cut(int n, int stages, std::vector<int>& ends, const F& f) {
  if (int(ends.size()) + 1 == stages) {
    ends.push_back(n);
    f(ends);
    ends.pop_back();
    return;
  }
  for (int end = (ends.empty() ? 0 : ends.back()) + 1; n - end >= stages - int(ends.size()) - 1; ++end) {
    ends.push_back(end);
    each_cut(n, stages, ends, f);
    ends.pop_back();
  }
}

TEST(Balance, FindsWhatATryOfAllCutsFinds) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    std::vector<Unit> units(1 + random() % 9);
    for (Unit& u : units) u = {double(1 + random() % 5), double(random() % 10)};
    const int n = int(units.size()), stages = 1 + int(random() % units.size());
    const int longest = 1 + int(random() % units.size());  // units in the first stage
    const auto fits = [&](int stage, int begin, int end) { return stage > 0 || end - begin <= longest; };
    double slowest = INFINITY, bytes = INFINITY;
    std::vector<int> ends;
    each_cut(n, stages, ends, [&](const std::vector<int>& e) {
      if (!fits(0, 0, e[0])) return;
      const double s = slowest_of(units, e), b = bytes_of(units, e);
      if (s < slowest || (s == slowest && b < bytes)) slowest = s, bytes = b;
    });
    const std::vector<int> got = balanced(units, stages, fits);
    if (slowest == INFINITY) {
      EXPECT_THAT(got, IsEmpty());
      continue;
    }
    ASSERT_EQ(got.size(), size_t(stages));
    EXPECT_EQ(slowest_of(units, got), slowest);
    EXPECT_EQ(bytes_of(units, got), bytes);
  }
}

// Times within a percent count as equal, since they are measured.
TEST(Balance, TakesTheNarrowerCutOfTwoThatAreAlike) {
  EXPECT_THAT(balanced({{1, 9}, {0.005, 1}, {1, 0}}, 2, always), ElementsAre(2, 3));
  EXPECT_THAT(balanced({{1, 9}, {0.5, 1}, {1, 0}}, 2, always), ElementsAre(2, 3));
  EXPECT_THAT(balanced({{1, 1}, {0.5, 9}, {1, 0}}, 2, always), ElementsAre(1, 3));
}

TEST(Balance, HasNoStageWithoutUnits) {
  EXPECT_THAT(balanced({{0, 0}, {0, 0}, {5, 0}}, 3, always), ElementsAre(1, 2, 3));
  EXPECT_THAT(balanced({{1, 0}}, 2, always), IsEmpty());
}

// As with recomputation, which makes the first stage slower.
TEST(Balance, KnowsThatAUnitMayTakeLongerOnOneStage) {
  const auto seconds = [](int stage, int begin, int end) { return (stage == 0 ? 2.0 : 1.0) * (end - begin); };
  EXPECT_THAT(balance(std::vector<double>(6), 2, seconds), ElementsAre(2, 6));
}

}  // namespace
}  // namespace gradus::dist::internal
