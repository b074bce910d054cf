// Convolutions by windows of 3x3 without steps, with fewer multiplications: Winograd's F(2x2, 3x3), float32.
//
// Four inputs in a row, d, and three weights, g, give two outputs, y = A'((G g) * (B' d)), with 4 products instead of
// 6; in two axes 16 instead of 36. So a convolution is 16 products of matrices: place by place of 4x4, weights by rows
// and channels times inputs by channels and tiles of 2x2 outputs.
//   B' d = (d0 - d2, d1 + d2, d2 - d1, d1 - d3),  G g = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2),
//   A' m = (m0 + m1 + m2, m1 - m2 - m3)
// Lavin and Gray 2016. Kernels take buffers, parameters and the part of their grid to work on, as in implicit_gemm.c.

#define KERNEL(name) void name(void *const *b, const int64_t *p, const int64_t *range)
#define FOR_RANGE(i, from, to) for (int64_t i = (from), i##_end = (to); i < i##_end; ++i)
#define UNROLLED _Pragma("GCC unroll 16")
enum { VECTOR = BYTES / sizeof(float), WIDE = VECTORS * VECTOR };
enum { PLACES = 16, BAND = SIDE * TALL };
const int64_t tb_lanes = VECTOR;
typedef float tb_vector __attribute__((vector_size(BYTES)));
typedef int32_t tb_bits __attribute__((vector_size(BYTES)));
typedef float tb_loose __attribute__((vector_size(BYTES), aligned(sizeof(float)), may_alias));

static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

