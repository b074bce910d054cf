// The first elements in order: of each part of a row, and then of what the parts found. What stands before this text
// says what T, A and LOAD(p, i) are, and BEFORE(x, y): whether x comes before y. Of equal elements the first does.
//
// A heap holds the best so far, the last of them on top; most elements only show that they are behind that one.

#include <stddef.h>

typedef union { double f; int64_t i; uint64_t u; } tb_slot;
#define KERNEL(name) void name(void *const *b, const tb_slot *p, const int64_t *range)
#define FOR_RANGE(i, from, to) for (int64_t i = (from), i##_end = (to); i < i##_end; ++i)
enum { BLOCK = 16 };

static inline int ahead(A x, int64_t i, A y, int64_t j) { return BEFORE(x, y) || (!BEFORE(y, x) && i < j); }

static void sink(A *value, int64_t *place, int64_t count, int64_t at, A x, int64_t i) {  // put x there or further down
  for (int64_t below; (below = 2 * at + 1) < count; at = below) {
    if (below + 1 < count && ahead(value[below], place[below], value[below + 1], place[below + 1])) ++below;
    if (!ahead(x, i, value[below], place[below])) break;
    value[at] = value[below], place[at] = place[below];
  }
  value[at] = x, place[at] = i;
}

static void heap(A *value, int64_t *place, int64_t count) {
  for (int64_t k = count / 2; k-- > 0;) sink(value, place, count, k, value[k], place[k]);
}

static void arrange(A *value, int64_t *place, int64_t count) {
  while (count-- > 1) {
    const A x = value[count];
    const int64_t i = place[count];
    value[count] = value[0], place[count] = place[0];
    sink(value, place, count, 0, x, i);
  }
}

// grid (parts, rows); parameters: the length of a row, how many are wanted, the number of parts. b: x, and for each part
// the values and places that it found, in order: as many as are wanted, which it has.
KERNEL(tb_first) {
  const int64_t n = p[0].i, wanted = p[1].i, parts = p[2].i;
  FOR_RANGE(row, range[2], range[3]) FOR_RANGE(c, range[0], range[1]) {
    const T *x = (const T *)b[0] + row * n;
    A *value = (A *)b[1] + (row * parts + c) * wanted;
    int64_t *place = (int64_t *)b[2] + (row * parts + c) * wanted;
    const int64_t start = n * c / parts, stop = n * (c + 1) / parts;
    FOR_RANGE(k, 0, wanted) value[k] = LOAD(x, start + k), place[k] = start + k;
    heap(value, place, wanted);
    for (int64_t at = start + wanted; at < stop; at += BLOCK) {
      const int64_t end = at + BLOCK < stop ? at + BLOCK : stop;
      const A last = value[0];
      int some = 0;
      if (end - at == BLOCK)
        for (int k = 0; k < BLOCK; ++k) {
          const A one = LOAD(x, at + k);
          some |= BEFORE(one, last);
        }
      else some = 1;
      if (!some) continue;
      FOR_RANGE(i, at, end) {
        const A one = LOAD(x, i);
        if (BEFORE(one, value[0])) sink(value, place, wanted, 0, one, i);
      }
    }
    arrange(value, place, wanted);
  }
}

// grid (rows); parameters: how many are wanted, the number of parts. b: what the parts found, and the places of all.
KERNEL(tb_join) {
  const int64_t wanted = p[0].i, parts = p[1].i;
  FOR_RANGE(row, range[0], range[1]) {
    A *value = (A *)b[0] + row * parts * wanted;
    int64_t *place = (int64_t *)b[1] + row * parts * wanted, *out = (int64_t *)b[2] + row * wanted;
    heap(value, place, wanted);
    FOR_RANGE(k, wanted, parts * wanted)
      if (ahead(value[k], place[k], value[0], place[0])) sink(value, place, wanted, 0, value[k], place[k]);
    arrange(value, place, wanted);
    FOR_RANGE(k, 0, wanted) out[k] = place[k];
  }
}
