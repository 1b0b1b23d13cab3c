#include "gradus/distributed/transport/internal/gloo_link.h"

#include <cstring>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/health/still_threads.h"
#include "gradus/distributed/transport/gloo_mesh.h"

namespace gradus::dist::internal {
namespace {

constexpr uint64_t kFrameTag = 0;  // payloads use their id
constexpr int kFrameSlots = 8;
constexpr uint64_t kAckInterval = 16;  // frames
constexpr size_t kProbesLimit = 64;    // frames under way
constexpr std::chrono::hours kUnlimited(24 * 365);

}  // namespace

GlooLink::GlooLink(gloo::transport::Context& outgoing, gloo::transport::Context& incoming, int peer,
                   Listener& listener)
    : incoming_(incoming), peer_(peer), listener_(listener) {
  for (int i = 0; i < kFrameSlots; ++i) frame_slots_.push_back(make_frame_slot(outgoing));
  for (FrameSlot& slot : frame_slots_) post(slot);
}

GlooLink::~GlooLink() {
  if (thread_.joinable()) thread_.join();
}

void GlooLink::start() {
  thread_ = std::thread([this] {
    name_own_thread("link");
    run();
  });
}

GlooLink::FrameSlot GlooLink::make_frame_slot(gloo::transport::Context& context) {
  FrameSlot slot{std::make_unique<std::byte[]>(kFrameBytes), nullptr};
  slot.buffer = context.createUnboundBuffer(slot.bytes.get(), kFrameBytes);
  return slot;
}

void GlooLink::post(FrameSlot& slot) {
  slot.posted = false;
  try {
    slot.buffer->recv(peer_, kFrameTag);
    slot.posted = true;
  } catch (const std::exception&) {
    // The connection is closed. Frames in the other slots still count. The thread notices when it
    // reaches this slot.
  }
}

// Calls gloo under the lock. If gloo says that the connection is closed, only notes it: the thread
// finds out by itself.
template <class Action> void GlooLink::with_gloo(Action&& action) {
  std::lock_guard lock(mutex_);
  if (stopped_ || closed_) return;
  try {
    action();
  } catch (const std::exception& e) {
    closed_ = true;
    trouble_ = gloo_text(e);
  }
}

void GlooLink::send(Frame frame, std::span<const std::byte> header, std::span<const std::byte> payload) {
  with_gloo([&] { send_locked(frame, header, payload); });
}

void GlooLink::send_locked(Frame frame, std::span<const std::byte> header,
                           std::span<const std::byte> payload) {
  frame.header_bytes = uint16_t(header.size());
  frame.received = acked_ = received_;
  FrameSlot slot;
  if (spare_.empty()) {
    slot = make_frame_slot(incoming_);
  } else {
    slot = std::move(spare_.back());
    spare_.pop_back();
  }
  std::byte* const bytes = slot.bytes.get();
  std::memcpy(bytes, &frame, sizeof frame);
  if (!header.empty()) std::memcpy(bytes + sizeof frame, header.data(), header.size());
  if (!payload.empty()) std::memcpy(bytes + sizeof frame + header.size(), payload.data(), payload.size());
  under_way_.push_back(std::move(slot));
  ++sent_;
  under_way_.back().buffer->send(peer_, kFrameTag, 0, sizeof frame + header.size() + payload.size());
}

void GlooLink::send_payload(uint64_t id, const GlooBuffer& buffer) {
  with_gloo([&] { buffer->send(peer_, id); });
}

void GlooLink::receive_payload(uint64_t id, const GlooBuffer& buffer) {
  with_gloo([&] {
    buffer->recv(peer_, id);
    payloads_.push_back({id, buffer});
    if (awaited_) awaited_->abortWaitRecv();
  });
}

// Note [Probes]
// gloo tells a waiting thread that the connection is closed, except when half of the awaited message has
// come. So a rank that waits long for a peer sends it a frame now and then. The send fails if the connection
// is closed. Then the link's thread is woken, and takes what has come completely. If it has to be woken a
// second time, it waits for data that will never come, and the link is broken.
void GlooLink::probe() {
  with_gloo([&] {
    if (under_way_.size() < kProbesLimit)
      send_locked({.kind = Frame::Kind::kCount, .wants_ack = true}, {}, {});
  });
  std::lock_guard lock(mutex_);
  if (closed_ && awaited_) awaited_->abortWaitRecv();
}

void GlooLink::stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  if (awaited_) awaited_->abortWaitRecv();
}

