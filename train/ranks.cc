// Helpers for programs of several ranks. on_one_rank_per_host() and check_same_on_all_ranks() are collective
// calls of the default group.
#include "gradus/train/ranks.h"

#include <iostream>
#include <vector>

#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/train/command_line.h"

namespace gradus::training {

bool is_first_rank() { return dist::get_rank() == 0; }

void print(const std::string& line) {
  if (is_first_rank()) std::cout << line << std::endl;
}

void on_one_rank_per_host(const std::function<void()>& f) {
  if (dist::get_local_rank() == 0) f();
  dist::barrier();
}

namespace {
std::string text_of_machine(const std::string& devices) {
  const int ranks = dist::get_world_size();
  return concat(devices, ", ", ranks > 1 ? concat(ranks, " ranks, ") : "", num_threads(), " threads",
                ranks > 1 ? " each" : "");
}
}  // namespace

std::string machine_text(Device device) { return text_of_machine(to_string(device)); }
std::string machine_text(const RunOptions& run) { return text_of_machine(devices_text(run)); }

void check_same_on_all_ranks(const std::string& what, const std::string& value) {
  const std::vector<std::string> all = dist::all_gather_object(value);
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw ValueError("ranks", what, " differ: ", all[0], " on rank 0, ", all[rank], " on rank ", rank);
}

}  // namespace gradus::training
