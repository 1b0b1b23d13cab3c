// The first program of docs/guide/distributed.md: four ranks add up their numbers; rank 0 prints [6., 6.].
#include <iostream>
#include "gradus/gradus.h"
using namespace gradus;

int main() {
  return dist::launcher({.nproc_per_node = 4}, [] {
    Tensor x = full({2}, dist::get_rank());
    dist::all_reduce(x);  // on every rank: 0 + 1 + 2 + 3
    if (dist::get_rank() == 0) std::cout << x << std::endl;
  });
}
