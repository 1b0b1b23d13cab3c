// Several collectives as one message (..._coalesced, coalesced), premul_sum, and gather without outputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> values(const Tensor& x) { return x.to_vector<float>(); }

// first, first + 1, ...
Tensor counted(const Shape& shape, double first) {
  const Tensor x = empty(shape);
  std::iota(x.ptr<float>(), x.ptr<float>() + x.numel(), float(first));
  return x;
}

// ---- several tensors as one message ----

TEST(Coalesced, BroadcastsSeveralTensors) {
  for (const bool async : {false, true})
    run_ranks(3, [&] {
      const Group group = new_group({2, 0});
      const Tensor a = counted({2, 2}, 10 * get_rank()), b = counted({}, 5 + get_rank()), none = empty({0});
      broadcast_coalesced({a, b, none}, {.src = 1, .async_op = async}).wait();
      EXPECT_THAT(values(a), ElementsAre(10, 11, 12, 13));
      EXPECT_THAT(values(b), ElementsAre(6));
      const Tensor c = counted({2}, get_rank());
      if (group.is_member()) broadcast_coalesced({c}, {.src = 2, .group = group, .async_op = async}).wait();
      EXPECT_EQ(values(c)[0], get_rank() == 1 ? 1 : 2);
      broadcast_coalesced({});
    });
}

TEST(Coalesced, GathersSeveralTensors) {
  for (const bool async : {false, true})
    run_ranks(3, [&] {
      const Tensor a = empty({3, 2}), b = empty({6}), c = empty({3, 1});
      const float r = float(get_rank());
      const Tensor transposed = transpose(counted({1, 2}, 20 + 2 * r), 0, 1);
      all_gather_into_tensor_coalesced({a, b, c}, {counted({2}, 10 * r), transposed, full({}, r)},
                                       {.async_op = async})
          .wait();
      EXPECT_THAT(values(a), ElementsAre(0, 1, 10, 11, 20, 21));
      EXPECT_THAT(values(b), ElementsAre(20, 21, 22, 23, 24, 25));
      EXPECT_THAT(values(c), ElementsAre(0, 1, 2));
      all_gather_into_tensor_coalesced({}, {});
    });
}

TEST(Coalesced, ReducesPartsOfSeveralTensors) {
  for (const bool async : {false, true})
    run_ranks(2, [&] {
      const Tensor a = empty({2}), b = empty({1});
      reduce_scatter_tensor_coalesced({a, b}, {counted({2, 2}, get_rank()), counted({2}, 10 * get_rank())},
                                      {.op = ReduceOp::kMax, .async_op = async})
          .wait();
      EXPECT_EQ(values(a), get_rank() == 0 ? (std::vector<float>{1, 2}) : (std::vector<float>{3, 4}));
      EXPECT_EQ(values(b), std::vector<float>{get_rank() == 0 ? 10.f : 11.f});
      reduce_scatter_tensor_coalesced({}, {});
    });
}

TEST(Coalesced, RefusesListsThatDoNotFit) {
  run_ranks(2, [] {
    const Tensor x = zeros({2}), y = zeros({4});
    const Tensor i = zeros({2}, {.dtype = DType::kI64});
    EXPECT_ERROR(ValueError, all_gather_into_tensor_coalesced({y}, {x, x}), "outputs of 1 and xs of 2");
    EXPECT_ERROR(ShapeError, all_gather_into_tensor_coalesced({y, x}, {x, x}), "outputs[1]");
    EXPECT_ERROR(ShapeError, reduce_scatter_tensor_coalesced({x}, {x}), "xs[0]");
    EXPECT_ERROR(DTypeError, broadcast_coalesced({x, i}), "one dtype");
    EXPECT_ERROR(DTypeError, all_gather_into_tensor_coalesced({zeros({4}, {.dtype = DType::kI64})}, {x}),
                 "one dtype");
    EXPECT_ERROR(ValueError, broadcast_coalesced({x}, {.src = 2}), "src 2");
  });
}

