// Sums and products of floats whose last bits depend on a row alone: not on how many rows there are, nor on how they
// lie or are shared out. Sums add in the order in which NumPy adds contiguous rows: halves, halves of halves and so on
// down to LEAF elements, of which every eighth one has a sum of its own. Products multiply one element after another.
//
// What stands before this text says which kernel is wanted (NAME_...), and its types: T as stored, A as computed with,
// OUT, LOAD(p, i) and STORE(p, i, v). Kernels take buffers, parameters and the part of the grid to work on, from
// range[2 * axis] up to range[2 * axis + 1]. Parameters: elements of a row, parts of each (of which there are 1, 2, 4
// ...  where sums are cut), then lengths of the last two of three axes that are reduced, all three strides, and the
// same for three axes that are kept, in elements; then rows, and columns of each.

typedef union { double f; int64_t i; uint64_t u; } tb_slot;
#define KERNEL(name) void name(void *const *b, const tb_slot *p, const int64_t *range)
#define FOR_RANGE(i, from, to) for (int64_t i = (from), i##_end = (to); i < i##_end; ++i)
#define INLINE static inline __attribute__((always_inline))
enum { WAYS = 8, LEAF = 128, VECTOR = 32 / sizeof(A), VECTORS = WAYS / VECTOR };
enum { BLOCK = 4096 / sizeof(A), PANEL = 256 / sizeof(A), DEPTH = 8, CHAINS = 8 };  // of columns; rows read at a time
typedef A tb_vector __attribute__((vector_size(32)));
typedef A tb_loose __attribute__((vector_size(32), aligned(sizeof(A)), may_alias));

typedef struct { int64_t count, parts, length[2], stride[3]; } tb_axes;

INLINE tb_axes tb_reduced(const tb_slot *p) {
  return (tb_axes){p[0].i, p[1].i, {p[2].i, p[3].i}, {p[4].i, p[5].i, p[6].i}};
}

// Return how far element i lies from the first.
INLINE int64_t tb_offset(int64_t i, int64_t middle, int64_t last, const int64_t *stride) {
  return i / (middle * last) * stride[0] + i / last % middle * stride[1] + i % last * stride[2];
}

INLINE const T *tb_kept(void *const *b, const tb_slot *p, int64_t row) {
  const int64_t stride[3] = {p[9].i, p[10].i, p[11].i};
  return (const T *)b[0] + (p[8].i == p[12].i ? row * stride[2] : tb_offset(row, p[7].i, p[8].i, stride));
}

// Return n elements side by side, from element i of a row on: where they are, or gathered in a buffer.
INLINE const T *tb_run(const tb_axes *axes, const T *x, int64_t i, int64_t n, T *buffer) {
  const int64_t last = axes->length[1], at = last == axes->count ? i : i % last;
  const T *from = at == i ? x + i * axes->stride[2] : x + tb_offset(i, axes->length[0], last, axes->stride);
  if (axes->stride[2] == 1 && at + n <= last) return from;
  for (int64_t k = 0, some = last - at < n ? last - at : n; k < n; k += some, some = last < n - k ? last : n - k) {
    if (k) from = x + tb_offset(i + k, axes->length[0], last, axes->stride);
    FOR_RANGE(u, 0, some) buffer[k + u] = from[u * axes->stride[2]];
  }
  return buffer;
}

INLINE int64_t tb_split(int64_t n) { return n / 2 - n / 2 % WAYS; }

// Where part c of parts begins and how long it is.
INLINE int64_t tb_part(int64_t c, int64_t parts, int64_t *n) {
  int64_t start = 0;
  for (int64_t left = parts / 2; left; left /= 2) {
    const int64_t half = tb_split(*n);
    if (c >= left) c -= left, start += half, *n -= half;
    else *n = half;
  }
  return start;
}

#ifdef NAME_sum_row  // grid (parts, rows)
INLINE tb_vector tb_load(const A *x) { return *(const tb_loose *)x; }

// Return n elements as they are computed with, in a buffer where they are stored otherwise.
INLINE const A *tb_wide(const T *x, int64_t n, A *buffer) {
  if (sizeof(T) == sizeof(A)) return (const A *)x;
  FOR_RANGE(u, 0, n) buffer[u] = LOAD(x, u);
  return buffer;
}

