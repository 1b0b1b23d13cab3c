// Implementation of LSUN with liblmdb (mdb.c describes the format). The header is checked before LMDB sees the file:
// LMDB refuses page numbers above the last page, so that the pages that it reads lie in the file. Each read has its own
// read-only transaction, so that threads may read concurrently.
#include "gradus/data/sets/lsun.h"

#include <lmdb.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "gradus/data/files/input_file.h"

namespace gradus::data {
namespace {
namespace fs = std::filesystem;

constexpr const char* kOp = "LSUN";

// The fields of a meta page of LMDB 0.9, on 64-bit machines with the file's byte order.
struct MetaPage {
  uint64_t page_number;
  uint16_t padding, flags, lower, upper;
  uint32_t magic, version;
  uint64_t address, map_size;
  struct Tree {
    uint32_t page_size;  // in the first tree
    uint16_t flags, depth;
    uint64_t branch_pages, leaf_pages, overflow_pages, entries, root;
  } free_pages, main;
  uint64_t last_page, transaction;
};
static_assert(sizeof(MetaPage) == 152);

// Errors: FileError unless both meta pages are valid, and all pages that they count lie in the file.
void check_header(const fs::path& path) {
  constexpr uint16_t kMeta = 8;
  constexpr uint32_t kMagic = 0xBEEFC0DE, kVersion = 1, kMinPage = 512, kMaxPage = 1 << 16;
  constexpr uint64_t kNoRoot = ~uint64_t{0}, kMaxDepth = 30;  // LMDB's cursors have 32 levels
  const auto fail = [&](const auto&... parts) { throw FileError(kOp, path.string(), ": ", parts...); };
  InputFile file(path, kOp);
  std::vector<char> head(kMaxPage + sizeof(MetaPage));
  const auto read = size_t(file.read(head.data(), int64_t(head.size())));
  const auto size = uint64_t(file.file_size());
  uint64_t page_size = 0;
  for (int i = 0; i < 2; ++i) {
    MetaPage meta;
    if (file.is_gzip() || read < page_size + sizeof meta) fail("is no LMDB database, or truncated");
    std::memcpy(&meta, head.data() + page_size, sizeof meta);
    if (!(meta.flags & kMeta) || meta.magic != kMagic || meta.version != kVersion)
      fail("is no LMDB database of version ", kVersion);
    const uint32_t page = meta.free_pages.page_size;
    if (!std::has_single_bit(page) || page < kMinPage || page > kMaxPage || (i == 1 && page != page_size))
      fail("has damaged LMDB pages: pages of ", page, " bytes");
    page_size = page;
    if (meta.last_page < 1 || meta.last_page >= size / page_size)
      fail("is truncated: it has ", size, " bytes, expected page ", meta.last_page, " of ", page_size,
           " bytes");
    for (const MetaPage::Tree& tree : {meta.free_pages, meta.main})
      if ((tree.root != kNoRoot && (tree.root < 2 || tree.root > meta.last_page)) || tree.depth > kMaxDepth)
        fail("has a damaged LMDB tree");
    if (meta.address != 0) fail("asks for a fixed address in memory, expected none");
    if (meta.main.flags != 0)
      fail("has LMDB keys with flags ", meta.main.flags, ", expected keys in byte order");
  }
}

}  // namespace

const std::vector<std::string>& lsun_categories() {
  static const std::vector<std::string> kNames = {
      "bedroom",     "bridge",  "church_outdoor", "classroom",  "conference_room",
      "dining_room", "kitchen", "living_room",    "restaurant", "tower"};
  return kNames;
}

// A database and its keys.
class LSUN::Database {
 public:
  explicit Database(fs::path folder) : folder_(std::move(folder)) {
    check_header(folder_ / "data.mdb");
    check(mdb_env_create(&env_));
    try {
      file_size_ = fs::file_size(folder_ / "data.mdb");
      check(mdb_env_set_mapsize(env_, file_size_));  // not the file's map_size, which may be any number
      check(mdb_env_open(env_, folder_.c_str(), MDB_RDONLY | MDB_NOLOCK | MDB_NORDAHEAD | MDB_NOTLS, 0));
      read_keys();
    } catch (...) {
      mdb_env_close(env_);
      throw;
    }
  }
  ~Database() { mdb_env_close(env_); }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  int64_t size() const { return int64_t(key_ends_.size()) - 1; }
  std::string_view key(int64_t i) const {
    const uint64_t begin = key_ends_[size_t(i)];
    return std::string_view(keys_).substr(begin, key_ends_[size_t(i) + 1] - begin);
  }