uint64_t GlooLink::sent() const {
  std::lock_guard lock(mutex_);
  return sent_;
}

bool GlooLink::all_arrived(uint64_t sent) const {
  std::lock_guard lock(mutex_);
  return arrived_ >= sent;
}

std::string GlooLink::trouble() const {
  std::lock_guard lock(mutex_);
  return trouble_;
}

void GlooLink::run() {
  try {
    for (size_t next = 0;;) {
      std::pair<uint64_t, GlooBuffer> payload;
      {
        std::lock_guard lock(mutex_);
        if (!payloads_.empty()) payload = payloads_.front();
      }
      // A payload that has a destination is on its way, whatever the peer does. So the thread waits
      // for payloads first.
      FrameSlot& slot = frame_slots_[next];
      if (!payload.second && !slot.posted) throw ConnectionError("gloo", peer_, "the connection is closed");
      const Wakeup wakeup = wait_for(payload.second ? payload.second : slot.buffer);
      if (wakeup == Wakeup::kStopped) return;
      if (wakeup == Wakeup::kWoken) continue;
      if (payload.second) {
        {
          std::lock_guard lock(mutex_);
          payloads_.pop_front();
        }
        listener_.on_payload(peer_, payload.first);
      } else {
        receive_frame(slot);
        post(slot);
        next = (next + 1) % frame_slots_.size();
      }
    }
  } catch (const std::exception& e) {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
      if (trouble_.empty()) trouble_ = gloo_text(e);
    }
    broken_at_.store(now(), std::memory_order_release);
    listener_.on_broken(peer_);
  }
}

GlooLink::Wakeup GlooLink::wait_for(const GlooBuffer& buffer) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return Wakeup::kStopped;
    // A payload that has got a destination meanwhile comes first.
    if (!payloads_.empty() && payloads_.front().second != buffer) return Wakeup::kWoken;
    awaited_ = buffer;
  }
  const bool received = buffer->waitRecv(nullptr, kUnlimited);
  std::lock_guard lock(mutex_);
  awaited_ = nullptr;
  if (stopped_) return Wakeup::kStopped;
  if (received) return Wakeup::kData;
  if (closed_ && ++wakes_since_closed_ > 1) throw ConnectionError("gloo", peer_, trouble_);
  return Wakeup::kWoken;
}

void GlooLink::receive_frame(const FrameSlot& slot) {
  Frame frame;
  std::memcpy(&frame, slot.bytes.get(), sizeof frame);
  const bool has_payload = frame.kind == Frame::Kind::kMessage;
  if (frame.magic != Frame{}.magic || frame.kind > Frame::Kind::kCount ||
      frame.header_bytes > kMaxHeaderBytes || (has_payload && frame.payload_bytes > kInlineBytes))
    throw ConnectionError("gloo", peer_, "rank ", peer_, " sent what is no frame");
  {
    std::lock_guard lock(mutex_);
    ++received_;
    if (frame.received > sent_)
      throw ConnectionError("gloo", peer_, "rank ", peer_, " counts frames wrongly");
    for (; arrived_ < frame.received; ++arrived_) {
      if (spare_.size() < size_t(kFrameSlots)) spare_.push_back(std::move(under_way_.front()));
      under_way_.pop_front();
    }
  }
  const std::byte* const header = slot.bytes.get() + sizeof frame;
  listener_.on_frame(peer_, frame, {header, frame.header_bytes},
                     {header + frame.header_bytes, has_payload ? frame.payload_bytes : 0});
  with_gloo([&] {
    if (frame.wants_ack || received_ - acked_ >= kAckInterval)
      send_locked({.kind = Frame::Kind::kCount}, {}, {});
  });
}

}  // namespace gradus::dist::internal
