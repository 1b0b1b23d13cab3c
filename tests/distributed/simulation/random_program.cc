#include "gradus/tests/distributed/simulation/random_program.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <stdexcept>

#include "gradus/distributed/group/client.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tests/distributed/group/collective_cases.h"

namespace gradus::dist {
namespace {

// Random numbers that depend only on seed, stream and count. Streams: a step, 997 to 999, 1000 + rank.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  uint64_t below(uint64_t n) { return philox(seed_, stream_, count_++)[0] % n; }
  bool chance(double p) { return double(below(1 << 20)) < p * (1 << 20); }

 private:
  uint64_t seed_, stream_, count_ = 0;
};

using Values = std::vector<double>;

Tensor to_tensor(const Values& values, DType dtype) {
  Tensor x = empty({int64_t(values.size())}, {.dtype = dtype});
  dispatch_all(dtype, [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) x.ptr<T>()[i] = T(float(values[i]));
  });
  return x;
}

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

void expect_values(const Tensor& x, const Values& want, const std::string& what) {
  const Values got = x.to_vector<double>();
  expect(got.size() == want.size(), concat(what, ": ", got.size(), " values, not ", want.size()));
  for (size_t i = 0; i < got.size(); ++i)
    expect(std::abs(got[i] - want[i]) <= 1e-6 * std::max(1.0, std::abs(want[i])),
           concat(what, ": value ", i, " is ", got[i], ", not ", want[i]));
}

// One rank's run.
class Run {
 public:
  Run(uint64_t seed, int rank) : seed_(seed), own_(seed, 1000 + rank), groups_{world()} {}

