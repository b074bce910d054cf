// Tiles of half precision on the tensor cores: rows from memory into shared memory, fragments out of it, and
// the two products that attention is made of. Rows in shared memory are 16 bytes longer than they need be, so
// that eight of them begin in different banks. Written before it: TB_KIND, "bf16" or "f16".

typedef unsigned short tb_half_t;

constexpr float TB_LOG2E = 1.4426950408889634f, TB_LN2 = 0.6931471805599453f;

__host__ __device__ constexpr int tb_padded(int width) { return (width + 15) / 16 * 16; }
__host__ __device__ constexpr int tb_line(int width) { return tb_padded(width) + 8; }

static __device__ __forceinline__ unsigned int tb_place(const void *p) {
  unsigned int place;
  asm("{\n .reg .u64 at;\n cvta.to.shared.u64 at, %1;\n cvt.u32.u64 %0, at;\n}" : "=r"(place) : "l"(p));
  return place;
}
static __device__ __forceinline__ void tb_copy16(void *to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               : : "r"(tb_place(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
static __device__ __forceinline__ void tb_copy4(void *to, const void *from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               : : "r"(tb_place(to)), "l"(from), "r"(there ? 4 : 0) : "memory");
}
static __device__ __forceinline__ void tb_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
static __device__ __forceinline__ void tb_arrived() { asm volatile("cp.async.wait_group 0;" : : : "memory"); }

static __device__ __forceinline__ float tb_exp2(float x) {
  float made;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(made) : "f"(x));
  return made;
}
static __device__ __forceinline__ unsigned int tb_pair(float low, float high) {
  unsigned int both;
  asm("cvt.rn." TB_KIND "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
static __device__ __forceinline__ float tb_wide(tb_half_t bits) {
  float x;
  asm("cvt.f32." TB_KIND " %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

static __device__ __forceinline__ void tb_matrices(unsigned int (&to)[4], const tb_half_t *from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(tb_place(from)) : "memory");
}
static __device__ __forceinline__ void tb_transposed(unsigned int (&to)[4], const tb_half_t *from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(tb_place(from)) : "memory");
}
static __device__ __forceinline__ void tb_mma(float (&c)[4], const unsigned int (&a)[4], unsigned int b0,
                                              unsigned int b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32." TB_KIND "." TB_KIND ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
      " {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rows of one head of an operand, where they lie. They are copied 16 bytes at a time where all begin at such
// places, else one element at a time.
struct tb_rows {
  const tb_half_t *at;
  long long stride, step;
  bool whole;

  __device__ __forceinline__ tb_rows(const tb_half_t *begin, long long stride, long long step, int width)
      : at(begin), stride(stride), step(step),
        whole(width % 8 == 0 && step == 1 && stride % 8 == 0 && (unsigned long long)begin % 16 == 0) {}

  // Copy ROWS rows from the row `first` on; those beyond `count`, and columns beyond WIDTH, are zeros.
  template <int ROWS, int WIDTH, int THREADS>
  __device__ __forceinline__ void copy(tb_half_t *to, int first, int count) const {
    constexpr int LINE = tb_line(WIDTH), PADDED = tb_padded(WIDTH), CHUNKS = PADDED / 8;
    const tb_half_t *from = at + first * stride;
    if (whole) {
#pragma unroll
      for (int k = 0; k < (ROWS * CHUNKS + THREADS - 1) / THREADS; ++k) {
        const int i = k * THREADS + (int)threadIdx.x, row = i / CHUNKS, column = i % CHUNKS * 8;
        if (ROWS * CHUNKS % THREADS == 0 || row < ROWS) {
          const bool there = row < count && (PADDED == WIDTH || column < WIDTH);
          tb_copy16(to + row * LINE + column, there ? from + row * stride + column : at, there);
        }
      }
    } else {
      for (int i = threadIdx.x; i < ROWS * PADDED; i += THREADS) {
        const int row = i / PADDED, column = i % PADDED;
        to[row * LINE + column] = row < count && column < WIDTH ? from[row * stride + column * step] : 0;
      }
    }
  }
};

// c += a b^T: 16 * M rows of a from the warp's own on, 8 * N rows of b, both WIDTH wide in shared memory.
template <int WIDTH, int M, int N>
static __device__ __forceinline__ void tb_products(float (&c)[M][N][4], const tb_half_t *a, const tb_half_t *b) {
  constexpr int LINE = tb_line(WIDTH);
  const int lane = threadIdx.x & 31;
  const tb_half_t *from_a = a + (lane & 15) * LINE + (lane >> 4) * 8;
  const tb_half_t *from_b = b + ((lane >> 4) * 8 + (lane & 7)) * LINE + ((lane >> 3) & 1) * 8;
#pragma unroll
  for (int k = 0; k < tb_padded(WIDTH); k += 16) {
    unsigned int x[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) tb_matrices(x[m], from_a + m * 16 * LINE + k);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      unsigned int y[4];
      tb_matrices(y, from_b + n * 8 * LINE + k);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        tb_mma(c[m][n], x[m], y[0], y[1]);
        tb_mma(c[m][n + 1], x[m], y[2], y[3]);
      }
    }
  }
}

// c += w b: weights for 8 * N rows of b, which are WIDTH wide in shared memory.
template <int WIDTH, int M, int N>
static __device__ __forceinline__ void tb_weighted(float (&c)[M][tb_padded(WIDTH) / 8][4],
                                                   const float (&weights)[M][N][4], const tb_half_t *b) {
  constexpr int LINE = tb_line(WIDTH);
  const int lane = threadIdx.x & 31;
  const tb_half_t *from = b + (((lane >> 3) & 1) * 8 + (lane & 7)) * LINE + (lane >> 4) * 8;
#pragma unroll
  for (int n = 0; n < N; n += 2) {
    unsigned int w[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) {
      w[m][0] = tb_pair(weights[m][n][0], weights[m][n][1]);
      w[m][1] = tb_pair(weights[m][n][2], weights[m][n][3]);
      w[m][2] = tb_pair(weights[m][n + 1][0], weights[m][n + 1][1]);
      w[m][3] = tb_pair(weights[m][n + 1][2], weights[m][n + 1][3]);
    }
#pragma unroll
    for (int d = 0; d < tb_padded(WIDTH) / 8; d += 2) {
      unsigned int y[4];
      tb_transposed(y, from + n * 8 * LINE + d * 8);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        tb_mma(c[m][d], w[m], y[0], y[1]);
        tb_mma(c[m][d + 1], w[m], y[2], y[3]);
      }
    }
  }
}

template <int M, int N> static __device__ __forceinline__ void tb_clear(float (&c)[M][N][4]) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[m][n][e] = 0.0f;
}

