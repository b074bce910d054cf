// Products of warps: fragments out of shared memory, and mma.sync.

static __device__ __forceinline__ void tb_matrices(unsigned int (&to)[4], const tb_half_t *from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(tb_shared_address(from)) : "memory");
}
static __device__ __forceinline__ void tb_transposed(unsigned int (&to)[4], const tb_half_t *from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(tb_shared_address(from)) : "memory");
}
static __device__ __forceinline__ void tb_mma(float (&c)[4], const unsigned int (&a)[4], unsigned int b0,
                                              unsigned int b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32." TB_KIND "." TB_KIND ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
      " {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Products are there at once: nothing has to be waited for.
template <int LEFT> static __device__ __forceinline__ void tb_wait() {}
template <int M, int N> static __device__ __forceinline__ void tb_results_fence(float (&)[M][N][4]) {}
static __device__ __forceinline__ void tb_take_turn() {}
static __device__ __forceinline__ void tb_pass() {}

// c = a b^T: the warp's 16 * M of the TALL rows of a, 8 * N rows of b, both WIDTH wide in shared memory.
template <int WIDTH, int TALL, int M, int N>
static __device__ __forceinline__ void tb_products(float (&c)[M][N][4], const tb_half_t *a, const tb_half_t *b) {
  constexpr int LINE = tb_line(WIDTH);
  tb_clear(c);
  const int lane = threadIdx.x & 31;
  const tb_half_t *from_a = a + ((int)threadIdx.x / 32 * M * 16 + (lane & 15)) * LINE + (lane >> 4) * 8;
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