  // Runs operation `step`, which is the same on all ranks. When a rank waits for results differs.
  void operation(int step) {
    step_ = step;
    draws_ = Draws(seed_, step);
    group_ = groups_[draws_.chance(0.5) ? 0 : draws_.below(groups_.size())];
    constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kI32, DType::kI64};
    dtype_ = kDTypes[draws_.below(4)];
    // 3 % are too long for one message.
    size_ = draws_.chance(0.03) ? 20'000 + draws_.below(30'000) : draws_.below(40);
    root_ = int(draws_.below(group_.size()));
    if (draws_.chance(0.05)) return make_group();
    if (!group_.is_member()) return;
    me_ = group_.rank();
    run_one();
    if (own_.chance(0.3)) finish();
  }

  // Messages arrive although their sender does not wait and returns.
  void say_goodbye() {
    step_ = 99;
    group_ = groups_[0];
    me_ = group_.rank();
    size_ = Draws(seed_, 997).chance(0.1) ? 100'000 : 10;  // more than a ring holds, or little
    dtype_ = DType::kI32;
    const int previous = (me_ + size() - 1) % size();
    isend(input(values(me_, size_)), {.dst = (me_ + 1) % size()});
    const Tensor out = output(size_);
    recv(out, {.src = previous});
    expect_values(out, values(previous, size_), what("the last recv"));
  }

  void finish() {
    while (!pending_.empty()) {
      pending_.front().work.wait();
      if (pending_.front().check) pending_.front().check();
      pending_.pop_front();
    }
  }

 private:
  struct Pending {
    Work work;
    std::function<void()> check;
  };

  int size() const { return group_.size(); }
  int root_rank() const { return group_.ranks()[root_]; }
  bool is_root() const { return me_ == root_; }
  std::string what(const char* op) const {
    return concat(op, " in step ", step_, " of group '", group_.name(), "'");
  }

  // Returns the input of group rank `index` in this step.
  Values values(int index, size_t size) const {
    Values values(size);
    for (size_t i = 0; i < size; ++i)
      values[i] = double(philox(seed_, uint64_t(step_) << 8 | index, i)[0] % 17) - 8;
    return values;
  }
  Tensor input(const Values& values) const { return to_tensor(values, dtype_); }
  Tensor output(size_t size) const { return to_tensor(Values(size, -99), dtype_); }
  size_t part_size(int index) const { return (size_ + 3 * index) % 50; }

  void add(Work work, std::function<void()> check) {
    if (work.is_completed()) {
      work.wait();
      if (check) check();
    } else {
      pending_.push_back({std::move(work), std::move(check)});
    }
  }
  void expect_later(Work work, const char* op, const Tensor& x, Values want) {
    add(std::move(work), [x, want = std::move(want), what = what(op)] { expect_values(x, want, what); });
  }

  void run_one() {
    constexpr void (Run::*kOperations[])() = {
        &Run::pass_on, &Run::collect,  &Run::swap_pair,     &Run::pass_object,
        &Run::tell,    &Run::queue_up, &Run::store_barrier, &Run::count,
    };
    if (draws_.chance(0.6)) return collective();
    (this->*kOperations[draws_.below(std::size(kOperations))])();
  }

  // Ops are equally frequent, regardless of their numbers of cases.
  void collective() {
    std::map<std::string, std::vector<CollectiveCase>> by_op;
    for (CollectiveCase& one :
         collective_cases_of(group_, {.dtypes = {dtype_, DType::kF32}, .large = 20'000, .shift = step_}))
      by_op[one.op].push_back(std::move(one));
    const auto& [op, cases] = *std::next(by_op.begin(), int64_t(draws_.below(by_op.size())));
    const CollectiveCase& one = cases[draws_.below(cases.size())];
    StartedCase started = one.start(own_.chance(0.4));
    add(started.work, [check = started.check, what = what((op + ' ' + one.name).c_str())] {
      const std::string wrong = check();
      expect(wrong.empty(), what + ": " + wrong);
    });
  }

  // ---- messages

  // Everyone sends to the next member and receives from the previous one.
  void pass_on() {
    const int next = (me_ + 1) % size(), previous = (me_ + size() - 1) % size();
    if (size() == 1) return;
    const uint32_t tag = uint32_t(draws_.below(3));
    const Tensor x = input(values(me_, size_)), out = output(size_);
    const RecvOptions from{.src = group_.ranks()[previous], .tag = tag, .group = group_};
    const SendOptions to{.dst = group_.ranks()[next], .tag = tag, .group = group_};
    if (own_.chance(0.5)) {
      expect_later(irecv(out, from), "irecv", out, values(previous, size_));
      add(isend(x, to), {});
    } else {
      const Work sent = isend(x, to);
      expect(recv(out, from) == group_.ranks()[previous], what("the source of recv"));
      expect_values(out, values(previous, size_), what("recv"));
      if (own_.chance(0.7)) add(sent, {});  // else nobody waits for it
    }
  }
  // All others send to the root, which receives from any. The tag keeps the messages of other steps apart.
  void collect() {
    const uint32_t tag = 1000 + uint32_t(step_);
    if (!is_root()) return send(input(values(me_, size_)), {.dst = root_rank(), .tag = tag, .group = group_});
    std::vector<int> sources;
    for (int i = 1; i < size(); ++i) {
      const Tensor out = output(size_);
      sources.push_back(recv(out, {.tag = tag, .group = group_}));
      const auto& ranks = group_.ranks();
      expect_values(out, values(int(std::ranges::find(ranks, sources.back()) - ranks.begin()), size_),
                    what("recv of any"));
    }
    sources.push_back(root_rank());
    std::ranges::sort(sources);
    std::vector<int> ranks = group_.ranks();
    std::ranges::sort(ranks);
    expect(sources == ranks, what("the sources of recv of any"));
  }
  // A pair of members sends to each other at once.
  void swap_pair() {
    if (size() == 1) return;
    const int a = root_, b = (root_ + 1) % size();
    if (me_ != a && me_ != b) return;
    const int other = me_ == a ? b : a, peer = group_.ranks()[other];
    const Tensor x = input(values(me_, size_)), out = output(size_);
    using Kind = P2POp::Kind;
    const auto works =
        batch_isend_irecv({{.kind = Kind::kSend, .tensor = x, .peer = peer, .tag = 7, .group = group_},
                           {.kind = Kind::kRecv, .tensor = out, .peer = peer, .tag = 7, .group = group_}});
    for (size_t i = 0; i + 1 < works.size(); ++i) add(works[i], {});
    for (const Work& work : works) work.wait();
    expect_values(out, values(other, size_), what("batch_isend_irecv"));
  }
  void pass_object() {
    if (size() == 1) return;
    const int to = (root_ + 1) % size();
    const std::string object(part_size(3), 'o');
    if (is_root()) send_object(object, {.dst = group_.ranks()[to], .tag = 9, .group = group_});
    if (me_ == to)
      expect(recv_object({.src = root_rank(), .tag = 9, .group = group_}) == object, what("recv_object"));
  }

  // ---- the store

  void tell() {
    const std::string key = concat("tell ", step_), value = std::to_string(draws_.below(1000));
    if (is_root()) get_client().user_set(key, value);
    expect(get_client().user_get(key) == value, what("user_get"));
  }
  void queue_up() {
    const std::string key = concat("queue ", step_);
    if (!is_root()) return get_client().user_push(key, std::to_string(me_));
    std::vector<int> got, want;
    for (int r = 0; r < size(); ++r)
      if (r != root_) {
        got.push_back(std::stoi(get_client().user_pop(key)));
        want.push_back(r);
      }
    std::ranges::sort(got);
    expect(got == want, what("user_pop"));
  }
  void store_barrier() { group_barrier(group_); }
  void count() { get_client().store().add("count", 1); }

  // ---- groups: collective over the world or over a group

  void make_group() {
    const uint64_t kind = draws_.below(3);
    if (groups_.size() > 3) return;
    if (kind == 0) {
      std::vector<int> ranks;
      for (int r = 0; r < get_world_size(); ++r)
        if (draws_.chance(0.6)) ranks.push_back(r);
      if (ranks.empty()) ranks.push_back(0);
      std::ranges::reverse(ranks);
      groups_.push_back(new_group(ranks));
    } else if (kind == 1) {
      groups_.push_back(groups_[0].split(get_rank() % 2, -get_rank()));
    } else {
      groups_.push_back(groups_[0].duplicate());
    }
  }

  const uint64_t seed_;
  Draws own_;  // differs from rank to rank
  std::vector<Group> groups_;
  std::deque<Pending> pending_;

  // Of the step:
  int step_ = 0;
  Draws draws_{0, 0};
  Group group_;
  DType dtype_ = DType::kF32;
  size_t size_ = 0;
  int root_ = 0, me_ = 0;
};

// What a rank threw.
struct Ending {
  enum class Kind { kPeer, kTimeout, kMismatch, kOther } kind = Kind::kOther;
  int rank = -1;
  std::string text;
};
Ending read_ending(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerError& e) {
    return {Ending::Kind::kPeer, e.rank(), e.what()};
  } catch (const TimeoutError& e) {
    return {Ending::Kind::kTimeout, e.rank(), e.what()};
  } catch (const MismatchError& e) {
    return {Ending::Kind::kMismatch, e.rank(), e.what()};
  } catch (const std::exception& e) {
    return {Ending::Kind::kOther, -1, e.what()};
  } catch (...) {
    return {Ending::Kind::kOther, -1, "no std::exception"};
  }
}

}  // namespace

