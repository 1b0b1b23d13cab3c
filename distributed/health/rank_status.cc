#include "gradus/distributed/health/rank_status.h"

#include "gradus/tensor/base/error.h"

namespace gradus::dist {

std::string activity_text(const RankStatus& status) {
  switch (status.activity) {
    case Activity::kUnknown:
      return "";
    case Activity::kNotJoined:
      return "not in the job yet";
    case Activity::kInCall:
      return "in " + status.call;
    case Activity::kAfterTimeout:
      return "after a timeout of " + status.call;
    case Activity::kOutside:
      break;
  }
  std::string text = concat("outside of any collective", status.call.empty() ? "" : ", after ", status.call);
  for (const std::string& call : status.posted) text += concat(", with ", call, " under way");
  return text;
}

}  // namespace gradus::dist
