#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/internal/exchange_hosts.h"
#include "gradus/distributed/group/internal/host_address.h"
#include "gradus/distributed/store/file_store.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kOp = "init_process_group";
constexpr const char* kKey = "init/store";

// Rank 0 passes the address and the token of the job's store through another store that all ranks see.
class StoreRendezvous final : public Rendezvous {
 public:
  StoreRendezvous(std::shared_ptr<Store> store, std::string file, std::string token)
      : store_(std::move(store)),
        file_(std::move(file)),
        token_(std::move(token)),
        where_(file_.empty() ? "in the given store" : "by file " + file_) {}

  JobStore find_store(const JobPosition& position, const Deadline& deadline) override {
    if (!store_) store_ = open_file_store(file_, deadline.left());
    if (store_->add(concat("init/arrivals/", position.rank), 1) != 1)
      throw StateError(kOp, "rank ", position.rank, " has come before ", where_,
                       file_.empty() ? ": it was used for an earlier job"
                                     : ", which must not exist before: it is of an earlier job, remove it");
    const std::vector<std::string> hosts = exchange_hosts(position, *store_, nullptr, deadline, where_).ids;
    JobStore store{.address = {.token = token_}};
    if (position.rank == 0)
      open(store, position.size, std::ranges::count(hosts, hosts[0]) == position.size);
    else
      receive(store.address, deadline);
    if (store.host.empty()) store.host = store.address.host;
    return store;
  }

  void finish(const JobPosition& position) override {
    if (!file_.empty() && position.rank == 0) unlink(file_.c_str());
  }

 private:
  void open(JobStore& store, int world_size, bool one_host) {
    StoreAddress& address = store.address;
    if (address.token.empty()) address.token = random_digits(kOp, 32);  // known to all that see store_
    const std::string host = one_host ? "127.0.0.1" : own_address();
    if (host.empty()) throw ConnectionError(kOp, 0, "rank 0 has no address that other hosts could reach");
    host_store(store, host, world_size);
    store_->set(kKey, to_wire(std::pair(std::pair(host, address.port), address.token)));
  }

  void receive(StoreAddress& address, const Deadline& deadline) {
    std::string bytes;
    try {
      bytes = store_->get(kKey, deadline.left());
    } catch (const TimeoutError&) {
      throw TimeoutError(kOp, 0, "rank 0 came and did not open the job's store within ",
                         deadline.timeout().count(), " ms (", where_, ')');
    }
    const auto [place, token] = from_wire<std::pair<std::pair<std::string, int>, std::string>>(bytes);
    std::tie(address.host, address.port) = place;
    address.token = token;
  }

  std::shared_ptr<Store> store_;
  const std::string file_, token_, where_;
};

}  // namespace

std::unique_ptr<Rendezvous> make_store_rendezvous(std::shared_ptr<Store> store, std::string file,
                                                  std::string token) {
  return std::make_unique<StoreRendezvous>(std::move(store), std::move(file), std::move(token));
}

}  // namespace gradus::dist::internal
