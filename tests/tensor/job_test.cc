// Job: rank and size of this process or thread, replicas, shared host memory, random numbers by rank. The
// tests set ranks by hand; no other rank runs.
#include "gradus/tensor/runtime/job.h"

#include <cstring>
#include <thread>

#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

Ref<Job> make_job(int rank, int size) {
  auto job = make_ref<Job>();
  job->rank = rank;
  job->size = size;
  return job;
}

// Sets the process's job for the scope's duration.
class ProcessJob {
 public:
  explicit ProcessJob(Ref<Job> job) : before_(Job::exchange_process_job(std::move(job))) {}
  ~ProcessJob() { Job::exchange_process_job(before_); }

 private:
  Ref<Job> before_;
};

// Runs f on this thread as that rank.
template <class F> auto as_rank(int rank, int size, F&& f) {
  Context context = Context::current().snapshot();
  context.job = make_job(rank, size);
  ContextScope scope(context);
  return f();
}

TEST(Job, OfAProcessThatJoinedNoneIsOneRank) {
  EXPECT_FALSE(Job::of_process());
  const Ref<Job> job = Job::current();
  EXPECT_EQ(job->rank, 0);
  EXPECT_EQ(job->size, 1);
  EXPECT_EQ(job->local_rank, 0);
  EXPECT_EQ(job->local_size, 1);
  EXPECT_EQ(Job::current(), job);
  EXPECT_EQ(job->value_of_first_caller("loader", "a"), "a");
  EXPECT_EQ(job->value_of_first_caller("loader", "b"), "b");
}

TEST(Job, OfTheProcessIsSeenByAllThreadsUnlessTheirContextHasOne) {
  const Ref<Job> job = make_job(2, 4);
  {
    const ProcessJob scope(job);
    EXPECT_EQ(Job::of_process(), job);
    std::thread([&] { EXPECT_EQ(Job::current(), job); }).join();
    as_rank(1, 3, [&] {
      EXPECT_EQ(Job::current()->size, 3);
      EXPECT_EQ(Job::of_process(), job);
      std::thread([context = Context::current().snapshot()]() mutable {
        ContextScope scope(context);
        EXPECT_EQ(Job::current()->rank, 1);
      }).join();
    });
    EXPECT_EQ(Job::current(), job);
    EXPECT_EQ(Job::exchange_process_job(nullptr), job);
    EXPECT_EQ(Job::current()->size, 1);
  }
  EXPECT_FALSE(Job::of_process());
}

TEST(Job, OfOneKeepsMemoryOfItsOwn) {
  const Ref<Job> job = Job::current();
  const auto fill = [](std::byte* memory) { std::memset(memory, 7, 100); };
  const HostMemory a = job->share("key", 100, fill), b = job->share("key", 100, fill);
  EXPECT_FALSE(a.shared);
  EXPECT_EQ(a.bytes.get()[99], std::byte(7));
  EXPECT_NE(a.bytes, b.bytes);
  EXPECT_NO_THROW(job->share("empty", 0, [](std::byte*) {}));
  EXPECT_THROW(job->share("key", 1, [](std::byte*) { throw ValueError("fill", "no"); }), ValueError);
}

TEST(Job, RanksThatAreSeededAlikeDropDifferentElements) {
  const Tensor x = empty({64, 64});
  const auto mask_of = [&](int rank, int size) {
    return as_rank(rank, size, [&] {
      manual_seed(5);
      return raw::dropout_mask(x, .5).to_vector<int32_t>();
    });
  };
  manual_seed(5);
  const auto alone = raw::dropout_mask(x, .5).to_vector<int32_t>();
  EXPECT_EQ(mask_of(0, 4), alone) << "rank 0 has the numbers of one process";
  EXPECT_EQ(mask_of(1, 4), mask_of(1, 2)) << "the number of ranks does not matter";
  for (int rank = 1; rank < 4; ++rank) {
    const auto mask = mask_of(rank, 4), before = mask_of(rank - 1, 4);
    int64_t equal = 0;
    for (size_t i = 0; i < mask.size(); ++i) equal += mask[i] == before[i];
    EXPECT_NEAR(double(equal), 2048, 6 * 32) << "independent halves agree on half of 4096, sigma 32";
  }
  // Initial parameters are the same on all ranks.
  const auto drawn = [&](int rank) {
    return as_rank(rank, 4, [&] {
      manual_seed(5);
      Tensor w = empty({8});
      raw::normal_(w, 0, 1);
      return w.to_vector<float>();
    });
  };
  EXPECT_EQ(drawn(0), drawn(3));
}

TEST(Job, ARankIsAReplicaOfItsOwnUnlessItIsSaidOtherwise) {
  const Ref<Job> job = make_job(2, 4);
  EXPECT_EQ(job->replica(), (Replica{2, 4}));
  EXPECT_THROW(job->set_replica({2, 2}), ValueError);
  EXPECT_THROW(job->set_replica({-1, 2}), ValueError);
  EXPECT_THROW(job->set_replica({0, 0}), ValueError);
  EXPECT_THROW(job->set_replica({0, 5}), ValueError);
  job->set_replica({1, 2});
  EXPECT_EQ(job->replica(), (Replica{1, 2}));
  job->set_replica({1, 2});
  EXPECT_THROW(job->set_replica({0, 2}), StateError);
  EXPECT_EQ(job->freeze_replica(), (Replica{1, 2}));

  const Ref<Job> shared = make_job(2, 4);
  EXPECT_EQ(shared->freeze_replica(), (Replica{2, 4}));
  EXPECT_THROW(shared->set_replica({1, 2}), StateError);
  shared->set_replica({2, 4});
}

TEST(Job, GeneratorsOfPartsAreIndependent) {
  RandomGenerator generator(7);
  const PhiloxKey draw = generator.next();
  const auto first = [&](uint64_t part) {
    Context context = Context::current().snapshot();
    context.generator = std::make_shared<RandomGenerator>(RandomGenerator::of_part(draw, part));
    ContextScope scope(context);
    return rand({4}).to_vector<float>();
  };
  EXPECT_EQ(first(3), first(3));
  EXPECT_NE(first(3), first(4));
  EXPECT_NE(RandomGenerator::of_part(draw, 0).seed(), RandomGenerator::of_part(generator.next(), 0).seed());
  EXPECT_EQ(RandomGenerator::of_part(draw, 0).state()[1], 0);
}

}  // namespace
}  // namespace gradus
