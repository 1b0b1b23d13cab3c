// The examples of docs/guide/distributed.md: they compile and do what the page says. Ranks are threads here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "gradus/gradus.h"

namespace gradus {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<float> values(const Tensor& x) { return x.to_vector<float>(); }

TEST(DistributedPage, Collectives) {
  dist::run_ranks(4, [] {
    const int rank = dist::get_rank();
    Tensor x = full({2}, rank), loss = scalar(rank);
    dist::all_reduce(x);                                   // the sum
    dist::all_reduce(loss, {.op = dist::ReduceOp::kAvg});  // the mean
    dist::broadcast(x, {.src = 2});                        // rank 2's value
    std::vector<Tensor> all = dist::all_gather(loss);      // of all ranks; sizes may differ
    EXPECT_THAT(values(x), ElementsAre(6, 6));
    EXPECT_EQ(loss.item<float>(), 1.5f);
    EXPECT_EQ(all.size(), 4u);
  });
}

TEST(DistributedPage, Asynchronous) {
  dist::run_ranks(2, [] {
    Tensor x = ones({1000}), y = ones({1000});
    dist::Work first = dist::all_reduce(x, {.async_op = true});
    dist::Work second = dist::all_reduce(y, {.async_op = true});
    // ... computes something else ...
    first.wait();
    second.wait();
    EXPECT_EQ(x.data<float>()[999] + y.data<float>()[0], 4);
  });
}

TEST(DistributedPage, CoalescedCalls) {
  dist::run_ranks(2, [] {
    Tensor x = ones({2}), y = ones({3});
    dist::coalesced([&] {
      dist::all_reduce(x);
      dist::all_reduce(y);
    });
    EXPECT_EQ(x.data<float>()[0] + y.data<float>()[2], 4);
  });
}

TEST(DistributedPage, Arguments) {
  std::mutex mutex;
  std::set<std::pair<uint64_t, std::string>> received;
  const auto train = [&](uint64_t seed, const std::string& name) {
    const std::lock_guard lock(mutex);
    received.emplace(seed, name);
  };
  EXPECT_EQ(
      dist::launcher({.nproc_per_node = 2, .backend = "local"}, train, std::random_device()(), "resnet"), 0);
  EXPECT_EQ(received.size(), 1u);
}

TEST(DistributedPage, Groups) {
  dist::run_ranks(4, [] {
    dist::Group half = dist::world().split(/*color=*/dist::get_rank() % 2);  // {0, 2} and {1, 3}
    Tensor x = ones({1});
    dist::all_reduce(x, {.group = half});
    dist::Group first = dist::new_group({0, 1});  // called by all ranks, also those that are not in it
    if (first.is_member()) dist::all_reduce(x, {.group = first});
    EXPECT_EQ(x.item<float>(), dist::get_rank() < 2 ? 4 : 2);
  });
}

TEST(DistributedPage, Grids) {
  dist::run_ranks(4, [] {
    const int rank = dist::get_rank();
    dist::Grid grid({{"replica", 2}, {"pipeline", -1}});  // -1: as many as the job's ranks leave
    dist::Group stages = grid.group("pipeline");          // {0, 1} or {2, 3} of 4 ranks
    dist::Group copies = grid.group("replica");           // {0, 2} or {1, 3}
    EXPECT_THAT(stages.ranks(), ElementsAre(rank / 2 * 2, rank / 2 * 2 + 1));
    EXPECT_THAT(copies.ranks(), ElementsAre(rank % 2, rank % 2 + 2));
    data::DataLoader loader(data::GeneratedDigits({.size = 8}), {.batch_size = 2});
    EXPECT_EQ(loader.size(), 2);
  });
}

TEST(DistributedPage, Messages) {
  dist::run_ranks(2, [] {
    Tensor x = zeros({2});
    if (dist::get_rank() == 0) dist::send(tensor({1.f, 2.f}), {.dst = 1});
    if (dist::get_rank() == 1) dist::recv(x, {.src = 0});
    if (dist::get_rank() == 1) {
      EXPECT_THAT(values(x), ElementsAre(1, 2));
    }
  });
}

TEST(DistributedPage, MessagesInBothDirections) {
  dist::run_ranks(4, [] {
    const int rank = dist::get_rank(), size = dist::get_world_size();
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    Tensor local = full({1}, rank), remote = zeros({1});
    dist::Work received = dist::irecv(remote, {.src = left});
    dist::Work sent = dist::isend(local, {.dst = right});
    received.wait();
    sent.wait();
    EXPECT_EQ(remote.item<float>(), static_cast<float>(left));
  });
}

TEST(DistributedPage, Objects) {
  dist::run_ranks(2, [] {
    std::map<std::string, double> log = {{"loss", 0.5}};
    std::vector<std::map<std::string, double>> logs = dist::all_gather_object(log);
    EXPECT_THAT(logs, ElementsAre(log, log));
    nlohmann::json settings = {{"lr", 0.1}};
    if (dist::get_rank() != 0) settings = {};
    settings = nlohmann::json::parse(dist::broadcast_object(settings.dump(), {.src = 0}));
    std::vector<std::string> names = dist::all_gather_object("rank " + std::to_string(dist::get_rank()));
    EXPECT_EQ(settings["lr"], 0.1);
    EXPECT_THAT(names, ElementsAre("rank 0", "rank 1"));
  });
}

TEST(DistributedPage, Client) {
  dist::run_ranks(3, [] {
    dist::Client client = dist::get_client();
    if (dist::get_rank() == 0) client.user_set("best", "0.98");
    std::string best = client.user_get("best");  // waits for the value
    dist::group_barrier();                       // on the store; an error names missing ranks
    EXPECT_EQ(best, "0.98");
  });
}

TEST(DistributedPage, GradientsThroughCollectives) {
  dist::run_ranks(3, [] {
    Tensor w = scalar(dist::get_rank() + 1.0);
    GradManager gm;
    gm.attach(w);
    auto recording = gm.record();
    Tensor total = dist::functional::all_reduce(w * 2);  // a new tensor, the same on all ranks
    gm.backward(square(total));                          // d(sum of all ranks' losses)/dw
    EXPECT_EQ(total.item<float>(), 12);
    EXPECT_EQ(w.grad().item<float>(), 3 * 2 * 12 * 2);
  });
}

TEST(DistributedPage, ModelOverTwoRanks) {
  dist::run_ranks(2, [] {
    Tensor w = scalar(3), x = scalar(5), y = scalar(1);
    GradManager gm;
    gm.attach(w);
    auto recording = gm.record();
    if (dist::get_rank() == 0) {
      dist::remote_send(w * x, {.dest_rank = 1});
      gm.backward();  // no loss here: the gradient comes from rank 1
    } else {
      Tensor h = dist::remote_recv({.src_rank = 0});
      gm.backward(square(w * h - y));
    }
    EXPECT_EQ(w.grad().item<float>(), dist::get_rank() == 0 ? 2 * 44 * 3 * 5 : 2 * 44 * 15);
  });
}

TEST(DistributedPage, Results) {
  std::vector<double> losses =
      dist::launch<double>({.nproc_per_node = 2, .backend = "local"}, [] { return 0.5 * dist::get_rank(); });
  EXPECT_THAT(losses, ElementsAre(0, 0.5));
}

TEST(DistributedPage, Failures) {
  const auto body = [] {
    if (dist::get_rank() == 1) throw ValueError("demo", "no luck");
    Tensor x = ones({1});
    try {
      dist::all_reduce(x, {.timeout = std::chrono::seconds(30)});
    } catch (const dist::PeerError& e) {
      std::cerr << "because of rank " << e.rank() << ": " << e.what() << std::endl;
      throw;  // the job has failed
    }
  };
  testing::internal::CaptureStderr();
  EXPECT_THROW(dist::run_ranks(2, body), ValueError);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("because of rank 1"), HasSubstr("no luck")));
}

}  // namespace
}  // namespace gradus
