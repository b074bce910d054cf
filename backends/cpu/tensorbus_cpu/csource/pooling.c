// Max pooling over up to three axes, and its gradient: a plane at a time, a row of windows side by side.
// What stands before this text gives T as stored, A as computed with, LOAD(p, i) and STORE(p, i, v), LOWEST.
// Parameters, for each of the axes: length, windows, size of a window, stride, padding, dilation. Grid: planes.

#include <stddef.h>

typedef union { double f; int64_t i; uint64_t u; } tb_slot;
#define KERNEL(name) void name(void *const *b, const tb_slot *p, const int64_t *range)
#define FOR_RANGE(i, from, to) for (int64_t i = (from), i##_end = (to); i < i##_end; ++i)
enum { BLOCK = 512 };
// NaN is larger than all, and of equal elements the first stays.
#define BEATS(x, best) (!((best) >= (x)) && (best) == (best))

typedef struct { int64_t length, count, size, stride, padding, dilation; } axis;

static axis axis_of(const tb_slot *p, int k) {
  p += 6 * k;
  return (axis){p[0].i, p[1].i, p[2].i, p[3].i, p[4].i, p[5].i};
}

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }

// The largest elements of a row of windows from `from` on, and their places in the plane.
static void row(const T *x, axis z, axis y, axis c, int64_t oz, int64_t oy, int64_t from, int64_t wide, A *best,
                int32_t *place) {
  FOR_RANGE(j, 0, wide) best[j] = LOWEST, place[j] = -1;
  FOR_RANGE(kz, 0, z.size) {
    const int64_t iz = oz * z.stride + kz * z.dilation - z.padding;
    if (iz < 0 || iz >= z.length) continue;
    FOR_RANGE(ky, 0, y.size) {
      const int64_t iy = oy * y.stride + ky * y.dilation - y.padding;
      if (iy < 0 || iy >= y.length) continue;
      const int64_t start = (iz * y.length + iy) * c.length;
      FOR_RANGE(kc, 0, c.size) {
        const int64_t shift = kc * c.dilation - c.padding, step = c.stride;
        // The windows whose element this is: 0 <= j * step + shift < length.
        const int64_t low = shift < 0 ? (-shift + step - 1) / step : 0;
        const int64_t high = c.length - 1 - shift < 0 ? 0 : (c.length - 1 - shift) / step + 1;
        const int64_t first = at_least(low - from, 0), last = at_most(high - from, wide);
        const int64_t base = start + shift + from * step;
        if (step == 1)
          FOR_RANGE(j, first, last) {
            const A value = LOAD(x, base + j);
            const int32_t take = BEATS(value, best[j]) | (place[j] < 0);
            best[j] = take ? value : best[j];
            place[j] = take ? (int32_t)(base + j) : place[j];
          }
        else
          FOR_RANGE(j, first, last) {
            const A value = LOAD(x, base + j * step);
            const int32_t take = BEATS(value, best[j]) | (place[j] < 0);
            best[j] = take ? value : best[j];
            place[j] = take ? (int32_t)(base + j * step) : place[j];
          }
      }
    }
  }
}

#define ROWS(z, y, c) /* the blocks of all rows of a plane, and where each begins in what is as long as the result */ \
  FOR_RANGE(oz, 0, z.count) FOR_RANGE(oy, 0, y.count) \
    for (int64_t from = 0, wide, out = (oz * y.count + oy) * c.count; \
         from < c.count && (wide = at_most(c.count - from, BLOCK)); from += BLOCK)

KERNEL(tb_max_pool) {
  const axis z = axis_of(p, 0), y = axis_of(p, 1), c = axis_of(p, 2);
  FOR_RANGE(plane, range[0], range[1]) {
    const T *x = (const T *)b[0] + plane * z.length * y.length * c.length;
    T *result = (T *)b[1] + plane * z.count * y.count * c.count;
    ROWS(z, y, c) {
      A best[BLOCK];
      int32_t place[BLOCK];
      row(x, z, y, c, oz, oy, from, wide, best, place);
      FOR_RANGE(j, 0, wide) STORE(result, out + from + j, best[j]);
    }
  }
}

KERNEL(tb_max_pool_gradient) {
  const axis z = axis_of(p, 0), y = axis_of(p, 1), c = axis_of(p, 2);
  const int64_t elements = z.length * y.length * c.length;
  FOR_RANGE(plane, range[0], range[1]) {
    const int64_t windows = z.count * y.count * c.count;
    const T *g = (const T *)b[0] + plane * windows, *x = (const T *)b[1] + plane * elements;
    T *result = (T *)b[2] + plane * elements;
    FOR_RANGE(i, 0, elements) result[i] = 0;
    ROWS(z, y, c) {
      A best[BLOCK];
      int32_t place[BLOCK];
      row(x, z, y, c, oz, oy, from, wide, best, place);
      FOR_RANGE(j, 0, wide) if (place[j] >= 0) result[place[j]] += g[out + from + j];
    }
  }
}
