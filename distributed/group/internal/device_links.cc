// Connections between GPUs. Members first tell each other, through host memory, which GPU they have and whether they have
// the library; one member makes the connection's id.
#include "gradus/distributed/group/internal/device_links.h"

#include <algorithm>

#include "gradus/distributed/group/internal/staged_collectives.h"
#include "gradus/distributed/group/world.h"
#include "gradus/distributed/transport/single_rank_backend.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/warning.h"

namespace gradus::dist::internal {
namespace {

constexpr char kReady = 'y', kMissing = 'n';  // the first byte of what a member says
constexpr const char* kNotWanted = "it was not asked for";

}  // namespace

bool DeviceLinks::Link::uses_library(const CallRecord& record) const {
  return has_library &&
         (!info_of(record.op).reduces || find_device_library()->can_reduce(record.dtype, record.reduce));
}

void DeviceLinks::retire(DeviceCalls& calls) {
  for (auto& [devices, link] : links_)
    if (link.by_library) calls.retire(std::move(link.by_library));
  links_.clear();
}

DeviceLinks::Link& DeviceLinks::get(const Call& call, const std::vector<CallRecord>& records) {
  std::vector<int> devices;
  for (const CallRecord& record : records) devices.push_back(record.device_index);
  if (const auto found = links_.find(devices); found != links_.end()) return found->second;

  Link link{.device = Device(DeviceType::kCUDA, int16_t(devices[size_t(index_)]))};
  const Stream stream = Stream::create(link.device);
  if (records.size() == 1) {
    link.by_host = make_single_rank_on_gpu(stream);
  } else {
    link.by_host = make_staged_collectives(host_, index_, stream);
    const std::string obstacle = agree_on_obstacle(call, link.device.index);
    link.has_library = obstacle.empty();
    if (!link.has_library && obstacle != kNotWanted && index_ == 0)
      warn_once(concat("collectives between GPUs go through host memory: ", obstacle));
  }
  return links_.emplace(std::move(devices), std::move(link)).first->second;
}

void DeviceLinks::connect(const Call& call, Link& link, int size) {
  DeviceLibrary& library = *find_device_library();
  const std::string id = host_.exchange(call, index_ == 0 ? library.new_id(call.op) : std::string())[0];
  link.by_library = library.connect(call, id, index_, size, world_->stream_of(link.device));
}

std::string DeviceLinks::agree_on_obstacle(const Call& call, int device) {
  std::string local;
  try {
    DeviceLibrary* const library = find_device_library();
    if (!wants_library_)
      local = concat(kMissing, kNotWanted);
    else if (!library)
      local = concat(kMissing, "this program has no library for collectives between GPUs");
    else
      local = concat(kReady, library->version(call.op), '\n', library->gpu_id(device));
  } catch (const Error& error) {
    local = concat(kMissing, std::string_view(error.what()).substr(0, kMaxExchangeBytes / 2));
  }
  const std::vector<std::string> all = host_.exchange(call, local);
  const auto version = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].empty() || all[i][0] != kReady) return all[i].empty() ? "malformed" : all[i].substr(1);
    if (version(all[i]) != version(all[0]))
      return concat("members 0 and ", i, " have ", version(all[0]).substr(1), " and ",
                    version(all[i]).substr(1));
    for (size_t k = 0; k < i; ++k)
      if (all[k] == all[i]) return concat("two members of a group have the same GPU (", k, " and ", i, ")");
  }
  return {};
}

}  // namespace gradus::dist::internal
