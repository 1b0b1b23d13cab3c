// Replicas of a pipeline with different numbers of rows train as the undivided model does on all rows.
//
//   UNEVEN_TRAININGS=100 bazel-bin/tests/distributed/pipeline/uneven_replicas_test
//
// runs so many random trainings of five batches each, instead of a few.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <random>
#include <sstream>

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/tests/distributed/pipeline/undivided.h"

namespace gradus::dist {
namespace {

struct Training {
  PipelineOptions options;
  int replicas = 2;
  std::vector<std::vector<int64_t>> rows;  // of each step and replica

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
  const int how = up_to(0, 4);  // the number is chosen by measuring in one of five
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
using Models = testing::Types<ResidualMLP, RowwiseUNet, TiedText>;
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

}  // namespace
}  // namespace gradus::dist
