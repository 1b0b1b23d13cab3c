// Builds the ActionLists of schedule.h from one text per rank, such as "0F0 0B0": stage, kind (F forward, B
// backward, I and W its input and weight gradients), micro-batch.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "gradus/distributed/pipeline/schedule.h"

namespace gradus::dist {

inline ActionLists lists_of(const std::vector<std::string>& text_of_rank) {
  ActionLists lists;
  for (const std::string& text : text_of_rank) {
    auto& list = lists.of_rank.emplace_back();
    std::istringstream words(text);
    char kind = 0;
    for (Action a; words >> a.stage >> kind >> a.micro_batch;) {
      a.kind = ActionKind(std::string("FBIW").find(kind));
      list.push_back(a);
      lists.micro_batches = std::max(lists.micro_batches, a.micro_batch + 1);
      lists.rank_of_stage.resize(std::max(lists.rank_of_stage.size(), size_t(a.stage) + 1), -1);
      int& rank = lists.rank_of_stage[size_t(a.stage)];
      if (rank < 0) rank = lists.ranks() - 1;
    }
  }
  return lists;
}

}  // namespace gradus::dist
