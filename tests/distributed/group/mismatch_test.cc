// Ranks that make different calls all get the same MismatchError, which names the rank that differs and both
// calls. Ranks are threads, with shared memory and with messages.
#include <gmock/gmock.h>

#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/object.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::Each;
using testing::EndsWith;
using testing::HasSubstr;

struct Mismatch {
  const char* name;
  std::function<void()> usual, odd;  // rank 1 of 3 calls `odd`, ranks 0 and 2 call `usual`
  const char* text;                  // a part of all ranks' errors
};

Tensor f32(const Shape& shape) { return empty(shape); }
Tensor i64(const Shape& shape) { return empty(shape, {.dtype = DType::kI64}); }
std::vector<Tensor> list(int64_t a, int64_t b, int64_t c) { return {f32({a}), f32({b}), f32({c})}; }
bool on(int rank) { return get_rank() == rank; }

const Mismatch kMismatches[] = {
    {"op", [] { all_reduce(f32({4})); }, [] { broadcast(f32({4})); },
     "rank 1 called broadcast(f32[4], root 0) as call 1 of group 'world', where rank 0 called "
     "all_reduce(f32[4], sum)"},
    {"shape", [] { all_reduce(f32({4})); }, [] { all_reduce(f32({5})); },
     "rank 1 called all_reduce(f32[5], sum) as call 1 of group 'world', where rank 0 called "
     "all_reduce(f32[4], sum)"},
    {"dtype", [] { all_reduce(f32({4})); }, [] { all_reduce(i64({4})); },
     "rank 1 called all_reduce(i64[4], sum)"},
    {"reduce op", [] { all_reduce(f32({4})); }, [] { all_reduce(f32({4}), {.op = ReduceOp::kMax}); },
     "rank 1 called all_reduce(f32[4], max)"},
    {"order",
     [] {
       all_reduce(f32({4}));
       barrier();
     },
     [] {
       barrier();
       all_reduce(f32({4}));
     },
     "rank 1 called barrier() as call 1 of group 'world', where rank 0 called all_reduce(f32[4], sum)"},
    {"one call too many",
     [] {
       all_reduce(f32({4}));
       barrier();
     },
     [] {
       all_reduce(f32({4}));
       all_reduce(f32({4}));
       barrier();
     },
     "rank 1 called all_reduce(f32[4], sum) as call 2 of group 'world', where rank 0 called barrier()"},
    {"root", [] { broadcast(f32({4}), {.src = 0}); }, [] { broadcast(f32({4}), {.src = 2}); },
     "rank 1 called broadcast(f32[4], root 2)"},
    {"reduce to other roots", [] { reduce(f32({4}), {.dst = 0}); }, [] { reduce(f32({4}), {.dst = 1}); },
     "rank 1 called reduce(f32[4], sum, root 1)"},
    {"asynchronous", [] { all_reduce(f32({4}), {.async_op = true}).wait(); },
     [] { all_reduce(f32({3}), {.async_op = true}).wait(); }, "rank 1 called all_reduce(f32[3], sum)"},
    {"coalesced shapes of one total",
     [] {
       all_reduce_coalesced({f32({4, 2}), f32({8})});
     },
     [] {
       all_reduce_coalesced({f32({8}), f32({4, 2})});
     },
     "rank 1 called all_reduce_coalesced with shapes [8] [4,2], where rank 0 called it with shapes [4,2] "
     "[8]"},
    {"all_gather with too little room", [] { all_gather(list(2, 3, 2), f32({on(1) ? 3 : 2})); },
     [] { all_gather(list(2, 2, 2), f32({3})); },
     "rank 1 has room for 2 elements of rank 1, which gives f32[3]"},
    {"all_gather_into_tensor", [] { all_gather_into_tensor(f32({6}), f32({2})); },
     [] { all_gather_into_tensor(f32({9}), f32({3})); }, "elements of rank 1, which gives f32[3]"},
    {"gather with too much room", [] { gather(f32({2}), on(0) ? list(2, 2, 2) : std::vector<Tensor>()); },
     [] { gather(f32({1}), {}); }, "rank 0 has room for 2 elements of rank 1, which gives f32[1]"},
    {"scatter", [] { scatter(f32({2}), on(0) ? list(2, 2, 2) : std::vector<Tensor>()); },
     [] { scatter(f32({3}), {}); }, "rank 1's x f32[3] does not hold the 2 elements that rank 0 gives it"},
    {"reduce_scatter", [] { reduce_scatter(f32({get_rank() + 1}), list(1, 2, 3)); },
     [] { reduce_scatter(f32({3}), list(2, 3, 1)); },
     "rank 1 called reduce_scatter with inputs of sizes 2, 3, 1, where rank 0 called it with inputs of sizes "
     "1, 2, 3"},
    {"all_to_all", [] { all_to_all(list(1, 1, 1), list(1, 1, 1)); },
     [] { all_to_all(list(1, 1, 1), list(1, 1, 2)); }, "rank 1 gives 2 elements to rank 2, which awaits 1"},
    {"all_to_all_single",
     [] {
       all_to_all_single(f32({3, 2}), f32({3, 2}));
     },
     [] {
       all_to_all_single(f32({3, 3}), f32({3, 3}));
     },
     "rank 0 gives 2 elements to rank 1, which awaits 3"},
    {"objects", [] { all_gather_object("a"); }, [] { broadcast_object("a"); }, "rank 1 called"},
    {"new_group",
     [] {
       new_group({0, 1});
     },
     [] {
       new_group({0, 2});
     },
     "rank 1 called new_group with 0, 2, where rank 0 called it with 0, 1"},
    {"ways to make groups", [] { Group().duplicate(); }, [] { Group().split(0); },
     "rank 1 called split() as call 1 of group 'world', where rank 0 called duplicate()"},
};

