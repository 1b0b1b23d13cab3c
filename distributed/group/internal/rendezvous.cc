// Rendezvous by init_method, as torch.distributed: env:// (launcher, torchrun, scheduler or MASTER_ADDR),
// tcp://host:port, file:///path, or a Store of the user. Each parses its options into a function that finds
// the job's TCP key-value store. Rank 0 hosts a StoreServer, unless a launcher does; the other ranks know its
// address, or receive it through torchrun's store, the file or the user's Store.
#include "gradus/distributed/group/internal/rendezvous.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <tuple>
#include <utility>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/base/split.h"
#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/internal/exchange_hosts.h"
#include "gradus/distributed/health/roster.h"
#include "gradus/distributed/store/file_store.h"
#include "gradus/distributed/store/socket.h"
#include "gradus/distributed/store/torchrun_store.h"
#include "gradus/distributed/store/user_token.h"
#include "gradus/tensor/runtime/environment.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kOp = "init_process_group";

// Returns the decimal number `text`, which errors name `what`.
int to_number(const std::string& text, const char* what, int low, int high) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < low || number > high)
    throw ValueError(kOp, what, " must be a number from ", low, " to ", high, ", got '", text, "'");
  return number;
}

// Reads "host:port" or "[::1]:port".
void set_address(StoreAddress& address, const std::string& text, const char* what) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0)
    throw ValueError(kOp, what, " must be host:port, got '", text, "'");
  address.host = text.substr(0, colon);
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']')
    address.host = address.host.substr(1, address.host.size() - 2);
  address.port = to_number(text.substr(colon + 1), concat(what, "'s port").c_str(), 1, 65535);
}

