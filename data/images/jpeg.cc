// JPEG decoder with libjpeg-turbo: decodes a box of an image that the library scales to 1/1, 1/2, 1/4 or 1/8,
// as u8[H, W, C], C 3 (RGB), or 1 for a gray file, before EXIF orientation is applied. Limits of pixels,
// scans and memory protect against malicious files. The caller (image_decoder.cc) passes a box inside the
// scaled image, and 1 channel only for a gray file. The library's errors, and without
// DecodeOptions::allow_damaged its warnings of damaged data, become FileErrors.
#include "gradus/data/images/encoded_image.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <span>

// jerror.h needs size_t and FILE to be declared before.
#include <jerror.h>
#include <jpeglib.h>

#include "gradus/data/images/orientation.h"

namespace gradus::data::internal {
namespace {

// libjpeg-turbo reports errors through a callback that must not return, and exceptions cannot pass through
// the C library. So on_error longjmps to guarded(), which throws.
struct ErrorManager : jpeg_error_mgr {
  std::jmp_buf jump;
  char text[JMSG_LENGTH_MAX] = {};
  bool allow_damaged = false;  // false: a warning about damaged data is an error
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto& errors = static_cast<ErrorManager&>(*info->err);
  errors.format_message(info, errors.text);
  std::longjmp(errors.jump, 1);
}

// Returns whether a warning does not affect the pixels.
bool is_harmless(int code) {
  return code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM;
}

// Receives warnings (level -1) and trace messages (level 0 and above).
void on_message(j_common_ptr info, int level) {
  const auto& errors = static_cast<ErrorManager&>(*info->err);
  if (level < 0 && !errors.allow_damaged && !is_harmless(errors.msg_code)) on_error(info);
}

void ignore_message(j_common_ptr) {}

// Limits the number of scans: a small malicious file can declare many scans, each of which processes all
// pixels.
struct ScanLimit : jpeg_progress_mgr {
  int scans = 0;  // maximum
};

void check_scans(j_common_ptr info) {
  const int limit = static_cast<ScanLimit&>(*info->progress).scans;
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= limit) return;
  auto& errors = static_cast<ErrorManager&>(*info->err);
  std::snprintf(errors.text, sizeof errors.text, "more than %d scans, the limit for an image of its size",
                limit);
  std::longjmp(errors.jump, 1);
}

// Returns the maximum number of scans, 32 to 500: the smaller the image, the more scans.
int max_scans(int64_t pixels, int64_t max_pixels) {
  return static_cast<int>(std::clamp<int64_t>(16 * max_pixels / pixels, 32, 500));
}

// The library's decoder; the destructor frees its allocations.
struct State {
  jpeg_decompress_struct info{};
  ErrorManager errors{};
  ScanLimit scan_limit{};

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { jpeg_destroy_decompress(&info); }
};

// Converts Adobe's inverted CMYK to RGB as Pillow does.
void rgb_of_cmyk(const uint8_t* cmyk, uint8_t* rgb, int64_t pixels) {
  for (int64_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    const int light = cmyk[3];  // 255 - black
    for (int k = 0; k < 3; ++k) {
      const int product = (255 - cmyk[k]) * light + 128;
      rgb[k] = static_cast<uint8_t>(std::max(0, light - ((product + (product >> 8)) >> 8)));
    }
  }
}

class JpegReader {
 public:
  explicit JpegReader(const EncodedImage& file) : file_(file) {
    info_.err = jpeg_std_error(&state_.errors);
    state_.errors.error_exit = on_error;
    state_.errors.emit_message = on_message;
    state_.errors.output_message = ignore_message;
    state_.errors.allow_damaged = file.options.allow_damaged;
    guarded([this] {
      jpeg_create_decompress(&info_);
      jpeg_mem_src(&info_, file_.bytes.data(), static_cast<unsigned long>(file_.bytes.size()));
    });
  }

  // Without `with_orientation`, the header's orientation is 1.
  ImageHeader read_header(bool with_orientation) {
    guarded([this, with_orientation] {
      if (with_orientation) jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
      jpeg_read_header(&info_, TRUE);
    });
    file_.check_size(info_.image_height, info_.image_width);
    const int components = info_.num_components;
    if (components != 1 && components != 3 && components != 4)
      file_.fail("is a JPEG of ", components, " components, expected 1 (gray), 3 (color) or 4 (CMYK)");
    const int64_t pixels = int64_t{info_.image_height} * info_.image_width;
    state_.scan_limit.scans = max_scans(pixels, file_.options.max_pixels);
    state_.scan_limit.progress_monitor = check_scans;
    info_.progress = &state_.scan_limit;
    // For a progressive file the library stores coefficients: 2 bytes for each of up to 4 components.
    info_.mem->max_memory_to_use = static_cast<long>(16 * pixels + (int64_t{64} << 20));
    return {.height = info_.image_height,
            .width = info_.image_width,
            .channels = components == 1 ? 1 : 3,
            .orientation = orientation(),
            .can_scale = true};
  }

  // Comes after read_header. `box` is in pixels of the image scaled by 1/scale.
  Image decode(Box box, int scale, int64_t channels) {
    start(scale, channels);
    const Box all{0, 0, info_.output_width, info_.output_height};
    return is_smoothed() ? read(all, channels).crop(box) : read(box, channels);
  }

