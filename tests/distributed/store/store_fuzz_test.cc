// Replays scripts that reach every part of the store's server through the fuzz target in store_fuzz.cc, and
// 5000 variations, the same in each run; a violation aborts. Also pins down the encoding of messages.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gradus/distributed/store/store_protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace gradus::dist::internal {
namespace {

void run(const std::string& script) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(script.data()), script.size());
}

// Steps of a script begin with the number of a case in store_fuzz.cc. This one sends a message; numbers and
// texts are indices of the fuzzer's lists.
std::string message(int peer, MessageType type, std::vector<int> numbers, std::vector<int> texts) {
  std::string step{6, static_cast<char>(peer), static_cast<char>(type),
                   static_cast<char>(numbers.size() | texts.size() << 2)};
  for (const int n : numbers) step += static_cast<char>(n);
  for (const int t : texts) step += static_cast<char>(t);
  return step += '\1';  // in one part
}

// A client, launcher or member connects; a peer reads its answers; 2^log2_ms milliseconds pass.
const std::string kClient{1, 1}, kLauncher{3};
std::string member(int rank) { return {2, static_cast<char>(rank)}; }
std::string take(int peer) { return {9, static_cast<char>(peer), '\xff'}; }
std::string pass(int log2_ms) { return {11, static_cast<char>(log2_ms)}; }

std::vector<std::string> seeds() {
  using T = MessageType;
  return {
      kClient + message(0, T::kSet, {}, {1, 2}) + take(0) + message(0, T::kGet, {0}, {1}) + take(0) +
          message(0, T::kAdd, {1}, {4}) + take(0) + message(0, T::kNumKeys, {}, {}) + take(0),
      kClient + kClient + message(0, T::kPop, {5}, {1}) + message(1, T::kSet, {}, {1, 2}) + take(0) + take(1),
      kClient + kClient + kClient + message(0, T::kPop, {5}, {1}) + message(1, T::kWait, {5}, {1, 2}) +
          message(2, T::kAppend, {}, {1, 1}) + take(2) + message(2, T::kCompareSet, {}, {2, 0, 1}) + take(2) +
          pass(17),
      kClient + message(0, T::kWait, {4}, {1, 2, 3}) + pass(7) + take(0) + message(0, T::kDelete, {}, {1}) +
          take(0),
      kClient + message(0, T::kAdd, {6}, {1}) + take(0) + message(0, T::kAdd, {6}, {1}) + take(0),
      member(0) + member(1) + member(1) + message(0, T::kHeartbeat, {0}, {6}) +
          message(0, T::kQueryStatuses, {}, {}) + take(0) + message(1, T::kLeave, {}, {}) + take(0) +
          message(0, T::kReport, {0, 3, 1}, {1}) + take(0) + take(1),
      member(0) + member(1) + kLauncher + std::string{10, 1} + pass(9) + take(0) +
          message(1, T::kLeave, {}, {}) + std::string{10, 1} + std::string{12, 1} + member(0) +
          std::string{13, 0} + take(0),
      // Two ranks that wait for each other, and answer the server's query.
      member(0) + member(1) + message(0, T::kHeartbeat, {0}, {6}) + message(1, T::kHeartbeat, {0}, {7}) +
          message(0, T::kHeartbeat, {0}, {6}) + take(0) + take(1) + message(0, T::kHeartbeat, {1}, {6}) +
          message(1, T::kHeartbeat, {1}, {7}) + take(0) + take(1),
      member(0) + message(0, T::kHeartbeat, {0}, {1}),  // no status
      kClient + message(0, T::kGet, {5}, {3}) + std::string{12, 2} + kClient +
          message(1, T::kSet, {}, {3, 1}) + take(0),
      std::string{0, 4, 0, 8, 4, 0, 0, 0, 1, 2, 3, 4, 5, 0, 3, 6, 0, 0} + pass(13) + std::string(20, '\0') +
          pass(13),
  };
}

TEST(StoreFuzzTest, ScriptsOfEveryKindRunThrough) {
  for (const std::string& seed : seeds()) run(seed);
}

TEST(StoreFuzzTest, SoDoVariationsOfThem) {
  const std::vector<std::string> all = seeds();
  std::mt19937 random(20);
  for (int i = 0; i < 5'000; ++i) {
    std::string script = all[random() % all.size()];
    for (unsigned n = random() % 4; n > 0; --n) script += all[random() % all.size()];
    for (unsigned n = 1 + random() % 8; n > 0; --n) {
      const size_t at = random() % script.size();
      switch (random() % 3) {
        case 0:
          script[at] = static_cast<char>(random());
          break;
        case 1:
          script.insert(at, 1, static_cast<char>(random() % 32));
          break;
        case 2:
          script.erase(at, 1 + random() % 3);
          break;
      }
      if (script.empty()) break;
    }
    run(script);
  }
}

