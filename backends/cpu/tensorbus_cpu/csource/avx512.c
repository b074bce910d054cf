// Sums of panels by vectors of AVX-512, which add to each of 16 sums the products of two pairs of bfloat16 (BF16) or of
// four of bytes (VNNI). Those of TALL rows by a panel's columns stay in registers.
//
// Subnormal numbers of bfloat16 count as zero, and subnormal sums become zero, whatever the thread is set to.
#include <immintrin.h>

enum { TALL = 8, LINE = 64 };  // rows; bytes of a vector
#define UNROLLED _Pragma("GCC unroll 8")

#ifdef INTEGERS
typedef int32_t tb_sums __attribute__((vector_size(64)));  // gcc copies the registers of __m512i
// The left operand counts as without a sign, the right one as with it: modulo 256 the product is that of any two.
static inline tb_sums tb_add(tb_sums sums, __m512i x, __m512i y) { return (tb_sums)_mm512_dpbusd_epi32((__m512i)sums, x, y); }
#else
typedef __m512 tb_sums;
static inline tb_sums tb_add(tb_sums sums, __m512i x, __m512i y) { return _mm512_dpbf16_ps(sums, (__m512bh)x, (__m512bh)y); }
#endif

static void tb_begin(void) {}
static void tb_end(void) {}
int tb_ready(void) { return 1; }

static void tb_sum_up(const char *x, const char *y, const char *next, int64_t steps, int64_t rows, SUM *to, int more) {
  const __mmask16 kept = more ? 0xffff : 0;
  for (int64_t first = 0; first < PANEL && first < rows; first += TALL) {
    SUM *const own = to + first / SIDE * 2 * SIDE * SIDE + first % SIDE * SIDE;
    const char *left = x + first * LINE, *right = y;
    tb_sums sums[TALL][2];
    UNROLLED for (int i = 0; i < TALL; ++i)
      UNROLLED for (int t = 0; t < 2; ++t) sums[i][t] = (tb_sums)_mm512_maskz_loadu_epi32(kept, own + (t * SIDE + i) * SIDE);
    for (int64_t s = 0; s < steps; ++s, left += 2 * TILE, right += 2 * TILE, next += TALL * LINE) {
      // The rows of a panel together ask for all of the next one: read TALL rows at a time, it would come too late by itself.
      UNROLLED for (int i = 0; i < TALL; ++i) __builtin_prefetch(next + i * LINE, 0, 2);
      _Pragma("GCC unroll 4") for (int k = 0; k < SIDE; ++k) {
        const __m512i one = _mm512_loadu_si512(right + k * LINE), other = _mm512_loadu_si512(right + TILE + k * LINE);
        UNROLLED for (int i = 0; i < TALL; ++i) {
          int32_t group;
          memcpy(&group, left + i * LINE + k * 4, 4);
          const __m512i all = _mm512_set1_epi32(group);
          sums[i][0] = tb_add(sums[i][0], all, one), sums[i][1] = tb_add(sums[i][1], all, other);
        }
      }
    }
    UNROLLED for (int i = 0; i < TALL; ++i)
      UNROLLED for (int t = 0; t < 2; ++t) memcpy(own + (t * SIDE + i) * SIDE, &sums[i][t], LINE);
  }
}
