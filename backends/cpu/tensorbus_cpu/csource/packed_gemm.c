// Products of matrices of bfloat16, or with INTEGERS of bytes, by what a processor has for them: amx.c or avx512.c, of which
// one follows this file.
//
// Both operands are packed first, so that what is read together lies side by side. A tile is 16 lines (rows of the left
// operand, columns of the right one) by 64 bytes of the depth, which is a step; a panel is two tiles of lines. Tiles of
// the right operand are turned: elements that four bytes hold stay together, those of all columns side by side.
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>

#ifdef INTEGERS
typedef uint8_t T;
typedef int32_t SUM;

static inline T narrow(SUM sum) { return (T)(uint32_t)sum; }
#else
typedef uint16_t T;
typedef float SUM;

static inline T narrow(SUM sum) {
  uint32_t bits;
  memcpy(&bits, &sum, 4);
  const uint32_t nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
  return (T)((bits & 0x7fffffff) > 0x7f800000 ? quiet : nearest);
}
#endif

enum { SIDE = 16, PANEL = 2 * SIDE, GROUP = 4 / sizeof(T), STEP = SIDE * GROUP, TILE = 1024 };
enum { MAX_PANELS = 8, DEEP = 64 };  // panels of a block of sums, down and across; steps for which registers keep sums

#ifdef __AVX512F__
#include <immintrin.h>
#endif

// What follows this file: sums of a panel by a panel, four tiles, over some steps, added to what is there if there are
// `more`. `rows` is how many lines of the left panel count, `next` what is read after it; what happens before and after
// a thread's sums; and whether the system lets it.
static void tb_sum_up(const char *x, const char *y, const char *next, int64_t steps, int64_t rows, SUM *to, int more);
static void tb_begin(void);
static void tb_end(void);
int tb_ready(void);

// Write GROUP rows of SIDE elements, `along` apart, with those of a column side by side.
#if defined __clang__ || __GNUC__ >= 12
typedef T lanes __attribute__((vector_size(SIDE * sizeof(T)), aligned(sizeof(T)), may_alias));
#define ONE_AND_OTHER(first) \
  first, first + 16, first + 1, first + 17, first + 2, first + 18, first + 3, first + 19, first + 4, first + 20, first + 5, first + 21, first + 6, first + 22, first + 7, first + 23
static inline lanes low(lanes a, lanes b) { return __builtin_shufflevector(a, b, ONE_AND_OTHER(0)); }
static inline lanes high(lanes a, lanes b) { return __builtin_shufflevector(a, b, ONE_AND_OTHER(8)); }
static inline void tb_interleave(const T *x, int64_t along, T *to) {
  lanes row[GROUP], *out = (lanes *)to;
  for (int e = 0; e < GROUP; ++e) row[e] = *(const lanes *)(x + e * along);
#ifdef INTEGERS  // of rows 0 and 2 and of 1 and 3, and then of what that gives
  const lanes even[2] = {low(row[0], row[2]), high(row[0], row[2])}, odd[2] = {low(row[1], row[3]), high(row[1], row[3])};
  for (int k = 0; k < 2; ++k) out[2 * k] = low(even[k], odd[k]), out[2 * k + 1] = high(even[k], odd[k]);
#else
  out[0] = low(row[0], row[1]), out[1] = high(row[0], row[1]);
#endif
}
#else
static inline void tb_interleave(const T *x, int64_t along, T *to) {
  for (int r = 0; r < SIDE; ++r)
    for (int e = 0; e < GROUP; ++e) to[r * GROUP + e] = x[e * along + r];
}
#endif

// Pack a tile: `lines` and `depth` are what there is of both, of which at most SIDE and STEP belong to it.
static inline void tb_pack_tile(const T *x, int64_t lines, int64_t depth, int64_t down, int64_t along, int turned, T *to) {
  const int whole = SIDE <= lines && STEP <= depth;
  if (whole && !turned && along == 1) {
    for (int r = 0; r < SIDE; ++r) memcpy(to + r * STEP, x + r * down, 64);
  } else if (whole && turned && along == 1) {
    for (int r = 0; r < SIDE; ++r)
      for (int g = 0; g < SIDE; ++g) memcpy(to + (g * SIDE + r) * GROUP, x + r * down + g * GROUP, 4);
  } else if (whole && turned && down == 1) {
    for (int g = 0; g < SIDE; ++g) tb_interleave(x + g * GROUP * along, along, to + g * SIDE * GROUP);
  } else {
    for (int e = 0; e < STEP; ++e)
      for (int r = 0; r < SIDE; ++r)
        to[turned ? (e / GROUP * SIDE + r) * GROUP + e % GROUP : r * STEP + e] = r < lines && e < depth ? x[r * down + e * along] : 0;
  }
}

