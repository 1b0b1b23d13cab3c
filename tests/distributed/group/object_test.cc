// Objects, besides the cases of collectives_test.
#include "gradus/distributed/group/object.h"

#include <gmock/gmock.h>

#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::ElementsAre;

TEST(Objects, WithoutAJobAreCopies) {
  EXPECT_EQ(broadcast_object("a"), "a");
  EXPECT_THAT(all_gather_object("a"), ElementsAre("a"));
  EXPECT_THAT(gather_object("a"), ElementsAre("a"));
  EXPECT_EQ(scatter_object({"a"}), "a");
}

TEST(Objects, MayHoldAnyBytes) {
  const std::string bytes("\0\xff\n\0", 4);
  run_ranks(3, [&] {
    EXPECT_EQ(broadcast_object(get_rank() == 1 ? bytes : "ignored", {.src = 1}), bytes);
    EXPECT_THAT(all_gather_object(get_rank() == 2 ? "" : bytes), ElementsAre(bytes, bytes, ""));
  });
}

TEST(Objects, ListsAreGivenOnTheRootAlone) {
  run_ranks(2, [] {
    if (get_rank() == 0)
      EXPECT_THROW(scatter_object({"one"}), ValueError);
    else
      EXPECT_THROW(scatter_object({"one", "two"}), ValueError);
    EXPECT_THROW(all_gather_object("x", {.async_op = true}), ValueError);
    EXPECT_THROW(broadcast_object("x", {.src = 2}), ValueError);
  });
}

TEST(Objects, ComeFromAnyRank) {
  run_ranks(3, [] {
    if (get_rank() > 0) return send_object(std::to_string(get_rank()), {.dst = 0});
    std::vector<std::string> got = {recv_object(), recv_object()};
    EXPECT_THAT(got, testing::UnorderedElementsAre("1", "2"));
  });
}

}  // namespace
}  // namespace gradus::dist
