// A transport for tests: ranks are threads, a message is copied from the sender's memory when its
// receive is there.
#pragma once

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>

#include "gradus/distributed/health/waiting.h"
#include "gradus/distributed/transport/transport.h"

namespace gradus::dist::internal {

class MailboxTransport final : public Transport {
 public:
  // One per rank, connected with each other.
  static std::vector<std::shared_ptr<Transport>> make(int ranks) {
    const auto office = std::make_shared<Office>();
    std::vector<std::shared_ptr<Transport>> transports;
    for (int rank = 0; rank < ranks; ++rank)
      transports.push_back(std::shared_ptr<MailboxTransport>(new MailboxTransport(office, rank)));
    return transports;
  }

  // What nobody came for ends with its rank: items hold the office, which holds them.
  ~MailboxTransport() override { withdraw(); }

  Ref<Request> send(int peer, Tag tag, std::span<const std::byte> header,
                    std::span<const std::byte> payload) override {
    auto letter = make_ref<Letter>(office_, rank_, peer, tag);
    letter->header.assign(header.begin(), header.end());
    letter->payload = payload;
    std::lock_guard lock(office_->mutex);
    office_->letters.push_back(letter);
    office_->match();
    return letter;
  }

  Ref<Request> receive(int peer, Tag tag, Accept accept, std::vector<int> sources) override {
    auto slot = make_ref<Slot>(office_, rank_, tag);
    slot->sources = peer == kAnySource ? std::move(sources) : std::vector<int>{peer};
    slot->accept = std::move(accept);
    std::lock_guard lock(office_->mutex);
    office_->slots.push_back(slot);
    office_->match();
    return slot;
  }

  void wait(Request& request, const Watch& watch, const char* op) override {
    auto& item = static_cast<Item&>(request);
    const auto ready = [&] {
      std::lock_guard lock(office_->mutex);
      return item.ended;
    };
    const WaitResult outcome = office_->signal.wait(watch, ready, "mailbox");
    if (outcome == WaitResult::kReady && !item.error) return;
    withdraw();  // the memory that they are in ends with the call
    if (item.error) std::rethrow_exception(item.error);
    throw_wait(op, outcome, watch, item.peers());
  }

  void progress_in_background() override {}

 private:
  struct Office;
  struct Item : Request {
    explicit Item(std::shared_ptr<Office> office) : office(std::move(office)) {}
    bool done() override {
      std::lock_guard lock(office->mutex);
      if (ended && error) std::rethrow_exception(error);
      return ended;
    }
    virtual std::vector<int> peers() const = 0;
    std::shared_ptr<Office> office;
    bool ended = false;
    std::exception_ptr error;
  };
  struct Letter final : Item {
    Letter(std::shared_ptr<Office> office, int from, int to, Tag tag)
        : Item(std::move(office)), from(from), to(to), tag(tag) {}
    int source() const override { return from; }
    std::vector<int> peers() const override { return {to}; }
    int from, to;
    Tag tag;
    std::vector<std::byte> header;
    std::span<const std::byte> payload;
  };
  struct Slot final : Item {
    Slot(std::shared_ptr<Office> office, int to, Tag tag) : Item(std::move(office)), to(to), tag(tag) {}
    int source() const override { return from; }
    std::vector<int> peers() const override { return sources; }
    int to, from = kAnySource;
    Tag tag;
    std::vector<int> sources;
    Accept accept;
  };
  struct Office {
    std::mutex mutex;
    Futex signal;
    std::list<Ref<Letter>> letters;
    std::list<Ref<Slot>> slots;

    void match() {
      for (auto slot = slots.begin(); slot != slots.end();) {
        const auto letter = std::ranges::find_if(letters, [&](const Ref<Letter>& l) {
          return l->to == (*slot)->to && l->tag == (*slot)->tag &&
                 std::ranges::count((*slot)->sources, l->from);
        });
        if (letter == letters.end()) {
          ++slot;
          continue;
        }
        deliver(**letter, **slot);
        letters.erase(letter);
        slot = slots.erase(slot);
      }
      signal.notify();
    }
    static void deliver(Letter& letter, Slot& slot) {
      slot.from = letter.from;
      try {
        void* const to = slot.accept(letter.from, letter.header, letter.payload.size());
        if (!letter.payload.empty()) std::memcpy(to, letter.payload.data(), letter.payload.size());
      } catch (...) {
        slot.error = std::current_exception();
      }
      letter.ended = slot.ended = true;
    }
  };

  // Takes back what this rank sends and awaits.
  void withdraw() {
    std::lock_guard lock(office_->mutex);
    std::erase_if(office_->letters, [&](const Ref<Letter>& letter) { return letter->from == rank_; });
    std::erase_if(office_->slots, [&](const Ref<Slot>& slot) { return slot->to == rank_; });
  }

  MailboxTransport(std::shared_ptr<Office> office, int rank) : office_(std::move(office)), rank_(rank) {}

  const std::shared_ptr<Office> office_;
  const int rank_;
};

}  // namespace gradus::dist::internal