// Pack an operand. Grid (panels, matrices); b: the operand, where to; p: lines, depth, strides of lines, of depth and of
// matrices, whether tiles are turned, as those of the right operand are: groups of the depth one below the other. Where
// lines lie side by side, panels take turns, so that more of a row of memory is read at a time.
void tb_pack(void *const *b, const int64_t *p, const int64_t *range) {
  const int64_t lines = p[0], depth = p[1], down = p[2], along = p[3], steps = (depth + STEP - 1) / STEP;
  const int64_t panels = (lines + PANEL - 1) / PANEL, some = range[1] - range[0], turns = down == 1 ? some : 1;
  for (int64_t matrix = range[2]; matrix < range[3]; ++matrix)
    for (int64_t first = range[0]; first < range[1]; first += turns)
      for (int64_t k = 0; k < steps * turns; ++k)
        for (int64_t half = 0; half < 2; ++half) {
          const int64_t panel = first + k % turns, s = k / turns, line = panel * PANEL + half * SIDE;
          T *to = (T *)((char *)b[1] + (((matrix * panels + panel) * steps + s) * 2 + half) * TILE);
          const T *x = (const T *)b[0] + matrix * p[4] + line * down + s * STEP * along;
          tb_pack_tile(x, lines - line, depth - s * STEP, down, along, p[5] != 0, to);
        }
}

// Round or wrap the sums of a row of two tiles.
static inline void tb_narrow_row(const SUM *sums, T *out) {
#if !defined INTEGERS && defined __AVX512BF16__
  const __m512bh row = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(sums + SIDE * SIDE), _mm512_loadu_ps(sums));
  memcpy(out, &row, sizeof row);
#elif defined INTEGERS && defined __AVX512F__
  for (int t = 0; t < 2; ++t) _mm_storeu_si128((void *)(out + t * SIDE), _mm512_cvtepi32_epi8(_mm512_loadu_si512(sums + t * SIDE * SIDE)));
#else
  for (int t = 0; t < 2; ++t)
    for (int j = 0; j < SIDE; ++j) out[t * SIDE + j] = narrow(sums[t * SIDE * SIDE + j]);
#endif
}

// Round or wrap the sums of a panel by a panel, four tiles, into the result.
static void tb_narrow(const SUM *sums, T *out, int64_t line, int64_t rows, int64_t columns) {
  for (int64_t r = 0, end = rows < PANEL ? rows : PANEL; r < end; ++r, out += line) {
    const SUM *row = sums + r / SIDE * 2 * SIDE * SIDE + r % SIDE * SIDE;
    if (columns >= PANEL) tb_narrow_row(row, out);
    else for (int64_t j = 0; j < columns; ++j) out[j] = narrow(row[j / SIDE * SIDE * SIDE + j % SIDE]);
  }
}

// Multiply packed operands. Grid (blocks of columns, blocks of rows, matrices); b: left, right, out; p: rows, columns,
// depth, how many left and right matrices take turns, and the panels of a block on each side, of which there are MAX_PANELS.
void tb_multiply(void *const *b, const int64_t *p, const int64_t *range) {
  static _Thread_local _Alignas(64) SUM sums[MAX_PANELS * MAX_PANELS][4 * SIDE * SIDE];
  const int64_t m = p[0], n = p[1], steps = (p[2] + STEP - 1) / STEP, line = 2 * TILE * steps;
  const int64_t high = (m + PANEL - 1) / PANEL, wide = (n + PANEL - 1) / PANEL, side = p[5];
  tb_begin();
  for (int64_t matrix = range[4]; matrix < range[5]; ++matrix)
    for (int64_t bi = range[2]; bi < range[3]; ++bi)
      for (int64_t bj = range[0]; bj < range[1]; ++bj) {
        const int64_t i_end = (bi + 1) * side < high ? (bi + 1) * side : high;
        const int64_t j_end = (bj + 1) * side < wide ? (bj + 1) * side : wide;
        for (int64_t s = 0; s < steps; s += DEEP)
          for (int64_t j = bj * side; j < j_end; ++j)
            for (int64_t i = bi * side; i < i_end; ++i) {
              const char *x = (const char *)b[0] + (matrix % p[3] * high + i) * line + s * 2 * TILE;
              const char *y = (const char *)b[1] + (matrix % p[4] * wide + j) * line + s * 2 * TILE;
              SUM *to = sums[steps <= DEEP ? 0 : (j - bj * side) * side + i - bi * side];
              const int64_t end = steps - s < DEEP ? steps - s : DEEP;
              const char *next = i + 1 < i_end ? x + line : y + line;
              tb_sum_up(x, y, next, end, m - i * PANEL, to, s > 0);
              if (s + DEEP >= steps) {
                T *out = (T *)b[2] + (matrix * m + i * PANEL) * n + j * PANEL;
                tb_narrow(to, out, n, m - i * PANEL, n - j * PANEL);
              }
            }
      }
  tb_end();
}
