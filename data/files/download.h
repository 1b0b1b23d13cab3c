// Downloads files over HTTP(S) from a list of mirrors, with resuming and SHA-256 verification (libcurl).
//
//   data::download({.urls = {"https://a.example/x.gz", "https://b.example/x.gz"},
//                   .path = "x.gz",
//                   .sha256 = "..."});
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "gradus/tensor/base/error.h"

namespace gradus::data {

// Returns the default folder of data sets: $XDG_CACHE_HOME/gradus, or ~/.cache/gradus. Creates nothing.
// Errors: FileError if there is no home folder.
std::filesystem::path cache_dir();

// The progress of a download, in bytes. `total` is 0 while unknown.
struct DownloadProgress {
  std::string file;  // name of the destination, without its folder
  int64_t done = 0;
  int64_t total = 0;
};

struct DownloadRequest {
  std::vector<std::string> urls;    // mirrors, in order of preference; http or https
  std::filesystem::path path;       // the destination; its folder is created
  std::string sha256 = {};          // of the file; empty: not checked
  std::string sha256_content = {};  // of the unpacked gzip file; empty: not checked
  // Limit for the file, and for its unpacked content while sha256_content is checked.
  int64_t max_bytes = int64_t{1} << 30;
  double stall_timeout = 30;  // seconds (whole, at least 1) without a byte after which a mirror has failed
  // Called periodically in the thread that called download(); null: not called. Its exception ends the
  // download and propagates to the caller.
  std::function<void(const DownloadProgress&)> progress = {};
};

// All mirrors failed; the message contains the answer of each.
struct DownloadError : Error {
  using Error::Error;
};

// Downloads the file unless `path` is a regular file with the right checksums (without any: any file).
// Downloads to `path` + ".part", verifies, and renames. If the request has a checksum, an interrupted
// download is resumed. Threads and processes that request the same file wait for the one that downloads it.
// Errors: DownloadError; ValueError for a request without URL or path, or a checksum that is not 64
// lower-case hexadecimal digits; FileError if the folder cannot be written, or that download stalls.
void download(const DownloadRequest& request);

using ProgressFunction = std::function<void(const DownloadProgress&)>;

// Downloads the four files of MNIST (11.6 MB) or FashionMNIST (30.9 MB) into `dir`.
// Errors: as download().
void download_mnist(const std::filesystem::path& dir, ProgressFunction progress = {});
void download_fashion_mnist(const std::filesystem::path& dir, ProgressFunction progress = {});

// Downloads the archive of CIFAR-10's or CIFAR-100's binary version (170 MB) into `dir` and unpacks it there.
// Errors: as download(), and FileError.
void download_cifar10(const std::filesystem::path& dir, ProgressFunction progress = {});
void download_cifar100(const std::filesystem::path& dir, ProgressFunction progress = {});

}  // namespace gradus::data
