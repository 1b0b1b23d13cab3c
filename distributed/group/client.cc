// Client: versioned values under a key, shared by the ranks of a job through its key-value store (user_set,
// user_push, user_get, user_pop), and group_barrier. All functions poll the store, so a wait ends within
// about kPoll after the job's failure. Values are updated by the store's atomic add and compare_set.
#include "gradus/distributed/group/client.h"

#include <charconv>

#include "gradus/distributed/base/rank_error.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/health/waiting.h"

namespace gradus::dist {
namespace {

// Note [Values of a key]
// Each value has a key of its own in the store, with the value's version in its name, and is written once.
// Two more keys exist: `last` has the last version given out. `gone` says up to which version values are
// gone, because they were popped or replaced by user_set. `gone` is "version writer" and moves by
// compare_set. The writer that has moved it owns the values in between. A reader that waits for a value which
// was written and removed checks again after kPoll.
constexpr Milliseconds kPoll{200};

std::string last_key(const std::string& key) { return "user/last/" + key; }
std::string gone_key(const std::string& key) { return "user/gone/" + key; }
std::string value_key(const std::string& key, int64_t version) {
  return concat("user/value/", version, '/', key);
}

// Returns a name for a write. It differs from the names of all other writes, even of the same version.
std::string next_writer() {
  static std::atomic<uint64_t> writes{0};
  const internal::World* world = internal::World::current();
  return concat(world ? world->rank : 0, '.', writes.fetch_add(1));
}

int64_t to_number(std::string_view text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Runs f, which waits in the store. Returns whether the awaited key arrived in time.
// Errors: the job's failure.
template <class F> bool arrived(F&& f) {
  try {
    f();
    return true;
  } catch (const TimeoutError&) {
  } catch (const PeerError&) {  // all others have left
  }
  if (const internal::World* world = internal::World::current()) world->membership->check("wait");
  return false;
}

bool wait_for(Store& store, const std::vector<std::string>& keys, Milliseconds limit) {
  return arrived([&] { store.wait(keys, limit); });
}

// Returns the key's value, or "" if it is absent.
std::string get_or_empty(Store& store, const std::string& key) { return store.compare_set(key, "", ""); }

// Claims the values up to `version` by moving the `gone` key from `gone`, and deletes them. Returns false if
// another rank has moved the key meanwhile.
bool claim(Store& store, const std::string& key, const std::string& gone, int64_t version) {
  const std::string own = concat(version, ' ', next_writer());
  if (store.compare_set(gone_key(key), gone, own) != own) return false;
  for (int64_t v = to_number(gone) + 1; v <= version; ++v) store.delete_key(value_key(key, v));
  return true;
}

// A value in the store is its type's name, a line feed and its bytes.
std::string name_of(const std::type_info& type) {
  return type == typeid(std::string) ? "string" : short_name(type);
}
std::string checked_bytes(const char* op, const std::string& key, const std::string& value,
                          const std::type_info& type) {
  const size_t end = value.find('\n');
  if (value.substr(0, end) != name_of(type))
    throw ValueError(op, "'", key, "' has a value of type ", value.substr(0, end), ", not ", name_of(type));
  return value.substr(end + 1);
}

// Waits until try_read(limit) returns true; each call waits for at most `limit`.
// Errors: TimeoutError or PeerError with `text`. `text` is a part of this rank's status meanwhile.
template <class TryRead>
void wait_until(const char* op, const Deadline& deadline, const std::string& text, TryRead&& try_read) {
  const internal::World* world = internal::World::current();
  struct EndActivity {
    const internal::World* world;
    const char* op;
    ~EndActivity() {
      if (world) world->membership->set_activity(Activity::kOutside, "", op);
    }
  };
  std::optional<EndActivity> end_activity;
  for (;;) {
    // Reads these before the last check, so that a value that arrived before counts.
    const bool others_left = world && world->membership->others_left(), timed_out = deadline.passed();
    if (try_read(others_left ? Milliseconds(0) : std::min(deadline.remaining(), kPoll))) return;
    if (others_left) throw PeerError(op, -1, text, ", and all other ranks have left the job");
    if (timed_out) throw TimeoutError(op, -1, text, " within ", deadline.timeout().count(), " ms");
    if (world && !end_activity) {
      end_activity.emplace(world, op);
      world->membership->set_activity(Activity::kInCall, op, concat(op, ", where ", text));
    }
  }
}

// Returns f(). If the job has failed, throws its failure with `op` instead of the store's error.
template <class F> auto run_as(const char* op, F&& f) {
  try {
    return f();
  } catch (const DistributedError&) {
    if (const internal::World* world = internal::World::current()) world->membership->check(op);
    throw;
  }
}

}  // namespace

int64_t Client::put(const char* op, const std::string& key, const std::type_info& type,
                    const std::string& bytes, bool replace) {
  return run_as(op, [&] {
    const int64_t version = store_->add(last_key(key), 1);
    try {
      store_->set(value_key(key, version), concat(name_of(type), '\n', bytes));
    } catch (const StoreError&) {  // too large: no rank must wait for this version
      store_->compare_set(last_key(key), std::to_string(version), std::to_string(version - 1));
      throw;
    }
    for (;;) {
      const std::string gone = get_or_empty(*store_, gone_key(key));
      if (to_number(gone) >= version) store_->delete_key(value_key(key, version));  // a later one replaced it
      if (!replace || to_number(gone) >= version - 1 || claim(*store_, key, gone, version - 1))
        return version;
    }
  });
}

std::string Client::get(const std::string& key, const std::type_info& type, int64_t version,
                        std::optional<Milliseconds> timeout) {
  constexpr const char* kOp = "user_get";
  return run_as(kOp, [&] {
    std::string value;
    std::pair<int64_t, int64_t> seen = {-1, -1};
    const auto try_read = [&](Milliseconds limit) {
      const int64_t last = to_number(get_or_empty(*store_, last_key(key)));
      const int64_t gone = to_number(get_or_empty(*store_, gone_key(key)));
      const int64_t wanted = std::max(version, last > gone ? last : last + 1);
      // No wait if the versions have changed: the newest value may be replaced, and then a newer one exists.
      if (seen != std::pair(last, gone)) limit = Milliseconds(0);
      seen = {last, gone};
      return arrived([&] { value = store_->get(value_key(key, wanted), limit); });
    };
    wait_until(kOp, Deadline::after(timeout.value_or(store_->default_timeout())),
               concat("nobody set '", key, "' (version ", version, ")"), try_read);
    return checked_bytes(kOp, key, value, type);
  });
}

std::string Client::pop(const std::string& key, const std::type_info& type,
                        std::optional<Milliseconds> timeout) {
  constexpr const char* kOp = "user_pop";
  return run_as(kOp, [&] {
    std::string bytes;
    // Reads the value before claiming it, so that a caller that times out claims nothing.
    const auto try_read = [&](Milliseconds limit) {
      const std::string gone = get_or_empty(*store_, gone_key(key));
      const int64_t oldest = to_number(gone) + 1;
      std::string value;
      if (!arrived([&] { value = store_->get(value_key(key, oldest), limit); })) return false;
      bytes = checked_bytes(kOp, key, value, type);
      return claim(*store_, key, gone, oldest);
    };
    wait_until(kOp, Deadline::after(timeout.value_or(store_->default_timeout())),
               concat("nobody set '", key, "'"), try_read);
    return bytes;
  });
}

Client get_client() {
  const internal::World* world = internal::World::current();
  if (!world) throw StateError("get_client", "call init_process_group first");
  world->wait_for_collision_check("get_client");
  return Client(world->store);
}

void group_barrier(const Group& group, std::optional<Milliseconds> timeout) {
  constexpr const char* kOp = "group_barrier";
  internal::GroupState& state = group.state();
  state.check_member(kOp);
  if (state.size() == 1) return;
  internal::World& world = *state.world();
  world.wait_for_collision_check(kOp);
  const internal::WaitLimits limits = state.wait_limits(timeout);
  limits.membership->check(kOp);

  run_as(kOp, [&] {
    // Counts passed barriers, so that a rank that tries again after a timeout is in the same barrier.
    const int64_t number = state.passed_barriers.load();
    const auto key = [&](int64_t number, int rank) {
      return concat("barrier/", state.id(), '/', state.members()[0], '/', number, '/', rank);
    };
    world.store->set(key(number, world.rank), "");
    std::vector<int> missing = state.members();
    std::erase(missing, world.rank);
    const CallId call{{CallSeries::Kind::kBarrier, state.id(), state.members()[0]}, uint64_t(number)};
    const WaitScope in_call(
        *world.membership,
        Wait::for_call(kOp, concat("group_barrier of group '", state.name(), "'"), call, state.members()));
    std::optional<WaitScope> waiting;
    while (!missing.empty()) {
      waiting.emplace(*world.membership, Wait::for_ranks([missing] { return missing; }));
      std::vector<std::string> keys;
      for (int rank : missing) keys.push_back(key(number, rank));
      const bool all = wait_for(*world.store, keys, std::min(limits.deadline.remaining(), kPoll));
      const auto has_arrived = [&](int rank) { return all || world.store->check({key(number, rank)}); };
      std::erase_if(missing, has_arrived);
      for (int rank : missing) check_left(kOp, limits, rank, [&] { return !has_arrived(rank); });
      if (!missing.empty() && limits.deadline.passed())
        internal::throw_wait(kOp, internal::WaitResult::kTimeout, limits, missing);
      world.membership->check_for_deadlock();
    }
    state.passed_barriers.store(number + 1);
    // The last member to pass deletes the barrier's keys: no other looks at them any more.
    const std::string passed = key(number, -1);
    if (world.store->add(passed, 1) < int64_t(state.members().size())) return;
    for (int rank : state.members()) world.store->delete_key(key(number, rank));
    world.store->delete_key(passed);
  });
}

}  // namespace gradus::dist
