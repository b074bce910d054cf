// Matrix products and convolutions of floats T. What is computed at a time, TALL rows by WIDE columns, stays in
// registers; what that needs stays in cache. Kernels take buffers, parameters and the part of their grid to work on:
// from range[2 * axis] up to range[2 * axis + 1]. There are those of one part, which is defined before: PACK, CONVOLVE,
// WEIGHTS or PRODUCT, or the one of plane_convolution.c. All of them take the compiler long, and a program needs few of
// each TALL.

#define KERNEL(name) void name(void *const *b, const int64_t *p, const int64_t *range)
#define FOR_RANGE(i, from, to) for (int64_t i = (from), i##_end = (to); i < i##_end; ++i)
#define UNROLLED _Pragma("GCC unroll 16")
enum { VECTOR = BYTES / sizeof(T), WIDE = VECTORS * VECTOR };
const int64_t tb_lanes = VECTOR;
typedef T tb_vector __attribute__((vector_size(BYTES)));
typedef BITS tb_bits __attribute__((vector_size(BYTES)));
typedef BITS tb_loose_bits __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
typedef T tb_loose __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));

static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

// TALL rows of a y, each vector stored where `to` says, rows `apart`; or added to what is there. Row k of y lies at
// y + off[k], its vectors at `at` from there. Rows of a, of which the last ones may be lacking, are `lead` apart, or lie
// side by side where that is 0.
static __attribute__((noinline)) void corner(int64_t depth, const T *a, int64_t lead, int64_t rows, const T *y, const int32_t *off, const int32_t *at, T *const *to, int64_t apart, int more) {
  tb_vector acc[TALL][VECTORS];
  int64_t from[VECTORS];
  UNROLLED for (int v = 0; v < VECTORS; ++v) from[v] = at[v * VECTOR];
  if (more) UNROLLED for (int i = 0; i < TALL; ++i) UNROLLED for (int v = 0; v < VECTORS; ++v) acc[i][v] = *(const tb_loose *)(to[v] + i * apart);
  else UNROLLED for (int i = 0; i < TALL; ++i) UNROLLED for (int v = 0; v < VECTORS; ++v) acc[i][v] = (tb_vector){0};
#define SUM_UP(value, k) \
  { \
    const T *row = y + off[k]; \
    tb_vector right[VECTORS]; \
    UNROLLED for (int v = 0; v < VECTORS; ++v) right[v] = *(const tb_loose *)(row + from[v]); \
    UNROLLED for (int i = 0; i < TALL; ++i) UNROLLED for (int v = 0; v < VECTORS; ++v) acc[i][v] += (value) * right[v]; \
  }
  if (lead) {
    const T *line[TALL];
    UNROLLED for (int i = 0; i < TALL; ++i) line[i] = a + least(i, rows - 1) * lead;
    FOR_RANGE(k, 0, depth) SUM_UP(line[i][k], k)
  } else {
    FOR_RANGE(k, 0, depth) {
      SUM_UP(a[i], k)
      a += TALL;
    }
  }
  UNROLLED for (int i = 0; i < TALL; ++i) UNROLLED for (int v = 0; v < VECTORS; ++v) *(tb_loose *)(to[v] + i * apart) = acc[i][v];
}

// Parameters of a convolution. Along each axis, output n takes the inputs n * step + first + t * apart, t < taps; it
// stands at n * out. Channels count once for each tap of the first axis; the other axes are worked on in tiles.
typedef struct { int64_t length, count, step, taps, first, apart, out; } tb_axis;
typedef struct {
  int64_t rows, channels, block, high, wide, flat, parts, groups, image, out_image, out_channel, out_first, lead, chunk;
  tb_axis axis[3];
} tb_windows;

typedef struct { int64_t low, phases, reach; } tb_span;  // the first input, input phases, and outputs beyond a tile

static inline tb_span span_of(const tb_axis *a) {
  const int64_t far = (a->taps - 1) * a->apart, length = far < 0 ? -far : far;
  return (tb_span){a->first + (far < 0 ? far : 0), least(a->step, length + 1), length / a->step};
}

