// Kernels that the code generator has no schedule for. What stands before this text says which one is wanted
// (NAME_...), and its types: T as stored, A as computed with, LOAD(p, i) and STORE(p, i, v).
// Every kernel takes buffers, parameters and the part of the grid to work on: from range[2 * axis] up to
// range[2 * axis + 1]. Arrays are packed, of shape (outer, n, inner); the axis of n is the one worked along.

#include <stddef.h>

typedef union { double f; int64_t i; uint64_t u; } tb_slot;
#define KERNEL(name) void name(void *const *b, const tb_slot *p, const int64_t *range)
#define FOR_RANGE(i, from, to) for (int64_t i = (from), i##_end = (to); i < i##_end; ++i)
enum { LANES = 256 / sizeof(A), BLOCK = 1024 };
#define BLOCKS(at, wide) /* pieces of axis 0 of the grid, each of at most BLOCK */ \
  for (int64_t at = range[0], wide; at < range[1] && (wide = range[1] - at < BLOCK ? range[1] - at : BLOCK); at += BLOCK)

// Reductions take columns, grid (inner, chunks, outer), or rows, of inner 1, grid (chunks, outer); parameters n, inner
// and the number of chunks. Each chunk makes a part of its own.
#define CHUNK(c) const int64_t start = n * (c) / chunks, stop = n * ((c) + 1) / chunks

#ifdef NAME_fold_column  // COMBINE(a, x)
KERNEL(tb_fold_column) {
  const int64_t n = p[0].i, inner = p[1].i, chunks = p[2].i;
  FOR_RANGE(o, range[4], range[5]) FOR_RANGE(c, range[2], range[3]) BLOCKS(at, wide) {
    CHUNK(c);
    const T *x = (const T *)b[0] + o * n * inner + at;
    A acc[BLOCK];
    FOR_RANGE(j, 0, wide) acc[j] = LOAD(x, start * inner + j);
    for (int64_t i = start + 1, end; i < stop; i = end) {  // eight rows at a time: sums stay exact, lanes in registers
      end = stop - i < 8 ? stop : i + 8;
      int64_t even = 0;
      for (; even + LANES <= wide; even += LANES) {
        A lane[LANES];
        FOR_RANGE(u, 0, LANES) lane[u] = LOAD(x, i * inner + even + u);
        FOR_RANGE(k, i + 1, end) FOR_RANGE(u, 0, LANES) {
          const A value = LOAD(x, k * inner + even + u);
          lane[u] = COMBINE(lane[u], value);
        }
        FOR_RANGE(u, 0, LANES) acc[even + u] = COMBINE(acc[even + u], lane[u]);
      }
      FOR_RANGE(j, even, wide) {
        A some = LOAD(x, i * inner + j);
        FOR_RANGE(k, i + 1, end) {
          const A value = LOAD(x, k * inner + j);
          some = COMBINE(some, value);
        }
        acc[j] = COMBINE(acc[j], some);
      }
    }
    OUT *out = (OUT *)b[1] + (o * chunks + c) * inner + at;
    FOR_RANGE(j, 0, wide) STORE(out, j, acc[j]);
  }
}
#endif

// Fetch what LANES elements from x on will be followed by 8192 bytes later: rows end, and processors guess wrong there.
#define FETCH(x) \
  for (size_t at_ = 0; at_ < LANES * sizeof(T); at_ += 64) __builtin_prefetch((const char *)(x) + 8192 + at_)

#ifdef NAME_fold_row  // COMBINE(a, x); chunks have LANES elements and more
enum { HALF_LANES = LANES / 2 };

// Fold what is left of a part, from element i of n on, and put its lanes together.
static inline A tb_folded(A *lane, const T *x, int64_t i, int64_t n) {
  for (; i + HALF_LANES <= n; i += HALF_LANES) FOR_RANGE(u, 0, HALF_LANES) {
    const A value = LOAD(x, i + u);
    lane[u] = COMBINE(lane[u], value);
  }
  FOR_RANGE(u, 0, n - i) lane[u] = COMBINE(lane[u], LOAD(x, i + u));
  for (int half = HALF_LANES / 2; half; half /= 2) FOR_RANGE(u, 0, half) lane[u] = COMBINE(lane[u], lane[u + half]);
  return lane[0];
}

