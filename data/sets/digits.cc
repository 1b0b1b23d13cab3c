// GeneratedDigits: draws u8 images [n, 1, 28, 28] of white digits on black, and their labels [n]. Each image
// picks a label and a stroke template, jitters, rotates, slants and scales the template, displaces the result
// by an elastic field, and rasterizes strokes of varying width. Random numbers are Philox(seed, split and
// image index), so an image does not depend on the number of threads.
#include "gradus/data/sets/digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::data {
namespace {

constexpr int kSide = 28;

struct Point {
  float x, y;
};

// Points in a box of 100 x 100 units, y downward. A smooth stroke is a Catmull-Rom spline through the points.
struct Stroke {
  bool smooth;
  std::vector<Point> points;
};
using Glyph = std::vector<Stroke>;

constexpr bool kSmooth = true, kStraight = false;

// clang-format off

// The variants of each digit.
const std::array<std::vector<Glyph>, 10>& glyphs() {
  static const std::array<std::vector<Glyph>, 10> all = {{
      {  // 0: round; narrow; begun and ended at the top with a small overlap; left open
          {{kSmooth, {{50, 0}, {17, 15}, {5, 50}, {17, 86}, {50, 100}, {83, 86}, {95, 50}, {83, 15},
            {50, 0}}}},
          {{kSmooth, {{55, 0}, {30, 20}, {20, 55}, {30, 90}, {50, 100}, {70, 85}, {80, 45}, {72, 10},
            {55, 0}}}},
          {{kSmooth, {{62, 6}, {30, 8}, {8, 40}, {15, 80}, {45, 100}, {80, 85}, {93, 45}, {75, 12},
            {45, 4}, {35, 14}}}},
          {{kSmooth, {{45, 2}, {15, 20}, {6, 55}, {20, 90}, {55, 100}, {88, 80}, {93, 40}, {75, 10},
            {58, 6}}}},
      },
      {  // 1: bar; bar with a flag; with a flag and a foot; slightly bent
          {{kStraight, {{50, 0}, {50, 100}}}},
          {{kStraight, {{28, 24}, {55, 0}, {55, 100}}}},
          {{kStraight, {{25, 22}, {52, 0}, {52, 100}}}, {kStraight, {{22, 100}, {82, 100}}}},
          {{kSmooth, {{58, 0}, {52, 35}, {48, 70}, {47, 100}}}},
      },
      {  // 2: with a straight foot; with a loop; with a wavy foot; angular
          {{kSmooth, {{12, 26}, {30, 4}, {62, 1}, {86, 20}, {76, 46}, {45, 74}, {10, 98}}},
            {kStraight, {{10, 98}, {92, 95}}}},
          {{kSmooth, {{14, 20}, {40, 0}, {75, 10}, {78, 40}, {50, 72}, {20, 95}, {6, 86}, {22, 76},
            {50, 90}, {95, 94}}}},
          {{kSmooth, {{10, 30}, {20, 8}, {55, 0}, {82, 18}, {70, 50}, {30, 82}, {8, 100}}},
            {kSmooth, {{8, 100}, {35, 88}, {65, 98}, {95, 90}}}},
          {{kStraight, {{14, 12}, {40, 0}, {74, 6}, {80, 36}, {12, 100}, {88, 100}}}},
      },
      {  // 3: two bows; with a flat top; with a small loop in the middle; flattened
          {{kSmooth, {{14, 16}, {42, 0}, {76, 12}, {72, 38}, {40, 48}}}, {kSmooth, {{40, 48}, {80, 58},
            {86, 82}, {50, 100}, {10, 86}}}},
          {{kStraight, {{14, 2}, {82, 2}, {44, 40}}}, {kSmooth, {{44, 40}, {80, 50}, {86, 78},
            {52, 100}, {12, 88}}}},
          {{kSmooth, {{18, 10}, {50, 0}, {78, 18}, {62, 42}, {38, 50}, {36, 42}, {56, 46}, {84, 62},
            {78, 90}, {44, 100}, {10, 90}}}},
          {{kSmooth, {{10, 8}, {50, 2}, {82, 22}, {50, 46}}}, {kSmooth, {{50, 46}, {90, 66}, {70, 94},
            {30, 100}, {5, 94}}}},
      },
      {  // 4: open top; closed; open with a short bar; with a curved left arm
          {{kStraight, {{30, 2}, {10, 56}, {88, 54}}}, {kStraight, {{68, 20}, {62, 100}}}},
          {{kStraight, {{68, 0}, {6, 64}, {95, 64}}}, {kStraight, {{68, 0}, {68, 100}}}},
          {{kStraight, {{18, 2}, {16, 50}, {80, 50}}}, {kStraight, {{78, 2}, {76, 100}}}},
          {{kSmooth, {{22, 0}, {12, 30}, {24, 52}, {55, 52}, {80, 40}}}, {kSmooth, {{84, 5}, {80, 45},
            {68, 100}}}},
      },
      {  // 5: with a roof; in one line; angular
          {{kStraight, {{88, 3}, {26, 3}, {20, 44}}}, {kSmooth, {{20, 44}, {50, 36}, {84, 52}, {84, 82},
            {48, 100}, {8, 88}}}},
          {{kSmooth, {{86, 4}, {50, 2}, {26, 12}, {24, 36}, {52, 44}, {82, 60}, {76, 88}, {42, 100},
            {10, 92}}}},
          {{kSmooth, {{30, 4}, {22, 40}, {55, 40}, {86, 60}, {74, 92}, {36, 100}, {10, 90}}},
            {kStraight, {{30, 4}, {90, 2}}}},
      },
      {  // 6: bowed; straight back; tall with a small loop
          {{kSmooth, {{76, 3}, {40, 20}, {15, 58}, {24, 92}, {58, 100}, {84, 80}, {70, 54}, {40, 54},
            {18, 76}}}},
          {{kSmooth, {{50, 0}, {28, 35}, {16, 72}, {36, 98}, {70, 96}, {84, 72}, {62, 52}, {32, 60},
            {20, 78}}}},
          {{kSmooth, {{66, 0}, {34, 26}, {20, 64}, {30, 95}, {56, 100}, {70, 84}, {56, 68}, {36, 72},
            {26, 86}}}},
      },
      {  // 7: plain; with a bar; with a hook; curved
          {{kStraight, {{8, 5}, {90, 4}, {40, 100}}}},
          {{kStraight, {{10, 4}, {90, 4}, {38, 100}}}, {kStraight, {{30, 50}, {82, 48}}}},
          {{kStraight, {{10, 20}, {14, 3}, {90, 3}, {50, 100}}}},
          {{kSmooth, {{6, 10}, {30, 3}, {60, 8}, {88, 4}}}, {kSmooth, {{88, 4}, {62, 40}, {50, 70},
            {46, 100}}}},
      },
      {  // 8: in one line; two rings; begun at the top right
          {{kSmooth, {{50, 47}, {20, 28}, {30, 5}, {65, 1}, {80, 22}, {50, 47}, {16, 72}, {30, 97},
            {70, 98}, {85, 72}, {50, 47}}}},
          {{kSmooth, {{50, 0}, {24, 10}, {22, 34}, {50, 46}, {78, 34}, {76, 10}, {50, 0}}},
            {kSmooth, {{50, 46}, {17, 58}, {14, 88}, {50, 100}, {86, 88}, {83, 58}, {50, 46}}}},
          {{kSmooth, {{82, 12}, {50, 0}, {22, 16}, {40, 40}, {74, 62}, {78, 90}, {46, 100}, {20, 84},
            {34, 60}, {68, 40}, {84, 10}}}},
      },
      {  // 9: straight tail; curved tail; in one line
          {{kSmooth, {{80, 20}, {58, 0}, {26, 8}, {16, 32}, {40, 50}, {70, 42}, {82, 18}}},
            {kStraight, {{82, 12}, {72, 100}}}},
          {{kSmooth, {{82, 16}, {55, 0}, {22, 12}, {20, 38}, {48, 50}, {78, 34}, {84, 14}}},
            {kSmooth, {{84, 14}, {84, 55}, {70, 90}, {42, 100}, {16, 90}}}},
          {{kSmooth, {{78, 12}, {42, 2}, {18, 26}, {36, 48}, {66, 36}, {80, 14}, {74, 50}, {56, 80},
            {36, 100}}}},
      },
  }};
  return all;
}
// clang-format on

// The sequence of random numbers of one image.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  uint32_t bits() {
    if (used_ == 4) {
      block_ = philox(seed_, stream_, counter_++);
      used_ = 0;
    }
    return block_[used_++];
  }
  float uniform(float low, float high) { return low + (high - low) * uniform_f32(bits()); }
  // Approximately normal, mean 0, standard deviation 1, within [-3.5, 3.5]: a sum of four uniform numbers.
  float normal() {
    float sum = -2.f;
    for (int i = 0; i < 4; ++i) sum += uniform_f32(bits());
    return sum * 1.7320508f;
  }
  int uniform_int(int n) { return static_cast<int>((uint64_t(bits()) * static_cast<uint64_t>(n)) >> 32); }
  bool bernoulli(float p) { return uniform_f32(bits()) < p; }

 private:
  uint64_t seed_, stream_, counter_ = 0;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

