// download() against local HTTP servers with faults: checksums, mirrors, resumed transfers, stalls, size
// limits, redirects, concurrent calls.
#include "gradus/data/files/download.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "gradus/data/files/sha256.h"
#include "gradus/tests/support/error.h"
#include "gradus/tests/support/scratch.h"

namespace gradus::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// An HTTP server of one file on a free port of 127.0.0.1, with faults that a test sets.
class Server {
 public:
  std::string content;
  bool ranges = true;           // honors Range
  size_t cut_after = SIZE_MAX;  // closes the connection after so many bytes of a body, once per `cuts`
  int cuts = 0;
  bool stall = false;    // sends half of the body, then nothing
  bool endless = false;  // no Content-Length, a body that never ends
  int status = 200;
  std::string redirect;

  Server() {
    ::setenv("no_proxy", "127.0.0.1", 1);
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_, 8) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("cannot listen on 127.0.0.1");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    stopping_ = true;
    thread_.join();
    ::close(listener_);
  }

  std::string url(const std::string& path = "/file") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  // Per request the value of "Range: bytes="; "" without one.
  std::vector<std::string> requested_ranges() {
    std::lock_guard lock(mutex_);
    return ranges_;
  }
  int requests() { return static_cast<int>(requested_ranges().size()); }

 private:
  void serve() {
    while (!stopping_) {
      if (!readable(listener_)) continue;
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      answer(fd);
      ::close(fd);
    }
  }
  static bool readable(int fd) {
    pollfd p{fd, POLLIN, 0};
    return ::poll(&p, 1, 20) > 0;
  }
  void send_all(int fd, const char* p, size_t n) {
    while (n > 0 && !stopping_) {
      const ssize_t k = ::send(fd, p, n, MSG_NOSIGNAL);
      if (k <= 0) return;
      p += k;
      n -= static_cast<size_t>(k);
    }
  }
  void answer(int fd) {
    std::string head;
    char chunk[4096];
    while (head.find("\r\n\r\n") == std::string::npos) {
      const ssize_t n = ::recv(fd, chunk, sizeof(chunk), 0);
      if (n <= 0) return;
      head.append(chunk, static_cast<size_t>(n));
    }
    std::string range;
    const size_t at = head.find("Range: bytes=");
    if (at != std::string::npos) range = head.substr(at + 13, head.find("\r\n", at) - at - 13);
    {
      std::lock_guard lock(mutex_);
      ranges_.push_back(range);
    }
    const auto reply = [&](const std::string& line, const std::string& headers) {
      const std::string text = "HTTP/1.1 " + line + "\r\nConnection: close\r\n" + headers + "\r\n";
      send_all(fd, text.data(), text.size());
    };
    if (!redirect.empty() && head.find("GET /moved") == 0)
      return reply("302 Found", "Location: " + redirect + "\r\nContent-Length: 0\r\n");
    if (status != 200) {
      reply(std::to_string(status) + " Oops", "Content-Length: 5\r\n");
      return send_all(fd, "Oops!", 5);
    }
    if (endless) {
      reply("200 OK", "");
      const std::string block(1 << 16, 'x');
      for (int i = 0; i < 1000 && !stopping_; ++i) send_all(fd, block.data(), block.size());
      return;
    }
    size_t from = ranges && !range.empty() ? std::stoul(range) : 0;
    if (from >= content.size() && from > 0)
      return reply("416 Range Not Satisfiable", "Content-Length: 0\r\n");
    size_t n = content.size() - from;
    const std::string length = "Content-Length: " + std::to_string(n) + "\r\n";
    if (from > 0)
      reply("206 Partial Content", length + "Content-Range: bytes " + std::to_string(from) + "-" +
                                       std::to_string(content.size() - 1) + "/" +
                                       std::to_string(content.size()) + "\r\n");
    else
      reply("200 OK", length);
    if (cuts > 0 && cut_after < n) {
      --cuts;
      n = cut_after;
    }
    if (stall) {
      send_all(fd, content.data() + from, n / 2);
      while (!stopping_ && !readable(fd)) {
      }
      return;
    }
    send_all(fd, content.data() + from, n);
  }

  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<std::string> ranges_;
  std::thread thread_;
};

// n pseudorandom bytes.
std::string noise(size_t n) {
  std::string s(n, '\0');
  uint32_t x = 1;
  for (char& c : s) c = char((x = x * 1664525u + 1013904223u) >> 24);
  return s;
}

std::string failure(const DownloadRequest& request) {
  return error_of<DownloadError>([&] { download(request); });
}

