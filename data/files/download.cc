// Downloads over HTTP(S) with libcurl, and the URLs and checksums of MNIST, FashionMNIST and CIFAR. A file is
// downloaded to `path` + ".part" under a file lock, checked against its SHA-256, and renamed. Mirrors are
// tried in order. A retry at the same mirror resumes the part by an HTTP range request. The next mirror and
// the next run resume the part only if the request has a checksum, which detects a wrong prefix.
#include "gradus/data/files/download.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <system_error>

#include "gradus/data/files/sha256.h"
#include "gradus/data/files/tar.h"
#include "gradus/io/file.h"
#include "gradus/io/file_lock.h"

namespace gradus::data {
namespace {
namespace fs = std::filesystem;

constexpr const char* kOp = "download";

// The ".part" file, possibly with the beginning of an interrupted download. A lock file beside `file`
// serializes downloads: others wait, and throw FileError if the part does not grow for lock_timeout.
class PartFile {
 public:
  explicit PartFile(const fs::path& file)
      : path_(file.string() + ".part"), lock_(file, path_, kOp, io::FileOptions().lock_timeout) {
    constexpr int kFlags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    fd_ = ::open(path_.c_str(), kFlags, 0644);
    struct stat info {};
    const bool is_regular_file =
        fd_ >= 0 && ::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1;
    if (is_regular_file) return;
    // The path is a symbolic or hard link, or not a regular file: replaces it without writing to its target.
    if (fd_ >= 0) ::close(fd_);
    ::unlink(path_.c_str());
    fd_ = ::open(path_.c_str(), kFlags | O_EXCL, 0644);
    if (fd_ < 0) throw FileError(kOp, "cannot write ", path_.string(), ": ", std::strerror(errno));
  }
  ~PartFile() { ::close(fd_); }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  const fs::path& path() const { return path_; }
  int64_t size() const {
    struct stat info {};
    return ::fstat(fd_, &info) == 0 ? static_cast<int64_t>(info.st_size) : 0;
  }
  void clear() { truncate_to(0); }
  // Appends the bytes, or leaves the file unchanged and throws FileError.
  void append(const char* bytes, size_t n) {
    const int64_t before = size();
    if (io::internal::write_all(fd_, bytes, static_cast<int64_t>(n))) return;
    const int error = errno;
    truncate_to(before);
    throw FileError(kOp, "cannot write ", path_.string(), ": ", std::strerror(error));
  }
  // Syncs the part's content to disk, then renames the part to `to`.
  void commit(const fs::path& to) {
    if (::fsync(fd_) != 0 || ::rename(path_.c_str(), to.c_str()) != 0)
      throw FileError(kOp, "cannot write ", to.string(), ": ", std::strerror(errno));
  }
  void remove() { ::unlink(path_.c_str()); }

 private:
  void truncate_to(int64_t n) {
    if (::ftruncate(fd_, n) != 0)
      throw FileError(kOp, "cannot write ", path_.string(), ": ", std::strerror(errno));
  }
  const fs::path path_;
  const io::internal::FileLock lock_;
  int fd_ = -1;
};

// State of one HTTP request.
struct Transfer {
  const DownloadRequest& request;
  PartFile& part;
  CURL* curl = nullptr;
  int64_t offset = 0;  // number of bytes from an earlier download
  bool checked_status = false;
  std::string refused;           // the reason why the body is rejected; empty: accepted
  std::exception_ptr exception;  // from a callback; must not cross the C library

  long status() const {
    long code = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    return code;
  }

  std::string too_large() const {
    return concat("is larger than the limit of ", request.max_bytes, " bytes");
  }

  // Takes the next bytes of the response. Returns false to abort the transfer: `refused` has the reason, or
  // is empty if the HTTP status tells it. Checks the status at the first bytes.
  bool body(const char* bytes, size_t n) {
    if (!checked_status) {
      checked_status = true;
      const long code = status();
      if (code != 200 && code != 206) return false;  // the body is an error page
      if (code == 200 && offset > 0) {
        part.clear();  // the server cannot resume: it sends the whole file
        offset = 0;
      }
      if (code == 206 && offset == 0) {
        refused = "answered with a part of the file that was not asked for";
        return false;
      }
    }
    if (part.size() + static_cast<int64_t>(n) > request.max_bytes) {
      refused = too_large();
      return false;
    }
    part.append(bytes, n);
    return true;
  }

  // libcurl's CURLOPT_WRITEFUNCTION and CURLOPT_XFERINFOFUNCTION.
  static size_t write(char* bytes, size_t size, size_t n, void* self) {
    auto& t = *static_cast<Transfer*>(self);
    try {
      return t.body(bytes, size * n) ? size * n : CURL_WRITEFUNC_ERROR;
    } catch (...) {
      t.exception = std::current_exception();
      return CURL_WRITEFUNC_ERROR;
    }
  }

