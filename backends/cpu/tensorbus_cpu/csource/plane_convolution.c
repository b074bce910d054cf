// Convolutions of planes by themselves: all rows that some rows of outputs read are written side by side first, those of
// each phase of a step along rows apart. `rows` and `columns` are those of inputs, `band` is how many rows are at once.
typedef struct { int64_t groups, high, wide, rows, columns, taps[2], step[2], padding[2], apart[2], band; } tb_planes;

static inline int64_t below(int64_t x, int64_t y) { return x / y - (x % y < 0); }

// Up to n vectors of a row of outputs, from place j on; the last one of a row ends with it.
static inline __attribute__((always_inline)) void places(const int n, int64_t j, int64_t wide, const T *x, const T *w, int64_t taps, const int32_t *off, T *to) {
  tb_vector sum[4];
  int64_t at[4];
  UNROLLED for (int v = 0; v < n; ++v) at[v] = least(j + v * VECTOR, wide < VECTOR ? 0 : wide - VECTOR), sum[v] = (tb_vector){0};
  FOR_RANGE(k, 0, taps) UNROLLED for (int v = 0; v < n; ++v) sum[v] += w[k] * *(const tb_loose *)(x + off[k] + at[v]);
  if (wide >= VECTOR) UNROLLED for (int v = 0; v < n; ++v) *(tb_loose *)(to + at[v]) = sum[v];
  else memcpy(to, sum, wide * sizeof(T));
}

KERNEL(tb_planes_each) {  // grid (planes); b: weights, x, out
  const tb_planes *q = (const tb_planes *)p;
  const int64_t ky = q->taps[0], kx = q->taps[1], step = q->step[1], left = below(-q->padding[1], step);
  const int64_t right = below((kx - 1) * q->apart[1] - q->padding[1], step);
  const int64_t pitch = ((q->wide + VECTOR - 1) / VECTOR * VECTOR + right - left + VECTOR - 1) / VECTOR * VECTOR, line = step * pitch;
  int32_t off[DEEP];
  FOR_RANGE(k, 0, ky * kx) {
    const int64_t at = k % kx * q->apart[1] - q->padding[1], column = below(at, step);
    off[k] = (int32_t)(k / kx * q->apart[0] * line + (at - column * step) * pitch + column - left);
  }
  T read[ROOM] __attribute__((aligned(64)));
  FOR_RANGE(plane, range[0], range[1]) {
    const T *x = (const T *)b[1] + plane * q->rows * q->columns, *w = (const T *)b[0] + plane % q->groups * ky * kx;
    for (int64_t y0 = 0; y0 < q->high; y0 += q->band) {
      const int64_t some = least(q->band, q->high - y0), first = y0 * q->step[0] - q->padding[0];
      FOR_RANGE(k, 0, (some - 1) * q->step[0] + (ky - 1) * q->apart[0] + 1) {
        T *to = read + k * line;
        if (first + k < 0 || first + k >= q->rows) memset(to, 0, line * sizeof(T));
        else FOR_RANGE(f, 0, step) fill_line(x + (first + k) * q->columns, q->columns, left * step + f, step, pitch, to + f * pitch);
      }
      FOR_RANGE(y, 0, some) {
        const T *from = read + y * q->step[0] * line;
        T *to = (T *)b[2] + (plane * q->high + y0 + y) * q->wide;
        for (int64_t j = 0; j < q->wide; j += 4 * VECTOR)
          if (q->wide - j > 2 * VECTOR) places(4, j, q->wide, from, w, ky * kx, off, to);
          else places(2, j, q->wide, from, w, ky * kx, off, to);
      }
    }
  }
}

// The same transposed, by steps of 2 along rows: places of both phases, computed apart, are stored side by side.
static inline void alternate(tb_vector one, tb_vector other, T *to) {
#ifdef __clang__
  UNROLLED for (int u = 0; u < VECTOR; ++u) to[2 * u] = one[u], to[2 * u + 1] = other[u];
#else
  tb_bits first, second;
  UNROLLED for (int u = 0; u < VECTOR; ++u) first[u] = u / 2 + u % 2 * VECTOR, second[u] = first[u] + VECTOR / 2;
  *(tb_loose *)to = __builtin_shuffle(one, other, first), *(tb_loose *)(to + VECTOR) = __builtin_shuffle(one, other, second);
#endif
}

KERNEL(tb_planes_transposed) {  // grid (planes); b: weights, x, out
  enum { PHASES = 16 };  // of both axes
  const tb_planes *q = (const tb_planes *)p;
  const int64_t half = (q->wide + 1) / 2, ky = q->taps[0], kx = q->taps[1];
  int64_t up = 0, down = 0, left = 0, right = 0, n = 0, lines = (q->high + q->step[0] - 1) / q->step[0];
  int32_t tap[DEEP], row[DEEP], column[DEEP], start[PHASES + 1] = {0}, off[DEEP];
  FOR_RANGE(phase, 0, 2 * q->step[0]) {  // output y * step + phase takes the rows y + row, and so along them
    FOR_RANGE(k, 0, ky * kx) {
      const int64_t y = phase / 2 + q->padding[0] - k / kx * q->apart[0], x = phase % 2 + q->padding[1] - k % kx * q->apart[1];
      if (y % q->step[0] || x % 2) continue;
      tap[n] = (int32_t)k, row[n] = (int32_t)(y / q->step[0]), column[n] = (int32_t)(x / 2);
      up = least(up, row[n]), down = -least(-down, -row[n]), left = least(left, column[n]), right = -least(-right, -column[n]), ++n;
    }
    start[phase + 1] = (int32_t)n;
  }
  const int64_t pitch = ((half + VECTOR - 1) / VECTOR * VECTOR + right - left + VECTOR - 1) / VECTOR * VECTOR;
  FOR_RANGE(k, 0, n) off[k] = (int32_t)((row[k] - up) * pitch + column[k] - left);
  T read[ROOM] __attribute__((aligned(64))), weight[DEEP], last[2 * VECTOR];
  FOR_RANGE(plane, range[0], range[1]) {
    const T *x = (const T *)b[1] + plane * q->rows * q->columns, *w = (const T *)b[0] + plane % q->groups * ky * kx;
    FOR_RANGE(k, 0, n) weight[k] = w[tap[k]];
    for (int64_t y0 = 0; y0 < lines; y0 += q->band) {
      const int64_t some = least(q->band, lines - y0);
      FOR_RANGE(k, 0, some + down - up) {
        const int64_t y = y0 + up + k;
        if (y >= 0 && y < q->rows) fill_line(x + y * q->columns, q->columns, left, 1, pitch, read + k * pitch);
        else memset(read + k * pitch, 0, pitch * sizeof(T));
      }
      FOR_RANGE(y, y0 * q->step[0], least((y0 + some) * q->step[0], q->high)) {
        const int32_t *phase = start + y % q->step[0] * 2;
        T *to = (T *)b[2] + (plane * q->high + y) * q->wide;
        for (int64_t j = 0; j < half; j += VECTOR) {
          const T *from = read + (y / q->step[0] - y0) * pitch + j;
          tb_vector sum[2] = {{0}, {0}};
          UNROLLED for (int f = 0; f < 2; ++f) FOR_RANGE(k, phase[f], phase[f + 1]) sum[f] += weight[k] * *(const tb_loose *)(from + off[k]);
          const int64_t rest = q->wide - 2 * j;
          alternate(sum[0], sum[1], rest < 2 * VECTOR ? last : to + 2 * j);
          if (rest < 2 * VECTOR) memcpy(to + 2 * j, last, rest * sizeof(T));
        }
      }
    }
  }
}