// Where output (y, x) and tap k of a block of channels are in what `fill` writes: at their sum.
typedef struct { tb_span y, x; int64_t rows, pitch, line, channel; } tb_layout;

static inline tb_layout layout_of(const tb_windows *q) {
  tb_layout s = {.y = span_of(q->axis + 1), .x = span_of(q->axis + 2)};
  s.rows = q->high + s.y.reach, s.pitch = (q->wide + s.x.reach + VECTOR - 1) / VECTOR * VECTOR;
  s.line = s.x.phases * s.pitch, s.channel = s.y.phases * s.rows * s.line;
  return s;
}

static inline void offsets(const tb_windows *q, tb_layout s, int32_t *off) {
  const tb_axis *ay = q->axis + 1, *ax = q->axis + 2;
  const int64_t taps = ay->taps * ax->taps;
  FOR_RANGE(k, 0, taps) {
    const int64_t y = ay->first + k / ax->taps * ay->apart - s.y.low, x = ax->first + k % ax->taps * ax->apart - s.x.low;
    const int64_t row = y % ay->step * s.rows + y / ay->step;
    off[k] = (int32_t)(row * s.line + x % ax->step * s.pitch + x / ax->step);
  }
  FOR_RANGE(c, 1, q->block) FOR_RANGE(k, 0, taps) off[c * taps + k] = (int32_t)(off[k] + c * s.channel);
}

// to[j] = from[2 * j] for as many of n elements as fill vectors, of which as many more may be read; return how many.
static inline int64_t every_other(T *to, const T *from, int64_t n) {
  int64_t j = 0;
#ifndef __clang__
  tb_bits even;
  UNROLLED for (int u = 0; u < VECTOR; ++u) even[u] = 2 * u;
  for (; j + VECTOR <= n; j += VECTOR) {
    const tb_vector one = *(const tb_loose *)(from + 2 * j), other = *(const tb_loose *)(from + 2 * j + VECTOR);
    *(tb_loose *)(to + j) = __builtin_shuffle(one, other, even);
  }
#endif
  return j;
}

// A line of `pitch` elements: every step-th of a line of `length` from element `first` on, zeros where there is none.
static inline void fill_line(const T *from, int64_t length, int64_t first, int64_t step, int64_t pitch, T *to) {
  const int64_t before = first < 0 ? step == 1 ? -first : (step - 1 - first) / step : 0;
  const int64_t stop = length <= first ? 0 : least(step == 1 ? length - first : (length - first + step - 1) / step, pitch);
  const int64_t begin = least(before, pitch);
  for (int64_t j = 0; j < begin; j += VECTOR) *(tb_loose *)(to + j) = (tb_vector){0};
  for (int64_t j = (stop < 0 ? 0 : stop) / VECTOR * VECTOR; j < pitch; j += VECTOR) *(tb_loose *)(to + j) = (tb_vector){0};
  int64_t j = begin;
  from += first;
  if (step == 1 && stop - begin >= VECTOR) {
    for (; j + VECTOR <= stop; j += VECTOR) *(tb_loose *)(to + j) = *(const tb_loose *)(from + j);
    if (j < stop) *(tb_loose *)(to + stop - VECTOR) = *(const tb_loose *)(from + stop - VECTOR);
    return;
  }
  if (step == 2 && j < stop) j += every_other(to + j, from + 2 * j, least((length - first) / 2, stop) - j);
  for (; j < stop; ++j) to[j] = from[j * step];
}

// Write the inputs of a tile of outputs, those of each phase side by side, zeros where there are none.
static inline void fill(const tb_windows *q, tb_layout s, const T *x, int64_t c0, int64_t channels, int64_t z, int64_t y0, int64_t x0, T *to) {
  const tb_axis *az = q->axis, *ay = az + 1, *ax = az + 2;
  const int64_t step = ax->step;
  FOR_RANGE(c, c0, c0 + channels) {
    const int64_t deep = z * az->step + az->first + c % az->taps * az->apart;
    const T *plane = deep < 0 || deep >= az->length ? NULL : x + (c / az->taps * az->length + deep) * ay->length * ax->length;
    FOR_RANGE(phase, 0, s.y.phases) FOR_RANGE(row, 0, s.rows) {
      const int64_t y = (y0 + row) * ay->step + s.y.low + phase;
      FOR_RANGE(k, 0, s.x.phases) {
        if (plane && y >= 0 && y < ay->length) fill_line(plane + y * ax->length, ax->length, x0 * step + s.x.low + k, step, s.pitch, to);
        else for (int64_t j = 0; j < s.pitch; j += VECTOR) *(tb_loose *)(to + j) = (tb_vector){0};
        to += s.pitch;
      }
    }
  }
}