TEST(StoreProtocolTest, ChangedMessagesAreOtherMessagesOrNone) {
  const std::string big(1000, 'x');
  const std::vector<std::string> frames = {
      encode({MessageType::kSet, {}, {"key", big}}),
      encode({MessageType::kWait, {5}, {"a", "b", "", big}}),
      encode({MessageType::kReport, {0, 1, 2}, {"rank 2 failed"}}),
      encode({MessageType::kStatuses, {0, 0, 5, 1, 1, 7}, {"in barrier", ""}}),
      encode(Hello{
          .role = Role::kMember, .rank = 1, .world_size = 2, .job_id = "job", .nonce = std::string(32, 'n')}),
  };
  for (const std::string& frame : frames) {
    const std::string body = frame.substr(4);
    ASSERT_TRUE(parse(body));
    EXPECT_EQ(encode(*parse(body)), frame);
    for (size_t n = 0; n < body.size(); ++n) EXPECT_FALSE(parse(body.substr(0, n))) << n;
    EXPECT_FALSE(parse(body + "x"));
    for (size_t i = 0; i < std::min<size_t>(body.size(), 60); ++i)
      for (int bit = 0; bit < 8; ++bit) {
        std::string other = body;
        other[i] ^= static_cast<char>(1 << bit);
        if (const auto message = parse(other)) {
          EXPECT_EQ(encode(*message).substr(4), other);
        }
        (void)parse_hello(other);
      }
  }
}

TEST(StoreProtocolTest, CountsThatCannotBeAreNoMessage) {
  // A list of four billion keys in a few bytes.
  std::string body = encode({MessageType::kCheck, {}, {"a"}}).substr(4);
  for (int i = 9; i < 17; ++i) body[i] = '\xff';
  EXPECT_FALSE(parse(body));
  // One with more keys than are allowed at once.
  EXPECT_FALSE(
      parse(encode({MessageType::kCheck, {}, std::vector<std::string_view>(kMaxListed + 1)}).substr(4)));
  EXPECT_TRUE(parse(encode({MessageType::kCheck, {}, std::vector<std::string_view>(kMaxListed)}).substr(4)));
}

TEST(StoreProtocolTest, FramesComeOutAsTheyWentInHoweverTheyAreCut) {
  std::string stream;
  std::vector<std::string> frames;
  for (int i = 0; i < 50; ++i) {
    frames.push_back(encode({MessageType::kAnswer, {i}, {std::string(static_cast<size_t>(i * i), 'v')}}));
    stream += frames.back();
  }
  for (const size_t piece : {size_t(1), size_t(3), size_t(1000), stream.size()}) {
    FrameReader reader;
    size_t next = 0;
    for (size_t at = 0; at < stream.size(); at += piece) {
      reader.append(std::string_view(stream).substr(at, piece));
      std::string_view body;
      while (reader.next(kMaxGreeting, &body) == FrameReader::State::kFrame)
        EXPECT_EQ(body, frames[next++].substr(4));
    }
    EXPECT_EQ(next, frames.size());
    EXPECT_EQ(reader.pending(), 0u);
  }
}

TEST(StoreProtocolTest, ProofsDependOnTokenSideAndBothGreetings) {
  const std::string proof = make_proof("token", "client", "hello", "challenge");
  EXPECT_EQ(proof.size(), kProofBytes);
  EXPECT_TRUE(equal_proofs(proof, make_proof("token", "client", "hello", "challenge")));
  EXPECT_FALSE(equal_proofs(proof, make_proof("other", "client", "hello", "challenge")));
  EXPECT_FALSE(equal_proofs(proof, make_proof("token", "server", "hello", "challenge")));
  EXPECT_FALSE(equal_proofs(proof, make_proof("token", "client", "hello2", "challenge")));
  EXPECT_FALSE(equal_proofs(proof, make_proof("token", "client", "hello", "2challenge")));
  EXPECT_FALSE(equal_proofs(proof, make_proof("token", "client", "helloc", "hallenge")))
      << "where one ends counts";
  EXPECT_FALSE(equal_proofs(proof, proof.substr(1)));
  EXPECT_FALSE(equal_proofs("", ""));
  EXPECT_NE(random_nonce(), random_nonce());
}

}  // namespace
}  // namespace gradus::dist::internal