// Add up LEAF elements or fewer of one row or of two.
INLINE void tb_leaf(const int rows, const A *const *x, int64_t n, A *out) {
  if (n < WAYS) {
    FOR_RANGE(q, 0, rows) out[q] = x[q][0];
    FOR_RANGE(i, 1, n) FOR_RANGE(q, 0, rows) out[q] += x[q][i];
    return;
  }
  tb_vector sum[2][VECTORS];
  _Pragma("GCC unroll 2") for (int q = 0; q < rows; ++q)
    _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; ++v) sum[q][v] = tb_load(x[q] + v * VECTOR);
  int64_t i = WAYS;
  for (; i + WAYS <= n; i += WAYS)
    _Pragma("GCC unroll 2") for (int q = 0; q < rows; ++q)
      _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; ++v) sum[q][v] += tb_load(x[q] + i + v * VECTOR);
  _Pragma("GCC unroll 2") for (int q = 0; q < rows; ++q) {
#define WAY(u) sum[q][(u) / VECTOR][(u) % VECTOR]
    out[q] = ((WAY(0) + WAY(1)) + (WAY(2) + WAY(3))) + ((WAY(4) + WAY(5)) + (WAY(6) + WAY(7)));
    FOR_RANGE(k, i, n) out[q] += x[q][k];
  }
}

// Put the ways of four sums together.
INLINE void tb_four(const tb_vector (*sum)[VECTORS], A *out) {
#if defined __clang__ || __GNUC__ >= 12
  if (VECTORS == 1) {  // all four at once
    typedef float four __attribute__((vector_size(32)));
#define PAIRS(a, b) (__builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) + __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15))
    const four a = (four)sum[0][0], b = (four)sum[1][0], c = (four)sum[2][0], d = (four)sum[3][0];
    const four ab = PAIRS(a, b), cd = PAIRS(c, d), all = PAIRS(ab, cd);
    for (int q = 0; q < 4; ++q) out[q] = all[q] + all[q + 4];
    return;
  }
#endif
  for (int q = 0; q < 4; ++q) out[q] = ((WAY(0) + WAY(1)) + (WAY(2) + WAY(3))) + ((WAY(4) + WAY(5)) + (WAY(6) + WAY(7)));
}

// Two rows at a time: memory delivers two streams faster than one, each from end to end.
static void tb_two(const T *x, const T *y, int64_t n, A *out) {
  A wide[2][2 * LEAF];
  if (n == 2 * LEAF) {
    const A *const first = tb_wide(x, 2 * LEAF, wide[0]), *const other = tb_wide(y, 2 * LEAF, wide[1]);
    const A *const rows[4] = {first, other, first + LEAF, other + LEAF};
    tb_vector sum[4][VECTORS];
    A four[4];
    _Pragma("GCC unroll 2") for (int leaf = 0; leaf < 4; leaf += 2) {
      _Pragma("GCC unroll 4") for (int q = leaf; q < leaf + 2; ++q)
        _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; ++v) sum[q][v] = tb_load(rows[q] + v * VECTOR);
      _Pragma("GCC unroll 16") for (int i = WAYS; i < LEAF; i += WAYS)
        _Pragma("GCC unroll 4") for (int q = leaf; q < leaf + 2; ++q)
          _Pragma("GCC unroll 8") for (int v = 0; v < VECTORS; ++v) sum[q][v] += tb_load(rows[q] + i + v * VECTOR);
    }
    tb_four((const tb_vector(*)[VECTORS])sum, four);
    out[0] = four[0] + four[2], out[1] = four[1] + four[3];
    return;
  }
  if (n <= LEAF) {
    const A *const rows[2] = {tb_wide(x, n, wide[0]), tb_wide(y, n, wide[1])};
    tb_leaf(2, rows, n, out);
    return;
  }
  const int64_t half = tb_split(n);
  A rest[2];
  tb_two(x, y, half, out);
  tb_two(x + half, y + half, n - half, rest);
  out[0] += rest[0], out[1] += rest[1];
}

