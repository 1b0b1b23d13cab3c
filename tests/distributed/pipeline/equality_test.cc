// Pipelines of all schedules train as the undivided model does, in f64: losses, gradients, parameters. Ranks
// are threads, devices or processes; micro-batches and replicas have equal or different numbers of rows.
// //tests/cuda/ranks runs PipelineOnDevices on emulated GPUs.
//
//   UNEVEN_TRAININGS=100 bazel-bin/tests/distributed/pipeline/equality_test --gtest_filter='UnevenReplicas*'
//
// runs so many random trainings of five batches each, instead of eight.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <utility>

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tests/distributed/late.h"
#include "gradus/tests/distributed/pipeline/undivided.h"
#include "gradus/tests/distributed/rank_processes.h"

namespace gradus::dist {
namespace {

template <class M> class Equality : public testing::Test {};
using Models = testing::Types<ResidualMLP, RowwiseUNet, TiedText>;
TYPED_TEST_SUITE(Equality, Models);

// Runs f on each of `ranks` threads. Returns their results.
template <class F> std::vector<Trained> on_ranks(int ranks, const F& f) {
  std::vector<Trained> all(static_cast<size_t>(ranks));
  run_ranks(ranks, [&] { all[size_t(get_rank())] = f(); });
  return all;
}

template <class M>
void expect_undivided(int64_t rows, int ranks, int micro_batches, bool on_devices = false) {
  const Trained want = undivided<M>(rows);
  for (const Schedule schedule : kSchedules) {
    PipelineOptions options = options_of<M>(schedule, ranks, micro_batches);
    for (int16_t i = 0; on_devices && i < ranks; ++i) options.devices.push_back({DeviceType::kCPU, i});
    std::set<std::string> parameters, state;
    for (const Trained& got :
         on_ranks(on_devices ? 1 : ranks, [&] { return trained_here<M>(options, rows); })) {
      EXPECT_LE(difference(got, want), 1e-12)
          << name_of(schedule) << " P " << ranks << " M " << micro_batches << " rows " << rows;
      for (const auto& [name, values] : got.grads) parameters.insert(name);
      for (const auto& [name, values] : got.state) state.insert(name);
    }
    EXPECT_EQ(parameters.size(), want.grads.size());
    EXPECT_EQ(state.size(), want.state.size());
  }
}

// Micro-batches of equal and of unequal sizes, fewer and more than there are stages.
TYPED_TEST(Equality, OnRanks) {
  expect_undivided<TypeParam>(13, 1, 4);
  for (const int ranks : {2, 4}) {
    for (const int micro_batches : {1, 4, 8}) expect_undivided<TypeParam>(13, ranks, micro_batches);
    expect_undivided<TypeParam>(16, ranks, 4);
  }
}
TYPED_TEST(Equality, OnSeveralDevices) { expect_undivided<TypeParam>(13, 4, 8, true); }

// Calls f on two ranks. Rank i computes on device devices[i] of late.h.
template <class F> void on_devices(const std::array<int, 2>& devices, const F& f) {
  run_ranks(2, [&] {
    Context context = Context::current().snapshot();
    context.device = queued_device(devices[size_t(get_rank())]);
    const ContextScope scope(context);
    f();
  });
}

template <class M> void expect_undivided_on(const std::array<int, 2>& devices, Schedule schedule) {
  const Trained want = undivided<M>(3);
  on_devices(devices, [&] {
    const Trained got = trained_here<M>(options_of<M>(schedule, 2, 2), 3);
    EXPECT_LE(difference(got, want), 1e-10) << "rank " << get_rank();
  });
}

TEST(PipelineOnDevices, RanksOfOneDeviceTrainAsTheCpu) {
  expect_undivided_on<ResidualMLP>({0, 0}, Schedule::k1F1B);
}
// With tied weights, and a mask that crosses the cut.
TEST(PipelineOnDevices, RanksOfTwoDevicesTrainAsTheCpu) {
  expect_undivided_on<TiedText>({0, 1}, Schedule::kZeroBubbleH1);
}
TEST(PipelineOnDevices, ResultsArriveOnTheDeviceOfEachRank) {
  using M = ResidualMLP;
  manual_seed(5);
  const Tensor want = (*make_f64<M>())(Case<M>::input(3, 0));
  on_devices({0, 1}, [&] {
    manual_seed(5);
    Pipeline<M> pipe(make_f64<M>, Case<M>::input(2, 0), options_of<M>(Schedule::k1F1B, 2, 2));
    const Tensor got = pipe.forward(Case<M>::input(3, 0), {.everywhere = true});
    EXPECT_EQ(got.device(), queued_device(get_rank()));
    expect_near(got, want, 1e-10);
  });
}

// Each of two replicas has half of the rows.
TYPED_TEST(Equality, OfReplicasOnTheJoinedBatch) {
  const Trained want = undivided<TypeParam>(16);
  for (const Schedule schedule : kSchedules)
    for (const Trained& got :
         on_ranks(4, [&] { return trained_here<TypeParam>(options_of<TypeParam>(schedule, 2, 3), 16); }))
      EXPECT_LE(difference(got, want), 1e-12) << name_of(schedule);
}

// ---- replicas with different numbers of rows ----

struct Training {
  PipelineOptions options;
  int replicas = 2;
  std::vector<std::vector<int64_t>> rows;  // rows[step][replica]