// Store rows of a packed result, those below `count` of the warp's own; `factors` has one for each row.
template <int WIDTH, int M>
static __device__ __forceinline__ void tb_store_rows(tb_half_t *to, const float (&c)[M][tb_padded(WIDTH) / 8][4],
                                                     const float (&factors)[M][2], int count) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = m * 16 + half * 8 + lane / 4;
      if (row < count) {
        tb_half_t *line = to + (long long)row * WIDTH;
#pragma unroll
        for (int d = 0; d < tb_padded(WIDTH) / 8; ++d) {
          const int column = d * 8 + lane % 4 * 2;
          const unsigned int both =
              tb_pair(c[m][d][2 * half] * factors[m][half], c[m][d][2 * half + 1] * factors[m][half]);
          if (WIDTH % 2 == 0) {
            if (column < WIDTH) *(unsigned int *)(line + column) = both;
          } else {
            if (column < WIDTH) line[column] = (tb_half_t)both;
            if (column + 1 < WIDTH) line[column + 1] = (tb_half_t)(both >> 16);
          }
        }
      }
    }
}

// The runs of the other side that a tile has to do with: all of it, or the blocks that are not empty.
struct tb_walk {
  const unsigned char *states;
  long long step;
  int number, blocks, size, length, at, stop;
  bool partial;

  __device__ __forceinline__ bool find() {
    while (++number < blocks) {
      const int state = states[number * step];
      if (state != 0) {
        at = number * size;
        stop = min(at + size, length);
        partial = state == 1;
        return true;
      }
    }
    return false;
  }
  __device__ __forceinline__ bool begin() {
    number = -1;
    at = 0;
    stop = length;
    partial = true;
    return states == nullptr ? length > 0 : find();
  }
  __device__ __forceinline__ bool advance(int tile) {
    at += tile;
    return at < stop || (states != nullptr && find());
  }
};