TEST(Sha256, KnownAnswers) {  // FIPS 180-2
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Download, FetchesVerifiesAndLeavesNoPart) {
  Scratch s;
  Server server;
  server.content = noise(300'000);
  std::vector<int64_t> done;
  download({.urls = {server.url()},
            .path = s / "deep/er/file",
            .sha256 = sha256(server.content),
            .progress = [&](const DownloadProgress& p) {
              EXPECT_EQ(p.file, "file");
              EXPECT_EQ(p.total, 300'000);
              done.push_back(p.done);
            }});
  EXPECT_EQ(s.read("deep/er/file"), server.content);
  EXPECT_FALSE(std::filesystem::exists(s / "deep/er/file.part"));
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back(), 300'000);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
}

TEST(Download, AFileThatIsThereAndRightIsNotFetchedAgain) {
  Scratch s;
  Server server;
  server.content = noise(1000);
  const DownloadRequest request{.urls = {server.url()}, .path = s / "file", .sha256 = sha256(server.content)};
  download(request);
  download(request);
  EXPECT_EQ(server.requests(), 1);
  s.write("file", "damaged");
  download(request);
  EXPECT_EQ(s.read("file"), server.content);
}

TEST(Download, TriesEveryMirrorAndTellsWhatEachAnswered) {
  Scratch s;
  Server absent, wrong, good;
  absent.status = 404;
  wrong.content = "something else";
  good.content = noise(5000);
  DownloadRequest request{
      .urls = {absent.url(), wrong.url()}, .path = s / "file", .sha256 = sha256(good.content)};
  EXPECT_THAT(failure(request),
              AllOf(StartsWith("[download] no mirror gave file:"), HasSubstr(absent.url() + ": HTTP 404"),
                    HasSubstr(wrong.url() + ": SHA-256 is " + sha256("something else") + ", expected")));
  EXPECT_FALSE(std::filesystem::exists(s / "file"));
  EXPECT_FALSE(std::filesystem::exists(s / "file.part"));
  request.urls.push_back(good.url());
  download(request);
  EXPECT_EQ(s.read("file"), good.content);
}

TEST(Download, ATransferThatBreaksOffIsContinued) {
  Scratch s;
  Server server;
  server.content = noise(100'000);
  server.cut_after = 40'000;
  server.cuts = 1;
  download({.urls = {server.url()}, .path = s / "file", .sha256 = sha256(server.content)});
  EXPECT_EQ(s.read("file"), server.content);
  EXPECT_THAT(server.requested_ranges(), ElementsAre("", "40000-"));
}

TEST(Download, APartOfAnEarlierRunIsContinuedByAnotherMirror) {
  Scratch s;
  Server broken, good;
  broken.content = good.content = noise(100'000);
  broken.cut_after = 30'000;
  broken.cuts = 99;
  const std::string sum = sha256(good.content);
  EXPECT_THAT(failure({.urls = {broken.url()}, .path = s / "file", .sha256 = sum}),
              HasSubstr("bytes so far"));
  EXPECT_EQ(s.read("file.part"), good.content.substr(0, 90'000));
  download({.urls = {good.url()}, .path = s / "file", .sha256 = sum});
  EXPECT_THAT(good.requested_ranges(), ElementsAre("90000-"));
  EXPECT_EQ(s.read("file"), good.content);
}

TEST(Download, ALinkInPlaceOfThePartLeadsNowhere) {
  for (const bool hard : {true, false}) {
    Scratch s;
    Server server;
    server.content = noise(1000);
    s.write("victim", "precious");
    if (hard)
      std::filesystem::create_hard_link(s / "victim", s / "file.part");
    else
      std::filesystem::create_symlink(s / "victim", s / "file.part");
    download({.urls = {server.url()}, .path = s / "file"});
    EXPECT_EQ(s.read("file"), server.content);
    EXPECT_EQ(s.read("victim"), "precious");
  }
}

TEST(Download, WithoutAChecksumNothingIsContinued) {
  Scratch s;
  Server server;
  server.content = noise(1000);
  s.write("file.part", "old");
  download({.urls = {server.url()}, .path = s / "file"});
  EXPECT_EQ(s.read("file"), server.content);
}

TEST(Download, AServerThatIgnoresRangesStartsOver) {
  Scratch s;
  Server server;
  server.content = noise(50'000);
  server.ranges = false;
  s.write("file.part", server.content.substr(0, 10'000));
  download({.urls = {server.url()}, .path = s / "file", .sha256 = sha256(server.content)});
  EXPECT_EQ(s.read("file"), server.content);
}

TEST(Download, APartOfAnotherFileIsThrownAway) {
  for (size_t size : {10'000u, 50'000u, 90'000u}) {
    Scratch s;
    Server server;
    server.content = noise(50'000);
    s.write("file.part", std::string(size, 'x'));
    download({.urls = {server.url()}, .path = s / "file", .sha256 = sha256(server.content)});
    EXPECT_EQ(s.read("file"), server.content);
  }
}

TEST(Download, ACompletePartIsUsedAsItIs) {
  Scratch s;
  Server server;
  server.content = noise(5000);
  s.write("file.part", server.content);
  download({.urls = {server.url()}, .path = s / "file", .sha256 = sha256(server.content)});
  EXPECT_EQ(server.requests(), 0);
  EXPECT_EQ(s.read("file"), server.content);
}

TEST(Download, AStallIsAnErrorInTime) {
  Scratch s;
  Server server;
  server.content = noise(100'000);
  server.stall = true;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(
      failure(
          {.urls = {server.url()}, .path = s / "file", .sha256 = sha256(server.content), .stall_timeout = 1}),
      HasSubstr("50000 bytes so far"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Download, TooLargeIsAnErrorBeforeTheDiskIsFull) {
  Scratch s;
  Server announced, endless;
  announced.content = noise(100'000);
  endless.endless = true;
  EXPECT_THAT(failure({.urls = {announced.url(), endless.url()}, .path = s / "file", .max_bytes = 70'000}),
              AllOf(HasSubstr(announced.url() + ": is larger than the limit of 70000 bytes"),
                    HasSubstr(endless.url() + ": is larger than the limit of 70000 bytes")));
  EXPECT_FALSE(std::filesystem::exists(s / "file"));
}

TEST(Download, FollowsRedirectsToHttpOnly) {
  Scratch s;
  Server server;
  server.content = noise(1000);
  server.redirect = server.url("/file");
  download({.urls = {server.url("/moved")}, .path = s / "file", .sha256 = sha256(server.content)});
  EXPECT_EQ(s.read("file"), server.content);
  s.write("secret", "secret");
  server.redirect = "file://" + (s / "secret").string();
  EXPECT_THAT(failure({.urls = {server.url("/moved")}, .path = s / "other"}), HasSubstr("no mirror"));
  EXPECT_THAT(failure({.urls = {"file://" + (s / "secret").string()}, .path = s / "other"}),
              HasSubstr("no mirror"));
}

TEST(Download, UnreachableMirrorsAreNamed) {
  Scratch s;
  std::string dead;
  { dead = Server().url(); }
  EXPECT_THAT(failure({.urls = {dead}, .path = s / "file"}), HasSubstr(dead));
}

TEST(Download, ChecksTheUnpackedContent) {
  Scratch s;
  Server server;
  const std::string content = noise(20'000);
  uLongf n = compressBound(content.size());
  // A gzip file by hand: gzwrite to a file, read it back.
  gzFile f = gzopen((s / "packed").c_str(), "wb");
  gzwrite(f, content.data(), unsigned(content.size()));
  gzclose(f);
  server.content = s.read("packed");
  EXPECT_LE(server.content.size(), n + 64);
  download({.urls = {server.url()}, .path = s / "file.gz", .sha256_content = sha256(content)});
  EXPECT_EQ(s.read("file.gz"), server.content);
  EXPECT_EQ(sha256_of_content(s / "file.gz", 20'000), sha256(content));
  EXPECT_THROW(sha256_of_content(s / "file.gz", 19'999), FileError);
  EXPECT_THAT(failure({.urls = {server.url()}, .path = s / "b.gz", .sha256_content = sha256("other")}),
              HasSubstr("unpacked content is " + sha256(content)));
  server.content.resize(server.content.size() - 3);
  EXPECT_THAT(failure({.urls = {server.url()}, .path = s / "c.gz", .sha256_content = sha256(content)}),
              HasSubstr("cut short"));
}

TEST(Download, AnExceptionOfTheProgressFunctionReachesTheCaller) {
  Scratch s;
  Server server;
  server.content = noise(100'000);
  struct Canceled {};
  EXPECT_THROW(download({.urls = {server.url()},
                         .path = s / "file",
                         .sha256 = sha256(server.content),
                         .progress = [](const DownloadProgress&) { throw Canceled(); }}),
               Canceled);
  EXPECT_FALSE(std::filesystem::exists(s / "file"));
}

TEST(Download, SeveralAtOnceFetchTheFileOnce) {
  Scratch s;
  Server server;
  server.content = noise(200'000);
  const DownloadRequest request{.urls = {server.url()}, .path = s / "file", .sha256 = sha256(server.content)};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { download(request); });
  for (auto& t : threads) t.join();
  EXPECT_EQ(server.requests(), 1);
  EXPECT_EQ(s.read("file"), server.content);
  EXPECT_FALSE(std::filesystem::exists(s / "file.part"));
}

TEST(Download, RejectsRequestsThatMakeNoSense) {
  Scratch s;
  EXPECT_THROW(download({.urls = {}, .path = s / "file"}), ValueError);
  EXPECT_THROW(download({.urls = {"http://127.0.0.1/x"}, .path = ""}), ValueError);
  EXPECT_THROW(download({.urls = {"http://127.0.0.1/x"}, .path = s / "file", .sha256 = "ABC"}), ValueError);
  EXPECT_THROW(download({.urls = {"http://127.0.0.1/x"}, .path = "/proc/gradus/file"}), FileError);
}

}  // namespace
}  // namespace gradus::data