RandomProgram::RandomProgram(uint64_t seed, int world_size) : seed_(seed), came_to_end_(world_size) {
  Draws draws(seed, 999);
  steps_ = 3 + int(draws.below(8));
  if (!draws.chance(0.2)) return;
  misdeed_ = Misdeed(1 + draws.below(3));
  misdeed_rank_ = int(draws.below(world_size));
  misdeed_step_ = int(draws.below(steps_));
}

void RandomProgram::run() {
  const int me = get_rank();
  Run run(seed_, me);
  for (int step = 0; step < steps_; ++step) {
    if (me == misdeed_rank_ && step == misdeed_step_) {
      if (misdeed_ == Misdeed::kLeaves) return run.finish();
      if (misdeed_ == Misdeed::kThrows) throw std::runtime_error("on purpose");
      barrier();
    }
    run.operation(step);
  }
  run.finish();
  came_to_end_[me] = true;
  barrier();
  run.say_goodbye();
}

std::string RandomProgram::judge(const SimulationReport& report) const {
  if (report.hung) return "it hung\n";
  std::string wrong, errors;
  bool any_returned = false, all_came = true;
  for (int r = 0; r < int(report.errors.size()); ++r) {
    all_came &= came_to_end_[r];
    if (r == report.killed) continue;
    if (!report.errors[r]) {
      any_returned |= r != misdeed_rank_ || misdeed_ != Misdeed::kLeaves;
      continue;
    }
    const Ending ending = read_ending(report.errors[r]);
    errors += concat("rank ", r, " threw: ", ending.text, '\n');
    const bool peer = ending.kind == Ending::Kind::kPeer;
    const bool own = misdeed_ == Misdeed::kThrows && r == misdeed_rank_ && ending.text == "on purpose";
    const bool by_death = peer && ending.rank == report.killed;
    const bool by_misdeed = peer && ending.rank == misdeed_rank_ && misdeed_rank_ >= 0;
    // A rank whose wait times out fails first; the others get a PeerError that names it.
    const bool silence = report.dropped || misdeed_ == Misdeed::kLeaves || misdeed_ == Misdeed::kCallsMore;
    const bool by_silence = silence && (peer || ending.kind == Ending::Kind::kTimeout);
    const bool by_difference = misdeed_ == Misdeed::kCallsMore && ending.kind == Ending::Kind::kMismatch;
    if (!own && !by_death && !by_misdeed && !by_silence && !by_difference)
      wrong += concat("what rank ", r, " threw does not fit\n");
  }
  if (any_returned && !all_came)
    wrong += "a rank returned from the last barrier, to which not all had come\n";
  return wrong.empty() ? "" : wrong + errors;
}

Scenario make_scenario(uint64_t seed) {
  Draws draws(seed, 998);
  Scenario scenario{.world_size = 2 + int(draws.below(3))};
  SimulationOptions& options = scenario.options;
  options.seed = seed;
  switch (draws.below(4)) {
    case 0:
      options.messages_only = true;
      break;
    case 1:
      options.hosts = 2;
      break;
    default:
      break;
  }
  switch (draws.below(4)) {
    case 0:
      options.kill = 1;
      break;
    case 1:
      options.drop = 1;
      break;
    case 2:
      options.kill = options.drop = 0.3;
      break;
    default:
      break;
  }
  if (draws.chance(0.3)) {
    options.max_delay = Milliseconds(2000);
    options.timeout = Milliseconds(120'000);
  }
  return scenario;
}

std::string try_seed(uint64_t seed, SimulationReport* report) {
  const Scenario scenario = make_scenario(seed);
  RandomProgram program(seed, scenario.world_size);
  SimulationReport result = simulate(scenario.world_size, scenario.options, [&] { program.run(); });
  const std::string wrong = program.judge(result);
  if (report) *report = std::move(result);
  return wrong;
}

std::string describe(const SimulationReport& report) {
  std::string text = concat("seed ", report.seed, ", killed ", report.killed,
                            ", a message lost: ", report.dropped, ", hung: ", report.hung, '\n');
  for (const std::string& line : report.trace) text += line + '\n';
  return text;
}

}  // namespace gradus::dist
