// attempt: one all_gather_object of f's result, or of f's serialized exception, after a byte that says which.
// All ranks then throw the exception of the first member on which f failed. f must not communicate.
#include "gradus/distributed/group/attempt.h"

#include <exception>

#include "gradus/distributed/base/error_wire.h"
#include "gradus/distributed/group/object.h"

namespace gradus::dist {

std::vector<std::string> attempt(std::string_view op, const std::function<std::string()>& f,
                                 const Group& group) {
  constexpr char kDone = '+', kFailed = '-';
  std::string local;
  std::exception_ptr error;
  try {
    local = kDone + f();
  } catch (...) {
    error = std::current_exception();
    local = kFailed + internal::error_to_wire(error);
  }
  std::vector<std::string> all = all_gather_object(local, {.group = group});
  for (size_t i = 0; i < all.size(); ++i) {
    const char outcome = all[i].at(0);
    all[i].erase(0, 1);
    if (outcome == kDone) continue;
    if (int(i) == group.rank()) std::rethrow_exception(error);
    internal::throw_from_wire(all[i], op, group.ranks()[i], "failed");
  }
  return all;
}

}  // namespace gradus::dist