 private:
  // Copies the rows of the box. The library writes rows of the image's full width, or of the columns that
  // crop_columns has chosen, to the image directly or through a row buffer.
  Image read(Box box, int64_t channels) {
    JDIMENSION left = 0, width = info_.output_width;
    crop_columns(box, left, width);
    Image out(box.height, box.width, channels);
    uint8_t* to = out.mutable_data();
    const int64_t row_bytes = box.width * channels;
    const bool is_direct = int64_t{width} == box.width && info_.output_components == channels;
    std::vector<uint8_t> row(is_direct ? 0 : size_t{width} * static_cast<size_t>(info_.output_components));
    uint8_t* const scratch = row.data();
    const uint8_t* const from = scratch + (box.left - left) * info_.output_components;
    const bool is_cmyk = info_.output_components == 4;
    read_rows(
        box, [=](int64_t y) { return is_direct ? to + y * row_bytes : scratch; },
        [=](int64_t y) {
          if (is_direct) return;
          if (is_cmyk)
            rgb_of_cmyk(from, to + y * row_bytes, box.width);
          else
            std::memcpy(to + y * row_bytes, from, static_cast<size_t>(row_bytes));
        });
    return out;
  }

  // Returns whether the library smooths blocks across block boundaries: in a progressive file with incomplete
  // scans. Such a file is decoded as a whole, since smoothing needs neighbors outside a cropped box.
  bool is_smoothed() const {
    if (!info_.progressive_mode || !info_.coef_bits) return false;
    const int* bits = info_.coef_bits[0];
    return std::any_of(bits, bits + info_.num_components * DCTSIZE2,
                       [](int missing) { return missing != 0; });
  }

  // Calls `step`, a sequence of library calls, and throws their errors. `step` must not create objects with
  // destructors, which longjmp skips.
  template <class Step> void guarded(const Step& step) {
    if (setjmp(state_.errors.jump)) file_.fail("damaged or unsupported JPEG: ", state_.errors.text);
    step();
  }

  // Returns the EXIF orientation in the first APP1 segment with EXIF data, else 1 (upright).
  int orientation() const {
    static constexpr char kExif[] = {'E', 'x', 'i', 'f', 0, 0};
    for (const jpeg_marker_struct* m = info_.marker_list; m; m = m->next) {
      if (m->data_length < sizeof kExif || std::memcmp(m->data, kExif, sizeof kExif) != 0) continue;
      return exif_orientation(std::span<const uint8_t>(m->data, m->data_length).subspan(sizeof kExif));
    }
    return 1;
  }

  // Starts decoding. A CMYK file is decoded as CMYK, which read() converts to RGB.
  void start(int scale, int64_t channels) {
    guarded([=, this] {
      info_.scale_num = 1;
      info_.scale_denom = static_cast<unsigned>(scale);
      info_.out_color_space = info_.num_components == 4 ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
      jpeg_start_decompress(&info_);
    });
  }

  // Restricts decoding to the columns of the box, plus the neighbors that chroma upsampling at its edges
  // needs. Sets `left` and `width` to the columns that the library decodes, which start at a block boundary.
  void crop_columns(Box box, JDIMENSION& left, JDIMENSION& width) {
    constexpr int64_t kNeighbors = 2;
    // Not restricted: with other chroma sampling some columns would be wrong, and progressive files are
    // smoothed across blocks.
    if (info_.max_h_samp_factor > 2 || info_.progressive_mode) return;
    const int64_t begin = std::max<int64_t>(0, box.left - kNeighbors);
    const int64_t end = std::min<int64_t>(info_.output_width, box.left + box.width + kNeighbors);
    left = static_cast<JDIMENSION>(begin);
    width = static_cast<JDIMENSION>(end - begin);
    guarded([&] {
      if (width < info_.output_width) jpeg_crop_scanline(&info_, &left, &width);
    });
  }

  // Reads each row y of the box (0 is its first row) to target(y), then calls done(y). target(0) also
  // receives the skipped rows above the box.
  template <class Target, class Done> void read_rows(Box box, const Target& target, const Done& done) {
    guarded([&] {
      if (box.top > 0 && !info_.progressive_mode)
        jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(box.top));
      while (info_.output_scanline < box.top) {
        JSAMPROW row = target(0);
        jpeg_read_scanlines(&info_, &row, 1);
      }
      for (int64_t y = 0; y < box.height; ++y) {
        JSAMPROW row = target(y);
        jpeg_read_scanlines(&info_, &row, 1);
        done(y);
      }
      // Also checks the data after the last row.
      if (info_.output_scanline == info_.output_height) jpeg_finish_decompress(&info_);
    });
  }

  const EncodedImage& file_;
  State state_;
  jpeg_decompress_struct& info_ = state_.info;
};

}  // namespace

bool is_jpeg(const EncodedImage& file) {
  static constexpr uint8_t kMagic[] = {0xFF, 0xD8, 0xFF};
  return file.bytes.size() >= sizeof kMagic && std::memcmp(file.bytes.data(), kMagic, sizeof kMagic) == 0;
}

ImageHeader read_jpeg_header(const EncodedImage& file) { return JpegReader(file).read_header(true); }

Image decode_jpeg(const EncodedImage& file, Box box, int scale, int64_t channels) {
  JpegReader reader(file);
  reader.read_header(false);
  return reader.decode(box, scale, channels);
}

}  // namespace gradus::data::internal