#ifdef QUICK  // COMBINE, but for NaN: a maximum in one instruction
typedef __typeof__(__builtin_choose_expr(sizeof(A) == 4, (int32_t)0, (int64_t)0)) tb_mask;

// Fold two parts up to element n; return how far that went: nowhere where a NaN was seen.
static inline int64_t tb_fold_two(A (*lane)[HALF_LANES], const T *const *x, int64_t n) {
  A first[2][HALF_LANES];
  tb_mask unordered[HALF_LANES], any = 0;
  FOR_RANGE(q, 0, 2) FOR_RANGE(u, 0, HALF_LANES) first[q][u] = lane[q][u];
  FOR_RANGE(u, 0, HALF_LANES) unordered[u] = -(tb_mask)__builtin_isunordered(lane[0][u], lane[1][u]);
  int64_t i = HALF_LANES;
  for (; i + HALF_LANES <= n; i += HALF_LANES) FOR_RANGE(u, 0, HALF_LANES) {
    const A one = LOAD(x[0], i + u), other = LOAD(x[1], i + u);
    unordered[u] |= -(tb_mask)__builtin_isunordered(one, other);
    lane[0][u] = QUICK(lane[0][u], one), lane[1][u] = QUICK(lane[1][u], other);
  }
  FOR_RANGE(u, 0, HALF_LANES) any |= unordered[u];
  if (!any) return i;
  FOR_RANGE(q, 0, 2) FOR_RANGE(u, 0, HALF_LANES) lane[q][u] = first[q][u];
  return HALF_LANES;
}
#else
static inline int64_t tb_fold_two(A (*lane)[HALF_LANES], const T *const *x, int64_t n) {
  int64_t i = HALF_LANES;
  for (; i + HALF_LANES <= n; i += HALF_LANES) FOR_RANGE(q, 0, 2) FOR_RANGE(u, 0, HALF_LANES) {
    const A value = LOAD(x[q], i + u);
    lane[q][u] = COMBINE(lane[q][u], value);
  }
  return i;
}
#endif

// Two parts at a time, one of each half of the box: memory delivers two streams faster than one, each without gaps.
KERNEL(tb_fold_row) {
  const int64_t n = p[0].i, chunks = p[2].i, wide = range[1] - range[0];
  const int64_t parts = wide * (range[3] - range[2]), half = (parts + 1) / 2;
  FOR_RANGE(k, 0, half) {
    const int count = k + half < parts ? 2 : 1;
    const T *x[2];
    int64_t size[2], to[2];
    FOR_RANGE(q, 0, count) {
      const int64_t part = k + q * half, o = range[2] + part / wide, c = range[0] + part % wide;
      CHUNK(c);
      x[q] = (const T *)b[0] + o * n + start, size[q] = stop - start, to[q] = o * chunks + c;
    }
    A lane[2][HALF_LANES];
    FOR_RANGE(q, 0, count) FOR_RANGE(u, 0, HALF_LANES) lane[q][u] = LOAD(x[q], u);
    const int64_t i = count == 2 ? tb_fold_two(lane, x, size[0] < size[1] ? size[0] : size[1]) : HALF_LANES;
    FOR_RANGE(q, 0, count) STORE((OUT *)b[1], to[q], tb_folded(lane[q], x[q], i, size[q]));
  }
}
#endif

