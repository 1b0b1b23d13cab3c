// StateReader, with which load_state_dict checks a State: one error lists every mismatch, and on_success
// callbacks run only if there is none.
#include "gradus/optim/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace gradus::optim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The text of finish()'s error.
std::string message_of(StateReader& in) {
  try {
    in.finish("this test");
  } catch (const ValueError& e) {
    return e.what();
  }
  return "no error";
}

Tensor f64(const std::vector<double>& v) { return tensor(v, {int64_t(v.size())}); }

TEST(StateReader, ReadsEachNameOnce) {
  StateReader in({.tensors = {{"part.x", f64({1, 2})}}, .numbers = {{"rate", 0.5}, {"part.steps", 7}}});
  StateReader part = in.with_prefix("part");
  EXPECT_TRUE(part.contains("steps") && part.contains("x") && in.contains("part.x"));
  EXPECT_FALSE(part.contains("rate"));
  EXPECT_EQ(in.rate("rate"), 0.5);
  EXPECT_EQ(part.count("steps"), 7);
  EXPECT_FALSE(part.empty());
  EXPECT_EQ(part.tensor("x", {2}, {DType::kF32, kCPU}).to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_TRUE(part.empty());
  std::vector<int> order;
  in.on_success([&] { order.push_back(1); });
  part.on_success([&] { order.push_back(2); });
  EXPECT_TRUE(order.empty());
  in.finish("this test");
  EXPECT_THAT(order, ElementsAre(1, 2));
}

TEST(StateReader, ListsAllThatIsWrongAndDoesNothing) {
  State state{.tensors = {{"x", f64({1})}, {"part.i", tensor(std::vector<int64_t>{1}, {1})}, {"t", f64({1})}},
              .numbers = {{"steps", 1.5}, {"few", 2}, {"rate", -1}, {"rate", 3}, {"more", 4}}};
  state.numbers.emplace_back("infinite", std::numeric_limits<double>::infinity());
  StateReader in(state);
  in.on_success([] { ADD_FAILURE() << "called"; });
  in.count("steps");
  in.count("few", 3);
  in.rate("rate");
  in.rate("infinite");
  EXPECT_EQ(in.with_prefix("part").number("none", 5), 5);
  EXPECT_FALSE(in.tensor("x", {2}, {DType::kF64, kCPU}).defined());
  EXPECT_FALSE(in.tensor("missing", {2}, {DType::kF64, kCPU}).defined());
  EXPECT_FALSE(in.with_prefix("part").tensor("i", {1}, {DType::kF64, kCPU}).defined());
  EXPECT_EQ(message_of(in),
            "[load_state_dict] the state does not fit this test:\n"
            "  given more than once: rate\n"
            "  steps: expected a whole number from 0 on, got 1.5\n"
            "  few: expected a whole number from 3 on, got 2\n"
            "  rate: expected a finite number from 0 on, got -1\n"
            "  infinite: expected a finite number from 0 on, got inf\n"
            "  missing: part.none\n"
            "  x: expected the shape of f64[2] cpu, got f64[1] cpu\n"
            "  missing: missing\n"
            "  part.i: expected a dtype like that of f64[1] cpu, got i64[1] cpu\n"
            "  unexpected: more = 4\n"
            "  unexpected: t");
}

}  // namespace
}  // namespace gradus::optim
