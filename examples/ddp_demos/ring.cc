// A ring all-reduce from isend and irecv between neighbors: reduce-scatter, then all-gather. Compares results
// and times with dist::all_reduce.
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

// x f32[n] = the sum of x over all ranks. Each rank divides x into `size` chunks, and sends one chunk to its
// right neighbor in each of 2 (size - 1) steps: about twice the bytes of x, for any number of ranks.
void ring_all_reduce(const Tensor& x) {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  const int64_t n = x.numel();
  const auto chunk = [&](int i) {  // i counts around the ring, also backwards
    const int64_t at = (i % size + size) % size;
    return narrow(x, 0, at * n / size, (at + 1) * n / size - at * n / size);
  };
  const auto exchange = [&](const Tensor& to_right, const Tensor& from_left) {
    const dist::Work received = dist::irecv(from_left, {.src = left});
    const dist::Work sent = dist::isend(to_right, {.dst = right});
    received.wait();
    sent.wait();
  };
  // Reduce-scatter: after size - 1 steps, rank r has the sum of chunk r + 1.
  for (int step = 0; step < size - 1; ++step) {
    const Tensor sum = chunk(rank - step - 1), received = empty_like(sum);
    exchange(chunk(rank - step), received);
    add_(sum, received);
  }
  // All-gather.
  for (int step = 0; step < size - 1; ++step) exchange(chunk(rank + 1 - step), chunk(rank - step));
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
  std::vector<float> local, expected;
  for (int i = 0; i < size; ++i) {
    local.push_back(static_cast<float>(10 * rank + i));
    expected.push_back(static_cast<float>(10 * size * (size - 1) / 2 + size * i));
  }
  Tensor small = tensor(local, {size});
  ring_all_reduce(small);
  show("ring all-reduce, written with isend and irecv", text(local), text(small), text(expected));

  // A size that most numbers of ranks do not divide, and values whose sums are rounded.
  manual_seed(1 + static_cast<uint64_t>(rank));
  const Tensor by_hand = randn({1'000'003}), built_in = empty_like(by_hand);
  copy_(built_in, by_hand);
  const double ring_ms = milliseconds_of([&] { ring_all_reduce(by_hand); });
  const double all_reduce_ms = milliseconds_of([&] { dist::all_reduce(built_in); });
  float difference = 0;  // the orders of summation differ, so the last bits may
  for (int64_t i = 0; i < by_hand.numel(); ++i)
    difference = std::max(difference, std::abs(by_hand.data<float>()[i] - built_in.data<float>()[i]));
  training::print("\nring all-reduce of 1,000,003 numbers: " + std::to_string(ring_ms) +
                  " ms; dist::all_reduce: " + std::to_string(all_reduce_ms) + " ms");
  const bool is_close = difference <= 1e-5f * static_cast<float>(size);
  show("the largest difference between the two", "of 1,000,003 numbers",
       is_close ? "within rounding" : std::to_string(difference), "within rounding");
}

}  // namespace gradus::examples