#ifdef NAME_best_column  // argmax and argmin: BEATS(x, best)
KERNEL(tb_best_column) {
  const int64_t n = p[0].i, inner = p[1].i, chunks = p[2].i;
  FOR_RANGE(o, range[4], range[5]) FOR_RANGE(c, range[2], range[3]) BLOCKS(at, wide) {
    CHUNK(c);
    const T *x = (const T *)b[0] + (o * n + start) * inner + at;
    A best[BLOCK];
    int32_t place[BLOCK];
    FOR_RANGE(j, 0, wide) best[j] = LOAD(x, j), place[j] = 0;
    for (int32_t i = 1; i < stop - start; ++i) FOR_RANGE(j, 0, wide) {
      const A value = LOAD(x, i * inner + j);
      const int32_t take = BEATS(value, best[j]);
      best[j] = take ? value : best[j];
      place[j] = take ? i : place[j];
    }
    const int64_t out = (o * chunks + c) * inner + at;
    T *values = (T *)b[1] + out;
    FOR_RANGE(j, 0, wide) STORE(values, j, best[j]), ((int64_t *)b[2])[out + j] = start + place[j];
  }
}
#endif

#ifdef NAME_best_row  // argmax and argmin: BEATS(x, best)
KERNEL(tb_best_row) {
  const int64_t n = p[0].i, chunks = p[2].i;
  FOR_RANGE(o, range[2], range[3]) FOR_RANGE(c, range[0], range[1]) {
    CHUNK(c);
    const T *x = (const T *)b[0] + o * n;
    int64_t at = start;  // where the part begins in which the best stands first
    A best = LOAD(x, start);
    for (int64_t i = start, end; i < stop; i = end) {
      end = stop - i < BLOCK ? stop : i + BLOCK;
      A lane[LANES];
      FOR_RANGE(u, 0, LANES) lane[u] = best;
      int64_t k = i;
      for (; k + LANES <= end; k += LANES) {
        FETCH(x + k);
        FOR_RANGE(u, 0, LANES) {
          const A value = LOAD(x, k + u);
          lane[u] = BEATS(value, lane[u]) ? value : lane[u];
        }
      }
      FOR_RANGE(u, 0, end - k) lane[u] = BEATS(LOAD(x, k + u), lane[u]) ? LOAD(x, k + u) : lane[u];
      for (int half = LANES / 2; half; half /= 2)
        FOR_RANGE(u, 0, half) lane[u] = BEATS(lane[u + half], lane[u]) ? lane[u + half] : lane[u];
      if (BEATS(lane[0], best)) best = lane[0], at = i;
    }
    for (int found = 0; at + LANES <= stop; at += LANES) {
      FOR_RANGE(u, 0, LANES) found |= !BEATS(best, LOAD(x, at + u));
      if (found) break;
    }
    while (BEATS(best, LOAD(x, at))) ++at;
    STORE((T *)b[1], o * chunks + c, best);
    ((int64_t *)b[2])[o * chunks + c] = at;
  }
}
#endif

#ifdef NAME_scan_column  // running sums down columns: grid (inner, outer)
KERNEL(tb_scan_column) {
  const int64_t n = p[0].i, inner = p[1].i;
  FOR_RANGE(o, range[2], range[3]) BLOCKS(at, wide) {
    const T *restrict x = (const T *)b[0] + o * n * inner + at;
    OUT *restrict out = (OUT *)b[1] + o * n * inner + at;
    A before[BLOCK], acc[BLOCK];  // of whole blocks of rows, whose addition loses nothing, and of the rows since
    FOR_RANGE(j, 0, wide) before[j] = acc[j] = 0;
    if ((A)0.5 == 0) {  // integers lose nothing anyhow
      FOR_RANGE(i, 0, n) FOR_RANGE(j, 0, wide) {
        acc[j] += LOAD(x, i * inner + j);
        STORE(out, i * inner + j, acc[j]);
      }
      continue;
    }
    for (int64_t begin = 0, end; begin < n; begin = end) {
      end = begin + 32 < n ? begin + 32 : n;
      FOR_RANGE(i, begin, end) FOR_RANGE(j, 0, wide) {
        acc[j] += LOAD(x, i * inner + j);
        STORE(out, i * inner + j, before[j] + acc[j]);
      }
      FOR_RANGE(j, 0, wide) {  // Knuth's two-sum: what the total rounds off begins the next block
        const A total = before[j] + acc[j], added = total - before[j];
        const A lost = (before[j] - (total - added)) + (acc[j] - added);
        before[j] = total;
        acc[j] = lost - lost == 0 ? lost : 0;  // an infinite total loses nothing
      }
    }
  }
}
#endif