#ifdef PACK
KERNEL(tb_pack_rows) {  // grid (row_panels, groups): TALL rows of weights side by side, the last ones filled up with zeros
  // b: weight, out; p: rows, depth of each axis (channels, taps), strides: of groups, rows, of each axis; first element
  const int64_t rows = p[0], row_panels = (rows + TALL - 1) / TALL, depth = p[1] * p[2] * p[3] * p[4];
  FOR_RANGE(group, range[2], range[3]) FOR_RANGE(row_panel, range[0], range[1]) {
    const int64_t some = least(TALL, rows - row_panel * TALL);
    const T *from = (const T *)b[0] + p[11] + group * p[5] + row_panel * TALL * p[6];
    T *to = (T *)b[1] + (group * row_panels + row_panel) * depth * TALL;
    FOR_RANGE(c, 0, p[1]) FOR_RANGE(i, 0, p[2]) FOR_RANGE(j, 0, p[3]) FOR_RANGE(k, 0, p[4]) {
      const T *first = from + c * p[7] + i * p[8] + j * p[9] + k * p[10];
      if (some == TALL) UNROLLED for (int u = 0; u < TALL; ++u) to[u] = first[u * p[6]];
      else FOR_RANGE(u, 0, TALL) to[u] = u < some ? first[u * p[6]] : 0;
      to += TALL;
    }
  }
}
#endif

// Write into panel, for each k, a vector of which the first lanes lie in one row and the others in the next.
static inline void assemble(int64_t depth, const T *x, const int32_t *off, int64_t left, int64_t right, tb_bits first, T *panel) {
  FOR_RANGE(k, 0, depth) {
    const tb_bits one = *(const tb_loose_bits *)(x + off[k] + left), other = *(const tb_loose_bits *)(x + off[k] + right);
    *(tb_loose_bits *)(panel + k * WIDE) = (one & first) | (other & ~first);
  }
}

// Where the vectors of a tile's columns are read, by lane, and where they stand; the lanes of each that count; and the
// lanes that lie in the first of the two rows that it is put together of.
typedef struct {
  int64_t high, wide, vectors, place[COLUMNS + WIDE];
  int32_t from[COLUMNS + WIDE], start[COLUMNS / VECTOR + 1], stop[COLUMNS / VECTOR + 1];
  tb_bits first[COLUMNS / VECTOR + VECTORS];
  int8_t whole[COLUMNS / VECTOR + VECTORS];  // by the first of VECTORS: whether all may be stored (1), added to (2)
} tb_columns;

