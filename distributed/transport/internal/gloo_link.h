// GlooLink: the two connections to one peer, as frames and payloads.
//
// Note [Frames and payloads]
// gloo sends only after the receiver has named a destination for the data. For short messages, called frames,
// destinations are named in advance. A frame carries a short payload itself, and announces a long one. An announced
// payload waits at its sender until the receiver knows where it goes. Then it moves from the sender's memory
// to the receiver's.
// gloo can wait for data, but it has no call that only looks whether data has come. A gloo wait that times
// out closes all connections. So every link has a thread that waits without a limit until data comes, the
// connection breaks, or another thread wakes it. Whoever waits for a message waits for that thread.
#pragma once

#include <gloo/transport/context.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/transport/transport.h"

namespace gradus::dist::internal {

inline constexpr size_t kInlineBytes = 16 << 10;  // a payload up to this size is part of its frame

struct Frame {
  enum class Kind : uint8_t {
    kHello,     // the first one; its header is the secret
    kMessage,   // header and payload
    kAnnounce,  // header; the payload waits
    kTaken,     // a payload has come
    kCount,     // no content but `received`
  };
  uint32_t magic = 0x47724672;
  Kind kind = Kind::kCount;
  bool wants_ack = false;  // the sender wants a frame in return
  uint16_t header_bytes = 0;
  uint64_t tag = 0;
  uint64_t payload_bytes = 0;
  uint64_t id = 0;        // of a payload, counted by its sender from 1
  uint64_t received = 0;  // how many frames its sender has received
};
inline constexpr size_t kFrameBytes = sizeof(Frame) + kMaxHeaderBytes + kInlineBytes;

using GlooBuffer = std::shared_ptr<gloo::transport::UnboundBuffer>;

class GlooLink {
 public:
  // The link's thread calls these functions, without a lock held.
  class Listener {
   public:
    // An exception from it breaks the link.
    virtual void on_frame(int peer, const Frame& frame, std::span<const std::byte> header,
                          std::span<const std::byte> payload) = 0;
    virtual void on_payload(int peer, uint64_t id) = 0;
    virtual void on_broken(int peer) = 0;

   protected:
    ~Listener() = default;
  };

  // Payloads go out on `outgoing` and come in on `incoming`; frames go the other way. Note [Two
  // connections] in gloo_mesh.h.
  GlooLink(gloo::transport::Context& outgoing, gloo::transport::Context& incoming, int peer,
           Listener& listener);
  ~GlooLink();  // call stop first
  // Starts the thread. From here on the listener is called.
  void start();

  // These never block for long and never throw. On a broken link they do nothing.
  void send(Frame frame, std::span<const std::byte> header = {}, std::span<const std::byte> payload = {});
  void send_payload(uint64_t id, const GlooBuffer& buffer);
  void receive_payload(uint64_t id, const GlooBuffer& buffer);

  // Tests after a while of silence whether the connection still works: Note [Probes] in gloo_link.cc.
  void probe();
  // Ends the thread's wait. The listener is not called any more.
  void stop();

  uint64_t next_payload_id() { return ++last_id_; }
  uint64_t sent() const;
  bool all_arrived(uint64_t sent) const;  // whether that many have arrived at the peer
  bool broken() const { return broken_at_.load(std::memory_order_acquire) != TimePoint::max(); }
  TimePoint broken_at() const { return broken_at_.load(std::memory_order_acquire); }
  std::string trouble() const;

 private:
  // A frame's memory, known to gloo.
  struct FrameSlot {
    std::unique_ptr<std::byte[]> bytes;
    GlooBuffer buffer;
    bool posted = false;
  };
  enum class Wakeup { kData, kWoken, kStopped };

  static FrameSlot make_frame_slot(gloo::transport::Context& context);
  void post(FrameSlot& slot);
  void run();
  Wakeup wait_for(const GlooBuffer& buffer);
  void receive_frame(const FrameSlot& slot);
  template <class Action> void with_gloo(Action&& action);
  void send_locked(Frame frame, std::span<const std::byte> header, std::span<const std::byte> payload);

  gloo::transport::Context& incoming_;
  const int peer_;
  Listener& listener_;
  std::atomic<uint64_t> last_id_{0};
  std::atomic<TimePoint> broken_at_{TimePoint::max()};
  std::vector<FrameSlot> frame_slots_;  // where frames are received, in turn

  mutable std::mutex mutex_;
  std::string trouble_;
  bool stopped_ = false;
  bool closed_ = false;  // gloo has said so; what has come can still be read
  int wakes_since_closed_ = 0;
  GlooBuffer awaited_;                                    // what the thread waits for
  std::deque<std::pair<uint64_t, GlooBuffer>> payloads_;  // under way to this rank, in order
  std::deque<FrameSlot> under_way_;                       // frames that the peer has not counted yet
  std::vector<FrameSlot> spare_;
  uint64_t sent_ = 0, arrived_ = 0;    // frames to the peer; how many of them it has received
  uint64_t received_ = 0, acked_ = 0;  // frames from the peer; how many of them it has been told of
  std::thread thread_;
};

}  // namespace gradus::dist::internal
