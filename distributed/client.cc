#include "gradus/distributed/client.h"

#include <charconv>

#include "gradus/distributed/group_state.h"
#include "gradus/distributed/waiting.h"

namespace gradus::dist {
namespace {

// Note [Versions]
// A key's value is kept as "version writer\nvalue". A mark per version lets readers wait for one; only the
// last marks are kept. A reader that misses a mark which came and went looks at the value again after a
// while.
constexpr int64_t kMarks = 16;
constexpr Milliseconds kLookAgain{500};

std::string value_key(const std::string& key) { return "user/value/" + key; }
std::string mark_key(const std::string& key, int64_t version) {
  return concat("user/mark/", version, '/', key);
}
std::string front_key(const std::string& key) { return "user/front/" + key; }
std::string back_key(const std::string& key) { return "user/back/" + key; }
std::string item_key(const std::string& key, int64_t number) {
  return concat("user/item/", number, '/', key);
}

// What tells apart two ranks that write the same at once.
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

// Waits for `there`, which waits itself for the time it is given. Errors: TimeoutError with `text`.
template <class There>
void wait_until(const char* op, const Deadline& deadline, const std::string& text, There&& there) {
  for (;;) {
    if (there(std::min(deadline.left(), kLookAgain))) return;
    if (deadline.passed()) throw TimeoutError(op, -1, text, " within ", deadline.timeout().count(), " ms");
  }
}

// Whether the keys came in time.
bool wait_for(Store& store, const std::vector<std::string>& keys, Milliseconds limit) {
  try {
    store.wait(keys, limit);
    return true;
  } catch (const TimeoutError&) {
    const internal::World* world = internal::World::current();
    if (world && world->membership->failed()) throw;
    return false;
  }
}

// Runs f; what the store says of the job's failure is told under the caller's name.
template <class F>
auto run_as(const char* op, F&& f) {
  try {
    return f();
  } catch (const DistributedError&) {
    if (const internal::World* world = internal::World::current()) world->membership->check(op);
    throw;
  }
}

}  // namespace

int64_t Client::user_set(const std::string& key, const std::string& value) {
  return run_as("user_set", [&] {
    const std::string writer = next_writer();
    std::string held;
    for (int64_t version = 1;; version = to_number(held) + 1) {
      const std::string mine = concat(version, ' ', writer, '\n', value);
      const std::string now = store_->compare_set(value_key(key), held, mine);
      if (now == mine) {
        store_->set(mark_key(key, version), "");
        if (version > kMarks) store_->delete_key(mark_key(key, version - kMarks));
        return version;
      }
      held = now;
    }
  });
}

std::string Client::user_get(const std::string& key, int64_t version, std::optional<Milliseconds> timeout) {
  return run_as("user_get", [&] {
    const Deadline deadline = Deadline::after(timeout.value_or(store_->default_timeout()));
    std::string held;
    const auto there = [&](Milliseconds limit) {
      if (store_->check({value_key(key)})) held = store_->get(value_key(key), limit);
      if (!held.empty() && to_number(held) >= version) return true;
      wait_for(*store_, {mark_key(key, version)}, limit);
      return false;
    };
    wait_until("user_get", deadline, concat("nobody set '", key, "' (version ", version, ")"), there);
    return held.substr(held.find('\n') + 1);
  });
}

void Client::user_push(const std::string& key, const std::string& value) {
  return run_as("user_push", [&] { store_->set(item_key(key, store_->add(back_key(key), 1)), value); });
}

std::string Client::user_pop(const std::string& key, std::optional<Milliseconds> timeout) {
  return run_as("user_pop", [&] {
    const Deadline deadline = Deadline::after(timeout.value_or(store_->default_timeout()));
    const std::string writer = next_writer();
    int64_t taken = 0;
    // Only what is there is taken, so that who gives up leaves no gap.
    const auto there = [&](Milliseconds limit) {
      const std::string front = store_->compare_set(front_key(key), "", "");
      const int64_t next = to_number(front) + 1;
      if (!wait_for(*store_, {item_key(key, next)}, limit)) return false;
      const std::string mine = concat(next, ' ', writer);
      if (store_->compare_set(front_key(key), front, mine) != mine) return false;  // another one was faster
      taken = next;
      return true;
    };
    wait_until("user_pop", deadline, concat("nobody pushed to '", key, "'"), there);
    return store_->pop(item_key(key, taken));
  });
}

Client get_client() {
  const internal::World* world = internal::World::current();
  if (!world) throw StateError("get_client", "call init_process_group first");
  return Client(world->store);
}

void group_barrier(const Group& group, std::optional<Milliseconds> timeout) {
  constexpr const char* kOp = "group_barrier";
  internal::GroupState& state = group.state();
  state.check_member(kOp);
  if (state.size() == 1) return;
  internal::World& world = *state.world();
  const internal::Watch watch = state.watch(timeout);
  watch.membership->check(kOp);

  run_as(kOp, [&] {
    // Counted when passed, so that who tries again after a timeout is in the same barrier.
    const int64_t number = state.passed_barriers.load();
    const auto key = [&](int64_t number, int rank) {
      return concat("barrier/", state.id(), '/', state.members()[0], '/', number, '/', rank);
    };
    world.store->set(key(number, world.rank), "");
    std::vector<int> missing = state.members();
    world.membership->set_doing(concat("in group_barrier of group '", state.name(), "'"));
    while (!missing.empty()) {
      std::vector<std::string> keys;
      for (int rank : missing) keys.push_back(key(number, rank));
      const bool all = wait_for(*world.store, keys, std::min(watch.deadline.left(), kLookAgain));
      const auto here = [&](int rank) { return all || world.store->check({key(number, rank)}); };
      std::erase_if(missing, here);
      for (int rank : missing) check_left(kOp, watch, rank, [&] { return !here(rank); });
      if (!missing.empty() && watch.deadline.passed())
        throw TimeoutError(kOp, missing[0], missing.size() == 1 ? "rank " : "ranks ",
                           internal::to_text(missing), " did not come to group '", state.name(), "' within ",
                           watch.deadline.timeout().count(), " ms");
    }
    world.membership->set_doing(
        concat("outside of any collective, after group_barrier of group '", state.name(), "'"));
    // Everyone is here, so everyone has passed the one before.
    state.passed_barriers.store(number + 1);
    if (number > 0) world.store->delete_key(key(number - 1, world.rank));
  });
}

}  // namespace gradus::dist
