// find_mismatch: before data moves, every rank compares the records (op, dtype, shape, root, ...) of all
// ranks' calls, and gets the same error, which names the rank that differs from the majority.
#include "gradus/distributed/base/call_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace gradus::dist::internal {
namespace {

struct Call {
  Op op;
  Shape shape = {4};
  int root = -1;
  ReduceOp reduce = ReduceOp::kSum;
  DType dtype = DType::kF32;
};
CallRecord make_record(const Call& call) {
  CallRecord record{
      .sequence = 12, .op = call.op, .reduce = call.reduce, .dtype = call.dtype, .root = call.root};
  record.ndim = call.shape.size();
  std::ranges::copy(call.shape, record.dims);
  return record;
}
// The mismatch among these calls of the ranks 0, 1, ..., if any.
std::optional<Failure> compare(const std::vector<Call>& calls) {
  std::vector<CallRecord> records;
  std::vector<int> ranks;
  for (const Call& call : calls) {
    ranks.push_back(int(records.size()));
    records.push_back(make_record(call));
  }
  return find_mismatch(records, ranks, "world");
}

TEST(CallRecord, IsDescribedAsACall) {
  EXPECT_EQ(describe(make_record({Op::kAllReduce, {4, 8}})), "all_reduce(f32[4,8], sum)");
  EXPECT_EQ(describe(make_record({Op::kReduce, {}, 1, ReduceOp::kMax, DType::kI64})),
            "reduce(i64[], max, root 1)");
  EXPECT_EQ(describe(make_record({Op::kBroadcast, {4}, 0})), "broadcast(f32[4], root 0)");
  EXPECT_EQ(describe(make_record({Op::kAllGather, {2}, -1})), "all_gather(f32[2])");
  EXPECT_EQ(describe(make_record({Op::kBarrier})), "barrier()");
  for (size_t op = 0; op < std::size(kOps); ++op) EXPECT_NE(describe(make_record({Op(op)})), "");
}

TEST(CallRecord, EqualCallsAgree) {
  for (size_t op = 0; op < std::size(kOps); ++op)
    EXPECT_FALSE(compare({{Op(op), {4}, 1}, {Op(op), {4}, 1}, {Op(op), {4}, 1}})) << name_of(Op(op));
}

// On a tie, the first of the most frequent calls is right.
TEST(CallRecord, TheMajorityIsRightAndTheFirstRankOnATie) {
  EXPECT_EQ(compare({{Op::kBarrier}, {Op::kAllReduce}, {Op::kAllReduce}})->rank, 0);
  EXPECT_EQ(compare({{Op::kBarrier}, {Op::kAllReduce}})->rank, 1);
  EXPECT_EQ(
      compare({{Op::kBarrier}, {Op::kAllReduce}, {Op::kBroadcast}, {Op::kAllReduce}, {Op::kBroadcast}})->rank,
      0);
}

// An op's row of kOps says which of dtype, shape, reduce and root are compared; the others may differ.
TEST(CallRecord, EachOpComparesWhatItNeeds) {
  for (size_t op = 0; op < std::size(kOps); ++op) {
    const OpInfo& info = kOps[op];
    SCOPED_TRACE(info.name);
    const Call call{Op(op), {2, 3}, 0};
    const auto differs = [&](auto&& change) {
      Call other = call;
      change(other);
      return compare({call, other}).has_value();
    };
    EXPECT_EQ(differs([](Call& c) { c.dtype = DType::kF64; }), info.has_tensor);
    EXPECT_EQ(differs([](Call& c) { c.shape = {3, 2}; }), info.same_shape);
    EXPECT_EQ(differs([](Call& c) { c.shape = {2, 3, 1}; }), info.same_shape);
    EXPECT_EQ(differs([](Call& c) { c.reduce = ReduceOp::kMin; }), info.reduces);
    EXPECT_EQ(differs([](Call& c) { c.root = 1; }), info.root != OpInfo::Root::kNone);
    EXPECT_TRUE(
        differs([](Call& c) { c.op = c.op == Op::kAllGatherObject ? Op::kBarrier : Op::kAllGatherObject; }));
  }
}

TEST(CallRecord, AnotherCallNumberIsAMismatch) {
  CallRecord late = make_record({Op::kBarrier});
  late.sequence = 11;
  EXPECT_EQ(find_mismatch({make_record({Op::kBarrier}), late}, {0, 1}, "world")->text,
            "rank 1 called barrier() as call 11 of group 'world', where rank 0 called barrier() as call 12");
}

TEST(CallRecord, NonsenseIsNoIndexIntoTables) {
  const auto spoil = [](auto&& change) {
    CallRecord bad = make_record({Op::kAllReduce});
    change(bad);
    return find_mismatch({make_record({Op::kAllReduce}), bad}, {0, 1}, "world");
  };
  const std::optional<Failure> verdicts[] = {
      spoil([](CallRecord& r) { r.op = Op(200); }),
      spoil([](CallRecord& r) { r.dtype = DType(200); }),
      spoil([](CallRecord& r) { r.reduce = ReduceOp(200); }),
      spoil([](CallRecord& r) { r.ndim = 9; }),  // CallRecord has 8 dims
      spoil([](CallRecord& r) { r.ndim = -1; }),
  };
  for (const auto& verdict : verdicts) {
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->rank, 1);
    EXPECT_THAT(verdict->text, ::testing::StartsWith("rank 1 sent a malformed record in group 'world'"));
  }
}

}  // namespace
}  // namespace gradus::dist::internal