// A smooth random displacement in pixels: random vectors on a 5 x 5 grid over the image, interpolated.
class ElasticField {
 public:
  ElasticField(Draws& draws, float amplitude) {
    for (auto& row : grid_)
      for (Point& p : row) p = {amplitude * draws.normal(), amplitude * draws.normal()};
  }
  Point move(Point p) const {
    const float gx = std::clamp(p.x / kCell, 0.f, kCells - .001f),
                gy = std::clamp(p.y / kCell, 0.f, kCells - .001f);
    const int i = static_cast<int>(gx), j = static_cast<int>(gy);
    const float u = ease(gx - static_cast<float>(i)), v = ease(gy - static_cast<float>(j));
    const auto mix = [](Point a, Point b, float t) {
      return Point{a.x + t * (b.x - a.x), a.y + t * (b.y - a.y)};
    };
    const Point d =
        mix(mix(grid_[j][i], grid_[j][i + 1], u), mix(grid_[j + 1][i], grid_[j + 1][i + 1], u), v);
    return {p.x + d.x, p.y + d.y};
  }

 private:
  static constexpr float kCells = 4, kCell = kSide / kCells;
  static float ease(float t) { return t * t * (3 - 2 * t); }
  std::array<std::array<Point, 5>, 5> grid_;
};