static A tb_one(const tb_axes *axes, const T *x, int64_t i, int64_t n) {
  if (n <= LEAF) {
    T buffer[LEAF];
    A wide[LEAF], out;
    const A *const rows[1] = {tb_wide(tb_run(axes, x, i, n, buffer), n, wide)};
    tb_leaf(1, rows, n, &out);
    return out;
  }
  const int64_t half = tb_split(n);
  const A first = tb_one(axes, x, i, half);
  return first + tb_one(axes, x, i + half, n - half);
}

// Rows of n elements side by side, at x and `apart` from there; n is less than WAYS, and known.
INLINE void tb_short(const T *x, int64_t apart, int64_t rows, const int n, OUT *out) {
  FOR_RANGE(o, 0, rows) {
    A sum = LOAD(x, o * apart);
    _Pragma("GCC unroll 8") for (int i = 1; i < n; ++i) sum += LOAD(x, o * apart + i);
    STORE(out, o, 0 + sum);
  }
}

static void tb_whole(const T *x, int64_t apart, int64_t rows, int64_t n, OUT *out) {
  switch (n) {
    case 2: tb_short(x, apart, rows, 2, out); return;
    case 3: tb_short(x, apart, rows, 3, out); return;
    case 4: tb_short(x, apart, rows, 4, out); return;
    case 5: tb_short(x, apart, rows, 5, out); return;
    case 6: tb_short(x, apart, rows, 6, out); return;
    case 7: tb_short(x, apart, rows, 7, out); return;
  }
  const int64_t half = (rows + 1) / 2;
  FOR_RANGE(o, 0, half) {
    A sum[2];
    tb_two(x + o * apart, x + (o + half < rows ? o + half : o) * apart, n, sum);
    STORE(out, o, 0 + sum[0]);
    if (o + half < rows) STORE(out, o + half, 0 + sum[1]);
  }
}

KERNEL(tb_sum_row) {
  const tb_axes axes = tb_reduced(p);
  const int64_t wide = range[1] - range[0], count = wide * (range[3] - range[2]), half = (count + 1) / 2;
  const bool packed = axes.stride[2] == 1 && axes.length[1] == axes.count;
  if (packed && axes.parts == 1 && p[8].i == p[12].i) {
    tb_whole(tb_kept(b, p, range[2]), p[11].i, count, axes.count, (OUT *)b[1] + range[2]);
    return;
  }
  FOR_RANGE(k, 0, half) {
    int64_t n[2] = {axes.count, axes.count}, start[2], to[2];
    const T *x[2];
    const int rows = k + half < count ? 2 : 1;
    FOR_RANGE(q, 0, rows) {
      const int64_t part = k + q * half, o = range[2] + part / wide, c = range[0] + part % wide;
      start[q] = tb_part(c, axes.parts, &n[q]), to[q] = o * axes.parts + c, x[q] = tb_kept(b, p, o);
    }
    A sum[2];
    if (packed && rows == 2 && n[0] == n[1]) tb_two(x[0] + start[0], x[1] + start[1], n[0], sum);
    else FOR_RANGE(q, 0, rows) sum[q] = tb_one(&axes, x[q], start[q], n[q]);
    FOR_RANGE(q, 0, rows) STORE((OUT *)b[1], to[q], 0 + sum[q]);
  }
}
#endif

#if defined NAME_sum_column || defined NAME_product_column  // grid (columns, parts, rows of columns)
typedef struct { tb_axes axes; const T *x; int64_t wide; } tb_columns;  // they lie side by side

INLINE const T *tb_line(const tb_columns *c, int64_t i) {
  if (c->axes.length[1] == c->axes.count) return c->x + i * c->axes.stride[2];
  return c->x + tb_offset(i, c->axes.length[0], c->axes.length[1], c->axes.stride);
}

#ifdef NAME_sum_column
#define JOIN(a, x) ((a) + (x))
#else
#define JOIN(a, x) ((a) * (x))
#endif

