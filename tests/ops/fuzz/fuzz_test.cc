// The first 1000 cases of the op fuzzer (tools/fuzz-ops.sh) with a fixed seed, and its programs.
#include "gradus/tests/ops/fuzz/fuzz.h"

#include <gtest/gtest.h>

namespace gradus::optest {
namespace {

TEST(FuzzOps, TheFirstCasesOfAFixedSeedAreRight) {
  const FuzzReport report = fuzz({.cases = 1000, .seed = 1, .failures = 10});
  for (const std::string& failure : report.failures) ADD_FAILURE() << failure;
  // Most cases must be compared, and many with gradients.
  EXPECT_LT(report.refused * 4, report.cases);
  EXPECT_GT(report.gradients * 4, report.cases);
}

TEST(FuzzOps, AFailureIsPrintedAsAProgramOfFiveLines) {
  const FuzzCase c{.op = "sum", .variant = "over [0] 3", .shapes = {{2, 3}}, .below = {1.5}, .layouts = "c"};
  EXPECT_EQ(check(c), "");
  const std::string text = program_of(c);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;
  EXPECT_NE(text.find("gradus::Shape{2, 3}"), std::string::npos) << text;
  EXPECT_NE(check({.op = "sum", .variant = "of no row"}).find("no row"), std::string::npos);
}

}  // namespace
}  // namespace gradus::optest
