// Downloads: a file from the first mirror that gives it, complete and with the right checksum.
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

// The progress of a download, in bytes. `total` is 0 while it is unknown.
struct DownloadProgress {
  std::string file;
  int64_t done = 0;
  int64_t total = 0;
};

struct DownloadRequest {
  std::vector<std::string> urls;    // mirrors, in order of preference; http or https
  std::filesystem::path path;       // where the file goes; its folder is created
  std::string sha256 = {};          // of the file; empty: not checked
  std::string sha256_content = {};  // of the unpacked gzip file; empty: not checked
  // Limit for the file, and for its unpacked content while sha256_content is checked.
  int64_t max_bytes = int64_t{1} << 30;
  double connect_timeout = 15;  // seconds
  double stall_timeout = 30;    // seconds without a byte
  // Called now and then from the downloading thread. An exception from it ends the download and
  // reaches the caller.
  std::function<void(const DownloadProgress&)> progress = {};
};

// No mirror gave the file; the text says what each one answered.
struct DownloadError : Error {
  using Error::Error;
};

// Makes sure that `path` holds the file. Does nothing when the file is there with the right checksum.
// Else downloads to `path` + ".part", verifies, and renames. With a checksum to prove the result, it
// completes a part that an interrupted download has left. Processes that want the same file wait for the
// one that fetches it.
// Errors: DownloadError; ValueError for a request without URL or path; FileError when the folder
// cannot be written.
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
