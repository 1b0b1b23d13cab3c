// An all-reduce by hand, from messages to neighbors alone: how the collective works inside,
// for large tensors.
#include <chrono>
#include <cmath>

#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/examples/ddp_demos/demos.h"
#include "gradus/examples/ddp_demos/show.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"

namespace gradus::examples {
namespace {

// x f32[n] = the sum of every rank's x. Each rank cuts x into as many chunks as there are ranks, and 2 (size
// - 1) times passes one of them to the right: whatever the number of ranks, about twice its data.
void ring_all_reduce(const Tensor& x) {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  const int64_t n = x.numel();
  const auto chunk = [&](int i) {  // i counts around the ring, also backwards
    const int64_t at = (i % size + size) % size;
    return narrow(x, 0, at * n / size, (at + 1) * n / size - at * n / size);
  };
  const auto pass = [&](const Tensor& mine, const Tensor& theirs) {
    const dist::Work received = dist::irecv(theirs, {.src = left});
    const dist::Work sent = dist::isend(mine, {.dst = right});
    received.wait();
    sent.wait();
  };
  // The sums grow on their way: after size - 1 steps, rank r has all of chunk r + 1.
  for (int step = 0; step < size - 1; ++step) {
    const Tensor mine = chunk(rank - step), grows = chunk(rank - step - 1), theirs = empty_like(grows);
    pass(mine, theirs);
    add_(grows, theirs);
  }
  // Finished chunks go around once more.
  for (int step = 0; step < size - 1; ++step) pass(chunk(rank + 1 - step), chunk(rank - step));
}

double milliseconds_of(const std::function<void()>& work) {
  dist::barrier();
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void show_ring() {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  std::vector<float> mine, expected;
  for (int i = 0; i < size; ++i) {
    mine.push_back(static_cast<float>(10 * rank + i));
    expected.push_back(static_cast<float>(10 * size * (size - 1) / 2 + size * i));
  }
  Tensor small = tensor(mine, {size});
  ring_all_reduce(small);
  show("ring all-reduce, written with isend and irecv", text(mine), text(small), text(expected));

  // A size that no number of ranks divides evenly; values that do not add up exactly.
  manual_seed(1 + static_cast<uint64_t>(rank));
  const Tensor by_hand = randn({1'000'003}), built_in = empty_like(by_hand);
  copy_(built_in, by_hand);
  const double ring_ms = milliseconds_of([&] { ring_all_reduce(by_hand); });
  const double ours_ms = milliseconds_of([&] { dist::all_reduce(built_in); });
  float difference = 0;  // the orders of summation differ, so the last bits may
  for (int64_t i = 0; i < by_hand.numel(); ++i)
    difference = std::max(difference, std::abs(by_hand.data<float>()[i] - built_in.data<float>()[i]));
  training::print("\nring all-reduce of 1,000,003 numbers: " + std::to_string(ring_ms) +
                  " ms; dist::all_reduce: " + std::to_string(ours_ms) + " ms");
  const bool alike = difference <= 1e-5f * static_cast<float>(size);
  show("the largest difference between the two", "of 1,000,003 numbers",
       alike ? "within rounding" : std::to_string(difference), "within rounding");
}

}  // namespace gradus::examples