  std::string text() const {
    std::ostringstream out;
    out << name_of(options.schedule) << ", " << options.stages << " stages, micro_batches "
        << options.micro_batches << ", micro_batch_size " << options.micro_batch_size << ", rows";
    for (const auto& of_step : rows) {
      out << ' ';
      for (const int64_t n : of_step) out << '/' << n;
    }
    return out.str();
  }
};

template <class M> Training random_training(std::mt19937& random) {
  const auto up_to = [&](int low, int high) { return std::uniform_int_distribution(low, high)(random); };
  Training training{
      .options = options_of<M>(kSchedules[size_t(up_to(0, int(kSchedules.size()) - 1))], up_to(1, 2), 0),
      .replicas = up_to(2, 3),
      .rows = {}};
  const int how = up_to(0, 4);  // 0: the number of micro-batches is chosen by measuring
  if (how > 2)
    training.options.micro_batch_size = up_to(1, 4);
  else if (how > 0)
    training.options.micro_batches = up_to(1, 6);
  for (int step = 0; step < kSteps; ++step) {
    auto& of_step = training.rows.emplace_back();
    for (int replica = 0; replica < training.replicas; ++replica) of_step.push_back(up_to(1, 9));
  }
  return training;
}

template <class M> double worst_difference(const Training& training) {
  const auto total = [&](int step) {
    const auto& rows = training.rows[size_t(step)];
    return std::accumulate(rows.begin(), rows.end(), int64_t(0));
  };
  manual_seed(5);
  const auto model = make_f64<M>();
  GradManager whole;
  whole.attach(model->parameters());
  const Trained want = trained(*model, model->named_parameters(), [&](int i) {
    auto recording = whole.record();
    const Tensor loss = Case<M>::loss((*model)(Case<M>::input(total(i), i)), Case<M>::target(total(i), i));
    whole.backward(loss);
    return loss.template item<double>();
  });
  std::vector<double> differences(size_t(training.replicas * training.options.stages), INFINITY);
  run_ranks(int(differences.size()), [&] {
    manual_seed(5);
    Pipeline<M> pipe(make_f64<M>, Case<M>::input(2, 0), training.options);
    GradManager gm;
    pipe.attach(gm);
    const auto replica = size_t(pipe.grid().index("replica"));
    const Trained got = trained(pipe.module(), pipe.named_parameters(), [&](int i) {
      const auto& rows = training.rows[size_t(i)];
      const int64_t begin = std::accumulate(rows.begin(), rows.begin() + int(replica), int64_t(0));
      return pipe.step(gm, narrow(Case<M>::input(total(i), i), 0, begin, rows[replica]),
                       narrow(Case<M>::target(total(i), i), 0, begin, rows[replica]), Case<M>::loss);
    });
    differences[size_t(get_rank())] = difference(got, want);
  });
  return *std::ranges::max_element(differences);
}

template <class M> class UnevenReplicas : public testing::Test {};
TYPED_TEST_SUITE(UnevenReplicas, Models);

TYPED_TEST(UnevenReplicas, EqualTheUndividedModel) {
  const char* set = std::getenv("UNEVEN_TRAININGS");
  const int trainings = set ? std::atoi(set) : 8;
  std::mt19937 random(11);
  for (int i = 0; i < trainings; ++i) {
    const Training training = random_training<TypeParam>(random);
    EXPECT_LE(worst_difference<TypeParam>(training), 1e-11) << training.text();
  }
}

// ---- ranks as processes, through shared memory and through sockets ----

constexpr int kMicroBatches = 4;
constexpr int64_t kRows = 13;

template <class M> void expect_undivided_in_job(const char* model) {
  const Trained want = undivided<M>(kRows);
  for (const Schedule schedule : kSchedules) {
    const Trained got = trained_here<M>(options_of<M>(schedule, test_world(), kMicroBatches), kRows);
    EXPECT_LE(difference(got, want), 1e-12) << model << " by " << name_of(schedule);
  }
}

const RankFunction train{"train", [] {
                           join_job();
                           expect_undivided_in_job<ResidualMLP>("ResidualMLP");
                           expect_undivided_in_job<RowwiseUNet>("RowwiseUNet");
                           expect_undivided_in_job<TiedText>("TiedText");
                           destroy_process_group();
                           return int(testing::Test::HasFailure());
                         }};

TEST(PipelineProcesses, TrainAsOneProcessDoes) {
  for (const auto& [ranks, shared_memory] : {std::pair(4, true), {2, false}})
    for (const RankEnd& end : run_processes("train", ranks, job_options(shared_memory)))
      EXPECT_EQ(end.exit_code, 0) << end.output;
}

}  // namespace
}  // namespace gradus::dist
