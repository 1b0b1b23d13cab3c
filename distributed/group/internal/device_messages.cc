// The exchange of offers, answers and conclusions over the Transport, whose messages these are, and the calls of the
// library. Offers, answers and conclusions come from other processes and are checked before use.
#include "gradus/distributed/group/internal/device_messages.h"

#include <algorithm>
#include <cstring>

#include "gradus/distributed/group/agreement.h"
#include "gradus/distributed/group/world.h"
#include "gradus/distributed/health/waiting.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/warning.h"

namespace gradus::dist::internal {
namespace {

constexpr uint64_t kMaxNumber = uint64_t(1) << 62;  // of the IssueOrder

// Identifies a message in the IssueOrder; equal on both ranks.
CallSeries series_of(const DeviceMessage& m, int rank) {
  return {CallSeries::Kind::kMessage, m.offer.id, m.receives ? m.peer : rank};
}

template <class T> std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

void set(std::atomic<bool>& flag, Futex& changed) {
  flag.store(true, std::memory_order_release);
  changed.notify();
}

}  // namespace

bool DeviceMessage::is_abandoned(const WaitLimits& limits) {
  const auto is_decided = [&] { return is_answered || limits.membership->has_left(peer); };
  return changed.wait(limits, is_decided, op) == WaitResult::kReady && !is_answered;
}

bool DeviceMessage::has_ended() {
  if (!is_concluded.load(std::memory_order_acquire) || !conclusion->done()) return false;
  return !by_library || is_queued.load(std::memory_order_acquire);
}

void DeviceMessage::wait(Transport& transport, const WaitLimits& limits) {
  const auto wait_for = [&](const std::atomic<bool>& flag) {
    const auto is_set = [&] { return flag.load(std::memory_order_acquire); };
    const WaitResult result = changed.wait(limits, is_set, op);
    if (result != WaitResult::kReady) throw_wait(op, result, limits, {peer});
  };
  wait_for(is_concluded);
  transport.wait(*conclusion, limits, op);
  if (by_library) wait_for(is_queued);
}

DeviceMessages::DeviceMessages(World& world)
    : world_(world), membership_(world.membership), transport_(world.transport) {
  const CallSeries series{CallSeries::Kind::kMessage};  // of no ranks
  threads_.reset(new Threads{{world.posted, series}, {world.posted, series}, {world.posted, series}});
}

void DeviceMessages::stop() {
  std::unique_ptr<Threads> threads;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    threads = std::move(threads_);
  }
  world_.issue_order.changed().notify();
  threads = nullptr;
  std::map<CallSeries, Open> open;
  {
    const std::lock_guard lock(mutex_);
    open.swap(open_);
  }
  retire();
}

void DeviceMessages::retire() {
  std::map<GpuPair, Connection> connections;
  {
    const std::lock_guard lock(mutex_);
    connections.swap(connections_);
  }
  for (auto& [pair, connection] : connections)
    if (connection.collectives) world_.device_calls().retire(std::move(connection.collectives));
}

std::string DeviceMessages::endpoint(const char* op, Device device) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = endpoints_.find(device.index); found != endpoints_.end()) return found->second;
  }
  std::string text;
  if (DeviceLibrary* const library = find_device_library()) {
    try {
      text = concat(library->version(op), '\n', library->gpu_id(device.index));
      text.resize(text.size() > sizeof DeviceOffer::endpoint ? 0 : sizeof DeviceOffer::endpoint);
    } catch (const Error& error) {
      warn_once(concat("messages between GPUs go through host memory: ", error.what()));
    }
  }
  const std::lock_guard lock(mutex_);
  return endpoints_[device.index] = text;
}

bool DeviceMessages::connects(const DeviceOffer& offer, Device device) {
  const std::string remote(offer.endpoint.data(), offer.endpoint.size());
  const std::lock_guard lock(mutex_);
  const std::string& local = endpoints_[device.index];
  const size_t version = local.find('\n');
  return !local.empty() && local != remote && local.substr(0, version) == remote.substr(0, remote.find('\n'));
}

// Runs work() on a thread. An error ends the job: the message's other rank waits.
void DeviceMessages::post(CallQueue Threads::*thread, const char* op, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (is_stopped_) return;
  ((*threads_).*thread).post([this, op, work = std::move(work)] {
    if (is_stopped_ || membership_->failed()) return;
    try {
      work();
    } catch (const RankKilled&) {
      throw;
    } catch (const MismatchError& error) {
      membership_->report({Failure::Kind::kMismatch, error.rank(), text_of(error)});
    } catch (...) {
      report_backward_failure(&world_, std::current_exception(), concat("failed in ", op).c_str());
    }
  });
}

void DeviceMessages::report(const char* op, const MismatchError& error) {
  post(&Threads::answers, op, [error] { throw error; });
}

