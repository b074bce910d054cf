// Tiles of half precision: rows from memory into shared memory, results into memory, and the blocks of a mask
// that are not empty. Written before it: TB_KIND, "bf16" or "f16", and TB_WGMMA, whether warpgroups compute products.

typedef unsigned short tb_half_t;

constexpr float TB_LOG2E = 1.4426950408889634f, TB_LN2 = 0.6931471805599453f;

#if TB_WGMMA
// Columns of 64, one behind the other, whose rows of 128 bytes have their eighths in an order that depends on the
// row: "128-byte swizzle".
__host__ __device__ constexpr int tb_padded(int width) { return (width + 63) / 64 * 64; }
__host__ __device__ constexpr int tb_size(int rows, int width) { return rows * tb_padded(width); }
template <int ROWS, int WIDTH> static __device__ __forceinline__ constexpr int tb_at(int row, int column) {
  return (column / 64 * ROWS + row) * 64 + ((column / 8 & 7) ^ (row & 7)) * 8 + (column & 7);
}
#else
// Rows that are 16 bytes longer than they need be, so that eight of them begin in different banks.
__host__ __device__ constexpr int tb_padded(int width) { return (width + 15) / 16 * 16; }
__host__ __device__ constexpr int tb_line(int width) { return tb_padded(width) + 8; }
__host__ __device__ constexpr int tb_size(int rows, int width) { return rows * tb_line(width); }
template <int ROWS, int WIDTH> static __device__ __forceinline__ constexpr int tb_at(int row, int column) {
  return row * tb_line(WIDTH) + column;
}
#endif

static __device__ __forceinline__ unsigned int tb_shared_address(const void *p) {
  unsigned int place;
  asm("{\n .reg .u64 at;\n cvta.to.shared.u64 at, %1;\n cvt.u32.u64 %0, at;\n}" : "=r"(place) : "l"(p));
  return place;
}
static __device__ __forceinline__ void tb_copy16(unsigned int to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               : : "r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
static __device__ __forceinline__ void tb_copy4(void *to, const void *from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               : : "r"(tb_shared_address(to)), "l"(from), "r"(there ? 4 : 0) : "memory");
}
static __device__ __forceinline__ void tb_commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
// Wait until all that was copied is there, for all threads.
static __device__ __forceinline__ void tb_arrived() {
  asm volatile("cp.async.wait_group 0;" : : : "memory");
#if TB_WGMMA
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
#endif
  __syncthreads();
}

// Shared memory from where tiles may begin: the order of eighths goes by addresses.
static __device__ __forceinline__ tb_half_t *tb_first_tile(uint4 *memory) {
#if TB_WGMMA
  return (tb_half_t *)((char *)memory + (-tb_shared_address(memory) & 1023u));
#else
  return (tb_half_t *)memory;
#endif
}

