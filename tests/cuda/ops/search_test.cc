// The error of histc on cuda:0 is the CPU's, thrown where the host next waits. Searches, histograms,
// selections, scans and recurrent cells wait for nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus {
namespace {

const Device kCuda = Device::parse("cuda:0");

// The text of the ValueError of f, "" for none.
std::string thrown(const std::function<void()>& f) {
  try {
    f();
    return "";
  } catch (const ValueError& e) {
    return e.what();
  }
}

TEST(SearchOnCuda, ErrorsAreTheCpus) {
  for (const float value : {NAN, INFINITY, -INFINITY}) {
    const Tensor x = tensor({1.f, value, 2.f}), x_cuda = raw::to(x, kCuda);
    const std::string want = thrown([&] { histc(x); });
    EXPECT_NE(want, "") << value;
    EXPECT_EQ(thrown([&] { histc(x_cuda); }), "") << value;
    EXPECT_EQ(thrown([] { synchronize(kCuda); }), want) << value;
    // With a range, such values are not counted.
    EXPECT_EQ(histc(x_cuda, {.bins = 2, .max = 2}).to_vector<float>(), std::vector<float>({0, 2})) << value;
  }
}

TEST(SearchOnCuda, WaitsForNothing) {
  const Tensor x = raw::to(rand({300, 4}), kCuda), row = raw::to(rand({300}), kCuda);
  const Tensor c = raw::to(rand({300, 1}), kCuda);
  const auto run = [&] {
    cumprod(x, 0), logcumsumexp(x, 0), cummax(x, 0), cummin(x, 0), linear_recurrence(x, x, 0);
    kthvalue(x, 7, {.dim = 0}), median(x, {.dim = 0}), mode(x, {.dim = 0});
    searchsorted(row, x), histc(x), isin(x, row);
    lstm_cell(x, c);
  };
  run();  // fills the allocator's cache
  cuda::HostCallScope calls;
  run();
  EXPECT_EQ(calls.total().waits, 0);
}

}  // namespace
}  // namespace gradus