#if defined NAME_softmax || defined NAME_standardize  // grid (rows)
static inline A gather_lanes(const A *lane) {
  A total = 0;
  FOR_RANGE(u, 0, LANES) total += lane[u];
  return total;
}

static inline A largest(const T *x, int64_t n) {
  A lane[LANES], top = x[0];
  int64_t k = 0;
  FOR_RANGE(u, 0, LANES) lane[u] = top;
  for (; k + LANES <= n; k += LANES) FOR_RANGE(u, 0, LANES) {
    const A value = x[k + u];
    lane[u] = lane[u] != lane[u] || lane[u] > value ? lane[u] : value;
  }
  for (; k < n; ++k) lane[0] = lane[0] != lane[0] || lane[0] > x[k] ? lane[0] : x[k];
  FOR_RANGE(u, 0, LANES) top = top != top || top > lane[u] ? top : lane[u];
  return top;
}

// The sum over a row of `value`, an expression of k; long sums are cut into lanes, so they stay accurate.
#define SUM(total, n, value) \
  A total; \
  { \
    A lane[LANES] = {0}; \
    int64_t i = 0; \
    for (; i + LANES <= (n); i += LANES) for (int64_t u = 0; u < LANES; ++u) { const int64_t k = i + u; lane[u] += (value); } \
    for (int64_t k = i; k < (n); ++k) lane[k - i] += (value); \
    total = gather_lanes(lane); \
  }
#endif

#ifdef NAME_softmax
KERNEL(tb_softmax) {
  const int64_t n = p[0].i;
  FOR_RANGE(row, range[0], range[1]) {
    const T *restrict x = (const T *)b[0] + row * n;
    T *restrict out = (T *)b[1] + row * n;
    const A top = largest(x, n);
    FOR_RANGE(k, 0, n) out[k] = EXP(x[k] - top);
    SUM(total, n, out[k])
#ifdef LOGARITHM
    const A shift = LOG(total);
    FOR_RANGE(k, 0, n) out[k] = (x[k] - top) - shift;
#else
    FOR_RANGE(k, 0, n) out[k] = out[k] / total;
#endif
  }
}
#endif

#ifdef NAME_standardize
KERNEL(tb_standardize) {
  const int64_t n = p[0].i;
  FOR_RANGE(row, range[0], range[1]) {
    const T *restrict x = (const T *)b[0] + row * n;
    T *restrict out = (T *)b[1] + row * n;
    SUM(total, n, x[k])
    const A mean = total / n;
    SUM(squares, n, (x[k] - mean) * (x[k] - mean))
    const A scale = 1 / SQRT(squares / n + (A)p[1].f);
    FOR_RANGE(k, 0, n) out[k] = (x[k] - mean) * scale;
  }
}
#endif

#if defined NAME_gather || defined NAME_scatter
// K indices are arrays of int64 from b[3] on. Parameters: columns of their common shape, places in a chunk,
// places, bits of a row that do not tell its owner, owners, width of a row; the rows that every `per` rows of the
// common shape and each of its columns skip by themselves; from 9 on, for each index: the length of its axis, the
// rows that a step along it skips, and its strides down and along the common shape. Those below 0 count from the
// end where WRAP is set.
typedef struct {
  int64_t columns, chunk, places, shift, owners, width, per, down, along;
  struct { const int64_t *at; int64_t length, skips, down, along; } index[K];
} tb_indices;

