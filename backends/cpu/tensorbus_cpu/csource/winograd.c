// Convolutions by windows of 3x3 without steps, with fewer multiplications: Winograd's F(2x2, 3x3), float32.
//
// Four inputs in a row, d, and three weights, g, give two outputs, y = A'((G g) * (B' d)), with 4 products instead of
// 6; in two axes 16 instead of 36. So a convolution is 16 products of matrices: place by place of 4x4, weights by rows
// and channels times inputs by channels and tiles of 2x2 outputs.
//   B' d = (d0 - d2, d1 + d2, d2 - d1, d1 - d3),  G g = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2),
//   A' m = (m0 + m1 + m2, m1 - m2 - m3)
// Lavin and Gray 2016. Kernels take buffers, parameters and the part of their grid to work on, as in products.c.

#define KERNEL(name) void name(void *const *b, const int64_t *p, const int64_t *range)
#define EACH(i, from, to) for (int64_t i = (from), i##_end = (to); i < i##_end; ++i)
#define UNROLLED _Pragma("GCC unroll 16")
enum { BYTES = __BIGGEST_ALIGNMENT__ < 16 ? 16 : __BIGGEST_ALIGNMENT__, VECTOR = BYTES / sizeof(float), VECTORS = 2, WIDE = VECTORS * VECTOR };
enum { PLACES = 16, BAND = SIDE * TALL };
const int64_t tb_lanes = VECTOR;
typedef float tb_vector __attribute__((vector_size(BYTES)));
typedef float tb_loose __attribute__((vector_size(BYTES), aligned(sizeof(float)), may_alias));

static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

KERNEL(tb_filters) {  // grid (strips, groups): G g G' of TALL rows side by side, the last ones filled up with zeros
  // b: weight, out; p: rows, channels, strides: of groups, rows, channels, both axes of the window; first element
  const int64_t rows = p[0], channels = p[1], strips = (rows + TALL - 1) / TALL;
  EACH(group, range[2], range[3]) EACH(strip, range[0], range[1]) {
    const float *from = (const float *)b[0] + p[7] + group * p[2] + strip * TALL * p[3];
    float *to = (float *)b[1] + (group * strips + strip) * PLACES * channels * TALL;
    EACH(c, 0, channels) EACH(u, 0, TALL) {
      float half[4][3] = {{0}};
      if (strip * TALL + u < rows) EACH(x, 0, 3) {
        const float *g = from + u * p[3] + c * p[4] + x * p[6];
        const float g0 = g[0], g1 = g[p[5]], g2 = g[2 * p[5]];
        half[0][x] = g0, half[1][x] = 0.5f * (g0 + g2 + g1), half[2][x] = 0.5f * (g0 + g2 - g1), half[3][x] = g2;
      }
      EACH(y, 0, 4) {
        const float g0 = half[y][0], g1 = half[y][1], g2 = half[y][2];
        const float four[4] = {g0, 0.5f * (g0 + g2 + g1), 0.5f * (g0 + g2 - g1), g2};
        EACH(x, 0, 4) to[((4 * y + x) * channels + c) * TALL + u] = four[x];
      }
    }
  }
}

// Output n of an axis takes inputs n + first up to n + first + 2. `high` by `wide` tiles are worked on at a time.
typedef struct {
  int64_t rows, channels, high, wide, parts, groups, image, out_image, out_channel, out_line, out_first;
  struct { int64_t length, count, first; } y, x;
} tb_windows;

// What a thread works with: the inputs of a block of tiles, turned, by place, WIDE tiles and channel (a channel more,
// lest all places share a set of the cache); and products.
static _Thread_local float panel[PLACES * ROOM] __attribute__((aligned(64)));
static _Thread_local float products[PLACES * BAND * (COLUMNS + WIDE)] __attribute__((aligned(64)));
enum { LINE = COLUMNS + 2 * VECTOR };

