// Exchange of data between the ranks of an emulated NCCL communicator, which may be threads or processes of
// one host: files in a directory in shared memory. A file is written under another name and renamed, so a file
// that exists is complete.
#pragma once

#include <string>

namespace gradus::cuda::emulated {

class NcclExchange {
 public:
  // Makes a directory that other users cannot read, and returns its path, or "" on failure. Removes the
  // directories of processes that died.
  static std::string make_directory();

  explicit NcclExchange(std::string directory);
  ~NcclExchange();
  NcclExchange(const NcclExchange&) = delete;
  NcclExchange& operator=(const NcclExchange&) = delete;

  bool is_open() const { return lock_ >= 0; }  // false if there is no such directory
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  void publish(const std::string& name, const std::string& bytes) const;
  bool contains(const std::string& name) const;
  std::string read(const std::string& name) const;  // "" if there is no such file
  void remove(const std::string& name) const;
  // Called once by each rank. The last one removes the directory.
  void leave(int rank, int ranks) const;

 private:
  std::string directory_;
  int lock_;  // a descriptor of the directory that holds a shared lock: the directory is in use
};

}  // namespace gradus::cuda::emulated