// The coverage of each pixel by ink, in [0, 1]. Coordinates are in pixels, y downward.
class Canvas {
 public:
  Canvas() { ink_.fill(0.f); }

  // Draws a line with round ends, radius from `ra` to `rb`, and antialiased edges of one pixel.
  void line(Point a, Point b, float ra, float rb) {
    const float reach = std::max(ra, rb) + .6f;
    const int x0 = std::max(0, static_cast<int>(std::min(a.x, b.x) - reach));
    const int x1 = std::min(kSide - 1, static_cast<int>(std::max(a.x, b.x) + reach));
    const int y0 = std::max(0, static_cast<int>(std::min(a.y, b.y) - reach));
    const int y1 = std::min(kSide - 1, static_cast<int>(std::max(a.y, b.y) + reach));
    const float dx = b.x - a.x, dy = b.y - a.y, inverse = 1.f / std::max(dx * dx + dy * dy, 1e-6f);
    for (int y = y0; y <= y1; ++y) {
      const float py = static_cast<float>(y) + .5f - a.y;
      float* row = &ink_[static_cast<size_t>(y * kSide)];
      for (int x = x0; x <= x1; ++x) {
        const float px = static_cast<float>(x) + .5f - a.x;
        const float t = std::min(std::max((px * dx + py * dy) * inverse, 0.f), 1.f);
        const float ex = px - t * dx, ey = py - t * dy;
        const float cover = ra + t * (rb - ra) + .5f - std::sqrt(ex * ex + ey * ey);
        row[x] = std::max(row[x], std::min(cover, 1.f));
      }
    }
  }

  // Converts to bytes: coverage times `pen`, plus uniform noise in [-noise, noise] per pixel.
  void develop(Draws& draws, float pen, float noise, uint8_t* out) const {
    uint32_t bits = 0;
    for (int i = 0; i < kSide * kSide; ++i) {
      if (i % 4 == 0) bits = draws.bits();
      const float shake = (static_cast<float>(bits & 255) - 127.5f) * (noise / 127.5f);
      bits >>= 8;
      out[i] = static_cast<uint8_t>(255.f * std::clamp(pen * ink_[static_cast<size_t>(i)] + shake, 0.f, 1.f));
    }
  }

 private:
  std::array<float, kSide * kSide> ink_;
};

// Returns the point at t in [0, 1] between p[i] and p[i + 1] on the Catmull-Rom spline. A spline whose first
// and last points coincide is closed.
Point catmull_rom(const std::vector<Point>& p, size_t i, float t) {
  const Point &b = p[i], &c = p[i + 1];
  const bool closed = p.front().x == p.back().x && p.front().y == p.back().y;
  const Point& a = i > 0 ? p[i - 1] : (closed ? p[p.size() - 2] : b);
  const Point& d = i + 2 < p.size() ? p[i + 2] : (closed ? p[1] : c);
  const auto at = [t](float a, float b, float c, float d) {
    return b + .5f * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
  };
  return {at(a.x, b.x, c.x, d.x), at(a.y, b.y, c.y, d.y)};
}