static inline void columns_of(const tb_windows *q, tb_layout s, int64_t high, int64_t wide, tb_columns *c) {
  const tb_axis *ay = q->axis + 1, *ax = q->axis + 2;
  const int64_t count = high * wide;
  int64_t n = 0;
  if (c->high == high && c->wide == wide) return;
  if (q->flat) {  // vectors run over the ends of rows
    for (; n * VECTOR < count; ++n) {
      c->start[n] = 0, c->stop[n] = (int32_t)least(VECTOR, count - n * VECTOR);
      FOR_RANGE(u, 0, VECTOR) {
        const int64_t k = least(n * VECTOR + u, count - 1), y = k / wide, x = k % wide;
        c->from[n * VECTOR + u] = (int32_t)(y * s.line + x), c->place[n * VECTOR + u] = y * ay->out + x * ax->out;
        c->first[n][u] = -(y == n * VECTOR / wide);
      }
    }
  } else {  // the last vector of a row ends with it, and shares elements with the one before
    FOR_RANGE(y, 0, high) for (int64_t i = 0; i < wide; i += VECTOR, ++n) {
      const int64_t x = wide < VECTOR ? 0 : least(i, wide - VECTOR);
      c->start[n] = (int32_t)(i - x), c->stop[n] = (int32_t)least(VECTOR, wide);
      c->from[n * VECTOR] = (int32_t)(y * s.line + x), c->place[n * VECTOR] = y * ay->out + x * ax->out;
    }
  }
  FOR_RANGE(v, n, n + VECTORS - 1) {
    FOR_RANGE(u, 0, q->flat ? VECTOR : 1) c->from[v * VECTOR + u] = c->from[(v - 1) * VECTOR + u];
    if (q->flat) c->first[v] = c->first[v - 1];
  }
  for (int64_t v0 = 0; v0 < n; v0 += VECTORS) {
    c->whole[v0] = v0 + VECTORS <= n ? 2 : 0;
    FOR_RANGE(v, v0, least(v0 + VECTORS, n)) {
      const int64_t *to = c->place + v * VECTOR, along = q->flat ? to[VECTOR - 1] - to[0] : ax->out * (VECTOR - 1);
      if (c->stop[v] < VECTOR || along != VECTOR - 1) c->whole[v0] = 0;
      if (c->start[v] && c->whole[v0]) c->whole[v0] = 1;
    }
  }
  c->high = high, c->wide = wide, c->vectors = n;
}

// Store sums of VECTORS vectors from v0 on element by element, or add them.
static void scatter(const tb_windows *q, const tb_columns *c, int64_t v0, const T *sums, int64_t rows, T *out, int more) {
  const int64_t apart = q->axis[2].out;
  FOR_RANGE(i, 0, rows) FOR_RANGE(v, v0, least(v0 + VECTORS, c->vectors)) {
    const T *sum = sums + i * WIDE + (v - v0) * VECTOR;
    const int64_t *to = c->place + v * VECTOR, start = c->start[v], stop = c->stop[v];
    T *row = out + i * q->out_channel;
    if (q->flat && more) FOR_RANGE(u, start, stop) row[to[u]] += sum[u];
    else if (q->flat) FOR_RANGE(u, start, stop) row[to[u]] = sum[u];
    else if (more) FOR_RANGE(u, start, stop) row[to[0] + u * apart] += sum[u];
    else FOR_RANGE(u, start, stop) row[to[0] + u * apart] = sum[u];
  }
}

#ifdef CONVOLVE
KERNEL(tb_convolve) {  // grid (tiles, planes by parts of the rows, images by groups); b: weights, x, out
  const tb_windows *q = (const tb_windows *)p;
  const tb_axis *az = q->axis, *ay = az + 1, *ax = az + 2;
  const tb_layout s = layout_of(q);
  const int64_t taps = ay->taps * ax->taps, row_panels = (q->rows + TALL - 1) / TALL, across = (ax->count + q->wide - 1) / q->wide;
  T read[ROOM + WIDE] __attribute__((aligned(64))), panel[DEEP * WIDE] __attribute__((aligned(64)));
  int32_t off[DEEP], even[DEEP], lane[WIDE];
  tb_columns c;
  c.high = c.wide = 0;
  offsets(q, s, off);
  if (q->flat) FOR_RANGE(k, 0, DEEP) even[k] = (int32_t)k * WIDE;
  FOR_RANGE(k, 0, WIDE) lane[k] = (int32_t)k;
  FOR_RANGE(matrix, range[4], range[5]) FOR_RANGE(part, range[2], range[3]) FOR_RANGE(tile, range[0], range[1]) {
    const int64_t z = part / q->parts, y0 = tile / across * q->high, x0 = tile % across * q->wide;
    const int64_t high = least(q->high, ay->count - y0), wide = least(q->wide, ax->count - x0);
    const int64_t row_panel0 = part % q->parts * row_panels / q->parts, row_panel1 = (part % q->parts + 1) * row_panels / q->parts;
    const T *image = (const T *)b[1] + matrix * q->image;
    T *out = (T *)b[2] + matrix * q->out_image + q->out_first + z * az->out + y0 * ay->out + x0 * ax->out;
    columns_of(q, s, high, wide, &c);
    for (int64_t c0 = 0; c0 < q->channels; c0 += q->block) {
      const int64_t channels = least(q->block, q->channels - c0), depth = channels * taps;
      fill(q, s, image, c0, channels, z, y0, x0, read);
      for (int64_t v0 = 0; v0 < c.vectors; v0 += VECTORS) {
        const int32_t *at = c.from + v0 * VECTOR;
        if (q->flat && wide < VECTOR) FOR_RANGE(k, 0, depth) FOR_RANGE(u, 0, WIDE) panel[k * WIDE + u] = read[off[k] + at[u]];
        else if (q->flat) FOR_RANGE(v, 0, VECTORS) assemble(depth, read, off, at[v * VECTOR], at[v * VECTOR + VECTOR - 1] - VECTOR + 1, c.first[v0 + v], panel + v * VECTOR);
        FOR_RANGE(row_panel, row_panel0, row_panel1) {
          const int64_t group = matrix % q->groups, rows = least(TALL, q->rows - row_panel * TALL);
          const T *a = (const T *)b[0] + (q->lead ? (group * q->rows + row_panel * TALL) * q->lead + c0 * taps
                                                  : ((group * row_panels + row_panel) * q->channels + c0) * taps * TALL);
          const int whole = rows == TALL && c.whole[v0] > (c0 > 0);
          T sums[TALL * WIDE], *own = out + row_panel * TALL * q->out_channel, *to[VECTORS];
          UNROLLED for (int v = 0; v < VECTORS; ++v) to[v] = whole ? own + c.place[(v0 + v) * VECTOR] : sums + v * VECTOR;
          corner(depth, a, q->lead, rows, q->flat ? panel : read, q->flat ? even : off, q->flat ? lane : at, to, whole ? q->out_channel : WIDE, whole && c0);
          if (!whole) scatter(q, &c, v0, sums, rows, own, c0 > 0);
        }
      }
    }
  }
}
#endif