TEST(Coalesced, NamesTheRankWithOtherShapes) {
  const std::vector<std::function<void(const std::vector<Tensor>&)>> calls = {
      [](const auto& xs) { broadcast_coalesced(xs); },
      [](const auto& xs) {
        std::vector<Tensor> outputs;
        for (const Tensor& x : xs) outputs.push_back(empty({3 * x.numel()}));
        all_gather_into_tensor_coalesced(outputs, xs);
      },
      [](const auto& xs) {
        std::vector<Tensor> outputs;
        for (const Tensor& x : xs) outputs.push_back(empty({x.numel() / 3}));
        reduce_scatter_tensor_coalesced(outputs, xs);
      }};
  for (const auto& call : calls)
    EXPECT_THAT(errors_of(3,
                          [&] {
                            const bool differs = get_rank() == 1;
                            call({zeros({differs ? 6 : 3}), zeros({differs ? 3 : 6})});
                          }),
                Each(AllOf(HasSubstr("rank 1 called"), HasSubstr("shapes [6] [3]"), HasSubstr("[3] [6]"))));
}

// ---- coalesced ----

TEST(CoalescedCalls, HaveTheirOwnResults) {
  run_ranks(3, [] {
    const float r = float(get_rank());
    const Group pair = new_group({0, 2});
    const Tensor a = full({3}, r), b = full({2, 2}, 10 * r), c = full({1}, r), d = full({2}, r),
                 e = full({}, r);
    const Tensor i = full({2}, r, {.dtype = DType::kI32}), out = empty({3});
    coalesced([&] {
      all_reduce(a);
      all_reduce(b);
      all_reduce(c, {.op = ReduceOp::kMax});
      broadcast(d, {.src = 2});
      all_reduce(i, {.async_op = true});
      coalesced([&] { all_gather_into_tensor(out, full({1}, r)); });
      if (pair.is_member()) all_reduce(e, {.group = pair});
    });
    EXPECT_THAT(values(a), Each(3));
    EXPECT_THAT(values(b), Each(30));
    EXPECT_THAT(values(c), Each(2));
    EXPECT_THAT(values(d), Each(2));
    EXPECT_THAT(i.to_vector<int32_t>(), Each(3));
    EXPECT_THAT(values(out), ElementsAre(0, 1, 2));
    EXPECT_THAT(values(e), ElementsAre(r == 1 ? 1 : 2));
    const Tensor after = full({1}, r);
    all_reduce(after);  // no longer a part of it
    EXPECT_THAT(values(after), Each(3));
  });
}

// Every rank sends to the next before it receives: without coalesced a deadlock, beyond the transport's buffers.
TEST(CoalescedCalls, MayBeMessages) {
  run_ranks(3, [] {
    const int rank = get_rank();
    const Tensor sent = full({1 << 20}, rank), received = empty({1 << 20});
    coalesced([&] {
      send(sent, {.dst = (rank + 1) % 3});
      recv(received, {.src = (rank + 2) % 3});
    });
    EXPECT_THAT(values(received), Each((rank + 2) % 3));
    EXPECT_ERROR(ValueError, coalesced([&] { recv(received); }), "[recv]", "src");
  });
}

TEST(CoalescedCalls, AreOneMessageWhereTheyCan) {
  const std::vector<std::string> errors = errors_of(2, [] {
    const Tensor a = zeros({2}), b = zeros({3});
    if (get_rank() == 1) {
      all_reduce(zeros({4}));
      return;
    }
    coalesced([&] {
      all_reduce(a);
      all_reduce(b);
    });
  });
  EXPECT_THAT(errors[0], HasSubstr("f32[5]"));  // both tensors, as one list
}

TEST(CoalescedCalls, AreDroppedByAnException) {
  run_ranks(2, [] {
    const Tensor x = ones({1});
    EXPECT_THROW(coalesced([&] {
                   all_reduce(x);
                   throw ValueError("test", "on purpose");
                 }),
                 ValueError);
    EXPECT_THAT(values(x), Each(1));
    all_reduce(x);
    EXPECT_THAT(values(x), Each(2));
  });
}

TEST(CoalescedCalls, ThrowTheirErrors) {
  EXPECT_THAT(errors_of(2,
                        [] {
                          const Tensor x = zeros({get_rank() + 1}), y = zeros({2});
                          coalesced([&] {
                            all_reduce(x);
                            broadcast(y);
                          });
                        }),
              Each(HasSubstr("rank 1 called all_reduce(f32[2], sum) as call 1")));
}

// ---- premul_sum ----

