// Gradients all-reduced by PowerSGD against those of PyTorch's powerSGD_hook, in f64 on two ranks (threads),
// over seven backwards, of which the file has four.
#include <gtest/gtest.h>

#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/comm_hook.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/tests/distributed/data_parallel/grad_buckets.h"
#include "gradus/tests/golden/golden.h"

namespace gradus::dist {
namespace {

const std::vector<std::pair<std::string, Shape>> kParameters = {
    {"wide", {12, 10}}, {"bias", {7}}, {"conv", {8, 3, 3}}};

Tensor of_formula(const Shape& shape, uint64_t key) {
  return tensor(golden::formula(shape.product(), key, 1), shape);
}

// power_sgd_gradient of make_golden.py. In backward 2, the first that is compressed, matrices have rank 2:
// the result does not depend on PowerSGD's random start.
Tensor gradient(int rank, int backward, int parameter, const Shape& shape) {
  const uint64_t key = 100 * backward + 10 * parameter;
  if (backward != 2 || shape.size() < 2) return of_formula(shape, key + rank);
  const int64_t n = shape[0], m = shape.product() / n;
  return reshape(matmul(of_formula({n, 2}, key + 3), of_formula({2, m}, key + 4)) * double(rank + 1), shape);
}

TEST(GoldenPowerSGD, GradientsAreThoseOfPytorch) {
  const io::SafetensorsFile file = golden::load("power_sgd");
  for (const bool feedback : {true, false})
    run_ranks(2, [&] {
      std::vector<Tensor> parameters;
      for (const auto& [name, shape] : kParameters)
        parameters.push_back(zeros(shape, {.dtype = DType::kF64}));
      const CommHook hook =
          power_sgd_hook({.matrix_approximation_rank = 2, .start_iter = 2, .use_error_feedback = feedback});
      int compared = 0;
      for (int backward = 0; backward < 7; ++backward) {
        std::vector<Tensor> gradients;
        for (int i = 0; i < 3; ++i)
          gradients.push_back(gradient(get_rank(), backward, i, kParameters[i].second));
        const GradBucket bucket = make_bucket(parameters, gradients);
        run_hook(hook, bucket);
        for (int i = 0; i < 3; ++i) {
          const std::string name =
              concat(feedback ? "feedback/" : "plain/", backward, '/', kParameters[i].first);
          if (!file.contains(name)) continue;
          golden::expect_near(bucket.gradients[i], file.at(name), 1e-10, name);
          ++compared;
        }
      }
      EXPECT_EQ(compared, 12);
    });
}

}  // namespace
}  // namespace gradus::dist