  static int progress(void* self, curl_off_t total, curl_off_t now, curl_off_t, curl_off_t) {
    auto& t = *static_cast<Transfer*>(self);
    try {
      if (t.request.progress && t.checked_status && t.refused.empty())
        t.request.progress(
            {t.request.path.filename().string(), t.offset + now, total > 0 ? t.offset + total : 0});
      return 0;
    } catch (...) {
      t.exception = std::current_exception();
      return 1;
    }
  }
};

struct Outcome {
  bool complete = false;
  bool retry = false;  // whether another request to the same mirror, from the part's new end, may succeed
  std::string text;    // description of the failure
};

// Makes one HTTP request for the bytes after the end of the part, and appends them.
// Errors: FileError if the part cannot be written; exceptions of the progress callback.
Outcome fetch(const DownloadRequest& request, const std::string& url, PartFile& part) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> handle(curl_easy_init(), &curl_easy_cleanup);
  CURL* curl = handle.get();
  if (!curl) throw Error(kOp, "libcurl cannot start");
  Transfer t{request, part, curl, part.size(), false, {}, nullptr};
  char error[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 5L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "gradus");
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 15L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(request.stall_timeout)));
  curl_easy_setopt(curl, CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(request.max_bytes));
  if (t.offset > 0) curl_easy_setopt(curl, CURLOPT_RANGE, concat(t.offset, "-").c_str());
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Transfer::write);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &t);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &Transfer::progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &t);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, request.progress ? 0L : 1L);
  const CURLcode code = curl_easy_perform(curl);
  if (t.exception) std::rethrow_exception(t.exception);
  const long status = t.status();
  if (code == CURLE_FILESIZE_EXCEEDED) t.refused = t.too_large();  // according to Content-Length
  if (!t.refused.empty()) return {false, false, t.refused};
  if (status == 416 && t.offset > 0) {
    part.clear();  // range not satisfiable: the part is not a prefix of this file
    return {false, true, "HTTP 416"};
  }
  if (status != 0 && status != 200 && status != 206) return {false, false, concat("HTTP ", status)};
  if (code != CURLE_OK) {
    const bool cut_short =
        code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING;
    return {false, cut_short,
            concat(error[0] ? error : curl_easy_strerror(code), " (", part.size(), " bytes so far)")};
  }
  return {true, false, {}};
}

// Checks the checksums that the request has. Returns the mismatch, or why the file cannot be read; "" if all
// match.
std::string mismatch(const fs::path& path, const DownloadRequest& request) {
  const auto differs = [](const char* what, const std::string& expected, const std::string& found) {
    return expected == found ? "" : concat(what, " is ", found, ", expected ", expected);
  };
  try {
    std::string text;
    if (!request.sha256.empty()) text = differs("SHA-256", request.sha256, sha256_of_file(path));
    if (text.empty() && !request.sha256_content.empty())
      text = differs("SHA-256 of the unpacked content", request.sha256_content,
                     sha256_of_content(path, request.max_bytes));
    return text;
  } catch (const FileError& e) {
    return e.what();
  }
}

// Downloads the file from one mirror into `part`, with up to 3 requests. Returns "" or the failure. After a
// failure, the part is empty or the beginning of a download.
std::string try_mirror(const DownloadRequest& request, const std::string& url, PartFile& part) {
  constexpr int kAttempts = 3;
  std::string problem;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const bool resumed = part.size() > 0;
    const Outcome outcome = fetch(request, url, part);
    if (outcome.complete) {
      problem = mismatch(part.path(), request);
      if (problem.empty()) return {};
      part.clear();
      // After resuming, the part may have been a prefix of another file: retry once from the start. A file
      // that was downloaded without resuming is wrong on the mirror.
      if (!resumed) return problem;
      continue;
    }
    problem = outcome.text;
    if (!outcome.retry) break;
  }
  return problem;
}

bool is_sha256(const std::string& s) {
  return s.size() == 64 && s.find_first_not_of("0123456789abcdef") == s.npos;
}

}  // namespace

fs::path cache_dir() {
  // The XDG Base Directory Specification says to ignore a relative path.
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (xdg && fs::path(xdg).is_absolute()) return fs::path(xdg) / "gradus";
  const char* home = std::getenv("HOME");
  if (home && fs::path(home).is_absolute()) return fs::path(home) / ".cache" / "gradus";
  throw FileError("cache_dir", "neither XDG_CACHE_HOME nor HOME names a folder");
}

