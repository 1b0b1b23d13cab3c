#include <algorithm>
#include <tuple>
#include <utility>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/internal/exchange_hosts.h"
#include "gradus/distributed/group/internal/host_address.h"
#include "gradus/distributed/store/file_store.h"
#include "gradus/distributed/store/private_folder.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kOp = "init_process_group";
constexpr const char* kKey = "init/store";

}  // namespace

// Rank 0 passes the address and the token of the job's store through the other store.
JobStore find_through_store(std::shared_ptr<Store> store, const std::string& file, const std::string& token,
                            const JobPosition& position, const Deadline& deadline) {
  const std::string where = file.empty() ? "in the given store" : "by file " + file;
  if (!store) store = open_file_store(file, deadline.left());
  if (store->add(concat("init/arrivals/", position.rank), 1) != 1)
    throw StateError(kOp, "rank ", position.rank, " has come before ", where,
                     file.empty() ? ": it was used for an earlier job"
                                  : ", which must not exist before: it is of an earlier job, remove it");
  const std::vector<std::string> hosts = exchange_hosts(position, *store, nullptr, deadline, where).ids;
  JobStore found{.address = {.token = token}};
  StoreAddress& address = found.address;
  if (position.rank == 0) {
    if (address.token.empty())
      address.token = random_digits(kOp, 32);  // known to all that see the other store
    const bool one_host = std::ranges::count(hosts, hosts[0]) == position.size;
    const std::string host = one_host ? "127.0.0.1" : own_address();
    if (host.empty()) throw ConnectionError(kOp, 0, "rank 0 has no address that other hosts could reach");
    host_store(found, host, position.size);
    store->set(kKey, to_wire(std::pair(std::pair(host, address.port), address.token)));
  } else {
    std::string bytes;
    try {
      bytes = store->get(kKey, deadline.left());
    } catch (const TimeoutError&) {
      throw TimeoutError(kOp, 0, "rank 0 came and did not open the job's store within ",
                         deadline.timeout().count(), " ms (", where, ')');
    }
    const auto [endpoint, job_token] = from_wire<std::pair<std::pair<std::string, int>, std::string>>(bytes);
    std::tie(address.host, address.port) = endpoint;
    address.token = job_token;
  }
  found.host = address.host;
  return found;
}

}  // namespace gradus::dist::internal
