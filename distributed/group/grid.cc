// Grid: index arithmetic of a row-major array of ranks, and one process group per axis. The constructor is
// collective over the job and makes this rank's group along each axis by one collective call per axis.
#include "gradus/distributed/group/grid.h"

#include <algorithm>

#include "gradus/distributed/base/rank_error.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/job.h"

namespace gradus::dist {
namespace {

constexpr size_t kMaxAxes = 8;

// Returns the axes, with a size of -1 replaced so that the product of all sizes is `ranks`.
// Errors: ValueError for names or sizes that do not allow this.
std::vector<Grid::Axis> checked(std::vector<Grid::Axis> axes, int ranks) {
  if (axes.empty() || axes.size() > kMaxAxes)
    throw ValueError("Grid", "expected 1 to ", kMaxAxes, " axes, got ", axes.size());
  int64_t product = 1;
  Grid::Axis* open = nullptr;
  for (Grid::Axis& axis : axes) {
    if (axis.name.empty()) throw ValueError("Grid", "an axis needs a name");
    if (std::ranges::count(axes, axis.name, &Grid::Axis::name) > 1)
      throw ValueError("Grid", "two axes have the name '", axis.name, "'");
    if (axis.size == -1) {
      if (open)
        throw ValueError("Grid", "only one axis may have size -1, got '", open->name, "' and '", axis.name,
                         "'");
      open = &axis;
      continue;
    }
    if (axis.size < 1) throw ValueError("Grid", "axis '", axis.name, "' has size ", axis.size);
    // The bound prevents overflow; such a product exceeds every number of ranks.
    product = std::min<int64_t>(product * axis.size, int64_t{1} << 31);
  }
  if (open) {
    open->size = product <= ranks && ranks % product == 0 ? int(ranks / product) : 0;
    product *= open->size;
  }
  if (product != ranks) {
    std::string given;
    for (const Grid::Axis& axis : axes)
      given += concat(given.empty() ? "" : " x ", axis.name, " ", &axis == open ? -1 : axis.size);
    throw ValueError("Grid", "the job's ", ranks, " ranks cannot be cut into ", given);
  }
  return axes;
}

// Checks that describe(), `local` on this rank, is equal on all ranks. Collective over the job.
// Errors: MismatchError, the same on all ranks, for the first rank that differs from rank 0.
void check_alike(const std::string& local) {
  internal::GroupState& job = Group().state();
  const std::vector<std::string> grids = internal::gather_strings(job, internal::Op::kGrid, local);
  for (size_t rank = 1; rank < grids.size(); ++rank)
    if (grids[rank] != grids[0])
      throw_failure("Grid",
                    job.world()->membership->report({Failure::Kind::kMismatch, int(rank),
                                                     concat("rank ", rank, " makes a grid of ", grids[rank],
                                                            ", where rank 0 makes one of ", grids[0])}));
}

}  // namespace

Grid::Grid(std::vector<Axis> axes) : axes_(checked(std::move(axes), get_world_size())) {
  check_alike(describe());
  const int rank = get_rank();
  int stride = get_world_size();  // from one rank of a row to the next
  for (const Axis& axis : axes_) {
    stride /= axis.size;
    coordinates_.push_back(rank / stride % axis.size);
  }
  Job::current()->set_replica({index("replica"), size("replica")});
  stride = get_world_size();
  for (size_t a = 0; a < axes_.size(); ++a) {
    stride /= axes_[a].size;
    std::vector<int> row;
    for (int i = 0; i < axes_[a].size; ++i) row.push_back(rank + (i - coordinates_[a]) * stride);
    groups_.push_back(internal::make_group({}, {.op = internal::Op::kGrid, .base = axes_[a].name},
                                           [&](const internal::MatchedCall&) { return row; }));
  }
}

int Grid::size(std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &Axis::name);
  return found == axes_.end() ? 1 : found->size;
}

int Grid::index(std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &Axis::name);
  return found == axes_.end() ? 0 : coordinates_[size_t(found - axes_.begin())];
}

const Group& Grid::group(std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &Axis::name);
  if (found == axes_.end()) throw ValueError("Grid::group", "no axis '", axis, "' in ", describe());
  return groups_[size_t(found - axes_.begin())];
}

std::string Grid::describe() const {
  std::string text;
  for (const Axis& axis : axes_) text += concat(text.empty() ? "" : " x ", axis.name, " ", axis.size);
  return text;
}

}  // namespace gradus::dist