// Writes a 28 x 28 image of a random digit of class `label` to `out`, row-major.
void draw_digit(Draws& draws, int label, uint8_t* out) {
  const std::vector<Glyph>& variants = glyphs()[static_cast<size_t>(label)];
  const Glyph& glyph = variants[static_cast<size_t>(draws.uniform_int(static_cast<int>(variants.size())))];
  const float angle = draws.normal() * .2f, slant = .08f + draws.normal() * .2f;
  const float height = draws.uniform(15.f, 21.5f), width = height * draws.uniform(.5f, .92f);
  const float cx = kSide / 2.f + draws.uniform(-2.2f, 2.2f), cy = kSide / 2.f + draws.uniform(-2.2f, 2.2f);
  const float cosine = std::cos(angle), sine = std::sin(angle);
  const float shake = draws.uniform(1.f, 6.f);
  const ElasticField field(draws, draws.uniform(.2f, 1.5f));
  // Maps a point of the template's 100 x 100 box to pixels.
  const auto place = [&](Point p) {
    const float y = (p.y * .01f - .5f) * height, x = (p.x * .01f - .5f) * width - slant * y;
    return field.move({cx + cosine * x - sine * y, cy + sine * x + cosine * y});
  };
  Canvas canvas;
  const float radius = draws.uniform(.65f, 1.75f), swell = draws.uniform(0.f, .3f),
              phase = draws.uniform(0.f, 6.28f);
  float drawn = 0.f;  // length drawn so far, which modulates the pen's width
  const auto pressure = [&] { return radius * (1.f + swell * std::sin(phase + drawn * .35f)); };
  for (const Stroke& stroke : glyph) {
    std::vector<Point> points = stroke.points;
    const bool closed = points.front().x == points.back().x && points.front().y == points.back().y;
    for (Point& p : points) p = {p.x + shake * draws.normal(), p.y + shake * draws.normal()};
    // Closes most closed shapes exactly.
    if (closed && draws.bernoulli(.8f)) points.back() = points.front();
    const int steps = stroke.smooth ? 5 : 4;
    Point from = place(points[0]);
    float from_radius = pressure();
    for (size_t i = 0; i + 1 < points.size(); ++i) {
      for (int k = 1; k <= steps; ++k) {
        const float t = static_cast<float>(k) / static_cast<float>(steps);
        const Point on_line{points[i].x + t * (points[i + 1].x - points[i].x),
                            points[i].y + t * (points[i + 1].y - points[i].y)};
        const Point to = place(stroke.smooth ? catmull_rom(points, i, t) : on_line);
        drawn += std::hypot(to.x - from.x, to.y - from.y);
        const float to_radius = pressure();
        canvas.line(from, to, from_radius, to_radius);
        from = to;
        from_radius = to_radius;
      }
    }
  }
  if (draws.bernoulli(.15f)) {  // a stray mark
    const Point a{draws.uniform(0, kSide), draws.uniform(0, kSide)};
    const float turn = draws.uniform(0.f, 2 * std::numbers::pi_v<float>), length = draws.uniform(1.f, 6.f);
    canvas.line(a, {a.x + length * std::cos(turn), a.y + length * std::sin(turn)}, radius * .6f,
                radius * .6f);
  }
  const float pen = draws.uniform(.75f, 1.15f), noise = draws.uniform(0.f, .06f);
  canvas.develop(draws, pen, noise, out);
}

ImagesInMemory generate(const GeneratedDigitsOptions& options) {
  const int64_t n = options.size.value_or(options.train ? 60'000 : 10'000), pixels = n * kSide * kSide;
  if (n < 1) throw ValueError("GeneratedDigits", "size must be at least 1, got ", n);
  constexpr uint64_t kDigitStream = uint64_t{5} << 60;
  const uint64_t stream = kDigitStream | (options.train ? 0 : uint64_t{1} << 59);
  const auto draw = [&](uint8_t* out) {
    parallel_for(0, n, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Draws draws(options.seed, stream | static_cast<uint64_t>(i));
        const int label = draws.uniform_int(10);
        out[pixels + i] = static_cast<uint8_t>(label);
        draw_digit(draws, label, out + i * kSide * kSide);
      }
    });
  };
  // Layout: images, then labels. host_tensor makes the bytes once per key and shares them.
  const HostTensor all =
      host_tensor(concat("digits:", options.train, ':', n, ':', options.seed), pixels + n, draw);
  const Shape image_shape{n, 1, kSide, kSide}, label_shape{n};
  return ImagesInMemory("GeneratedDigits",
                        view_as_strided(all.bytes, image_shape, row_major_strides(image_shape), 0),
                        view_as_strided(all.bytes, label_shape, row_major_strides(label_shape), pixels), 10,
                        options.transform, all.memory);
}

}  // namespace

GeneratedDigits::GeneratedDigits(GeneratedDigitsOptions options) : ImagesInMemory(generate(options)) {}

}  // namespace gradus::data