// ---- the sender

Ref<Request> DeviceMessages::send(const std::shared_ptr<DeviceMessage>& m, Tag tag,
                                  std::span<const std::byte> header) {
  m->offer.id = ++last_id_;
  m->offer.device = m->device.index;
  const std::string end = endpoint(m->op, m->device);
  std::ranges::copy(end, m->offer.endpoint.begin());
  std::vector<std::byte> head(header.begin(), header.end());
  head.insert(head.end(), bytes_of(m->offer).begin(), bytes_of(m->offer).end());

  const auto on_answer = [all = weak_from_this(), m](int source, std::span<const std::byte> bytes,
                                                     size_t payload) -> void* {
    const auto self = all.lock();
    if (!self) return nullptr;
    Answer answer;
    if (bytes.size() == sizeof answer) std::memcpy(&answer, bytes.data(), sizeof answer);
    if (bytes.size() != sizeof answer || payload != 0 || answer.proposed >= kMaxNumber)
      self->throw_malformed(m->op, source);
    set(m->is_answered, m->changed);
    self->post(answer.proposed ? &Threads::answers : &Threads::copies, m->op, [self = self.get(), m, answer] {
      answer.proposed ? self->conclude(m, answer) : self->send_by_host(*m);
    });
    return nullptr;
  };
  transport_->progress_in_background();
  Ref<Request> answer = transport_->receive(m->peer, {m->group, Channel::kAnswer, m->offer.id}, on_answer);
  m->sent = transport_->send(m->peer, tag, head, {});
  return answer;
}

void DeviceMessages::conclude(const std::shared_ptr<DeviceMessage>& m, const Answer& answer) {
  const CallSeries series = series_of(*m, world_.rank);
  m->peer_device = answer.device;
  m->by_library = true;
  const std::string id = id_to_send(m->op, {m->peer, m->device.index, answer.device});
  const uint64_t number = std::max(propose(m, series), answer.proposed);
  agree(series, number, id);
  std::vector<std::byte> head(bytes_of(number).begin(), bytes_of(number).end());
  const auto id_bytes = std::as_bytes(std::span(id));
  head.insert(head.end(), id_bytes.begin(), id_bytes.end());
  m->conclusion = transport_->send(m->peer, {m->group, Channel::kConclusion, m->offer.id}, head, {});
  set(m->is_concluded, m->changed);
}

void DeviceMessages::send_by_host(DeviceMessage& m) {
  auto stream_of_device = copy_streams_.find(m.device.index);
  if (stream_of_device == copy_streams_.end())
    stream_of_device = copy_streams_.emplace(m.device.index, Stream::create(m.device)).first;
  const Stream& stream = stream_of_device->second;
  const StreamScope scope(stream);
  stream.wait(m.posted);
  const auto copy = std::make_shared<Tensor>(raw::to(m.tensor, kCPU));
  m.host_owner = copy;
  m.conclusion = transport_->send(m.peer, {m.group, Channel::kConclusion, m.offer.id}, {},
                                  {static_cast<const std::byte*>(copy->raw_ptr()), size_t(copy->nbytes())});
  set(m.is_concluded, m.changed);
}

// ---- the receiver

void DeviceMessages::answer(const std::shared_ptr<DeviceMessage>& m) {
  post(&Threads::answers, m->op, [this, m] { send_answer(m); });
}

void DeviceMessages::send_answer(const std::shared_ptr<DeviceMessage>& m) {
  const CallSeries series = series_of(*m, world_.rank);
  const uint64_t proposed = m->by_library ? propose(m, series) : 0;
  // Without the message: this thread may drop it before the conclusion arrives.
  const auto on_conclusion = [all = weak_from_this(), op = m->op, series, proposed, to = m->host,
                              expected = m->offer.bytes](int source, std::span<const std::byte> bytes,
                                                         size_t payload) -> void* {
    const auto self = all.lock();
    if (!self) return nullptr;
    uint64_t number = 0;
    const bool is_valid =
        proposed ? bytes.size() >= sizeof number && payload == 0 : bytes.empty() && payload == expected;
    if (is_valid && proposed) std::memcpy(&number, bytes.data(), sizeof number);
    if (!is_valid || number < proposed || number >= kMaxNumber) self->throw_malformed(op, source);
    if (!proposed) return to;
    const auto id = bytes.subspan(sizeof number);
    self->agree(series, number, std::string(reinterpret_cast<const char*>(id.data()), id.size()));
    return nullptr;
  };
  transport_->progress_in_background();
  m->conclusion = transport_->receive(m->peer, {m->group, Channel::kConclusion, m->offer.id}, on_conclusion);
  const Answer answer{proposed, m->device.index};
  m->sent = transport_->send(m->peer, {m->group, Channel::kAnswer, m->offer.id}, bytes_of(answer), {});
  set(m->is_concluded, m->changed);
}

