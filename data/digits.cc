#include "gradus/data/digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "gradus/tensor/parallel.h"
#include "gradus/tensor/random.h"

namespace gradus::data {
namespace {

constexpr int kSide = 28;

struct Point {
  float x, y;
};

// Points in a box one unit wide and high, y downwards. A smooth stroke is a Catmull-Rom spline through them.
struct Stroke {
  bool smooth;
  std::vector<Point> points;
};
using Glyph = std::vector<Stroke>;

constexpr bool kSmooth = true, kStraight = false;

// clang-format off
// The ways of writing each digit.
const std::array<std::vector<Glyph>, 10>& glyphs() {
  static const std::array<std::vector<Glyph>, 10> all = {{
      {  // 0: round; narrow; begun and ended at the top with a small overlap; left open
          {{kSmooth, {{.5f, 0}, {.17f, .15f}, {.05f, .5f}, {.17f, .86f}, {.5f, 1}, {.83f, .86f}, {.95f, .5f}, {.83f, .15f}, {.5f, 0}}}},
          {{kSmooth, {{.55f, 0}, {.3f, .2f}, {.2f, .55f}, {.3f, .9f}, {.5f, 1}, {.7f, .85f}, {.8f, .45f}, {.72f, .1f}, {.55f, 0}}}},
          {{kSmooth, {{.62f, .06f}, {.3f, .08f}, {.08f, .4f}, {.15f, .8f}, {.45f, 1}, {.8f, .85f}, {.93f, .45f}, {.75f, .12f}, {.45f, .04f}, {.35f, .14f}}}},
          {{kSmooth, {{.45f, .02f}, {.15f, .2f}, {.06f, .55f}, {.2f, .9f}, {.55f, 1}, {.88f, .8f}, {.93f, .4f}, {.75f, .1f}, {.58f, .06f}}}},
      },
      {  // 1: bar; bar with a flag; with a flag and a foot; slightly bent
          {{kStraight, {{.5f, 0}, {.5f, 1}}}},
          {{kStraight, {{.28f, .24f}, {.55f, 0}, {.55f, 1}}}},
          {{kStraight, {{.25f, .22f}, {.52f, 0}, {.52f, 1}}}, {kStraight, {{.22f, 1}, {.82f, 1}}}},
          {{kSmooth, {{.58f, 0}, {.52f, .35f}, {.48f, .7f}, {.47f, 1}}}},
      },
      {  // 2: with a straight foot; with a loop; with a wavy foot; angular
          {{kSmooth, {{.12f, .26f}, {.3f, .04f}, {.62f, .01f}, {.86f, .2f}, {.76f, .46f}, {.45f, .74f}, {.1f, .98f}}}, {kStraight, {{.1f, .98f}, {.92f, .95f}}}},
          {{kSmooth, {{.14f, .2f}, {.4f, 0}, {.75f, .1f}, {.78f, .4f}, {.5f, .72f}, {.2f, .95f}, {.06f, .86f}, {.22f, .76f}, {.5f, .9f}, {.95f, .94f}}}},
          {{kSmooth, {{.1f, .3f}, {.2f, .08f}, {.55f, 0}, {.82f, .18f}, {.7f, .5f}, {.3f, .82f}, {.08f, 1}}}, {kSmooth, {{.08f, 1}, {.35f, .88f}, {.65f, .98f}, {.95f, .9f}}}},
          {{kStraight, {{.14f, .12f}, {.4f, 0}, {.74f, .06f}, {.8f, .36f}, {.12f, 1}, {.88f, 1}}}},
      },
      {  // 3: two bows; with a flat top; with a small loop in the middle; flattened
          {{kSmooth, {{.14f, .16f}, {.42f, 0}, {.76f, .12f}, {.72f, .38f}, {.4f, .48f}}}, {kSmooth, {{.4f, .48f}, {.8f, .58f}, {.86f, .82f}, {.5f, 1}, {.1f, .86f}}}},
          {{kStraight, {{.14f, .02f}, {.82f, .02f}, {.44f, .4f}}}, {kSmooth, {{.44f, .4f}, {.8f, .5f}, {.86f, .78f}, {.52f, 1}, {.12f, .88f}}}},
          {{kSmooth, {{.18f, .1f}, {.5f, 0}, {.78f, .18f}, {.62f, .42f}, {.38f, .5f}, {.36f, .42f}, {.56f, .46f}, {.84f, .62f}, {.78f, .9f}, {.44f, 1}, {.1f, .9f}}}},
          {{kSmooth, {{.1f, .08f}, {.5f, .02f}, {.82f, .22f}, {.5f, .46f}}}, {kSmooth, {{.5f, .46f}, {.9f, .66f}, {.7f, .94f}, {.3f, 1}, {.05f, .94f}}}},
      },
      {  // 4: open top; closed; open with a short bar; with a curved left arm
          {{kStraight, {{.3f, .02f}, {.1f, .56f}, {.88f, .54f}}}, {kStraight, {{.68f, .2f}, {.62f, 1}}}},
          {{kStraight, {{.68f, 0}, {.06f, .64f}, {.95f, .64f}}}, {kStraight, {{.68f, 0}, {.68f, 1}}}},
          {{kStraight, {{.18f, .02f}, {.16f, .5f}, {.8f, .5f}}}, {kStraight, {{.78f, .02f}, {.76f, 1}}}},
          {{kSmooth, {{.22f, 0}, {.12f, .3f}, {.24f, .52f}, {.55f, .52f}, {.8f, .4f}}}, {kSmooth, {{.84f, .05f}, {.8f, .45f}, {.68f, 1}}}},
      },
      {  // 5: with a roof; in one line; angular
          {{kStraight, {{.88f, .03f}, {.26f, .03f}, {.2f, .44f}}}, {kSmooth, {{.2f, .44f}, {.5f, .36f}, {.84f, .52f}, {.84f, .82f}, {.48f, 1}, {.08f, .88f}}}},
          {{kSmooth, {{.86f, .04f}, {.5f, .02f}, {.26f, .12f}, {.24f, .36f}, {.52f, .44f}, {.82f, .6f}, {.76f, .88f}, {.42f, 1}, {.1f, .92f}}}},
          {{kSmooth, {{.3f, .04f}, {.22f, .4f}, {.55f, .4f}, {.86f, .6f}, {.74f, .92f}, {.36f, 1}, {.1f, .9f}}}, {kStraight, {{.3f, .04f}, {.9f, .02f}}}},
      },
      {  // 6: bowed; straight back; tall with a small loop
          {{kSmooth, {{.76f, .03f}, {.4f, .2f}, {.15f, .58f}, {.24f, .92f}, {.58f, 1}, {.84f, .8f}, {.7f, .54f}, {.4f, .54f}, {.18f, .76f}}}},
          {{kSmooth, {{.5f, 0}, {.28f, .35f}, {.16f, .72f}, {.36f, .98f}, {.7f, .96f}, {.84f, .72f}, {.62f, .52f}, {.32f, .6f}, {.2f, .78f}}}},
          {{kSmooth, {{.66f, 0}, {.34f, .26f}, {.2f, .64f}, {.3f, .95f}, {.56f, 1}, {.7f, .84f}, {.56f, .68f}, {.36f, .72f}, {.26f, .86f}}}},
      },
      {  // 7: plain; with a bar; with a hook; curved
          {{kStraight, {{.08f, .05f}, {.9f, .04f}, {.4f, 1}}}},
          {{kStraight, {{.1f, .04f}, {.9f, .04f}, {.38f, 1}}}, {kStraight, {{.3f, .5f}, {.82f, .48f}}}},
          {{kStraight, {{.1f, .2f}, {.14f, .03f}, {.9f, .03f}, {.5f, 1}}}},
          {{kSmooth, {{.06f, .1f}, {.3f, .03f}, {.6f, .08f}, {.88f, .04f}}}, {kSmooth, {{.88f, .04f}, {.62f, .4f}, {.5f, .7f}, {.46f, 1}}}},
      },
      {  // 8: in one line; two rings; begun at the top right
          {{kSmooth, {{.5f, .47f}, {.2f, .28f}, {.3f, .05f}, {.65f, .01f}, {.8f, .22f}, {.5f, .47f}, {.16f, .72f}, {.3f, .97f}, {.7f, .98f}, {.85f, .72f}, {.5f, .47f}}}},
          {{kSmooth, {{.5f, 0}, {.24f, .1f}, {.22f, .34f}, {.5f, .46f}, {.78f, .34f}, {.76f, .1f}, {.5f, 0}}}, {kSmooth, {{.5f, .46f}, {.17f, .58f}, {.14f, .88f}, {.5f, 1}, {.86f, .88f}, {.83f, .58f}, {.5f, .46f}}}},
          {{kSmooth, {{.82f, .12f}, {.5f, 0}, {.22f, .16f}, {.4f, .4f}, {.74f, .62f}, {.78f, .9f}, {.46f, 1}, {.2f, .84f}, {.34f, .6f}, {.68f, .4f}, {.84f, .1f}}}},
      },
      {  // 9: straight tail; curved tail; in one line
          {{kSmooth, {{.8f, .2f}, {.58f, 0}, {.26f, .08f}, {.16f, .32f}, {.4f, .5f}, {.7f, .42f}, {.82f, .18f}}}, {kStraight, {{.82f, .12f}, {.72f, 1}}}},
          {{kSmooth, {{.82f, .16f}, {.55f, 0}, {.22f, .12f}, {.2f, .38f}, {.48f, .5f}, {.78f, .34f}, {.84f, .14f}}}, {kSmooth, {{.84f, .14f}, {.84f, .55f}, {.7f, .9f}, {.42f, 1}, {.16f, .9f}}}},
          {{kSmooth, {{.78f, .12f}, {.42f, .02f}, {.18f, .26f}, {.36f, .48f}, {.66f, .36f}, {.8f, .14f}, {.74f, .5f}, {.56f, .8f}, {.36f, 1}}}},
      },
  }};
  return all;
}
// clang-format on

// The random numbers of one image, in order.
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
  // About normal, mean 0, standard deviation 1, within [-3.5, 3.5]: a sum of four uniforms.
  float normal() {
    float sum = -2.f;
    for (int i = 0; i < 4; ++i) sum += uniform_f32(bits());
    return sum * 1.7320508f;
  }
  int below(int n) { return static_cast<int>((uint64_t(bits()) * static_cast<uint64_t>(n)) >> 32); }
  bool chance(float p) { return uniform_f32(bits()) < p; }

