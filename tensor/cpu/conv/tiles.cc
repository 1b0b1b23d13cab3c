#include "gradus/tensor/cpu/conv/tiles.h"

#include <algorithm>

namespace gradus::cpu {
namespace {

// For many tiles. All filters are transformed first. Each thread takes some of the tiles, a few at a time, so
// that their planes stay in the second-level cache until they are multiplied.
void convolve_by_tiles(const TileProducts& c) {
  const int64_t plane = plane_of_filters(c.K, c.N);
  const Tensor filters = scratch(c.planes * plane);
  parallel_for(0, c.filter_rows * c.N / kLanes, 64, [&](int64_t first, int64_t last) {
    c.fill_filters(0, c.N, first, last, filters.ptr<float>());
  });
  const int64_t fit = (640 << 10) / (c.planes * (c.K + c.N) * int64_t(sizeof(float)));
  const int64_t chunk = std::clamp<int64_t>(fit / kMostRows, 4, 8) * kMostRows;
  const int64_t shares = std::min<int64_t>(num_threads(), (c.tiles + chunk - 1) / chunk);
  const int64_t v_floats = Planes::floats(c.planes, chunk, c.K),
                floats = v_floats + Planes::floats(c.planes, chunk, c.N);
  const Tensor planes = scratch(shares * floats);
  parallel_for(0, shares, 1, [&](int64_t first_share, int64_t last_share) {
    const Planes v(planes.ptr<float>() + first_share * floats, chunk, c.K);
    const Planes m(v.data + v_floats, chunk, c.N);
    const int64_t end = c.tiles * last_share / shares;
    for (int64_t first = c.tiles * first_share / shares; first < end; first += chunk) {
      const int64_t last = std::min(end, first + chunk);
      c.fill_inputs(first, last, first, v);
      Upcoming upcoming(c.planes * (c.N / kPanel) * row_blocks(last - first));
      upcoming.add(c.input, last, std::min(end, last + chunk), c.tiles);
      int64_t done = 0;
      for (int64_t p = 0; p < c.planes; ++p)
        for (int64_t n = 0; n < c.N; n += kPanel)
          for_row_blocks(last - first, [&](int64_t row, int64_t rows) {
            kProducts[rows - 1](v.at(p, row), v.row, 1, filters.ptr<float>() + p * plane + n * c.K, kPanel,
                                c.K, m.at(p, row) + n, m.row, upcoming.share(done++, c.K));
          });
      c.write_results(first, last, first, m, 0, c.N);
    }
  });
}

// For many filters. Each thread takes some of the filters, a panel at a time. A panel is transformed and
// stays in the second-level cache while the planes of all tiles are multiplied by it.
void convolve_by_panels(const TileProducts& c) {
  const int64_t panels = c.N / kPanel, shares = std::min<int64_t>(num_threads(), panels);
  const int64_t plane = plane_of_filters(c.K, kPanel);
  const int64_t v_floats = Planes::floats(c.planes, c.tiles, c.K);
  const int64_t floats = c.planes * plane + Planes::floats(c.planes, c.tiles, kPanel);
  const Tensor planes = scratch(v_floats + shares * floats);
  const Planes v(planes.ptr<float>(), c.tiles, c.K);
  parallel_for(0, c.tiles, 4, [&](int64_t first, int64_t last) { c.fill_inputs(first, last, 0, v); });
  parallel_for(0, shares, 1, [&](int64_t first_share, int64_t last_share) {
    float* filters = v.data + v_floats + first_share * floats;
    const Planes m(filters + c.planes * plane, c.tiles, kPanel);
    for (int64_t i = panels * first_share / shares; i < panels * last_share / shares; ++i) {
      c.fill_filters(i * kPanel, kPanel, 0, c.filter_rows * kPanel / kLanes, filters);
      for (int64_t p = 0; p < c.planes; ++p)
        for_row_blocks(c.tiles, [&](int64_t row, int64_t rows) {
          kProducts[rows - 1](v.at(p, row), v.row, 1, filters + p * plane, kPanel, c.K, m.at(p, row), m.row,
                              {});
        });
      c.write_results(0, c.tiles, 0, m, i * kPanel, kPanel);
    }
  });
}

}  // namespace

void convolve_by_products(const TileProducts& c) {
  const bool by_panels = c.K * c.N > 256 * 256 && c.tiles <= 512;
  (by_panels ? convolve_by_panels : convolve_by_tiles)(c);
}

}  // namespace gradus::cpu