// Throws that rank 0's port is taken. If another job's rank 0 has it, that job ends: Note
// [Whose store it is].
[[noreturn]] void throw_taken(const JobStore& store, int world_size, const ConnectionError& taken) {
  constexpr Milliseconds kLimit{2'000};
  std::string owner;
  try {
    join_tcp(store.address, 0, world_size, kLimit)->report(two_jobs_failure(0));
    owner = "another job's rank 0 has it";
  } catch (const ConnectionError& error) {
    owner = text_of(error);
  }
  throw ConnectionError(taken.reason(), kOp, 0, text_of(taken), "; each job needs a port of its own (", owner,
                        ')');
}

// Opens the job's store on rank 0, for ranks that reach this host as `host`. Completes `store.address`.
// Errors: ConnectionError for a taken port.
void host_store(JobStore& store, const std::string& host, int world_size) {
  StoreAddress& address = store.address;
  const std::string loopback = host == "::1" ? "::1" : "127.0.0.1";
  const StoreServerOptions options{.host = is_loopback(host) ? loopback : "0.0.0.0",
                                   .port = address.port,
                                   .job_id = address.job_id,
                                   .token = address.token,
                                   .known_by_port_alone = store.known_by_port_alone};
  address.host = loopback;
  try {
    store.server = std::make_shared<StoreServer>(options);
  } catch (const ConnectionError& error) {
    if (error.reason() == ConnectionError::Reason::kPortTaken) throw_taken(store, world_size, error);
    throw;
  }
  if (address.attempt > 0) store.server->begin_attempt(address.attempt);
  address.port = store.server->port();
}

// Sets the user's own token, unless a token was given. Every rank calls this before rank 0 opens the store: a
// missing token is an error on every rank, and no rank waits for a store that rank 0 does not open.
void use_user_token(JobStore& store) {
  if (!store.address.token.empty()) return;
  const UserToken own = user_token(kOp, is_loopback(store.host) ? "" : store.host);
  store.address.token = own.token;
  store.token_file = own.file;
}

// Rank 0 passes the port and the random name of the job's store through torchrun's store.
JobStore find_through_torchrun(const StoreAddress& torchrun_address, const JobPosition& position,
                               const Deadline& deadline) {
  static std::atomic<int> joins{0};  // a process may join one job after another
  const std::string key = concat("gradus/", torchrun_address.attempt, '/', joins++);
  JobStore store{.address = torchrun_address, .host = torchrun_address.host};
  use_user_token(store);
  TorchrunStore torchrun(kOp, torchrun_address.host, torchrun_address.port, deadline);
  StoreAddress& address = store.address;
  if (position.rank == 0) {
    address.port = 0;
    address.job_id = random_hex(kOp, 32);
    host_store(store, torchrun_address.host, position.size);
    torchrun.set(key, to_wire(std::pair(address.port, address.job_id)));
  } else {
    std::tie(address.port, address.job_id) = from_wire<std::pair<int, std::string>>(torchrun.get(key));
  }
  return store;
}

// Rank 0 passes the address and the token of the job's store through another store: `store`, or if null the
// file store in `file` ("" if unused). An empty `token`: rank 0 makes a random one.
JobStore find_through_store(std::shared_ptr<Store> store, const std::string& file, const std::string& token,
                            const JobPosition& position, const Deadline& deadline) {
  constexpr const char* kKey = "init/store";
  const std::string where = file.empty() ? "in the given store" : "by file " + file;
  if (!store) store = open_file_store(file, deadline.remaining());
  if (store->add(concat("init/arrivals/", position.rank), 1) != 1)
    throw StateError(kOp, "rank ", position.rank, " has come before ", where,
                     file.empty() ? ": it was used for an earlier job"
                                  : ", which must not exist before: it is of an earlier job, remove it");
  const std::vector<std::string> hosts = exchange_hosts(position, *store, nullptr, deadline, where).ids;
  JobStore found{.address = {.token = token}};
  StoreAddress& address = found.address;
  if (position.rank == 0) {
    if (address.token.empty()) address.token = random_hex(kOp, 32);  // known to all that see the other store
    const bool one_host = std::ranges::count(hosts, hosts[0]) == position.size;
    const std::string host = one_host ? "127.0.0.1" : non_loopback_address();
    if (host.empty()) throw ConnectionError(kOp, 0, "rank 0 has no address that other hosts could reach");
    host_store(found, host, position.size);
    store->set(kKey, to_wire(std::pair(std::pair(host, address.port), address.token)));
  } else {
    std::string bytes;
    try {
      bytes = store->get(kKey, deadline.remaining());
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

// The store is at a port of rank 0's host, which all ranks know.
Rendezvous by_port(StoreAddress address) {
  return {[address = std::move(address)](const JobPosition& position, const Deadline&) {
    JobStore store{.address = address, .host = address.host, .known_by_port_alone = address.job_id == "none"};
    use_user_token(store);
    if (position.rank == 0) host_store(store, address.host, position.size);
    return store;
  }};
}

// Rank and size are options, the master is given by environment variables.
Rendezvous from_master_variables(const JobPosition& position, StoreAddress address) {
  const char* host = std::getenv("MASTER_ADDR");
  const char* port = std::getenv("MASTER_PORT");
  const bool has_position = position.rank >= 0 && position.size >= 1;
  if (!has_position || !host)
    throw ValueError(kOp, "env://: the environment variable ", has_position ? "MASTER_ADDR" : "RANK",
                     " is not set: start the program by gradus-run, dist::launcher or a scheduler, or give "
                     "init_method");
  address.host = host;
  address.port = port ? to_number(port, "MASTER_PORT", 1, 65535) : 29500;
  return by_port(std::move(address));
}

// Reads a launcher's or scheduler's variables. Completes `position`; rank and size may be options.
Rendezvous from_environment(const InitOptions& options, JobPosition& position, StoreAddress address) {
  const auto environment = read_environment();
  if (!environment) return from_master_variables(position, std::move(address));
  if (position.rank < 0) position.rank = environment->rank;
  if (position.size < 0) position.size = environment->world_size;
  position.local_rank = environment->local_rank;
  position.local_size = environment->local_world_size;
  address.job_id = environment->job_id;
  if (options.token.empty()) address.token = environment->token;
  address.attempt = environment->restart_count;
  if (!environment->store.empty()) {
    set_address(address, environment->store, "GRADUS_STORE");
    return {[address](const JobPosition&, const Deadline&) {
              return JobStore{.address = address, .host = address.host};
            },
            true};
  }
  address.host = environment->master_addr;
  address.port = environment->master_port;
  // All ranks are on one host, so no other host needs to reach the store.
  if (position.local_size == position.size) address.host = "127.0.0.1";
  if (address.host.empty())
    throw ValueError(kOp, "env://: the environment variable MASTER_ADDR is not set, and ",
                     environment->source, " does not say that all ranks are on one host");
  if (!environment->torchrun_store) return by_port(std::move(address));
  return {std::bind_front(find_through_torchrun, std::move(address))};
}

// Reads "host:port?rank=0&world_size=2".
Rendezvous from_tcp(std::string text, JobPosition& position, StoreAddress address) {
  if (const size_t query = text.find('?'); query != std::string::npos) {
    const std::vector<std::string> items = split(text.substr(query + 1), "&");
    text.resize(query);
    for (const std::string& item : items) {
      if (item.starts_with("rank="))
        position.rank = to_number(item.substr(5), "init_method's rank", 0, 1 << 20);
      else if (item.starts_with("world_size="))
        position.size = to_number(item.substr(11), "init_method's world_size", 1, 1 << 20);
      else
        throw ValueError(kOp, "init_method: unknown '", item, "', expected rank= or world_size=");
    }
  }
  set_address(address, text, "init_method tcp://");
  return by_port(std::move(address));
}

Rendezvous choose(const InitOptions& options, JobPosition& position) {
  const char* token = std::getenv("GRADUS_TOKEN");
  StoreAddress address;
  address.token = !options.token.empty() ? options.token : token ? token : "";
  const std::string& method = options.init_method;
  if (options.store) {
    if (method != InitOptions().init_method)
      throw ValueError(kOp, "store and init_method exclude each other");
    return {
        std::bind_front(find_through_store, prefix_store("gradus.init", options.store), "", address.token)};
  }
  if (method == "env://") return from_environment(options, position, std::move(address));
  if (method.starts_with("tcp://")) return from_tcp(method.substr(6), position, std::move(address));
  if (!method.starts_with("file://"))
    throw ValueError(kOp, "init_method must be env://, tcp://host:port or file:///path, got '", method, "'");
  const std::string file = method.substr(7);
  if (!file.starts_with('/'))
    throw ValueError(kOp, "init_method file:// needs an absolute path (file:///path), got '", method, "'");
  return {std::bind_front(find_through_store, nullptr, file, address.token), false, file};
}

}  // namespace

Rendezvous make_rendezvous(const InitOptions& options, JobPosition& position) {
  position = {.rank = options.rank, .size = options.world_size};
  Rendezvous rendezvous = choose(options, position);
  if (position.size < 1 || position.rank < 0 || position.rank >= position.size)
    throw ValueError(
        kOp, "rank and world_size must be given, by options or init_method, with 0 <= rank < world_size; ",
        "got rank ", position.rank, " and world_size ", position.size);
  return rendezvous;
}

}  // namespace gradus::dist::internal