static inline tb_indices indices_of(void *const *b, const tb_slot *p) {  // a copy: what is stored may alias p
  tb_indices q = {p[0].i, p[1].i, p[2].i, p[3].i, p[4].i, p[5].i, p[6].i, p[7].i, p[8].i};
  for (int k = 0; k < K; ++k) {
    const tb_slot *own = p + 9 + 4 * k;
    q.index[k].at = b[3 + k], q.index[k].length = own[0].i, q.index[k].skips = own[1].i;
    q.index[k].down = own[2].i, q.index[k].along = own[3].i;
  }
  return q;
}

static inline int64_t index_of(tb_indices q, int k, int64_t i, int64_t j) {
  const int64_t value = q.index[k].at[i * q.index[k].down + j * q.index[k].along];
#ifdef WRAP
  return value < 0 ? value + q.index[k].length : value;
#else
  return value;
#endif
}

static inline int64_t row_of(tb_indices q, int64_t i, int64_t j) {
  int64_t row = (q.per == 1 ? i : i / q.per) * q.down + j * q.along;
  for (int k = 0; k < K; ++k) row += index_of(q, k, i, j) * q.index[k].skips;
  return row;
}

static inline bool inside(tb_indices q, int64_t i, int64_t j, int64_t *error) {
  bool all = true;
  for (int k = 0; k < K; ++k) all &= (uint64_t)index_of(q, k, i, j) < (uint64_t)q.index[k].length;
  if (all) return true;
  int64_t none = 0;  // one of several is told
  if (__atomic_compare_exchange_n(error, &none, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
    for (int k = 0; k < K; ++k) {
      const int64_t value = index_of(q, k, i, j);
      if ((uint64_t)value >= (uint64_t)q.index[k].length) error[1] = k, error[2] = value;
    }
  return false;
}

// The places of chunk c as t, with their row i and column j in the common shape.
#define PLACES(q, c) \
  for (int64_t t = (c) * q.chunk, i = t / q.columns, j = t % q.columns, stop_ = t + q.chunk < q.places ? t + q.chunk : q.places; \
       t < stop_; ++i, j = 0) \
    for (const int64_t end_ = q.columns - j < stop_ - t ? t + q.columns - j : stop_; t < end_; ++t, ++j)
#endif

#ifdef NAME_gather  // grid (columns, rows) of the indices; b: x, out, error, indices; a row is so many bytes wide
#define MOVE(bytes) \
  FOR_RANGE(j, range[0], range[1]) \
    if (inside(q, i, j, b[2])) memcpy(out + j * (bytes), x + row_of(q, i, j) * (bytes), bytes)
KERNEL(tb_gather) {
  const tb_indices q = indices_of(b, p);
  const char *restrict x = b[0];
  FOR_RANGE(i, range[2], range[3]) {
    char *restrict out = (char *)b[1] + i * q.columns * q.width;
    switch (q.width) {
      case 1: MOVE(1); break;
      case 2: MOVE(2); break;
      case 4: MOVE(4); break;
      case 8: MOVE(8); break;
      case 16: MOVE(16); break;
      default: MOVE(q.width);
    }
  }
}
#endif

// Scatter, always in the order of places: alone where that is little, otherwise chunks whose destinations are apart
// are done side by side; else each chunk deals its entries out to the owners of ranges of rows, and these are served side by side.
#ifdef NAME_scatter
#ifdef NARROW  // rows of one element: an entry carries it
typedef struct { uint32_t to; T value; } tb_entry;
#else
typedef struct { int64_t to, from; } tb_entry;
#endif

static inline void put(T *restrict out, const T *restrict values, int64_t n) {
  FOR_RANGE(k, 0, n) STORE(out, k, COMBINE(LOAD(out, k), LOAD(values, k)));
}

KERNEL(tb_survey) {  // grid (chunks); b: least and largest row of each chunk, entries of each owner, error, indices
  const tb_indices q = indices_of(b, p);
  FOR_RANGE(c, range[0], range[1]) {
    int64_t low = INT64_MAX, high = -1, *counts = (int64_t *)b[1] + c * q.owners;
    PLACES(q, c) if (inside(q, i, j, b[2])) {
      const int64_t row = row_of(q, i, j);
      low = row < low ? row : low;
      high = row > high ? row : high;
      ++counts[row >> q.shift];
    }
    ((int64_t *)b[0])[2 * c] = low, ((int64_t *)b[0])[2 * c + 1] = high;
  }
}

KERNEL(tb_direct) {  // grid (chunks); b: out, values, error or none where places are known to be inside, indices
  const tb_indices q = indices_of(b, p);
  T *out = b[0];
  const T *values = b[1];
  int64_t *error = b[2];
  FOR_RANGE(c, range[0], range[1]) {
    if (q.width == 1) PLACES(q, c) {
      if (!error || inside(q, i, j, error)) put(out + row_of(q, i, j), values + t, 1);
    } else PLACES(q, c) {
      if (!error || inside(q, i, j, error)) put(out + row_of(q, i, j) * q.width, values + t * q.width, q.width);
    }
  }
}

KERNEL(tb_deal) {  // grid (chunks); b: entries, values, where those of a chunk for an owner start, indices
  const tb_indices q = indices_of(b, p);
  tb_entry *entries = b[0];
  FOR_RANGE(c, range[0], range[1]) {
    int64_t *next = (int64_t *)b[2] + c * q.owners;
    PLACES(q, c) {
      const int64_t row = row_of(q, i, j);
#ifdef NARROW
      entries[next[row >> q.shift]++] = (tb_entry){(uint32_t)row, ((const T *)b[1])[t]};
#else
      entries[next[row >> q.shift]++] = (tb_entry){row, t};
#endif
    }
  }
}

KERNEL(tb_serve) {  // grid (owners); b: out, values, where each owner's entries end, entries
  const int64_t *ends = b[2], width = p[5].i;
  T *out = b[0];
  FOR_RANGE(o, range[0], range[1]) FOR_RANGE(e, o ? ends[o - 1] : 0, ends[o]) {
    const tb_entry entry = ((const tb_entry *)b[3])[e];
#ifdef NARROW
    (void)width;
    put(out + entry.to, &entry.value, 1);
#else
    put(out + entry.to * width, (const T *)b[1] + entry.from * width, width);
#endif
  }
}
#endif

#ifdef NAME_overlap  // grid (images): windows added up where they lie; b: x, out. Parameters, for 3 axes each: the
// length of out, the number of windows, their size, stride and dilation, the strides of x over windows and within
// one; then the stride of x over images.
KERNEL(tb_overlap) {
  int64_t space[3], count[3], size[3], stride[3], dilation[3], over[3], within[3];
  int64_t *const all[] = {space, count, size, stride, dilation, over, within};
  for (int k = 0; k < 7; ++k) FOR_RANGE(a, 0, 3) all[k][a] = p[3 * k + a].i;
  const int64_t area = space[0] * space[1] * space[2];
  FOR_RANGE(image, range[0], range[1]) {
    const T *x = (const T *)b[0] + image * p[21].i;
    T *out = (T *)b[1] + image * area;
    FOR_RANGE(k, 0, area) out[k] = 0;
    FOR_RANGE(c0, 0, size[0]) FOR_RANGE(c1, 0, size[1]) FOR_RANGE(c2, 0, size[2])
      FOR_RANGE(i0, 0, count[0]) FOR_RANGE(i1, 0, count[1]) {
        const int64_t row = (i0 * stride[0] + c0 * dilation[0]) * space[1] + i1 * stride[1] + c1 * dilation[1];
        T *restrict to = out + row * space[2] + c2 * dilation[2];
        const T *restrict from = x + c0 * within[0] + c1 * within[1] + c2 * within[2] + i0 * over[0] + i1 * over[1];
        if (stride[2] == 1 && over[2] == 1) FOR_RANGE(i2, 0, count[2]) to[i2] += from[i2];
        else FOR_RANGE(i2, 0, count[2]) to[i2 * stride[2]] += from[i2 * over[2]];
      }
  }
}
#endif
