// show: gathers the texts of all ranks on rank 0, which prints them; then each rank checks its own.
#include "gradus/examples/ddp_demos/show.h"

#include <algorithm>
#include <iomanip>
#include <iostream>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/base/error.h"

namespace gradus::examples {

std::string text(const std::vector<float>& values) {
  std::ostringstream out;
  out << '[';
  for (size_t i = 0; i < values.size(); ++i) out << (i ? " " : "") << values[i];
  out << ']';
  return out.str();
}

std::string text(const Tensor& x) { return text(x.to_vector<float>()); }

std::string text(const std::vector<Tensor>& xs) {
  std::string all;
  for (const Tensor& x : xs) all += (all.empty() ? "" : " ") + text(x);
  return all.empty() ? "-" : all;
}

void show(const std::string& title, const std::string& had, const std::string& has,
          const std::string& should_have) {
  training::print("\n" + title);
  std::vector<std::pair<std::string, std::string>> ranks;
  size_t width = 0;
  for (const std::string& bytes : dist::gather_object(dist::to_wire(std::pair(had, has)))) {
    ranks.push_back(dist::from_wire<std::pair<std::string, std::string>>(bytes));
    width = std::max(width, ranks.back().first.size());
  }
  for (size_t r = 0; r < ranks.size(); ++r)
    std::cout << "  rank " << r << "   " << std::left << std::setw(int(width)) << ranks[r].first << "   ->   "
              << ranks[r].second << std::endl;
  if (has != should_have)
    throw StateError("show", title, ": expected ", should_have, ", but this rank has ", has);
}

}  // namespace gradus::examples
