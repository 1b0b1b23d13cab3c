// Grid: a job's ranks as a multidimensional array with named axes (a device mesh), with a process group for
// each row: the ranks whose indices differ along one axis alone.
//
//   dist::Grid grid({{"replica", 2}, {"pipeline", 4}});  // 8 ranks: two pipelines of four stages
//   grid.group("pipeline");  // the four ranks of this rank's pipeline
//   grid.group("replica");   // the ranks with the same stage, one of each pipeline
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/distributed/group/group.h"

namespace gradus::dist {

// A small handle; copies share the groups.
class Grid {
 public:
  struct Axis {
    std::string name;
    int size = -1;  // -1 (for one axis at most): the number of ranks / product of the other sizes
  };

  // Makes all groups; collective over the job. Ranks are in row-major order: neighbors along the last axis
  // have consecutive ranks, so axes within a host come last. The index along the axis "replica" becomes this
  // rank's data parallel replica (Job::set_replica), which chooses its samples and dropout masks; without
  // this axis all ranks get the same samples. So a program makes its grid before its loaders.
  // Errors: ValueError unless names are different and not empty, 1 to 8 axes, and the product of the sizes is
  // the number of ranks; StateError if a different replica of this rank was set, or read by a loader, before;
  // MismatchError if the ranks' grids differ.
  explicit Grid(std::vector<Axis> axes);

  const std::vector<Axis>& axes() const { return axes_; }  // as passed, with -1 replaced
  // Size of an axis, and this rank's index along it. An unknown axis has size 1 and index 0, so that programs
  // may query axes that a grid does not have.
  int size(std::string_view axis) const;
  int index(std::string_view axis) const;
  // Returns the group of this rank's row along the axis, ordered by index.
  // Errors: ValueError, which lists the axes, for an unknown axis.
  const Group& group(std::string_view axis) const;
  std::string describe() const;  // "replica 2 x pipeline 4"

 private:
  std::vector<Axis> axes_;
  std::vector<int> coordinates_;  // this rank's index along each axis
  std::vector<Group> groups_;     // this rank's row along each axis
};

}  // namespace gradus::dist