void download(const DownloadRequest& request) {
  if (request.urls.empty() || request.path.filename().empty())
    throw ValueError(kOp, "needs at least one URL and the path of a file, got ", request.urls.size(),
                     " URLs and \"", request.path.string(), "\"");
  for (const std::string* sha : {&request.sha256, &request.sha256_content})
    if (!sha->empty() && !is_sha256(*sha))
      throw ValueError(kOp, "a SHA-256 has 64 lower-case hexadecimal digits, got \"", *sha, "\"");
  // Without a checksum, an existing file counts as complete, and a part is never resumed by another mirror or
  // run.
  const bool checked = !request.sha256.empty() || !request.sha256_content.empty();
  const auto is_there = [&] {
    std::error_code ignored;
    return fs::is_regular_file(request.path, ignored) && mismatch(request.path, request).empty();
  };
  if (is_there()) return;
  std::error_code error;
  if (request.path.has_parent_path()) fs::create_directories(request.path.parent_path(), error);
  if (error)
    throw FileError(kOp, "cannot create ", request.path.parent_path().string(), ": ", error.message());
  PartFile part(request.path);
  if (is_there()) {  // another process has completed the download
    part.remove();
    return;
  }
  if (!checked) part.clear();
  if (part.size() > 0 && mismatch(part.path(), request).empty()) return part.commit(request.path);
  std::string answers;
  for (const std::string& url : request.urls) {
    const std::string problem = try_mirror(request, url, part);
    if (problem.empty()) return part.commit(request.path);
    answers += concat("\n  ", url, ": ", problem);
    if (!checked) part.clear();
  }
  if (part.size() == 0) part.remove();
  throw DownloadError(kOp, "no mirror gave ", request.path.filename().string(), ":", answers);
}

namespace {

struct KnownFile {
  const char* name;
  const char* sha256;  // of the unpacked content for MNIST, which mirrors have packed in different ways
};

// Downloads the files into `dir`. Each mirror is a URL that ends in '/'.
void download_all(const fs::path& dir, const std::vector<std::string>& mirrors,
                  std::span<const KnownFile> files, bool sha_of_content, const ProgressFunction& progress) {
  constexpr int64_t kMaxBytes = 64 << 20;
  for (const KnownFile& file : files) {
    DownloadRequest request{.path = dir / file.name, .max_bytes = kMaxBytes, .progress = progress};
    for (const std::string& mirror : mirrors) request.urls.push_back(mirror + file.name);
    (sha_of_content ? request.sha256_content : request.sha256) = file.sha256;
    download(request);
  }
}

}  // namespace

void download_mnist(const fs::path& dir, ProgressFunction progress) {
  static constexpr KnownFile kFiles[] = {
      {"train-images-idx3-ubyte.gz", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
      {"train-labels-idx1-ubyte.gz", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
      {"t10k-images-idx3-ubyte.gz", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
      {"t10k-labels-idx1-ubyte.gz", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
  };
  download_all(dir,
               {"https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/"},
               kFiles, /*sha_of_content=*/true, progress);
}

void download_fashion_mnist(const fs::path& dir, ProgressFunction progress) {
  static constexpr KnownFile kFiles[] = {
      {"train-images-idx3-ubyte.gz", "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
      {"train-labels-idx1-ubyte.gz", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
      {"t10k-images-idx3-ubyte.gz", "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
      {"t10k-labels-idx1-ubyte.gz", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"},
  };
  download_all(dir,
               {"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"},
               kFiles, /*sha_of_content=*/false, progress);
}

namespace {

// Downloads a .tar.gz into `dir` and unpacks these members there, unless all members exist. Existing members
// are not verified.
void download_archive(const fs::path& dir, const KnownFile& archive, const std::vector<std::string>& members,
                      const ProgressFunction& progress) {
  std::error_code ignored;
  if (std::all_of(members.begin(), members.end(),
                  [&](const auto& m) { return fs::exists(dir / m, ignored); }))
    return;
  download({.urls = {std::string("https://www.cs.toronto.edu/~kriz/") + archive.name},
            .path = dir / archive.name,
            .sha256 = archive.sha256,
            .progress = progress});
  unpack_tar(dir / archive.name, dir, members);
}

}  // namespace

void download_cifar10(const fs::path& dir, ProgressFunction progress) {
  std::vector<std::string> members = {"cifar-10-batches-bin/batches.meta.txt",
                                      "cifar-10-batches-bin/test_batch.bin"};
  for (int i = 1; i <= 5; ++i) members.push_back(concat("cifar-10-batches-bin/data_batch_", i, ".bin"));
  download_archive(
      dir, {"cifar-10-binary.tar.gz", "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
      members, progress);
}

void download_cifar100(const fs::path& dir, ProgressFunction progress) {
  download_archive(
      dir, {"cifar-100-binary.tar.gz", "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"},
      {"cifar-100-binary/fine_label_names.txt", "cifar-100-binary/train.bin", "cifar-100-binary/test.bin"},
      progress);
}

}  // namespace gradus::data
