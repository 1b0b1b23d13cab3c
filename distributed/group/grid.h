// Grid: a job's ranks in rows along named axes, with a group for each row.
//
//   dist::Grid grid({{"replica", 2}, {"pipeline", 4}});  // 8 ranks: two pipelines of four stages
//   grid.group("pipeline");  // the four ranks of this rank's pipeline
//   grid.group("replica");   // the ranks that hold the same stage, one of each pipeline
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
    int size = -1;  // one axis may have -1: as many as the job's ranks leave
  };

  // Cuts the job into rows. Along the last axis neighbors have consecutive ranks: what shall be on one host
  // comes last. The axis "replica" says which ranks have samples of their own: loaders, samplers and dropout
  // follow it (Job::replica), and without it all ranks have the same samples. So a program makes its grid
  // before its loaders. Makes all groups at once; collective over the job.
  // Errors: ValueError unless names are different and not empty, and the sizes' product is the number of
  // ranks; StateError if the job was cut into other replicas before, or a loader has its share already;
  // MismatchError if the ranks' grids differ.
  explicit Grid(std::vector<Axis> axes);

  const std::vector<Axis>& axes() const { return axes_; }
  // For an axis that the grid does not have, a row is this rank alone.
  int size(std::string_view axis) const;
  int index(std::string_view axis) const;  // this rank's place in the row
  // Returns this rank's row along the axis: the ranks whose places differ along this axis alone, in order.
  // Errors: ValueError, which lists the axes, for an axis that the grid does not have.
  const Group& group(std::string_view axis) const;
  std::string describe() const;  // "replica 2 x pipeline 4"

 private:
  std::vector<Axis> axes_;
  std::vector<int> place_;     // this rank's, per axis
  std::vector<Group> groups_;  // per axis
};

}  // namespace gradus::dist
