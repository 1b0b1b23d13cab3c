// make_allreduce_cb: gradients of all ranks, whatever each of them does.
#include "gradus/distributed/reducer.h"

#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops.h"
#include "gradus/distributed/collectives.h"
#include "gradus/distributed/process_group.h"
#include "gradus/distributed/run_ranks.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/distributed/threads.h"

namespace gradus::dist {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using V = std::vector<double>;
V values(const Tensor& x) { return x.to_vector<double>(); }
[[maybe_unused]] Tensor f64(std::initializer_list<double> v) { return tensor(v); }
constexpr RunRanksOptions kSoon{.timeout = Milliseconds(20'000)};

// ---- sums and means ----

// Parameters of many sizes; rank r's gradient of parameter i is (r + 1) * (i + 1) in each element.
struct Fan {
  explicit Fan(std::vector<Shape> shapes, DType dtype = DType::kF64) {
    for (const Shape& s : shapes) params.push_back(ones(s, {.dtype = dtype}));
  }
  void step(GradManager& gm, double scale = 1) {
    auto recording = gm.record();
    Tensor loss = scalar(0);
    for (size_t i = 0; i < params.size(); ++i)
      loss = loss + sum(to(params[i], DType::kF64)) * (scale * (get_rank() + 1) * (i + 1));
    gm.backward(loss);
  }
  std::vector<Tensor> params;
};

class OfWorlds : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Reducer, OfWorlds, testing::Values(1, 2, 3, 4));

TEST_P(OfWorlds, GradientsAreTheSumOrMeanWhateverTheBuckets) {
  const int world = GetParam();
  for (double cap : {1e-6, 1e-4, 25.0})
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean})
      for (bool overlap : {true, false})
        for (bool view : {true, false})
          run_ranks(
              world,
              [&] {
                Fan fan({{2, 3}, {}, {7}, {1, 5, 1}, {0}});
                GradManager gm;
                gm.attach(fan.params, make_allreduce_cb(op, {.bucket_cap_mb = cap,
                                                             .first_bucket_mb = cap,
                                                             .overlap = overlap,
                                                             .gradient_as_bucket_view = view}));
                double all = world * (world + 1) / 2.0;
                if (op == ReduceOp::kMean) all /= world;
                for (int step = 1; step <= 3; ++step) {
                  fan.step(gm);
                  for (size_t i = 0; i < fan.params.size(); ++i) {
                    const Tensor grad = fan.params[i].grad();
                    ASSERT_TRUE(grad.defined());
                    EXPECT_EQ(grad.shape(), fan.params[i].shape());
                    EXPECT_THAT(values(grad), Each(testing::DoubleEq(step * all * (i + 1))));
                  }
                }
              },
              kSoon);
}

}  // namespace
}  // namespace gradus::dist