#ifdef WEIGHTS
// The gradient of the weights: T rows of the windows times gradients, summed over places.

enum { LINE = 64 / sizeof(T) };

KERNEL(tb_turn) {  // grid (row_panels, images by groups): WIDE channels of g side by side; b: g, out; p: channels, places
  const int64_t rows = p[0], places = p[1], row_panels = (rows + WIDE - 1) / WIDE;
  FOR_RANGE(matrix, range[2], range[3]) FOR_RANGE(row_panel, range[0], range[1]) {
    const T *from = (const T *)b[0] + (matrix * rows + row_panel * WIDE) * places;
    T *to = (T *)b[1] + (matrix * row_panels + row_panel) * places * WIDE;
    const int64_t some = least(WIDE, rows - row_panel * WIDE);
    for (int64_t k = 0; k < places; k += LINE) {  // by lines of cache
      const int64_t line = least(LINE, places - k);
      FOR_RANGE(u, 0, some) FOR_RANGE(j, 0, line) to[j * WIDE + u] = from[u * places + k + j];
      FOR_RANGE(j, 0, line) FOR_RANGE(u, some, WIDE) to[j * WIDE + u] = 0;
      to += line * WIDE;
    }
  }
}

// acc[i] += x[off[i]] * g, over a tile of places; `line` and `row` are what a row of either takes.
static __attribute__((noinline)) void gather_tile(int64_t high, int64_t wide, const T *x, const int32_t *off, int64_t line, const T *g, int64_t row, tb_loose acc[TALL][VECTORS]) {
  tb_vector own[TALL][VECTORS];
  const T *at[TALL];
  memcpy(own, acc, sizeof(own));
  FOR_RANGE(y, 0, high) {
    const tb_loose *right = (const tb_loose *)(g + y * row);
    UNROLLED for (int i = 0; i < TALL; ++i) at[i] = x + y * line + off[i];
    FOR_RANGE(k, 0, wide) {
      UNROLLED for (int i = 0; i < TALL; ++i) UNROLLED for (int v = 0; v < VECTORS; ++v) own[i][v] += at[i][k] * right[v];
      right += VECTORS;
    }
  }
  memcpy(acc, own, sizeof(own));
}