TEST(PremulSum, MultipliesByTheFactorOfEachRank) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16})
    for (const bool async : {false, true})
      run_ranks(3, [&] {
        const int rank = get_rank();
        // 1 * 0.5 + 2 * 1.5 + 3 * 2.5 = 11
        const ReduceOperation op = rank == 1 ? premul_sum(scalar(1.5)) : premul_sum(rank + 0.5);
        const auto make = [&](const Shape& shape) { return full(shape, rank + 1, {.dtype = dtype}); };
        const Tensor all = make({2000}), coalesced = make({3}), root = make({2});
        const Tensor part = make({1}), own = make({2}), parts = make({6}), pair = make({1}),
                     pairs = make({3});
        all_reduce(all, {.op = op, .async_op = async}).wait();
        all_reduce_coalesced({coalesced}, {.op = op, .async_op = async}).wait();
        reduce(root, {.dst = 1, .op = op, .async_op = async}).wait();
        reduce_scatter(part, {make({1}), make({1}), make({1})}, {.op = op, .async_op = async}).wait();
        reduce_scatter_tensor(own, parts, {.op = op, .async_op = async}).wait();
        reduce_scatter_tensor_coalesced({pair}, {pairs}, {.op = op, .async_op = async}).wait();
        for (const Tensor& x : {all, coalesced, part, own, pair})
          EXPECT_THAT(values(to(x, DType::kF32)), Each(11)) << name_of(dtype);
        EXPECT_THAT(values(to(root, DType::kF32)), Each(rank == 1 ? 11 : rank + 1));
        for (const Tensor& input : {parts, pairs})
          EXPECT_THAT(values(to(input, DType::kF32)), Each(rank + 1));
      });
}

TEST(PremulSum, OfOneRankIsTheProduct) {
  const Tensor x = full({2}, 3);
  all_reduce(x, {.op = premul_sum(2)});
  EXPECT_THAT(values(x), Each(6));
}

TEST(PremulSum, RefusesOtherDtypesAndFactors) {
  run_ranks(2, [] {
    const Tensor x = ones({2}), i = ones({2}, {.dtype = DType::kI64});
    EXPECT_ERROR(DTypeError, all_reduce(i, {.op = premul_sum(2)}), "[all_reduce] premul_sum", "i64");
    EXPECT_ERROR(ShapeError, all_reduce(x, {.op = premul_sum(x)}), "one element", "f32[2]");
    EXPECT_ERROR(DTypeError, all_reduce(x, {.op = premul_sum(tensor({2}))}), "floating point", "i64");
    EXPECT_ERROR(ValueError, premul_sum(Tensor()), "[premul_sum] factor");
    EXPECT_ERROR(ValueError, all_reduce(x, {.op = ReduceOp::kPremulSum}), "needs its factor");
    EXPECT_THAT(values(x), Each(1));
  });
}

TEST(PremulSum, IsNoOtherReduction) {
  EXPECT_THAT(errors_of(3,
                        [] {
                          const Tensor x = ones({2});
                          all_reduce(x, {.op = get_rank() == 2 ? ReduceOperation() : premul_sum(2)});
                        }),
              Each(AllOf(HasSubstr("rank 2 called all_reduce(f32[2], sum)"),
                         HasSubstr("called all_reduce(f32[2], premul_sum)"))));
}

// ---- gather without outputs ----

TEST(GatherList, IsOnTheRootAlone) {
  run_ranks(3, [] {
    const int rank = get_rank();
    const std::vector<Tensor> all = gather(counted({rank, 2}, 10 * rank), {.dst = 1});
    ASSERT_EQ(all.size(), rank == 1 ? 3u : 0u);
    if (rank != 1) return;
    EXPECT_EQ(all[0].shape(), (Shape{0, 2}));
    EXPECT_THAT(values(all[1]), ElementsAre(10, 11));
    EXPECT_EQ(all[2].shape(), (Shape{2, 2}));
    EXPECT_THAT(values(all[2]), ElementsAre(20, 21, 22, 23));
  });
  EXPECT_EQ(gather(ones({1})).size(), 1u);
}

TEST(GatherList, RefusesWhatGatherRefuses) {
  run_ranks(2, [] {
    EXPECT_ERROR(ValueError, gather(ones({1}), {.dst = 2}), "dst 2");
    EXPECT_ERROR(ValueError, gather(ones({1}), {.dst = 0, .async_op = true}), "cannot be asynchronous");
  });
  EXPECT_THAT(
      errors_of(2,
                [] { gather(get_rank() == 0 ? ones({1}) : ones({1}, {.dtype = DType::kI64}), {.dst = 0}); }),
      Each(HasSubstr("called gather(i64[1], root 0)")));
}

}  // namespace
}  // namespace gradus::dist
