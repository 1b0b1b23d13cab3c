// The program whose ranks launchers.py starts with several launchers: job_program TAG MODE. Ranks exchange
// their TAGs; if the ranks of two jobs are mixed, the job ends with status 99. Then, by MODE:
//   ok       they add up a tensor
//   throw    rank 1 throws
//   exit     rank 1 ends with status 7
//   kill     rank 1 dies of SIGKILL
//   restart  rank 1 throws in the first attempt alone
//   alone    no rank joins the job, but all call a collective, which must be an error
//   train    they train a small convolutional network; rank 0 prints the median time of a step
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "gradus/gradus.h"

using namespace gradus;

namespace {

constexpr int kMixed = 99;

void add_up() {
  Tensor x = full({3}, 1, {.dtype = DType::kI64});
  for (int i = 0; i < 20; ++i) {
    dist::all_reduce(x, {.op = dist::ReduceOp::kMax});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  dist::all_reduce(x);
  if (x.data<int64_t>()[2] != dist::get_world_size()) throw ValueError("job_program", "a wrong sum");
}

struct Net : nn::Layer {
  nn::Conv2d conv1{this, "conv1", {.in = 1, .out = 16, .kernel = 3}};
  nn::Conv2d conv2{this, "conv2", {.in = 16, .out = 32, .kernel = 3}};
  nn::Linear out{this, "out", {.in = 4608, .out = 10}};
  Tensor forward(const Tensor& x) override {
    return out(flatten(max_pool2d(relu(conv2(relu(conv1(x)))), {.kernel = 2}), 1));
  }
};

void run_training() {
  using Clock = std::chrono::steady_clock;
  Net net;
  dist::DistributedDataParallel ddp(net);
  GradManager gm;
  ddp.attach(gm);
  optim::SGD sgd(net.parameters(), {.lr = 0.01});
  const Tensor x = randn({64, 1, 28, 28});
  const Tensor y = zeros({64}, {.dtype = DType::kI64});
  std::vector<double> ms;
  for (int i = 0; i < 150; ++i) {
    const auto begin = Clock::now();
    auto recording = gm.record();
    gm.backward(nn::cross_entropy(ddp(x), y));
    sgd.step().clear_grad();
    if (i >= 30) ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::ranges::nth_element(ms, ms.begin() + ms.size() / 2);
  if (dist::get_rank() == 0) std::cout << "step " << ms[ms.size() / 2] << " ms" << std::endl;
}

void run_rank(const std::string& tag, const std::string& mode) {
  for (const std::string& other : dist::all_gather_object(tag))
    if (other != tag) {
      for (int i = 0; i < 40; ++i) add_up();
      std::cout << "MIXED " << tag << ' ' << other << std::endl;
      std::_Exit(kMixed);
    }
  if (mode == "train") return run_training();
  const char* count = std::getenv("TORCHELASTIC_RESTART_COUNT");
  const bool first = !count || std::string(count) == "0";
  if (dist::get_rank() == 1) {
    if (mode == "throw" || (mode == "restart" && first)) throw ValueError("job_program", "no luck today");
    if (mode == "exit") std::exit(7);
    if (mode == "kill") raise(SIGKILL);
  }
  add_up();
  if (dist::get_rank() == 0) std::cout << "done " << tag << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string tag = argv[1], mode = argv[2];
  if (mode == "alone") {
    add_up();
    return 0;
  }
  return dist::launcher({.timeout = std::chrono::seconds(30)}, [&] { run_rank(tag, mode); });
}
