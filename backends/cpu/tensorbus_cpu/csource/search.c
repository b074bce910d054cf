// Where values belong in sorted ones: by halving, a block of values side by side.
// What stands before this text gives T as stored, A as computed with, LOAD(p, i), and RIGHT for the side. Parameters:
// the length of a sorted line, and how many values belong to a line. Buffers: lines, values, places. Grid: values.

#include <stddef.h>

typedef union { double f; int64_t i; uint64_t u; } tb_slot;
#define KERNEL(name) void name(void *const *b, const tb_slot *p, const int64_t *range)
#define FOR(j, n) for (int64_t j = 0; j < (n); ++j)
enum { BLOCK = 128 };

// Whether the value belongs behind an element; NaN is behind all numbers.
#ifdef RIGHT
#define BEHIND(element, value) (((element) <= (value)) | ((value) != (value)))
#else
#define BEHIND(element, value) (((element) < (value)) | (((value) != (value)) & ((element) == (element))))
#endif

KERNEL(tb_search) {
  const int64_t length = p[0].i, owned = p[1].i;
  for (int64_t from = range[0], wide; from < range[1]; from += wide) {
    const T *line = (const T *)b[0] + from / owned * length;
    const int64_t rest = owned - from % owned, left = range[1] - from;
    wide = rest < left ? rest : left;
    wide = wide < BLOCK ? wide : BLOCK;
    A value[BLOCK];
    int32_t place[BLOCK];
    FOR(j, wide) value[j] = LOAD((const T *)b[1], from + j), place[j] = 0;
    int32_t count = (int32_t)length;
    for (; count > 1; count -= count / 2) {
      const int32_t half = count / 2;
      FOR(j, wide) {
        const A element = LOAD(line, place[j] + half - 1);
        place[j] += BEHIND(element, value[j]) ? half : 0;
      }
    }
    int64_t *out = (int64_t *)b[2] + from;
    FOR(j, wide) {
      const A element = LOAD(line, place[j]);
      out[j] = place[j] + (BEHIND(element, value[j]) ? 1 : 0);
    }
  }
}
