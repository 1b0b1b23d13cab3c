// Implementation of the PNG decoder with libpng: decodes a box of the image to 8-bit gray, RGB or palette
// indices, with limits against malicious files. Callers check is_png, then call read_png_header, then
// decode_png with a box inside the image and the header's channels, or 3 for a gray file without kIndices.
// Errors: FileError; with DecodeOptions::allow_damaged, damage after the header leaves the remaining pixels
// black instead. Functions have no shared state and may run on any thread.
#include "gradus/data/images/encoded_image.h"

#include <png.h>

#include <algorithm>
#include <cctype>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <string_view>

#include "gradus/data/images/orientation.h"

namespace gradus::data::internal {
namespace {

constexpr size_t kSignatureBytes = 8;
constexpr int64_t kMaxWidth = 1'000'000;  // libpng allocates two rows of up to 8 bytes per pixel

uint32_t big_endian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

// Information from the chunk structure, without decompression.
struct ChunkSummary {
  uint64_t packed_bytes = 0;  // total size of the IDAT chunks
  int orientation = 1;
};

// Walks over the chunks (length, type, data, CRC) up to IEND, without checking CRCs. `file` is a PNG
// (is_png).
// Errors: FileError if a chunk extends beyond the end of the file, or IEND is missing. With allow_damaged
// there are no errors: returns the information before the damage.
ChunkSummary scan_chunks(const EncodedImage& file) {
  ChunkSummary found;
  const std::span<const uint8_t> all(file.bytes);
  for (size_t at = kSignatureBytes;;) {
    if (all.size() - at < 12) {
      if (file.options.allow_damaged) return found;
      file.fail("is cut short: the PNG has no IEND chunk in its ", all.size(), " bytes");
    }
    const uint64_t length = big_endian(&all[at]);
    const std::string_view type(reinterpret_cast<const char*>(&all[at + 4]), 4);
    const bool is_name =
        std::all_of(type.begin(), type.end(), [](unsigned char c) { return std::isalpha(c); });
    const bool fits = length <= all.size() - at - 12;
    if (!is_name || !fits) {
      if (file.options.allow_damaged) return found;
      if (!is_name) file.fail("damaged PNG: no chunk begins at byte ", at);
      file.fail("is cut short: PNG chunk ", type, " at byte ", at, " claims ", length, " bytes, and ",
                all.size() - at - 12, " are left");
    }
    const std::span<const uint8_t> data = all.subspan(at + 8, length);
    if (type == "IDAT") found.packed_bytes += length;
    if (type == "eXIf") found.orientation = exif_orientation(data);
    if (type == "IEND") return found;
    at += 12 + length;
  }
}

// libpng's error callback must not return, so on_error longjmps to guarded(), which throws.
struct State {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf jump;
  char text[256] = {};            // libpng's error message
  const uint8_t* next = nullptr;  // next byte of the file for libpng to read
  size_t left = 0;                // number of bytes from `next` to the end

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void on_error(png_structp png, png_const_charp text) {
  auto& state = *static_cast<State*>(png_get_error_ptr(png));
  std::snprintf(state.text, sizeof state.text, "%s", text);
  std::longjmp(state.jump, 1);
}

// Ignores warnings, which concern chunks that do not affect the pixels.
void on_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto& state = *static_cast<State*>(png_get_io_ptr(png));
  if (count > state.left) png_error(png, "the file ends early");
  std::memcpy(to, state.next, count);
  state.next += count;
  state.left -= count;
}

// Decodes one file, which must outlive the reader: read_header, then at most one decode.
class PngReader {
 public:
  explicit PngReader(const EncodedImage& file) : file_(file) {
    state_.next = file.bytes.data();
    state_.left = file.bytes.size();
    guarded([this] {
      state_.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state_, on_error, on_warning);
      if (state_.png) state_.info = png_create_info_struct(state_.png);
    });
    if (!state_.info) throw std::bad_alloc();
  }

  ImageHeader read_header() {
    guarded([this] {
      png_structp png = state_.png;
      png_set_read_fn(png, &state_, read_bytes);
      // Skips text and color profile chunks, whose decompressed size is unbounded.
      png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      png_set_chunk_malloc_max(png, 1 << 20);
      png_set_user_limits(png, kMaxWidth, PNG_UINT_31_MAX);
      if (file_.options.allow_damaged) {
        png_set_crc_action(png, PNG_CRC_WARN_USE, PNG_CRC_WARN_DISCARD);
      } else {
        png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
      }
      png_read_info(png, state_.info);
    });
    const int64_t height = png_get_image_height(state_.png, state_.info);
    const int64_t width = png_get_image_width(state_.png, state_.info);
    file_.check_size(height, width);
    const int type = png_get_color_type(state_.png, state_.info);
    if (file_.options.mode == ColorMode::kIndices) {
      const int bits = png_get_bit_depth(state_.png, state_.info);
      if ((type != PNG_COLOR_TYPE_PALETTE && type != PNG_COLOR_TYPE_GRAY) || bits > 8)
        file_.fail("expected gray values or a palette's of at most 8 bits, got ", bits, " bits of ",
                   type == PNG_COLOR_TYPE_GRAY         ? "gray"
                   : type == PNG_COLOR_TYPE_GRAY_ALPHA ? "gray and alpha"
                                                       : "colors");
      return {.height = height, .width = width, .channels = 1};
    }
    const bool is_gray = type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_GRAY_ALPHA;
    return {.height = height, .width = width, .channels = is_gray ? 1 : 3};
  }

