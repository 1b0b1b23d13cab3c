// Arguments of collectives: layouts, devices, roots, lists and sizes that are accepted or rejected (without
// harm to the job), versions of written tensors, and waits. collectives_test checks results, mismatch_test
// differing calls.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Tensor f32(std::vector<float> values) {
  const int64_t n = int64_t(values.size());
  return tensor(values, {n});
}

TEST(CollectiveArguments, WithoutAJobEveryCollectiveIsACopy) {
  const Tensor x = f32({1, 2});
  all_reduce(x, {.op = ReduceOp::kAvg});
  all_reduce_coalesced({x, f32({3})});
  reduce(x);
  broadcast(x);
  barrier();
  EXPECT_THAT(x.to_vector<float>(), ElementsAre(1, 2));
  const auto expect_copy = [&](auto&& call) {
    const Tensor y = f32({7, 7});
    call(y);
    EXPECT_THAT(y.to_vector<float>(), ElementsAre(1, 2));
  };
  expect_copy([&](const Tensor& y) { gather(x, {y}); });
  expect_copy([&](const Tensor& y) { scatter(y, {x}); });
  expect_copy([&](const Tensor& y) { all_gather({y}, x); });
  expect_copy([&](const Tensor& y) { all_gather_into_tensor(y, x); });
  expect_copy([&](const Tensor& y) { reduce_scatter(y, {x}); });
  expect_copy([&](const Tensor& y) { reduce_scatter_tensor(y, x); });
  expect_copy([&](const Tensor& y) { all_to_all({y}, {x}); });
  expect_copy([&](const Tensor& y) { all_to_all_single(y, x); });
  EXPECT_THAT(all_gather(x).at(0).to_vector<float>(), ElementsAre(1, 2));
  EXPECT_TRUE(all_reduce(x, {.async_op = true}).is_completed());
  EXPECT_TRUE(Work().is_completed());
  Work().wait();
}

TEST(CollectiveArguments, WhatIsWrittenMustBeRowMajor) {
  run_ranks(2, [] {
    const Tensor strided = transpose(empty({2, 3}), 0, 1);
    EXPECT_THAT(
        error_of<ShapeError>([&] { all_reduce(strided); }),
        AllOf(HasSubstr("[all_reduce] x does not lie in row-major order, call contiguous(): f32[3,2]"),
              HasSubstr("f32[3,2] cpu strided")));
    EXPECT_THROW(broadcast(strided), ShapeError);
    EXPECT_THROW(all_gather({strided, strided}, empty({6})), ShapeError);
    EXPECT_THROW(all_reduce_coalesced({empty({1}), strided}), ShapeError);
    barrier();
  });
}

TEST(CollectiveArguments, WhatIsReadMayBeStrided) {
  run_ranks(2, [] {
    const Tensor x = transpose(reshape(f32({1, 2, 3, 4}), {2, 2}), 0, 1);
    const Tensor y = empty({2, 2, 2});
    all_gather_into_tensor(y, x);
    EXPECT_THAT(y.to_vector<float>(), ElementsAre(1, 3, 2, 4, 1, 3, 2, 4));
    if (get_rank() == 0) {
      const Tensor sum = zeros({2, 2});
      reduce(sum, {.dst = 0});
      EXPECT_THAT(sum.to_vector<float>(), ElementsAre(1, 3, 2, 4));
    } else {
      reduce(x, {.dst = 0});
    }
  });
}

TEST(CollectiveArguments, TrackedTensorsPointToTheDifferentiableForms) {
  const Tensor w = f32({1, 2});
  GradManager gm;
  gm.attach(w);
  all_reduce(w);  // nothing is recorded
  auto recording = gm.record();
  const Tensor h = w * 2;
  for (const Tensor& x : {w, h}) {
    EXPECT_THAT(
        error_of<StateError>([&] { all_reduce(x); }),
        AllOf(HasSubstr("[all_reduce] x is followed by an open recording"), HasSubstr("dist::functional")));
    EXPECT_THROW(all_gather(x), StateError);
  }
  all_reduce(detach(h));
}

TEST(CollectiveArguments, UndefinedAndForeignTensorsAreRefused) {
  EXPECT_THROW(all_reduce(Tensor()), ValueError);
  EXPECT_THROW(all_reduce(empty({2}, {.device = Device::parse("meta")})), DeviceError);
}

TEST(CollectiveArguments, BitOperationsNeedIntegers) {
  EXPECT_THROW(all_reduce(f32({1}), {.op = ReduceOp::kBxor}), DTypeError);
  EXPECT_THROW(all_reduce_coalesced({f32({1}), tensor({1})}), DTypeError);
}

TEST(CollectiveArguments, RootsAreMembers) {
  run_ranks(3, [] {
    const Group pair = new_group({1, 2}, {.name = "pair"});
    EXPECT_THROW(broadcast(f32({1}), {.src = 3}), ValueError);
    EXPECT_THROW(reduce(f32({1}), {.dst = -1}), ValueError);
    if (!pair.is_member()) return;
    EXPECT_THAT(error_of<ValueError>([&] { broadcast(f32({1}), {.src = 0, .group = pair}); }),
                HasSubstr("[broadcast] src 0 is no member of group 'pair' of ranks 1, 2"));
    const Tensor x = f32({float(get_rank())});
    broadcast(x, {.src = 2, .group = pair});
    EXPECT_EQ(x.item<float>(), 2);
  });
}