 private:
  uint64_t seed_, stream_, counter_ = 0;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

// A smooth random displacement: random vectors on a coarse grid over the image, interpolated.
class ElasticField {
 public:
  ElasticField(Draws& draws, float amplitude) {
    for (auto& row : grid_)
      for (Point& p : row) p = {amplitude * draws.normal(), amplitude * draws.normal()};
  }
  Point move(Point p) const {
    const float gx = std::clamp(p.x / kCell, 0.f, kCells - .001f), gy = std::clamp(p.y / kCell, 0.f, kCells - .001f);
    const int i = static_cast<int>(gx), j = static_cast<int>(gy);
    const float u = ease(gx - static_cast<float>(i)), v = ease(gy - static_cast<float>(j));
    const auto mix = [](Point a, Point b, float t) { return Point{a.x + t * (b.x - a.x), a.y + t * (b.y - a.y)}; };
    const Point d = mix(mix(grid_[j][i], grid_[j][i + 1], u), mix(grid_[j + 1][i], grid_[j + 1][i + 1], u), v);
    return {p.x + d.x, p.y + d.y};
  }

 private:
  static constexpr float kCells = 4, kCell = kSide / kCells;
  static float ease(float t) { return t * t * (3 - 2 * t); }
  std::array<std::array<Point, 5>, 5> grid_;
};

class Canvas {
 public:
  Canvas() { ink_.fill(0.f); }

