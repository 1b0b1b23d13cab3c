// The program of startup_test.py, linked with and without the CUDA backend. Arguments: [STEPS [DEVICE]];
// trains STEPS steps (default 0) and prints the last loss. Prints its resident memory in KiB; exits with 3 on
// DeviceError.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "gradus/gradus.h"

using namespace gradus;

namespace {

// "VmRSS:      9876 kB" of this process.
std::string resident_kib() {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;)
    if (word == "VmRSS:" && in >> word) return word;
  return "0";
}

double last_loss_of(int steps, Device device) {
  manual_seed(1);
  models::MnistNet net;
  net.to(device);
  GradManager gm;
  gm.attach(net.parameters());
  optim::SGD opt(net.parameters(), {.lr = 0.01});
  const Tensor x = to(randn({4, 1, 28, 28}), device), y = to(randint(10, {4}), device);
  double last = 0;
  for (int i = 0; i < steps; ++i) {
    auto recording = gm.record();
    const Tensor loss = nn::cross_entropy(net(x), y);
    gm.backward(loss);
    opt.step().clear_grad();
    last = loss.item<double>();
  }
  return last;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int steps = argc > 1 ? std::atoi(argv[1]) : 0;
    if (steps > 0) {
      const double loss = last_loss_of(steps, Device::parse(argc > 2 ? argv[2] : "cpu"));
      std::cout << "loss " << loss << '\n';
    }
  } catch (const DeviceError& e) {
    std::cout << e.what() << '\n';
    return 3;
  }
  std::cout << "resident " << resident_kib() << '\n';
}