static __device__ __forceinline__ float tb_exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
static __device__ __forceinline__ unsigned int tb_pair(float low, float high) {
  unsigned int both;
  asm("cvt.rn." TB_KIND "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
static __device__ __forceinline__ float tb_to_float(tb_half_t bits) {
  float x;
  asm("cvt.f32." TB_KIND " %0, %1;" : "=f"(x) : "h"(bits));
  return x;
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
    constexpr int PADDED = tb_padded(WIDTH), CHUNKS = PADDED / 8, LINES = THREADS / CHUNKS;
    // A thread's rows lie alike, and are all in the same columns: one address of each side serves them all.
    constexpr bool ALIKE = LINES && THREADS % CHUNKS == 0 && ROWS % LINES == 0 && (!TB_WGMMA || LINES % 8 == 0);
    if (whole && ALIKE) {
      const int row = (int)threadIdx.x / CHUNKS, column = (int)threadIdx.x % CHUNKS * 8;
      const unsigned int place = tb_shared_address(to) + 2 * tb_at<ROWS, WIDTH>(row, column);
      constexpr int APART = 2 * (tb_at<ROWS, WIDTH>(ALIKE ? LINES : 0, 0) - tb_at<ROWS, WIDTH>(0, 0));
      const tb_half_t *from = at + (first + row) * stride + column;
      const long long jump = LINES * stride;
      if (PADDED == WIDTH && count >= ROWS) {
#pragma unroll
        for (int k = 0; k < ROWS / LINES; ++k) {
          tb_copy16(place + k * APART, from, true);
          from += jump;
        }
      } else {
#pragma unroll
        for (int k = 0; k < ROWS / LINES; ++k) {
          const bool there = row + k * LINES < count && (PADDED == WIDTH || column < WIDTH);
          tb_copy16(place + k * APART, there ? from : at, there);
          from += jump;
        }
      }
    } else if (whole) {
#pragma unroll 4
      for (int i = threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        const int row = i / CHUNKS, column = i % CHUNKS * 8;
        const bool there = row < count && (PADDED == WIDTH || column < WIDTH);
        const tb_half_t *from = there ? at + (first + row) * stride + column : at;
        tb_copy16(tb_shared_address(to) + 2 * tb_at<ROWS, WIDTH>(row, column), from, there);
      }
    } else {
#pragma unroll 1
      for (int i = threadIdx.x; i < ROWS * PADDED; i += THREADS) {
        const int row = i / PADDED, column = i % PADDED;
        const bool there = row < count && column < WIDTH;
        to[tb_at<ROWS, WIDTH>(row, column)] = there ? at[(first + row) * stride + column * step] : 0;
      }
    }
  }
};

// A thread has of sums, of each 16 rows and each 8 columns, two neighbours of one row and two of the row 8 below:
// call `use(m, n, e)` for each of these elements.
template <int M, int N, class Use> static __device__ __forceinline__ void tb_each(const Use &use) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) use(m, n, e);
}
// Call `use(m, half, row)` for each row of which a thread has elements, those that are `2 * half` and one more.
template <int M, class Use> static __device__ __forceinline__ void tb_each_row(const Use &use) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) use(m, half, m * 16 + half * 8 + ((int)threadIdx.x & 31) / 4);
}

template <int M, int N> static __device__ __forceinline__ void tb_clear(float (&c)[M][N][4]) {
  tb_each<M, N>([&](int m, int n, int e) { c[m][n][e] = 0.0f; });
}

// Store rows of a packed result, those below `count` of the warp's own; `factors` has one for each row.
template <int WIDTH, int M>
static __device__ __forceinline__ void tb_store_rows(tb_half_t *to, const float (&c)[M][tb_padded(WIDTH) / 8][4],
                                                     const float (&factors)[M][2], int count) {
  const int lane = threadIdx.x & 31;
  tb_each_row<M>([&](int m, int half, int row) {
    if (row >= count) return;
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
  });
}

// Store rows of float32, those below `count` of the warp's own.
template <int WIDTH, int M>
static __device__ __forceinline__ void tb_store_sums(float *to, const float (&c)[M][tb_padded(WIDTH) / 8][4], int count) {
  const int lane = threadIdx.x & 31;
  tb_each_row<M>([&](int m, int half, int row) {
    if (row >= count) return;
#pragma unroll
    for (int d = 0; d < tb_padded(WIDTH) / 8; ++d)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = d * 8 + lane % 4 * 2 + e;
        if (column < WIDTH) to[(long long)row * WIDTH + column] = c[m][d][2 * half + e];
      }
  });
}

// The runs of the other side that a tile has to do with: all of it, or the blocks that are not empty.
struct tb_runs {
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
  // `first`, where rows begin, begins a block too; `length` is where they end.
  __device__ __forceinline__ bool begin(int first = 0) {
    at = first;
    stop = length;
    partial = true;
    if (states == nullptr) return at < length;
    number = first / size - 1;
    return find();
  }
  __device__ __forceinline__ bool advance(int tile) {
    at += tile;
    return at < stop || (states != nullptr && find());
  }
};