// Write B' d of an input's row, for each tile of the row: four lines.
static inline void across(const float *row, int64_t length, int64_t first, int64_t wide, float to[4][LINE]) {
  float even[LINE], odd[LINE];
  const int64_t some = (wide + VECTOR - 1) / VECTOR * VECTOR + 1;
  int64_t j = 0;
  if (row) {
    for (; j < some && first + 2 * j < 0; ++j) {
      even[j] = 0;
      odd[j] = first + 2 * j + 1 < 0 ? 0 : row[first + 2 * j + 1];
    }
    const int64_t inner = least(some, (length - first) / 2);
    for (; j < inner; ++j) even[j] = row[first + 2 * j], odd[j] = row[first + 2 * j + 1];
    if (j < some && first + 2 * j < length) even[j] = row[first + 2 * j], odd[j] = 0, ++j;
  }
  for (; j < some; ++j) even[j] = odd[j] = 0;
  for (int64_t i = 0; i < wide; i += VECTOR) {
    const tb_vector d0 = *(tb_loose *)(even + i), d1 = *(tb_loose *)(odd + i);
    const tb_vector d2 = *(tb_loose *)(even + i + 1), d3 = *(tb_loose *)(odd + i + 1);
    *(tb_loose *)(to[0] + i) = d0 - d2, *(tb_loose *)(to[1] + i) = d1 + d2;
    *(tb_loose *)(to[2] + i) = d2 - d1, *(tb_loose *)(to[3] + i) = d1 - d3;
  }
}

// Fill the panel for `high` by `wide` tiles from tile (y0, x0) on.
static void fill(const tb_windows *q, const float *x, int64_t y0, int64_t x0, int64_t high, int64_t wide) {
  const int64_t groups = (high * wide + WIDE - 1) / WIDE, size = q->y.length * q->x.length;
  float lines[4][4][LINE], turned[PLACES][COLUMNS + 2 * WIDE];
  memset(turned, 0, sizeof turned);
  EACH(c, 0, q->channels) {
    EACH(tile, 0, high) {
      const int64_t top = 2 * (y0 + tile) + q->y.first;
      EACH(k, tile ? 2 : 0, 4) {  // lines that the tiles above read too are there
        const int64_t y = top + k;
        const float *row = y < 0 || y >= q->y.length ? NULL : x + c * size + y * q->x.length;
        across(row, q->x.length, 2 * x0 + q->x.first, wide, lines[(2 * tile + k) % 4]);
      }
      EACH(k, 0, 4) {
        const float *d0 = lines[2 * tile % 4][k], *d1 = lines[(2 * tile + 1) % 4][k];
        const float *d2 = lines[(2 * tile + 2) % 4][k], *d3 = lines[(2 * tile + 3) % 4][k];
        for (int64_t i = 0; i < wide; i += VECTOR) {  // beyond a row's end the next one overwrites
          const tb_vector r0 = *(tb_loose *)(d0 + i), r1 = *(tb_loose *)(d1 + i);
          const tb_vector r2 = *(tb_loose *)(d2 + i), r3 = *(tb_loose *)(d3 + i);
          const int64_t at = tile * wide + i;
          *(tb_loose *)(turned[k] + at) = r0 - r2, *(tb_loose *)(turned[4 + k] + at) = r1 + r2;
          *(tb_loose *)(turned[8 + k] + at) = r2 - r1, *(tb_loose *)(turned[12 + k] + at) = r1 - r3;
        }
      }
    }
    EACH(k, 0, PLACES) EACH(group, 0, groups) {
      float *to = panel + ((k * groups + group) * (q->channels + 1) + c) * WIDE;
      UNROLLED for (int v = 0; v < VECTORS; ++v) ((tb_vector *)to)[v] = *(tb_loose *)(turned[k] + group * WIDE + v * VECTOR);
    }
  }
}

// to = a y: TALL rows by the first `vectors` vectors of a panel's lines.
#define CORNER(NAME, vectors)                                                                                          \
  static __attribute__((noinline)) void NAME(int64_t depth, const float *a, const float *y, float *to, int64_t line) { \
    tb_vector acc[TALL][vectors];                                                                                      \
    UNROLLED for (int i = 0; i < TALL; ++i) UNROLLED for (int v = 0; v < vectors; ++v) acc[i][v] = (tb_vector){0};     \
    EACH(k, 0, depth) {                                                                                                \
      tb_vector right[vectors];                                                                                        \
      UNROLLED for (int v = 0; v < vectors; ++v) right[v] = ((const tb_vector *)(y + k * WIDE))[v];                    \
      UNROLLED for (int i = 0; i < TALL; ++i) UNROLLED for (int v = 0; v < vectors; ++v) acc[i][v] += a[i] * right[v]; \
      a += TALL;                                                                                                       \
    }                                                                                                                  \
    UNROLLED for (int i = 0; i < TALL; ++i) UNROLLED for (int v = 0; v < vectors; ++v) ((tb_vector *)(to + i * line))[v] = acc[i][v]; \
  }
