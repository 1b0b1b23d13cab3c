// Every collective once, on small f32 tensors whose values name their rank. Each function checks the result.
#include "gradus/distributed/group/collectives.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/examples/ddp_demos/demos.h"
#include "gradus/examples/ddp_demos/show.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::examples {
namespace {

// Returns {10 rank, 10 rank + 1, ...}: rank 2 has 20, 21, 22, ...
std::vector<float> numbers_of(int rank, int count) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(10 * rank + i));
  return values;
}
Tensor tensor_of(int rank, int count) { return tensor(numbers_of(rank, count), {count}); }

std::vector<Tensor> tensors_like(const std::vector<Tensor>& xs) {
  std::vector<Tensor> result;
  for (const Tensor& x : xs) result.push_back(zeros_like(x));
  return result;
}

void all_reduce(dist::ReduceOp op, const std::string& meaning) {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  std::vector<float> expected(3, 0);
  for (int r = 0; r < size; ++r)
    for (size_t i = 0; i < 3; ++i) {
      const float x = numbers_of(r, 3)[i];
      expected[i] = op == dist::ReduceOp::kMax ? std::max(expected[i], x) : expected[i] + x;
    }
  if (op == dist::ReduceOp::kAvg)
    for (float& value : expected) value /= static_cast<float>(size);

  Tensor x = tensor_of(rank, 3);
  const std::string before = text(x);
  dist::all_reduce(x, {.op = op});
  show("all_reduce, " + std::string(name_of(op)) + ": every rank gets " + meaning, before, text(x),
       text(expected));
}

void reduce() {
  const int rank = dist::get_rank(), size = dist::get_world_size(), dst = size - 1;
  std::vector<float> sum(2, 0);
  for (int r = 0; r < size; ++r)
    for (size_t i = 0; i < 2; ++i) sum[i] += numbers_of(r, 2)[i];

  Tensor x = tensor_of(rank, 2);
  const std::string before = text(x);
  dist::reduce(x, {.dst = dst});
  show("reduce: the last rank gets the sum, the others keep what they have", before, text(x),
       rank == dst ? text(sum) : before);
}

void broadcast() {
  Tensor x = tensor_of(dist::get_rank(), 2);
  const std::string before = text(x);
  dist::broadcast(x, {.src = 0});
  show("broadcast: every rank gets what rank 0 has", before, text(x), text(numbers_of(0, 2)));
}

void scatter() {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  std::vector<Tensor> parts;
  if (rank == 0)
    for (int r = 0; r < size; ++r) parts.push_back(tensor_of(r, 2));
  Tensor x = zeros({2});
  dist::scatter(x, parts, {.src = 0});
  show("scatter: rank 0 deals out its list", text(parts), text(x), text(numbers_of(rank, 2)));
}

void gather() {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  const Tensor x = tensor_of(rank, 2);
  std::vector<Tensor> all;
  std::string expected = "-";
  if (rank == 0) {
    std::vector<Tensor> sources;
    for (int r = 0; r < size; ++r) sources.push_back(tensor_of(r, 2));
    all = tensors_like(sources);
    expected = text(sources);
  }
  dist::gather(x, all, {.dst = 0});
  show("gather: rank 0 collects what everyone has", text(x), text(all), expected);
}

void all_gather() {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  const auto count_of = [](int r) { return 1 + r % 3; };  // ranks need not know each other's sizes
  const Tensor x = tensor_of(rank, count_of(rank));
  std::vector<Tensor> expected;
  for (int r = 0; r < size; ++r) expected.push_back(tensor_of(r, count_of(r)));
  show("all_gather: everyone collects what everyone has, here of unequal sizes", text(x),
       text(dist::all_gather(x)), text(expected));
}

void reduce_scatter() {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  float sum = 0;
  for (int r = 0; r < size; ++r) sum += numbers_of(r, size)[size_t(rank)];
  const Tensor x = tensor_of(rank, size);
  Tensor local_sum = zeros({1});
  dist::reduce_scatter_tensor(local_sum, x);
  show("reduce_scatter: the sum, of which each rank gets its part", text(x), text(local_sum),
       text(std::vector{sum}));
}

void all_to_all() {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  std::vector<float> expected;
  for (int r = 0; r < size; ++r) expected.push_back(numbers_of(r, size)[size_t(rank)]);
  const Tensor x = tensor_of(rank, size);
  Tensor received = zeros({size});
  dist::all_to_all_single(received, x);
  show("all_to_all: number j goes to rank j", text(x), text(received), text(expected));
}

void barrier() {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  const dist::Client client = dist::get_client();
  std::this_thread::sleep_for(std::chrono::milliseconds(20 * rank));
  const std::string arrived = std::to_string(client.store().add("ddp/arrived", 1));
  dist::barrier();
  const std::string passed = std::to_string(client.store().add("ddp/arrived", 0));
  show("barrier: nobody goes on before everyone is there (how many are, before and after it)", arrived,
       passed, std::to_string(size));
}

void objects() {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  const std::string settings = nlohmann::json{{"lr", 0.1}, {"epochs", 3}}.dump();
  const std::string received = dist::broadcast_object(rank == 0 ? settings : "");
  show("broadcast_object: bytes of any size, JSON for instance", rank == 0 ? settings : "-", received,
       settings);

  const std::string name = std::string(size_t(1 + rank % 3), static_cast<char>('a' + rank % 26));
  std::string names, expected;
  for (const std::string& n : dist::all_gather_object(name)) names += n + " ";
  for (int r = 0; r < size; ++r)
    expected += std::string(size_t(1 + r % 3), static_cast<char>('a' + r % 26)) + " ";
  show("all_gather_object: the same from everyone", name, names, expected);
}

// async_op returns a Work at once; wait() completes the operation.
void asynchronous() {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  Tensor x = full({1}, rank), y = full({1}, 10 * rank);
  const dist::Work first = dist::all_reduce(x, {.async_op = true});
  const dist::Work second = dist::all_reduce(y, {.async_op = true});
  // Other computation can run here, during the communication.
  first.wait();
  second.wait();
  const int sum = size * (size - 1) / 2;
  show("async_op: started both, then waited", std::to_string(rank) + " and " + std::to_string(10 * rank),
       text({x, y}), text({full({1}, sum), full({1}, 10 * sum)}));
}

// The same collectives among some of the ranks.
void groups() {
  const int rank = dist::get_rank(), size = dist::get_world_size();
  const dist::Group half = dist::world().split(/*color=*/rank % 2);
  Tensor x = full({1}, rank);
  dist::all_reduce(x, {.group = half});
  int expected = 0;
  for (int r = rank % 2; r < size; r += 2) expected += r;
  show("groups: even and odd ranks, each with a sum of their own", std::to_string(rank), text(x),
       "[" + std::to_string(expected) + "]");
}

}  // namespace

void show_collectives() {
  all_reduce(dist::ReduceOp::kSum, "the sum");
  all_reduce(dist::ReduceOp::kAvg, "the mean");
  all_reduce(dist::ReduceOp::kMax, "the largest");
  reduce();
  broadcast();
  scatter();
  gather();
  all_gather();
  reduce_scatter();
  all_to_all();
  barrier();
  objects();
  asynchronous();
  groups();
}

}  // namespace gradus::examples