// Join `depth` lines, `apart` from each other, to n sums or products, which are set by the `first` ones.
INLINE void tb_add(A *restrict sum, const T *restrict x, int64_t n, int64_t apart, int64_t depth, const bool first) {
  int64_t at = 0;
  for (; at + PANEL <= n; at += PANEL) {
    A row_panel[PANEL];
    FOR_RANGE(j, 0, PANEL) row_panel[j] = first ? LOAD(x, at + j) : JOIN(sum[at + j], LOAD(x, at + j));
    FOR_RANGE(k, 1, depth) FOR_RANGE(j, 0, PANEL) row_panel[j] = JOIN(row_panel[j], LOAD(x, at + k * apart + j));
    FOR_RANGE(j, 0, PANEL) sum[at + j] = row_panel[j];
  }
  FOR_RANGE(j, at, n) sum[j] = first ? LOAD(x, j) : JOIN(sum[j], LOAD(x, j));
  FOR_RANGE(k, 1, depth) FOR_RANGE(j, at, n) sum[j] = JOIN(sum[j], LOAD(x, k * apart + j));
}
#endif

#ifdef NAME_sum_column
static void tb_some_lines(const tb_columns *c, int64_t i, int64_t n, A *restrict out) {
  const int64_t wide = c->wide, apart = c->axes.stride[2], whole = n < WAYS ? 1 : n - n % WAYS;
  const bool even = c->axes.length[1] == c->axes.count;
  A sum[WAYS * BLOCK];
  if (n < WAYS) tb_add(out, tb_line(c, i), wide, 0, 1, true);
  else if (even) {
    const bool packed = apart == wide && wide <= BLOCK / WAYS;  // short lines side by side are one, read from end to end
    const int64_t some = packed ? WAYS : 1, most = packed && wide > BLOCK / WAYS / 4 ? 1 : DEPTH;
    for (int64_t k = 0, depth; k < whole; k += depth * WAYS) {
      depth = (whole - k) / WAYS < most ? (whole - k) / WAYS : most;
      const T *x = tb_line(c, i + k);
      for (int u = 0; u < WAYS; u += some)
        if (k) tb_add(sum + u * wide, x + u * apart, some * wide, WAYS * apart, depth, false);
        else tb_add(sum + u * wide, x + u * apart, some * wide, WAYS * apart, depth, true);
    }
  } else FOR_RANGE(k, 0, whole) {
    if (k < WAYS) tb_add(sum + k * wide, tb_line(c, i + k), wide, 0, 1, true);
    else tb_add(sum + k % WAYS * wide, tb_line(c, i + k), wide, 0, 1, false);
  }
#define WAY(u) sum[(u) * wide + j]
  if (n >= WAYS)
    FOR_RANGE(j, 0, wide) out[j] = ((WAY(0) + WAY(1)) + (WAY(2) + WAY(3))) + ((WAY(4) + WAY(5)) + (WAY(6) + WAY(7)));
  FOR_RANGE(k, whole, n) tb_add(out, tb_line(c, i + k), wide, 0, 1, false);
}

static void tb_lines(const tb_columns *c, int64_t i, int64_t n, A *restrict out) {
  if (n <= LEAF) {
    tb_some_lines(c, i, n, out);
    return;
  }
  const int64_t half = tb_split(n);
  A rest[BLOCK];
  tb_lines(c, i, half, out);
  tb_lines(c, i + half, n - half, rest);
  FOR_RANGE(j, 0, c->wide) out[j] += rest[j];
}

KERNEL(tb_sum_column) {
  const int64_t inner = p[13].i;
  tb_columns columns = {.axes = tb_reduced(p)};
  FOR_RANGE(o, range[4], range[5]) FOR_RANGE(c, range[2], range[3])
    for (int64_t at = range[0]; at < range[1]; at += BLOCK) {
      A sum[BLOCK];
      int64_t n = columns.axes.count;
      const int64_t start = tb_part(c, columns.axes.parts, &n);
      columns.x = tb_kept(b, p, o) + at, columns.wide = range[1] - at < BLOCK ? range[1] - at : BLOCK;
      tb_lines(&columns, start, n, sum);
      OUT *out = (OUT *)b[1] + (o * columns.axes.parts + c) * inner + at;
      FOR_RANGE(j, 0, columns.wide) STORE(out, j, 0 + sum[j]);
    }
}
#endif