TEST(Mismatch, IsTheSameErrorOnEveryRank) {
  for (const Mismatch& m : kMismatches)
    for (const bool messages_only : {false, true}) {
      SCOPED_TRACE(m.name);
      const auto errors = errors_of(3, [&] { (get_rank() == 1 ? m.odd : m.usual)(); },
                                    {.timeout = Milliseconds(20'000), .messages_only = messages_only});
      EXPECT_THAT(errors, Each(HasSubstr(m.text)));
      // The texts are equal after the name of the rank's own call.
      const std::string text = errors[0].substr(errors[0].find(' '));
      EXPECT_THAT(errors, Each(EndsWith(text)));
    }
}

TEST(Mismatch, IsAMismatchErrorThatNamesTheRank) {
  try {
    run_ranks(4, [] { all_reduce(f32({get_rank() == 3 ? 1 : 2})); });
    FAIL();
  } catch (const MismatchError& error) {
    EXPECT_EQ(error.rank(), 3);
  }
}

TEST(Mismatch, BlamesTheRankThatDiffersFromTheMajority) {
  EXPECT_THAT(errors_of(3, [] { all_reduce(f32({get_rank() == 0 ? 1 : 2})); }),
              Each(HasSubstr(
                  "rank 0 called all_reduce(f32[1], sum) as call 1 of group 'world', where rank 1 called")));
}

TEST(Mismatch, InASubgroupNamesRanksOfTheJob) {
  const auto errors = errors_of(4, [] {
    const Group group = new_group({1, 3}, {.name = "odd"});
    if (group.is_member()) broadcast(f32({get_rank()}), {.src = 3, .group = group});
  });
  EXPECT_THAT(errors[1],
              HasSubstr("rank 3 called broadcast(f32[3], root 3) as call 1 of group 'odd', where rank 1 "
                        "called broadcast(f32[1], root 3)"));
  EXPECT_EQ(errors[3], errors[1]);
}

TEST(Mismatch, EndsTheJobForCallsThatComeLater) {
  run_ranks(2, [] {
    EXPECT_THROW(all_reduce(f32({1 + get_rank()})), MismatchError);
    EXPECT_THROW(barrier(), MismatchError);
    EXPECT_THROW(barrier({.async_op = true}).wait(), MismatchError);
    EXPECT_THROW(recv(f32({1})), MismatchError);
    EXPECT_THROW(group_barrier(), MismatchError);
    EXPECT_THROW(get_client().user_get("nothing"), MismatchError);
  });
}

}  // namespace
}  // namespace gradus::dist