KERNEL(tb_filters) {  // grid (row_panels, groups): G g G' of TALL rows side by side, the last ones filled up with zeros
  // b: weight, out; p: rows, channels, strides: of groups, rows, channels, both axes of the window; first element
  const int64_t rows = p[0], channels = p[1], row_panels = (rows + TALL - 1) / TALL;
  FOR_RANGE(group, range[2], range[3]) FOR_RANGE(row_panel, range[0], range[1]) {
    const float *from = (const float *)b[0] + p[7] + group * p[2] + row_panel * TALL * p[3];
    float *to = (float *)b[1] + (group * row_panels + row_panel) * PLACES * channels * TALL;
    FOR_RANGE(c, 0, channels) FOR_RANGE(u, 0, TALL) {
      float half[4][3] = {{0}};
      if (row_panel * TALL + u < rows) FOR_RANGE(x, 0, 3) {
        const float *g = from + u * p[3] + c * p[4] + x * p[6];
        const float g0 = g[0], g1 = g[p[5]], g2 = g[2 * p[5]];
        half[0][x] = g0, half[1][x] = 0.5f * (g0 + g2 + g1), half[2][x] = 0.5f * (g0 + g2 - g1), half[3][x] = g2;
      }
      FOR_RANGE(y, 0, 4) {
        const float g0 = half[y][0], g1 = half[y][1], g2 = half[y][2];
        const float four[4] = {g0, 0.5f * (g0 + g2 + g1), 0.5f * (g0 + g2 - g1), g2};
        FOR_RANGE(x, 0, 4) to[((4 * y + x) * channels + c) * TALL + u] = four[x];
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

// Every other of the elements of two vectors, and those between.
static inline void part(tb_vector one, tb_vector other, tb_vector *even, tb_vector *odd) {
#ifdef __clang__
  UNROLLED for (int u = 0; u < VECTOR; ++u) (*even)[u] = u < VECTOR / 2 ? one[2 * u] : other[2 * u - VECTOR];
  UNROLLED for (int u = 0; u < VECTOR; ++u) (*odd)[u] = u < VECTOR / 2 ? one[2 * u + 1] : other[2 * u + 1 - VECTOR];
#else
  tb_bits at;
  UNROLLED for (int u = 0; u < VECTOR; ++u) at[u] = 2 * u;
  *even = __builtin_shuffle(one, other, at), *odd = __builtin_shuffle(one, other, at + 1);
#endif
}

static inline void alternate(tb_vector even, tb_vector odd, float *to) {
#ifdef __clang__
  UNROLLED for (int u = 0; u < VECTOR; ++u) to[2 * u] = even[u], to[2 * u + 1] = odd[u];
#else
  tb_bits at;
  UNROLLED for (int u = 0; u < VECTOR; ++u) at[u] = u / 2 + u % 2 * VECTOR;
  *(tb_loose *)to = __builtin_shuffle(even, odd, at), *(tb_loose *)(to + VECTOR) = __builtin_shuffle(even, odd, at + VECTOR / 2);
#endif
}

// Which of the inputs d0 to d3 of the tiles of a row there are.
typedef struct { tb_bits of[4][LINE / VECTOR]; } tb_kept;

static inline void kept_of(const tb_windows *q, int64_t x0, int64_t wide, tb_kept *kept) {
  const int64_t first = 2 * x0 + q->x.first, most = 2 * LINE + 4;
  const int32_t from = (int32_t)least(-least(first, 0), most), stop = (int32_t)least(q->x.length - least(first, q->x.length), most);
  tb_bits at;
  UNROLLED for (int u = 0; u < VECTOR; ++u) at[u] = 2 * u;
  FOR_RANGE(i, 0, (wide + VECTOR - 1) / VECTOR) FOR_RANGE(k, 0, 4) {
    const tb_bits here = at + (int32_t)(2 * i * VECTOR + k);
    kept->of[k][i] = (here >= from) & (here < stop);
  }
}

// Write B' d of an input's row, for each tile of the row: four lines. A row of none is of zeros.
static inline void across(const float *row, const tb_kept *kept, int64_t wide, float to[4][LINE]) {
  for (int64_t i = 0; i < wide; i += VECTOR) {
    tb_vector d[4] = {{0}};
    if (row) {
      const float *at = row + 2 * i;
      part(*(const tb_loose *)at, *(const tb_loose *)(at + VECTOR), d, d + 1);
      part(*(const tb_loose *)(at + 2), *(const tb_loose *)(at + VECTOR + 2), d + 2, d + 3);
      UNROLLED for (int k = 0; k < 4; ++k) d[k] = (tb_vector)((tb_bits)d[k] & kept->of[k][i / VECTOR]);
    }
    *(tb_vector *)(to[0] + i) = d[0] - d[2], *(tb_vector *)(to[1] + i) = d[1] + d[2];
    *(tb_vector *)(to[2] + i) = d[2] - d[1], *(tb_vector *)(to[3] + i) = d[1] - d[3];
  }
}

// Write B' d B of one channel of an input, for `high` by `wide` tiles from tile (y0, x0) on: a line for each place, lines
// `apart`. Up to a vector is written beyond a line's end.
static void turn(const tb_windows *q, const float *x, int64_t y0, int64_t x0, int64_t high, int64_t wide, float *to, int64_t apart) {
  const int64_t first = 2 * x0 + q->x.first, read = 2 * ((wide + VECTOR - 1) / VECTOR * VECTOR) + 2, size = q->y.length * q->x.length;
  float lines[4][4][LINE] __attribute__((aligned(64))), own[2 * LINE + 2];
  tb_kept kept;
  kept_of(q, x0, wide, &kept);
  FOR_RANGE(tile, 0, high) {
    const int64_t top = 2 * (y0 + tile) + q->y.first;
    FOR_RANGE(k, tile ? 2 : 0, 4) {  // lines that the tiles above read too are there
      const int64_t y = top + k, begin = y * q->x.length + first;
      const float *row = y < 0 || y >= q->y.length ? NULL : x + begin;
      if (row && (begin < 0 || begin + read > size)) {  // beyond the rows around it there may be no memory
        FOR_RANGE(j, 0, read) own[j] = begin + j < 0 || begin + j >= size ? 0 : row[j];
        row = own;
      }
      across(row, &kept, wide, lines[(2 * tile + k) % 4]);
    }
    FOR_RANGE(k, 0, 4) {
      const float *d0 = lines[2 * tile % 4][k], *d1 = lines[(2 * tile + 1) % 4][k];
      const float *d2 = lines[(2 * tile + 2) % 4][k], *d3 = lines[(2 * tile + 3) % 4][k];
      for (int64_t i = 0; i < wide; i += VECTOR) {  // beyond a row's end the next one overwrites
        const tb_vector r0 = *(tb_vector *)(d0 + i), r1 = *(tb_vector *)(d1 + i);
        const tb_vector r2 = *(tb_vector *)(d2 + i), r3 = *(tb_vector *)(d3 + i);
        float *at = to + k * apart + tile * wide + i;
        *(tb_loose *)at = r0 - r2, *(tb_loose *)(at + 4 * apart) = r1 + r2;
        *(tb_loose *)(at + 8 * apart) = r2 - r1, *(tb_loose *)(at + 12 * apart) = r1 - r3;
      }
    }
  }
}

// Fill the panel for `high` by `wide` tiles from tile (y0, x0) on.
static void fill(const tb_windows *q, const float *x, int64_t y0, int64_t x0, int64_t high, int64_t wide) {
  const int64_t groups = (high * wide + WIDE - 1) / WIDE, size = q->y.length * q->x.length;
  float turned[PLACES][COLUMNS + 2 * WIDE];
  memset(turned, 0, sizeof turned);
  FOR_RANGE(c, 0, q->channels) {
    turn(q, x + c * size, y0, x0, high, wide, turned[0], COLUMNS + 2 * WIDE);
    FOR_RANGE(k, 0, PLACES) FOR_RANGE(group, 0, groups) {
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
    FOR_RANGE(k, 0, depth) {                                                                                                \
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
  tb_vector seen = {0};
  tb_bits kept = {0};
  float found = 0, last[2 * VECTOR];
  const int64_t place = BAND * line, some = least(2 * wide, q->x.count - 2 * x0);
  FOR_RANGE(u, 0, wide % VECTOR) kept[u] = -1;
  FOR_RANGE(tile, 0, high) for (int64_t i = 0; i < wide; i += VECTOR) {
    tb_vector half[2][4];
    UNROLLED for (int k = 0; k < 4; ++k) {
      const float *at = m + k * place + tile * wide + i;
      const tb_vector m0 = *(tb_loose *)at, m1 = *(tb_loose *)(at + 4 * place);
      const tb_vector m2 = *(tb_loose *)(at + 8 * place), m3 = *(tb_loose *)(at + 12 * place);
      half[0][k] = m0 + m1 + m2, half[1][k] = m1 - m2 - m3;
    }
    const int64_t lines = least(2, q->y.count - 2 * (y0 + tile)), rest = some - 2 * i;
    FOR_RANGE(k, 0, 2) {
      const tb_vector *h = half[k];
      const tb_vector even = h[0] + h[1] + h[2], odd = h[1] - h[2] - h[3], none = even * 0.0f + odd * 0.0f;
      seen += wide - i < VECTOR ? (tb_vector)((tb_bits)none & kept) : none;  // beyond a row there is what was there before
      if (k == lines) break;
      float *to = out + (2 * tile + k) * q->out_line + 2 * i;
      alternate(even, odd, rest < 2 * VECTOR ? last : to);
      if (rest < 2 * VECTOR) memcpy(to, last, rest * sizeof(float));
    }
  }
  FOR_RANGE(u, 0, VECTOR) found += seen[u];
  return found;
}

KERNEL(tb_winograd) {  // grid (blocks of tiles, parts of the rows, images by groups); b: filters, x, out, whether
                       // an output is not finite: it may lie beside one that has to be, and must be computed otherwise
  const tb_windows *q = (const tb_windows *)p;
  const int64_t row_panels = (q->rows + TALL - 1) / TALL, blocks = ((q->x.count + 1) / 2 + q->wide - 1) / q->wide;
  float bad = 0;
  FOR_RANGE(matrix, range[4], range[5]) FOR_RANGE(part, range[2], range[3]) FOR_RANGE(block, range[0], range[1]) {
    const int64_t y0 = block / blocks * q->high, x0 = block % blocks * q->wide;
    const int64_t high = least(q->high, (q->y.count + 1) / 2 - y0), wide = least(q->wide, (q->x.count + 1) / 2 - x0);
    const int64_t count = high * wide, groups = (count + WIDE - 1) / WIDE, line = groups * WIDE + VECTOR;
    const int64_t row_panel0 = part * row_panels / q->parts, row_panel1 = (part + 1) * row_panels / q->parts;
    float *out = (float *)b[2] + matrix * q->out_image + q->out_first + 2 * y0 * q->out_line + 2 * x0;
    fill(q, (const float *)b[1] + matrix * q->image, y0, x0, high, wide);
    for (int64_t first = row_panel0; first < row_panel1; first += SIDE) {
      const int64_t side = least(SIDE, row_panel1 - first);
      FOR_RANGE(k, 0, PLACES) FOR_RANGE(group, 0, groups) FOR_RANGE(row_panel, 0, side) {
        const float *a = (const float *)b[0] + (((matrix % q->groups * row_panels + first + row_panel) * PLACES + k) * q->channels) * TALL;
        const float *y = panel + (k * groups + group) * (q->channels + 1) * WIDE;
        float *to = products + (k * BAND + row_panel * TALL) * line + group * WIDE;
        (count - group * WIDE > VECTOR ? corner : edge)(q->channels, a, y, to, line);
      }
      FOR_RANGE(i, 0, least(side * TALL, q->rows - first * TALL))
        bad += store(q, products + i * line, line, out + (first * TALL + i) * q->out_channel, y0, x0, high, wide);
    }
  }
  if (bad != 0) __atomic_store_n((int64_t *)b[3], 1, __ATOMIC_RELAXED);
}

// The gradient of the weights: G' (A dy A' * B' d B, summed over all tiles) G, for gradients dy of 2x2 outputs.

typedef struct { tb_windows windows; int64_t batch, block, chunk, chunks; } tb_sums;  // channels at a time; units of a chunk

// Write A dy A' of `high` by `wide` tiles from tile (y0, x0) on: WIDE channels side by side, tile by tile, for each place.
static void turn_back(const tb_windows *q, const float *g, int64_t y0, int64_t x0, int64_t high, int64_t wide, float *to) {
  const int64_t apart = high * wide * WIDE;
  FOR_RANGE(tile, 0, high) FOR_RANGE(j, 0, wide) {
    const int64_t y = 2 * (y0 + tile), x = 2 * (x0 + j);
    const float *at = g + (y * q->x.count + x) * WIDE;
    const int right = x + 1 < q->x.count, low = y + 1 < q->y.count;
    UNROLLED for (int v = 0; v < VECTORS; ++v, at += VECTOR, to += VECTOR) {
      tb_vector d[2][2] = {{*(tb_loose *)at}};
      if (right) d[0][1] = *(tb_loose *)(at + WIDE);
      if (low) d[1][0] = *(tb_loose *)(at + q->x.count * WIDE);
      if (right && low) d[1][1] = *(tb_loose *)(at + (q->x.count + 1) * WIDE);
      const tb_vector half[4][2] = {{d[0][0], d[0][1]}, {d[0][0] + d[1][0], d[0][1] + d[1][1]},
                                    {d[0][0] - d[1][0], d[0][1] - d[1][1]}, {-d[1][0], -d[1][1]}};
      UNROLLED for (int k = 0; k < 4; ++k) {
        float *row = to + 4 * k * apart;
        *(tb_vector *)row = half[k][0], *(tb_vector *)(row + apart) = half[k][0] + half[k][1];
        *(tb_vector *)(row + 2 * apart) = half[k][0] - half[k][1], *(tb_vector *)(row + 3 * apart) = -half[k][1];
      }
    }
  }
}

// to += a y: up to TALL rows of `count` elements, `apart`, by WIDE columns.
static __attribute__((noinline)) void gather(int64_t count, const float *a, int64_t apart, int64_t rows, const float *y, float *to) {
  tb_vector acc[TALL][VECTORS];
  const float *line[TALL];
  UNROLLED for (int i = 0; i < TALL; ++i) line[i] = a + least(i, rows - 1) * apart;
  UNROLLED for (int i = 0; i < TALL; ++i) UNROLLED for (int v = 0; v < VECTORS; ++v) acc[i][v] = *(tb_loose *)(to + i * WIDE + v * VECTOR);
  FOR_RANGE(k, 0, count) {
    tb_vector right[VECTORS];
    UNROLLED for (int v = 0; v < VECTORS; ++v) right[v] = ((const tb_vector *)(y + k * WIDE))[v];
    UNROLLED for (int i = 0; i < TALL; ++i) UNROLLED for (int v = 0; v < VECTORS; ++v) acc[i][v] += line[i][k] * right[v];
  }
  UNROLLED for (int i = 0; i < TALL; ++i) UNROLLED for (int v = 0; v < VECTORS; ++v) *(tb_loose *)(to + i * WIDE + v * VECTOR) = acc[i][v];
}

KERNEL(tb_correlate) {  // grid (blocks of channels, chunks of units, groups); b: turned g, x, parts; a unit: a block of tiles
  const tb_sums *s = (const tb_sums *)p;
  const tb_windows *q = &s->windows;
  const int64_t row_panels = (q->rows + WIDE - 1) / WIDE, blocks = (q->channels + s->block - 1) / s->block;
  const int64_t tall = (q->y.count + 1) / 2, broad = (q->x.count + 1) / 2, size = q->y.length * q->x.length;
  const int64_t along = (broad + q->wide - 1) / q->wide, tiles = (tall + q->high - 1) / q->high * along;
  const int64_t down = (s->block + TALL - 1) / TALL, part = PLACES * row_panels * down * TALL * WIDE;
  const int64_t apart = q->high * q->wide + VECTOR, next = s->block * apart + VECTOR;  // places do not share a set of the cache
  FOR_RANGE(group, range[4], range[5]) FOR_RANGE(chunk, range[2], range[3]) FOR_RANGE(block, range[0], range[1]) {
    const int64_t c0 = block * s->block, channels = least(s->block, q->channels - c0);
    float *parts = (float *)b[2] + ((chunk * q->groups + group) * blocks + block) * part;
    memset(parts, 0, part * sizeof(float));
    FOR_RANGE(unit, chunk * s->chunk, least(s->batch * tiles, (chunk + 1) * s->chunk)) {
      const int64_t matrix = unit / tiles * q->groups + group;
      const int64_t y0 = unit % tiles / along * q->high, x0 = unit % tiles % along * q->wide;
      const int64_t high = least(q->high, tall - y0), wide = least(q->wide, broad - x0), count = high * wide;
      const float *x = (const float *)b[1] + matrix * q->image + c0 * size;
      FOR_RANGE(c, 0, channels) turn(q, x + c * size, y0, x0, high, wide, panel + c * apart, next);
      FOR_RANGE(row_panel, 0, row_panels) {
        const float *g = (const float *)b[0] + (matrix * row_panels + row_panel) * q->y.count * q->x.count * WIDE;
        turn_back(q, g, y0, x0, high, wide, products);
        FOR_RANGE(k, 0, PLACES) for (int64_t c = 0; c < channels; c += TALL) {
          const float *a = panel + k * next + c * apart;
          gather(count, a, apart, least(TALL, channels - c), products + k * count * WIDE, parts + ((row_panel * PLACES + k) * down * TALL + c) * WIDE);
        }
      }
    }
  }
}

KERNEL(tb_collect) {  // grid (row panels, groups); b: parts, out, whether an output is not finite
  const tb_sums *s = (const tb_sums *)p;
  const tb_windows *q = &s->windows;
  const int64_t row_panels = (q->rows + WIDE - 1) / WIDE, blocks = (q->channels + s->block - 1) / s->block;
  const int64_t line = (s->block + TALL - 1) / TALL * TALL * WIDE, part = PLACES * row_panels * line, apart = q->groups * blocks * part;
  float bad = 0;
  FOR_RANGE(group, range[2], range[3]) FOR_RANGE(row_panel, range[0], range[1]) FOR_RANGE(c, 0, q->channels) {
    const float *from = (const float *)b[0] + (group * blocks + c / s->block) * part + row_panel * PLACES * line + c % s->block * WIDE;
    float *out = (float *)b[1] + ((group * q->rows + row_panel * WIDE) * q->channels + c) * 9;
    const int64_t some = least(WIDE, q->rows - row_panel * WIDE);
    for (int64_t v = 0; v < some; v += VECTOR) {
      tb_vector m[PLACES], half[3][4], sums[9];
      UNROLLED for (int k = 0; k < PLACES; ++k) m[k] = *(const tb_loose *)(from + k * line + v);
      FOR_RANGE(chunk, 1, s->chunks) UNROLLED for (int k = 0; k < PLACES; ++k) m[k] += *(const tb_loose *)(from + chunk * apart + k * line + v);
      UNROLLED for (int k = 0; k < 4; ++k) {
        const tb_vector both = 0.5f * (m[4 + k] + m[8 + k]);
        half[0][k] = m[k] + both, half[1][k] = 0.5f * (m[4 + k] - m[8 + k]), half[2][k] = both + m[12 + k];
      }
      UNROLLED for (int y = 0; y < 3; ++y) {
        const tb_vector *h = half[y], both = 0.5f * (h[1] + h[2]);
        sums[3 * y] = h[0] + both, sums[3 * y + 1] = 0.5f * (h[1] - h[2]), sums[3 * y + 2] = both + h[3];
      }
      FOR_RANGE(u, 0, least(VECTOR, some - v)) FOR_RANGE(k, 0, 9) {
        const float sum = sums[k][u];
        out[(v + u) * q->channels * 9 + k] = sum, bad += sum * 0.0f;
      }
    }
  }
  if (bad != 0) __atomic_store_n((int64_t *)b[2], 1, __ATOMIC_RELAXED);
}