TEST(CollectiveArguments, ListsBelongToTheRoot) {
  run_ranks(2, [] {
    const std::vector<Tensor> two = {f32({1}), f32({2})};
    if (get_rank() == 0) {
      EXPECT_THAT(error_of<ValueError>([&] { gather(f32({1}), {f32({1})}); }),
                  HasSubstr("[gather] outputs must hold one tensor per rank of group 'world' (2), got 1"));
      EXPECT_THROW(scatter(f32({1}), {}), ValueError);
    } else {
      EXPECT_THAT(error_of<ValueError>([&] { gather(f32({1}), two); }),
                  HasSubstr("[gather] outputs must be given on rank 0 alone, but rank 1 gives 2"));
      EXPECT_THROW(scatter(f32({1}), two), ValueError);
    }
    EXPECT_THROW(all_gather({f32({1})}, f32({1})), ValueError);
    EXPECT_THROW(all_to_all(two, {f32({1})}), ValueError);
    EXPECT_THROW(reduce_scatter(f32({1}), {f32({1})}), ValueError);
    barrier();
  });
}

TEST(CollectiveArguments, SizesFit) {
  run_ranks(2, [] {
    EXPECT_THAT(error_of<ShapeError>([] { all_gather_into_tensor(empty({5}), empty({2})); }),
                HasSubstr("output must have size * numel = 2 * 2 elements"));
    EXPECT_THROW(reduce_scatter_tensor(empty({2}), empty({5})), ShapeError);
    EXPECT_THROW(reduce_scatter(empty({3}), {empty({2}), empty({2})}), ShapeError);
    EXPECT_THROW(all_to_all_single(empty({3}), empty({3})), ValueError);
    EXPECT_THROW(all_to_all_single(empty({3}), empty({3}), {1, 2}, {1, 1}), ValueError);
    EXPECT_THROW(all_to_all_single(empty({3}), empty({3}), {4, -1}, {1, 2}), ValueError);
    EXPECT_THROW(all_to_all_single(empty({3}), empty({3}), {3}, {3}), ValueError);
    EXPECT_THROW(all_to_all_single(empty({}), empty({})), ShapeError);
    EXPECT_THROW(all_gather({empty({1}), empty({1}, {.dtype = DType::kI32})}, empty({1})), DTypeError);
    EXPECT_THROW(all_gather(empty({1}), {.async_op = true}), ValueError);
    barrier();
  });
}

TEST(CollectiveArguments, WritingBumpsTheVersion) {
  run_ranks(2, [] {
    const Tensor x = f32({1}), y = f32({1, 1});
    const auto changes = [](const Tensor& t, auto&& call) {
      const uint32_t before = t.storage()->version();
      call();
      return t.storage()->version() != before;
    };
    EXPECT_TRUE(changes(x, [&] { all_reduce(x); }));
    EXPECT_TRUE(changes(x, [&] { all_reduce(x, {.async_op = true}).wait(); }));
    EXPECT_TRUE(changes(y, [&] { all_gather_into_tensor(y, x); }));
    EXPECT_FALSE(changes(x, [&] { all_gather_into_tensor(y, x); }));
    EXPECT_EQ(changes(x, [&] { reduce(x, {.dst = 1}); }), get_rank() == 1);
    EXPECT_EQ(changes(x, [&] { broadcast(x, {.src = 1}); }), get_rank() == 0);
  });
}

TEST(CollectiveArguments, AWorkThrowsItsErrorEachTime) {
  errors_of(2, [] {
    if (get_rank() == 1) throw ValueError("load", "gone");
    Work work;
    try {
      work = all_reduce(f32({1}), {.async_op = true});
    } catch (const PeerError&) {
      return;  // the failure was known before the call
    }
    for (int i = 0; i < 2; ++i)
      EXPECT_THAT(error_of<PeerError>([&] { work.wait(); }),
                  HasSubstr("rank 1 failed: ValueError: [load] gone"));
    EXPECT_TRUE(work.is_completed());
  });
}

TEST(CollectiveArguments, PatienceOfAWaitHarmsNoCall) {
  run_ranks(2, [] {
    const Tensor x = f32({1});
    if (get_rank() == 0) {
      const Work work = all_reduce(x, {.async_op = true});
      EXPECT_FALSE(work.is_completed());
      EXPECT_THAT(error_of<TimeoutError>([&] { work.wait(Milliseconds(30)); }), HasSubstr("still under way"));
      send(x, {.dst = 1});
      work.wait();
    } else {
      recv(f32({1}), {.src = 0});
      all_reduce(x);
    }
    EXPECT_EQ(x.item<float>(), 2);
  });
}

}  // namespace
}  // namespace gradus::dist