  Image image(int64_t i, const DecodeOptions& options) const {
    const std::string record = concat(folder_.string(), ": record ", i);
    const std::string_view text = key(i);
    MDB_val name{text.size(), const_cast<char*>(text.data())}, value;
    Transaction transaction(*this);
    check(mdb_get(transaction.get(), database_, &name, &value));
    if (value.mv_size > file_size_) throw FileError(kOp, record, " is damaged: it is larger than the file");
    if (value.mv_size > size_t(std::max<int64_t>(options.max_bytes, 0)))
      throw FileError(kOp, record, " has ", value.mv_size, " bytes, more than the limit of ",
                      options.max_bytes);
    const auto* bytes = static_cast<const uint8_t*>(value.mv_data);
    return decode_image(std::vector<uint8_t>(bytes, bytes + value.mv_size), record, options);
  }

 private:
  class Transaction {
   public:
    explicit Transaction(const Database& database) {
      database.check(mdb_txn_begin(database.env_, nullptr, MDB_RDONLY, &transaction_));
    }
    ~Transaction() { mdb_txn_abort(transaction_); }
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    MDB_txn* get() const { return transaction_; }

   private:
    MDB_txn* transaction_ = nullptr;
  };

  // Errors: FileError for LMDB's error.
  void check(int error) const {
    if (error != MDB_SUCCESS) throw FileError(kOp, folder_.string(), ": ", mdb_strerror(error));
  }

  void read_keys();

  const fs::path folder_;
  MDB_env* env_ = nullptr;
  MDB_dbi database_ = 0;
  uint64_t file_size_ = 0;
  std::string keys_;  // concatenated
  std::vector<uint64_t> key_ends_ = {0};
};

void LSUN::Database::read_keys() {
  Transaction transaction(*this);
  check(mdb_dbi_open(transaction.get(), nullptr, 0, &database_));
  MDB_stat stat;
  check(mdb_stat(transaction.get(), database_, &stat));
  struct Cursor {
    MDB_cursor* p = nullptr;
    ~Cursor() {
      if (p) mdb_cursor_close(p);
    }
  } cursor;
  check(mdb_cursor_open(transaction.get(), database_, &cursor.p));
  MDB_val key;
  int error = mdb_cursor_get(cursor.p, &key, nullptr, MDB_FIRST);
  for (; error == MDB_SUCCESS; error = mdb_cursor_get(cursor.p, &key, nullptr, MDB_NEXT)) {
    keys_.append(static_cast<const char*>(key.mv_data), key.mv_size);
    key_ends_.push_back(keys_.size());
    if (uint64_t(size()) > stat.ms_entries) break;  // a cycle of pages
  }
  if (error != MDB_NOTFOUND) check(error);
  if (size() == 0) throw FileError(kOp, folder_.string(), ": has no images");
  if (uint64_t(size()) != stat.ms_entries)
    throw FileError(kOp, folder_.string(), ": is damaged: expected ", stat.ms_entries, " keys, got ",
                    error == MDB_NOTFOUND ? "" : "at least ", size());
}

LSUN::LSUN(const fs::path& dir, const LSUNOptions& options)
    : ImageDataset(options.transform), decode_(options.decode), classes_(options.classes) {
  if (classes_.empty()) throw ValueError(kOp, "classes must have at least one name, got none");
  if (classes_.size() == 1 && (classes_[0] == "train" || classes_[0] == "val")) {
    const std::string split = classes_[0];
    classes_ = lsun_categories();
    for (std::string& name : classes_) name += "_" + split;
  }
  for (const std::string& name : classes_) {
    databases_.push_back(std::make_shared<const Database>(dir / (name + "_lmdb")));
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + databases_.back()->size());
  }
}

int64_t LSUN::label(int64_t index) const {
  check_index(index);
  return std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin();
}

int64_t LSUN::index_in_class(int64_t index) const {
  const int64_t class_index = label(index);
  return index - (class_index == 0 ? 0 : ends_[size_t(class_index) - 1]);
}

std::string LSUN::key(int64_t index) const {
  return std::string(database_of(index).key(index_in_class(index)));
}

Image LSUN::image(int64_t index) const { return database_of(index).image(index_in_class(index), decode_); }

}  // namespace gradus::data