#ifdef NAME_sum_parts  // grid (columns, rows of columns): parts that lie one after another; they are overwritten
KERNEL(tb_sum_parts) {
  const int64_t parts = p[0].i, inner = p[1].i;
  FOR_RANGE(o, range[2], range[3]) {
    A *x = (A *)b[0] + o * parts * inner;
    for (int64_t step = 1; step < parts; step *= 2)
      for (int64_t k = 0; k < parts; k += 2 * step)
        FOR_RANGE(j, range[0], range[1]) x[k * inner + j] += x[(k + step) * inner + j];
    FOR_RANGE(j, range[0], range[1]) STORE((OUT *)b[1], o * inner + j, x[j]);
  }
}
#endif

#define CHUNK(c) const int64_t start = axes.count * (c) / axes.parts, stop = axes.count * ((c) + 1) / axes.parts

#ifdef NAME_product_row  // grid (parts, rows)
KERNEL(tb_product_row) {
  const tb_axes axes = tb_reduced(p);
  const int64_t wide = range[1] - range[0], count = wide * (range[3] - range[2]), apart = p[11].i;
  int64_t k = 0;
  if (axes.stride[2] == 1 && axes.length[1] == axes.count && axes.parts == 1 && p[8].i == p[12].i)
    for (const T *x = tb_kept(b, p, range[2]); k + CHAINS <= count; k += CHAINS, x += CHAINS * apart) {
      A acc[CHAINS];
      FOR_RANGE(q, 0, CHAINS) acc[q] = LOAD(x, q * apart);
      FOR_RANGE(i, 1, axes.count) FOR_RANGE(q, 0, CHAINS) acc[q] *= LOAD(x, q * apart + i);
      FOR_RANGE(q, 0, CHAINS) STORE((OUT *)b[1], range[2] + k + q, acc[q]);
    }
  for (; k < count; k += CHAINS) {  // several at a time, as none can go on before its last product is there
    const int64_t rows = count - k < CHAINS ? count - k : CHAINS;
    const T *x[CHAINS], *run[CHAINS];
    int64_t from[CHAINS], size[CHAINS], to[CHAINS], least = INT64_MAX;
    A acc[CHAINS];
    T buffer[CHAINS][LEAF];
    FOR_RANGE(q, 0, CHAINS) {
      const int64_t part = k + (q < rows ? q : 0), o = range[2] + part / wide, c = range[0] + part % wide;
      CHUNK(c);
      x[q] = tb_kept(b, p, o), from[q] = start, size[q] = stop - start, to[q] = o * axes.parts + c, acc[q] = 1;
      least = size[q] < least ? size[q] : least;
    }
    for (int64_t i = 0, n; i < least; i += n) {
      n = least - i < LEAF ? least - i : LEAF;
      FOR_RANGE(q, 0, CHAINS) run[q] = tb_run(&axes, x[q], from[q] + i, n, buffer[q]);
      FOR_RANGE(u, 0, n) FOR_RANGE(q, 0, CHAINS) acc[q] *= LOAD(run[q], u);
    }
    FOR_RANGE(q, 0, rows) {
      if (size[q] > least) acc[q] *= LOAD(tb_run(&axes, x[q], from[q] + least, 1, buffer[q]), 0);
      STORE((OUT *)b[1], to[q], acc[q]);
    }
  }
}
#endif

#ifdef NAME_product_column
KERNEL(tb_product_column) {
  const tb_axes axes = tb_reduced(p);
  const int64_t inner = p[13].i, most = axes.length[1] == axes.count ? DEPTH : 1;
  FOR_RANGE(o, range[4], range[5]) FOR_RANGE(c, range[2], range[3])
    for (int64_t at = range[0]; at < range[1]; at += BLOCK) {
      CHUNK(c);
      const int64_t wide = range[1] - at < BLOCK ? range[1] - at : BLOCK;
      const tb_columns columns = {axes, tb_kept(b, p, o) + at, wide};
      A acc[BLOCK];
      tb_add(acc, tb_line(&columns, start), wide, 0, 1, true);
      for (int64_t i = start + 1; i < stop; i += most)
        tb_add(acc, tb_line(&columns, i), wide, axes.stride[2], stop - i < most ? stop - i : most, false);
      OUT *out = (OUT *)b[1] + (o * axes.parts + c) * inner + at;
      FOR_RANGE(j, 0, wide) STORE(out, j, acc[j]);
    }
}
#endif