// The same of one channel of g, as it lies: a vector is of places, and its lanes are added up at last.
static __attribute__((noinline)) void gather_line(int64_t high, int64_t wide, const T *x, const int32_t *off, int64_t line, const T *g, int64_t row, tb_loose acc[TALL][VECTORS]) {
  tb_vector own[TALL];
  tb_bits kept = {0};
  FOR_RANGE(u, 0, wide % VECTOR) kept[u] = -1;
  UNROLLED for (int i = 0; i < TALL; ++i) own[i] = acc[i][0];
  FOR_RANGE(y, 0, high) {
    const T *from = g + y * row, *at = x + y * line;
    int64_t k = 0;
    for (; k + VECTOR <= wide; k += VECTOR) {
      const tb_vector right = *(const tb_loose *)(from + k);
      UNROLLED for (int i = 0; i < TALL; ++i) own[i] += *(const tb_loose *)(at + off[i] + k) * right;
    }
    if (k < wide) {  // what is beyond may be infinite: it must not meet a zero
      tb_vector right = {0};
      memcpy(&right, from + k, (wide - k) * sizeof(T));
      UNROLLED for (int i = 0; i < TALL; ++i) own[i] += (tb_vector)(*(const tb_loose_bits *)(at + off[i] + k) & kept) * right;
    }
  }
  UNROLLED for (int i = 0; i < TALL; ++i) acc[i][0] = own[i];
}

KERNEL(tb_correlate) {  // grid (blocks of channels, chunks of tiles, groups); b: turned g (or g of one row), x, parts
  const tb_windows *q = (const tb_windows *)p;
  const tb_axis *az = q->axis, *ay = az + 1, *ax = az + 2;
  const tb_layout s = layout_of(q);
  const int64_t taps = ay->taps * ax->taps, row_panels = (q->rows + WIDE - 1) / WIDE, blocks = (q->channels + q->block - 1) / q->block;
  const int64_t across = (ax->count + q->wide - 1) / q->wide, tiles = (ay->count + q->high - 1) / q->high * across;
  const int64_t down = (q->block * taps + TALL - 1) / TALL, units = q->parts * az->count * tiles;
  T read[ROOM + WIDE] __attribute__((aligned(64)));
  int32_t off[DEEP + TALL];
  offsets(q, s, off);
  FOR_RANGE(group, range[4], range[5]) FOR_RANGE(chunk, range[2], range[3]) FOR_RANGE(block, range[0], range[1]) {
    const int64_t c0 = block * q->block, channels = least(q->block, q->channels - c0), stop = least(units, (chunk + 1) * q->chunk);
    tb_loose (*parts)[TALL][VECTORS] = (void *)((T *)b[2] + ((chunk * q->groups + group) * blocks + block) * row_panels * down * TALL * WIDE);
    memset(parts, 0, row_panels * down * TALL * WIDE * sizeof(T));
    FOR_RANGE(k, channels * taps, down * TALL) off[k] = 0;
    FOR_RANGE(unit, chunk * q->chunk, stop) {
      const int64_t tile = unit % tiles, z = unit / tiles % az->count, matrix = unit / tiles / az->count * q->groups + group;
      const int64_t y0 = tile / across * q->high, x0 = tile % across * q->wide;
      const int64_t high = least(q->high, ay->count - y0), wide = least(q->wide, ax->count - x0);
      fill(q, s, (const T *)b[1] + matrix * q->image, c0, channels, z, y0, x0, read);
      FOR_RANGE(row_panel, 0, row_panels) {
        const int64_t place = (((matrix * row_panels + row_panel) * az->count + z) * ay->count + y0) * ax->count + x0;
        const T *g = (const T *)b[0] + (q->rows == 1 ? place : place * WIDE);
        if (q->rows == 1) FOR_RANGE(k, 0, down) gather_line(high, wide, read, off + k * TALL, s.line, g, ax->count, parts[k]);
        else FOR_RANGE(k, 0, down) gather_tile(high, wide, read, off + k * TALL, s.line, g, ax->count * WIDE, parts[row_panel * down + k]);
      }
    }
    if (channels < q->block) offsets(q, s, off);
  }
}

