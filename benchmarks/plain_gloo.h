// PlainGloo: the gloo library without Gradus, over its TCP transport on loopback, as a reference for collectives.
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
  // Connects this rank with the others, with `store` as rendezvous.
  PlainGloo(int rank, int size, dist::Store& store);
  ~PlainGloo();

  // An all-reduce algorithm, prepared for reducing x in place.
  struct AllReduce {
    std::string name;
    std::function<void()> run;
  };
  // Returns all of gloo's all-reduce algorithms, prepared for this buffer.
  std::vector<AllReduce> all_reduces(float* x, size_t n);
  // Blocking calls with n floats per rank. broadcast() sends from rank 0; `all` has world size * n floats.
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