  // Checks that the compressed bytes can expand to all pixels: deflate's maximal compression ratio is 1032.
  void check_packed_size(uint64_t packed_bytes, int64_t height) {
    constexpr uint64_t kDeflateRatio = 1032;
    const uint64_t needed = png_get_rowbytes(state_.png, state_.info) * static_cast<uint64_t>(height);
    if (needed / kDeflateRatio > packed_bytes && !file_.options.allow_damaged)
      file_.fail("is cut short: its ", packed_bytes, " bytes of pixels cannot unpack to the ", needed,
                 " that the header claims");
  }

  // Returns the pixels [box.height, box.width, channels] of the box, in pixels of the stored image.
  Image decode(Box box, int64_t channels) {
    const int passes = set_output(channels);
    const int64_t width = png_get_image_width(state_.png, state_.info);
    const int64_t height = png_get_image_height(state_.png, state_.info);
    const size_t row_bytes = static_cast<size_t>(width * channels);
    if (png_get_rowbytes(state_.png, state_.info) != row_bytes)
      file_.fail("unsupported PNG: a row is ", png_get_rowbytes(state_.png, state_.info), " bytes, expected ",
                 row_bytes);
    // An interlaced image is read as a whole.
    const bool is_whole = passes > 1 || box == Box{0, 0, width, height};
    Image out(is_whole ? height : box.height, is_whole ? width : box.width, channels);
    uint8_t* const to = out.mutable_data();
    if (file_.options.allow_damaged) std::memset(to, 0, static_cast<size_t>(out.bytes()));
    std::vector<uint8_t> row(is_whole ? 0 : row_bytes);
    uint8_t* const scratch = row.data();
    const size_t bytes = static_cast<size_t>(box.width * channels);
    read_rows(
        passes, is_whole ? height : box.top + box.height,
        [=](int64_t y) { return is_whole ? to + static_cast<size_t>(y) * row_bytes : scratch; },
        [=](int64_t y) {
          if (is_whole || y < box.top) return;
          std::memcpy(to + static_cast<size_t>(y - box.top) * bytes, scratch + box.left * channels, bytes);
        });
    return is_whole ? out.crop(box) : out;
  }

 private:
  // Calls `step`, a sequence of library calls, and throws their errors. `step` must not create objects with
  // destructors, which longjmp skips.
  template <class Step> void guarded(const Step& step) {
    if (setjmp(state_.jump)) file_.fail("damaged or unsupported PNG: ", state_.text);
    step();
  }

  // Configures libpng to output rows of 8-bit gray, RGB or indices. Returns the number of passes over rows.
  int set_output(int64_t channels) {
    const bool as_indices = file_.options.mode == ColorMode::kIndices;
    int passes = 1;
    guarded([&] {
      png_structp png = state_.png;
      if (as_indices) {
        png_set_packing(png);
      } else {
        png_set_palette_to_rgb(png);
        png_set_expand_gray_1_2_4_to_8(png);
        png_set_strip_16(png);
        png_set_strip_alpha(png);
        if (channels == 3) png_set_gray_to_rgb(png);
      }
      passes = png_set_interlace_handling(png);
      png_read_update_info(png, state_.info);
    });
    return passes;
  }

  // Reads rows 0 to rows - 1, `passes` times (Adam7 interlacing). Row y is written to target(y), then done(y)
  // is called. With allow_damaged, stops silently at an error.
  template <class Target, class Done>
  void read_rows(int passes, int64_t rows, const Target& target, const Done& done) {
    try {
      guarded([&] {
        for (int pass = 0; pass < passes; ++pass)
          for (int64_t y = 0; y < rows; ++y) {
            png_read_row(state_.png, target(y), nullptr);
            done(y);
          }
        // Also verifies the checksum of the last chunk.
        if (rows == png_get_image_height(state_.png, state_.info)) png_read_end(state_.png, nullptr);
      });
    } catch (const FileError&) {
      if (!file_.options.allow_damaged) throw;
    }
  }

  const EncodedImage& file_;
  State state_;
};

}  // namespace

bool is_png(const EncodedImage& file) {
  return file.bytes.size() >= kSignatureBytes && png_sig_cmp(file.bytes.data(), 0, kSignatureBytes) == 0;
}

ImageHeader read_png_header(const EncodedImage& file) {
  const ChunkSummary found = scan_chunks(file);
  PngReader reader(file);
  ImageHeader header = reader.read_header();
  reader.check_packed_size(found.packed_bytes, header.height);
  header.orientation = found.orientation;
  return header;
}

Image decode_png(const EncodedImage& file, Box box, int64_t channels) {
  PngReader reader(file);
  reader.read_header();
  return reader.decode(box, channels);
}

}  // namespace gradus::data::internal
