// The helpers with the names of mmengine.dist: calls on the first rank alone, seeds, reductions of many tensors, and the
// results of a data set that ranks have divided.
#include "gradus/distributed/group/helpers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <mutex>
#include <set>

#include "gradus/autograd/ops/ops.h"
#include "gradus/data/sampler.h"
#include "gradus/tests/distributed/threads.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

std::vector<float> values(const Tensor& x) { return x.to_vector<float>(); }

TEST(MasterOnly, CallsOnTheFirstRank) {
  std::atomic<int> calls = 0;
  run_ranks(3, [&] {
    const Group group = new_group({2, 1});
    const auto add = [&](int n) { calls += n; };
    master_only(add)(1);
    if (group.is_member()) master_only(add, group)(10);
    auto twice = master_only([](int n) { return 2 * n; });
    EXPECT_EQ(twice(4), get_rank() == 0 ? std::optional(8) : std::nullopt);
    EXPECT_EQ(is_main_process(), get_rank() == 0);
    if (group.is_member()) {
      EXPECT_EQ(is_main_process(group), get_rank() == 2);
    }
  });
  EXPECT_EQ(calls, 11);
  EXPECT_TRUE(is_main_process());
}

TEST(SyncRandomSeed, IsTheSameOnAllRanks) {
  std::mutex mutex;
  std::set<uint64_t> seeds, given;
  run_ranks(3, [&] {
    const uint64_t random = sync_random_seed(), chosen = sync_random_seed(7 + get_rank());
    const std::lock_guard lock(mutex);
    seeds.insert(random);
    given.insert(chosen);
  });
  EXPECT_EQ(seeds.size(), 1u);
  EXPECT_EQ(given, std::set<uint64_t>{7});
  EXPECT_NE(sync_random_seed(), sync_random_seed());
}

TEST(AllReduceDict, ReducesByName) {
  run_ranks(2, [] {
    const double r = get_rank();
    const std::map<std::string, Tensor> log = {
        {"b", full({2}, r + 1)}, {"a", scalar(r + 10)}, {"n", full({1}, r, {.dtype = DType::kI64})}};
    all_reduce_dict(log);
    EXPECT_THAT(values(log.at("a")), Each(21));
    EXPECT_THAT(values(log.at("b")), Each(3));
    EXPECT_EQ(log.at("n").item<int64_t>(), 1);
    all_reduce_dict({{"b", log.at("b")}}, {.op = ReduceOp::kAvg});
    EXPECT_THAT(values(log.at("b")), Each(3));
    all_reduce_dict({});
  });
}

TEST(AllReduceDict, NamesTheRankWithOtherNames) {
  EXPECT_THAT(errors_of(3,
                        [] {
                          all_reduce_dict({{get_rank() == 1 ? "loss_d" : "loss_g", ones({1})}});
                        }),
              Each(AllOf(HasSubstr("[all_reduce_dict] rank 1 has the names loss_d"),
                         HasSubstr("rank 0 has loss_g"))));
}

TEST(AllReduceParams, ReducesInBucketsOrAlone) {
  for (const auto& [coalesce, bucket] : {std::pair(true, -1.), {true, 1e-5}, {false, -1.}})
    run_ranks(2, [&] {
      const double r = get_rank();
      const std::vector<Tensor> params = {full({2, 2}, r), full({3}, r, {.dtype = DType::kF64}),
                                          full({1}, r + 1), full({2}, 2 * r, {.dtype = DType::kF64}),
                                          empty({0})};
      all_reduce_params(params, {.op = ReduceOp::kAvg, .coalesce = coalesce, .bucket_size_mb = bucket});
      for (const auto& [index, expected] : {std::pair(0, 0.5), {1, 0.5}, {2, 1.5}, {3, 1.}})
        EXPECT_THAT(values(to(params[size_t(index)], DType::kF32)), Each(expected));
      all_reduce_params({});
    });
  EXPECT_THROW(all_reduce_params({ones({1})}, {.bucket_size_mb = 0}), ValueError);
  EXPECT_THROW(all_reduce_params({ones({1})}, {.bucket_size_mb = NAN}), ValueError);
  EXPECT_THROW(all_reduce_params({Tensor()}), ValueError);
}

// Ranks of a sampler: uneven, divided evenly with repeated samples, and fewer samples than ranks.
TEST(CollectResults, HaveTheOrderOfTheSampler) {
  for (const int64_t size : {0, 2, 7, 9})
    run_ranks(3, [&] {
      const data::DistributedSampler sampler(size, {.shuffle = false});
      std::vector<std::pair<int64_t, Tensor>> padded;
      for (const int64_t i : sampler.indices()) padded.emplace_back(i, full({1}, i));
      const auto check = [&](const auto& results, int dst) {
        ASSERT_EQ(int64_t(results.size()), get_rank() == dst ? size : 0);
        for (size_t i = 0; i < results.size(); ++i) {
          EXPECT_EQ(results[i].first, int64_t(i));
          EXPECT_EQ(results[i].second.template item<float>(), float(i));
        }
      };
      check(collect_results(padded, size), 0);
      std::vector<std::pair<int64_t, Tensor>> uneven;
      for (int64_t i = get_rank(); i < size; i += 3) uneven.emplace_back(i, full({1}, i));
      check(collect_results(uneven, size, {.dst = 2}), 2);
    });
}

TEST(CollectResults, NeedAResultPerSample) {
  run_ranks(2, [] {
    const std::vector<std::string> part = {"x", "y"};
    if (get_rank() == 0) {
      EXPECT_ERROR(ValueError, collect_results(part, 5), "[collect_results]", "at least 3", "group rank 0",
                   "got 2");
      EXPECT_ERROR(ValueError, collect_results(part, -1), "negative", "-1");
    } else {
      collect_results(part, 5);
      collect_results(part, -1);
    }
  });
}

}  // namespace
}  // namespace gradus::dist
