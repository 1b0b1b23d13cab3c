// Each rank sets key init/host/<rank> of the job's store to "<host id> <cores>" and waits for the keys of all
// ranks. Every kPoll the wait is interrupted to check for ranks that have left and for the job's failure.
#include "gradus/distributed/group/internal/exchange_hosts.h"

#include <algorithm>

#include "gradus/distributed/group/internal/core_share.h"
#include "gradus/distributed/health/blame.h"
#include "gradus/distributed/transport/segment.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kOp = "init_process_group";
constexpr Milliseconds kPoll{200};  // between two checks whether a rank has left

// Throws the error "<missing ranks> <text>", and reports it as the job's failure if there is a membership.
[[noreturn]] void throw_missing_ranks(const std::vector<int>& missing, Membership* membership,
                                      Failure::Kind kind, const std::string& text) {
  const Failure failure{kind, missing[0], concat(list_ranks(missing), ' ', text)};
  throw_failure(kOp, membership ? membership->report(failure) : failure);
}

}  // namespace

Hosts exchange_hosts(const JobPosition& position, Store& store, Membership* membership,
                     const Deadline& deadline, const std::string& where, const StoreServer* server) {
  const auto key = [](int rank) { return concat("init/host/", rank); };
  store.set(key(position.rank), concat(host_id(), ' ', available_cores()));
  std::vector<std::string> keys;
  for (int rank = 0; rank < position.size; ++rank) keys.push_back(key(rank));
  const auto arrived = [&](int rank) { return store.check({key(rank)}); };
  for (;;) {
    const bool late = deadline.passed();
    std::vector<int> exited, missing;
    for (int rank = 0; rank < position.size; ++rank)
      if (membership && membership->has_left(rank)) exited.push_back(rank);
    std::erase_if(exited, arrived);
    if (!exited.empty())
      throw_missing_ranks(exited, membership, Failure::Kind::kLeft,
                          "exited with code 0 before init_process_group");
    try {
      Hosts hosts;
      for (const std::string& text :
           store.multi_get(keys, late ? Milliseconds(0) : std::min(deadline.remaining(), kPoll))) {
        const size_t end = std::min(text.find(' '), text.size());
        hosts.ids.push_back(text.substr(0, end));
        hosts.cores.push_back(text.substr(std::min(end + 1, text.size())));
      }
      return hosts;
    } catch (const TimeoutError&) {
    } catch (const PeerError&) {      // all other ranks have left
    } catch (const MismatchError&) {  // ranks of two jobs use one store
    }
    if (membership) membership->check(kOp);
    if (!late) continue;
    for (int rank = 0; rank < position.size; ++rank)
      if (!arrived(rank)) missing.push_back(rank);
    if (!missing.empty())
      throw_missing_ranks(missing, membership, Failure::Kind::kTimeout,
                          concat("of ", position.size, " did not come within ", deadline.timeout().count(),
                                 " ms (", where, ')', server ? server->refusals() : ""));
  }
}

}  // namespace gradus::dist::internal