KERNEL(tb_collect) {  // grid (row panels, groups); b: parts, out; p: as before, then the number of chunks
  const tb_windows *q = (const tb_windows *)p;
  const int64_t taps = q->axis[1].taps * q->axis[2].taps, depth = q->channels * taps, row_panels = (q->rows + WIDE - 1) / WIDE;
  const int64_t own = q->block * taps, blocks = (q->channels + q->block - 1) / q->block, down = (own + TALL - 1) / TALL * TALL;
  const int64_t chunks = *(const int64_t *)(q + 1), apart = q->groups * blocks * row_panels * down * VECTORS;
  FOR_RANGE(group, range[2], range[3]) FOR_RANGE(row_panel, range[0], range[1]) FOR_RANGE(block, 0, blocks) {
    const tb_loose *from = (const tb_loose *)b[0] + ((group * blocks + block) * row_panels + row_panel) * down * VECTORS;
    T *out = (T *)b[1] + (group * q->rows + row_panel * WIDE) * depth + block * own;
    FOR_RANGE(k, 0, least(own, depth - block * own)) {
      tb_vector sums[VECTORS];
      FOR_RANGE(v, 0, VECTORS) sums[v] = from[k * VECTORS + v];
      FOR_RANGE(chunk, 1, chunks) FOR_RANGE(v, 0, VECTORS) sums[v] += from[chunk * apart + k * VECTORS + v];
      if (q->rows == 1) FOR_RANGE(u, 1, VECTOR) sums[0][0] += sums[0][u];
      FOR_RANGE(u, 0, least(WIDE, q->rows - row_panel * WIDE)) out[u * depth + k] = ((const T *)sums)[u];
    }
  }
}
#endif

#ifdef PRODUCT
KERNEL(tb_product) {  // grid (tiles of columns, matrices): out = x y; b: row_panels of x, y, out
  // p: rows, columns, depth, strides of y (rows, columns, matrices), the number of matrices x that take turns
  enum { TILE = COLUMNS / 4 };
  const int64_t m = p[0], n = p[1], depth = p[2], row_panels = (m + TALL - 1) / TALL;
  T panel[TILE * DEEP] __attribute__((aligned(64)));
  int32_t even[DEEP], lane[WIDE];
  FOR_RANGE(k, 0, DEEP) even[k] = (int32_t)k * WIDE;
  FOR_RANGE(k, 0, WIDE) lane[k] = (int32_t)k;
  FOR_RANGE(matrix, range[2], range[3]) FOR_RANGE(tile, range[0], range[1]) {
    const int64_t first = tile * TILE, count = least(n - first, TILE);
    const T *x = (const T *)b[0] + matrix % p[6] * row_panels * TALL * depth, *y = (const T *)b[1] + matrix * p[5] + first * p[4];
    T *out = (T *)b[2] + matrix * m * n + first;
    for (int64_t k0 = 0; k0 < depth; k0 += DEEP) {
      const int64_t deep = least(depth - k0, DEEP);
      FOR_RANGE(k, 0, deep) for (int64_t j = 0; j < count; j += WIDE) {
        T *to = panel + j * DEEP + k * WIDE;
        const T *from = y + (k0 + k) * p[3] + j * p[4];
        if (p[4] == 1 && count - j >= WIDE) memcpy(to, from, WIDE * sizeof(T));
        else FOR_RANGE(u, 0, WIDE) to[u] = j + u < count ? from[u * p[4]] : 0;
      }
      FOR_RANGE(row_panel, 0, row_panels) for (int64_t j = 0; j < count; j += WIDE) {
        const int64_t rows = least(TALL, m - row_panel * TALL), wide = least(count - j, WIDE);
        const int whole = rows == TALL && wide == WIDE;
        T sums[TALL * WIDE], *own = out + row_panel * TALL * n + j, *to[VECTORS];
        UNROLLED for (int v = 0; v < VECTORS; ++v) to[v] = (whole ? own : sums) + v * VECTOR;
        corner(deep, x + (row_panel * depth + k0) * TALL, 0, TALL, panel + j * DEEP, even, lane, to, whole ? n : WIDE, whole && k0);
        if (!whole) FOR_RANGE(i, 0, rows) FOR_RANGE(u, 0, wide) own[i * n + u] = (k0 ? own[i * n + u] : 0) + sums[i * WIDE + u];
      }
    }
  }
}
#endif
