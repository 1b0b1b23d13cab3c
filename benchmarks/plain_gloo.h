// gloo by itself, over its TCP transport on loopback, called as gloo's documentation says.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradus/distributed/base/store.h"

namespace gradus::bench {

class PlainGloo {
 public:
  // Connects this rank with the others, which find each other through the store.
  PlainGloo(int rank, int size, dist::Store& store);
  ~PlainGloo();

  // A way to reduce x in place, on all ranks.
  struct AllReduce {
    std::string name;
    std::function<void()> run;
  };
  // All algorithms that gloo has, prepared for this buffer.
  std::vector<AllReduce> all_reduces(float* x, size_t n);
  void broadcast(float* x, size_t n);
  void all_gather(float* x, size_t n, float* all);
  void barrier();
  void send(int peer, float* x, size_t n);
  void recv(int peer, float* x, size_t n);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradus::bench