// ---- both

uint64_t DeviceMessages::propose(const std::shared_ptr<DeviceMessage>& m, const CallSeries& series) {
  uint64_t proposed = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto [open, is_new] = open_.try_emplace(series, m, world_.issue_order);
    if (!is_new) throw MismatchError(m->op, m->peer, "rank ", m->peer, " sent two messages as one");
    proposed = open->second.turn.proposed();
  }
  post(&Threads::turns, m->op, [this, op = m->op, timeout = m->timeout] { queue_next(op, timeout); });
  return proposed;
}

void DeviceMessages::agree(const CallSeries& series, uint64_t number, std::string connection_id) {
  const std::lock_guard lock(mutex_);
  const auto open = open_.find(series);
  if (open == open_.end() || open->second.is_agreed) return;
  open->second.connection_id = std::move(connection_id);
  open->second.is_agreed = true;
  open->second.turn.agree(number, series);
}

// Queues one message, the next one in the order. Called once for each message.
void DeviceMessages::queue_next(const char* op, Milliseconds timeout) {
  auto next = open_.end();
  const auto has_next = [&] {
    const std::lock_guard lock(mutex_);
    next = std::ranges::find_if(
        open_, [](const auto& open) { return open.second.is_agreed && open.second.turn.is_next(); });
    return next != open_.end() || is_stopped_;
  };
  const WaitLimits limits{membership_.get(), Deadline::after(timeout)};
  const WaitResult result = world_.issue_order.changed().wait(limits, has_next, op);
  if (result != WaitResult::kReady) throw_wait(op, result, limits, {});
  if (is_stopped_) return;
  queue(next->second);
  decltype(open_)::node_type queued;  // destroyed without the lock: it may have requests of the transport
  const std::lock_guard lock(mutex_);
  queued = open_.extract(next);
}

void DeviceMessages::queue(const Open& open) {
  DeviceMessage& m = *open.message;
  const Call call{m.op, {membership_.get(), Deadline::after(m.timeout)}};
  const auto collectives = connection(call, {m.peer, m.device.index, m.peer_device}, open.connection_id);
  const Stream& stream = collectives->stream();
  const StreamScope scope(stream);
  if (!m.tensor) m.tensor = m.allocate();
  const int from = m.receives ? m.peer : world_.rank, to = m.receives ? world_.rank : m.peer;
  const auto watched = std::make_shared<DeviceCalls::Watched>(
      std::vector{collectives}, stream, call.watch.deadline, m.op, m.text,
      CallSeries{CallSeries::Kind::kMessage, uint32_t(to), from});
  world_.device_calls().watch(watched);
  stream.wait(m.posted);
  record_use(m.tensor, stream);
  std::array<ConstBlock, 2> in{};
  std::array<Block, 2> out{};
  const size_t peer = m.peer > world_.rank;
  if (m.receives)
    out[peer] = {m.tensor.raw_ptr(), m.offer.bytes};
  else
    in[peer] = {m.tensor.raw_ptr(), m.offer.bytes};
  collectives->exchange_blocks(call, in, out);
  m.done = Event::record(stream);
  watched->set_queued(m.done);
  set(m.is_queued, m.changed);
}

// The first message in the order connects, with the id that its sender sent. All of this rank's messages that may be the
// first one have the same id.
std::string DeviceMessages::id_to_send(const char* op, const GpuPair& pair) {
  {
    const std::lock_guard lock(mutex_);
    const Connection& connection = connections_[pair];
    if (connection.collectives || !connection.id.empty()) return connection.collectives ? "" : connection.id;
  }
  const std::string id = find_device_library()->new_id(op);
  const std::lock_guard lock(mutex_);
  return connections_[pair].id = id;
}

std::shared_ptr<DeviceCollectives> DeviceMessages::connection(const Call& call, const GpuPair& pair,
                                                              const std::string& id) {
  {
    const std::lock_guard lock(mutex_);
    if (connections_[pair].collectives) return connections_[pair].collectives;
  }
  const auto& [peer, device, peer_device] = pair;
  const Stream stream = world_.stream_of({DeviceType::kCUDA, int16_t(device)});
  if (id.empty()) throw MismatchError(call.op, peer, "rank ", peer, " sent no id of a connection");
  std::shared_ptr<DeviceCollectives> made =
      find_device_library()->connect(call, id, world_.rank > peer, 2, stream);
  const std::lock_guard lock(mutex_);
  connections_[pair] = {{}, made};
  return made;
}

void DeviceMessages::throw_malformed(const char* op, int source) {
  const MismatchError error(op, source, "rank ", source, " sent a malformed message");
  report(op, error);
  throw error;
}

}  // namespace gradus::dist::internal