  // Draws a line with round ends, radius from `ra` to `rb`, edges one pixel soft.
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

  // Writes bytes: ink of brightness `pen`, plus uniform noise of up to `noise` either way where there is ink nearby or not.
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

// Draws a digit of class `label`.
void draw_digit(Draws& draws, int label, uint8_t* out) {
  const std::vector<Glyph>& variants = glyphs()[static_cast<size_t>(label)];
  const Glyph& glyph = variants[static_cast<size_t>(draws.below(static_cast<int>(variants.size())))];

  const float angle = draws.normal() * .16f, slant = .08f + draws.normal() * .17f;
  const float height = draws.uniform(15.f, 21.5f), width = height * draws.uniform(.5f, .92f);
  const float cx = kSide / 2.f + draws.uniform(-2.2f, 2.2f), cy = kSide / 2.f + draws.uniform(-2.2f, 2.2f);
  const float cosine = std::cos(angle), sine = std::sin(angle);
  const float shake = draws.uniform(.01f, .05f);
  const ElasticField field(draws, draws.uniform(.2f, 1.25f));
  const auto place = [&](Point p) {
    const float y = (p.y - .5f) * height, x = (p.x - .5f) * width - slant * y;
    return field.move({cx + cosine * x - sine * y, cy + sine * x + cosine * y});
  };

  Canvas canvas;
  const float radius = draws.uniform(.65f, 1.75f), swell = draws.uniform(0.f, .3f), phase = draws.uniform(0.f, 6.28f);
  float drawn = 0.f;  // the pen presses harder and softer along the way
  const auto pressure = [&] { return radius * (1.f + swell * std::sin(phase + drawn * .35f)); };
  for (const Stroke& stroke : glyph) {
    std::vector<Point> points = stroke.points;
    const bool closed = points.front().x == points.back().x && points.front().y == points.back().y;
    for (Point& p : points) p = {p.x + shake * draws.normal(), p.y + shake * draws.normal()};
    // Most rings close.
    if (closed && draws.chance(.8f)) points.back() = points.front();
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
  if (draws.chance(.1f)) {  // a stray mark
    const Point a{draws.uniform(0, kSide), draws.uniform(0, kSide)};
    const float turn = draws.uniform(0.f, 2 * std::numbers::pi_v<float>), length = draws.uniform(1.f, 6.f);
    canvas.line(a, {a.x + length * std::cos(turn), a.y + length * std::sin(turn)}, radius * .6f, radius * .6f);
  }
  const float pen = draws.uniform(.75f, 1.15f), noise = draws.uniform(0.f, .06f);
  canvas.develop(draws, pen, noise, out);
}

ImageSet generate(const GeneratedDigitsOptions& options) {
  const int64_t n = options.size.value_or(options.train ? 60'000 : 10'000);
  if (n < 1) throw ValueError("GeneratedDigits", "size must be at least 1, given ", n);
  Tensor images = empty({n, 1, kSide, kSide}, {.dtype = DType::kU8});
  Tensor labels = empty({n}, {.dtype = DType::kU8});
  uint8_t* pixels = images.mutable_data<uint8_t>();
  uint8_t* classes = labels.mutable_data<uint8_t>();
  constexpr uint64_t kDigitStream = uint64_t{5} << 60;
  const uint64_t stream = kDigitStream | (options.train ? 0 : uint64_t{1} << 59);
  parallel_for(0, n, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Draws draws(options.seed, stream | static_cast<uint64_t>(i));
      const int label = draws.below(10);
      classes[i] = static_cast<uint8_t>(label);
      draw_digit(draws, label, pixels + i * kSide * kSide);
    }
  });
  return ImageSet("GeneratedDigits", images, labels, 10,
                  options.normalize ? Normalization{{0.1307f}, {0.3081f}} : Normalization{});
}

}  // namespace

GeneratedDigits::GeneratedDigits(GeneratedDigitsOptions options) : ImageSet(generate(options)) {}

}  // namespace gradus::data
