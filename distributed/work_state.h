// WorkState: what stands behind a Work.
#pragma once

#include <optional>

#include "gradus/distributed/deadline.h"
#include "gradus/tensor/ref.h"

namespace gradus::dist::internal {

class WorkState : public Counted {
 public:
  // As in Work. May be called from several threads.
  virtual void wait(std::optional<Milliseconds> timeout) = 0;
  virtual bool is_completed() = 0;
  virtual int source_rank() { return -1; }
};

}  // namespace gradus::dist::internal
