#include "gradus/train/internal/sample_log.h"

#include <fstream>
#include <set>
#include <utility>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/object.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/blocked_signals.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/train/ranks.h"

namespace gradus::training::internal {

void SampleLog::begin(const data::LoaderState& at) const {
  if (!file_.empty() && is_first_rank()) write(concat("from ", at.epoch, ' ', at.samples));
}

void SampleLog::add(const data::LoaderState& at, const std::vector<int64_t>& indices) const {
  if (file_.empty()) return;
  std::string line = concat(at.epoch, ' ', at.samples);
  std::set<int> replicas;  // the ranks of a replica have the same samples
  for (const std::string& bytes :
       dist::gather_object(dist::to_wire(std::pair(Job::current()->replica().index, indices)))) {
    const auto [replica, of_rank] = dist::from_wire<std::pair<int, std::vector<int64_t>>>(bytes);
    if (!replicas.insert(replica).second) continue;
    for (const int64_t i : of_rank) line += concat(' ', i);
  }
  if (is_first_rank()) write(line);
}

void SampleLog::write(const std::string& line) const {
  const gradus::internal::BlockedSignals blocked;
  std::ofstream out(file_, std::ios::app);
  out << line << '\n' << std::flush;
  if (!out) throw FileError("sample_log", "cannot write ", file_.string());
}

}  // namespace gradus::training::internal