CORNER(corner, VECTORS)
CORNER(edge, 1)

// Write the outputs of one row of the weights: A' m A. Return a number that is not zero where one is not finite.
static float store(const tb_windows *q, const float *m, int64_t line, float *out, int64_t y0, int64_t x0, int64_t high, int64_t wide) {
  float lines[2][2][LINE];
  tb_vector seen = {0};
  float found = 0;
  const int64_t place = BAND * line, some = least(2 * wide, q->x.count - 2 * x0);
  EACH(tile, 0, high) {
    for (int64_t i = 0; i < wide; i += VECTOR) {
      tb_vector half[2][4];
      UNROLLED for (int k = 0; k < 4; ++k) {
        const float *at = m + k * place + tile * wide + i;
        const tb_vector m0 = *(tb_loose *)at, m1 = *(tb_loose *)(at + 4 * place);
        const tb_vector m2 = *(tb_loose *)(at + 8 * place), m3 = *(tb_loose *)(at + 12 * place);
        half[0][k] = m0 + m1 + m2, half[1][k] = m1 - m2 - m3;
      }
      UNROLLED for (int k = 0; k < 2; ++k) {
        const tb_vector *h = half[k];
        const tb_vector even = h[0] + h[1] + h[2], odd = h[1] - h[2] - h[3];
        tb_vector none = even * 0.0f + odd * 0.0f;
        *(tb_loose *)(lines[k][0] + i) = even, *(tb_loose *)(lines[k][1] + i) = odd;
        EACH(u, wide - i, VECTOR) none[u] = 0;  // beyond the tiles of a row there is what was there before
        seen += none;
      }
    }
    EACH(k, 0, least(2, q->y.count - 2 * (y0 + tile))) {
      const float *even = lines[k][0], *odd = lines[k][1];
      float *to = out + (2 * tile + k) * q->out_line;
      EACH(j, 0, some / 2) to[2 * j] = even[j], to[2 * j + 1] = odd[j];
      if (some % 2) to[some - 1] = even[some / 2];
    }
  }
  EACH(u, 0, VECTOR) found += seen[u];
  return found;
}

KERNEL(tb_winograd) {  // grid (blocks of tiles, parts of the rows, images by groups); b: filters, x, out, whether
                       // an output is not finite: it may lie beside one that has to be, and must be computed otherwise
  const tb_windows *q = (const tb_windows *)p;
  const int64_t strips = (q->rows + TALL - 1) / TALL, blocks = ((q->x.count + 1) / 2 + q->wide - 1) / q->wide;
  float bad = 0;
  EACH(matrix, range[4], range[5]) EACH(part, range[2], range[3]) EACH(block, range[0], range[1]) {
    const int64_t y0 = block / blocks * q->high, x0 = block % blocks * q->wide;
    const int64_t high = least(q->high, (q->y.count + 1) / 2 - y0), wide = least(q->wide, (q->x.count + 1) / 2 - x0);
    const int64_t count = high * wide, groups = (count + WIDE - 1) / WIDE, line = groups * WIDE + VECTOR;
    const int64_t strip0 = part * strips / q->parts, strip1 = (part + 1) * strips / q->parts;
    float *out = (float *)b[2] + matrix * q->out_image + q->out_first + 2 * y0 * q->out_line + 2 * x0;
    fill(q, (const float *)b[1] + matrix * q->image, y0, x0, high, wide);
    for (int64_t first = strip0; first < strip1; first += SIDE) {
      const int64_t side = least(SIDE, strip1 - first);
      EACH(k, 0, PLACES) EACH(group, 0, groups) EACH(strip, 0, side) {
        const float *a = (const float *)b[0] + (((matrix % q->groups * strips + first + strip) * PLACES + k) * q->channels) * TALL;
        const float *y = panel + (k * groups + group) * (q->channels + 1) * WIDE;
        float *to = products + (k * BAND + strip * TALL) * line + group * WIDE;
        (count - group * WIDE > VECTOR ? corner : edge)(q->channels, a, y, to, line);
      }
      EACH(i, 0, least(side * TALL, q->rows - first * TALL))
        bad += store(q, products + i * line, line, out + (first * TALL + i) * q->out_channel, y0, x0, high, wide);
    }
  }
  if (bad != 0) __atomic_store_n((int64_t *)b[3], 1, __ATOMIC_RELAXED);
}
