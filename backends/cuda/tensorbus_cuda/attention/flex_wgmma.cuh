// Products of warpgroups, of which each thread has what it has of a warp's in flex_mma.cuh: 4 warps have 16 rows
// each. Operands are named by descriptors: where a tile begins, and how far apart its parts of 64 columns and of
// 8 rows are. They run on until they are waited for. Written before it: tb_wgmma<N>.

static __device__ __forceinline__ unsigned long long tb_tile(const tb_half_t *at, int apart) {
  return (unsigned long long)((tb_shared_address(at) & 0x3ffff) >> 4) | (unsigned long long)(apart / 8) << 16 |
         (unsigned long long)64 << 32 | 1ull << 62;
}
template <int LEFT> static __device__ __forceinline__ void tb_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(LEFT) : "memory");
}
// What products have made may be read from here on.
template <int M, int N> static __device__ __forceinline__ void tb_results_fence(float (&c)[M][N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("" : "+f"(c[0][n][e]) : : "memory");
}
// Of two warpgroups the second begins its first products when the first one has its own: then one multiplies while
// the other works on its scores.
static __device__ __forceinline__ void tb_take_turn() {
  if (TB_TURNS && TB_WARPS == 8 && threadIdx.x >= 128) asm volatile("bar.sync 1, 256;" : : : "memory");
}
static __device__ __forceinline__ void tb_pass() {
  if (TB_TURNS && TB_WARPS == 8 && threadIdx.x < 128) asm volatile("bar.arrive 1, 256;" : : : "memory");
}
static __device__ __forceinline__ void tb_begin() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
static __device__ __forceinline__ void tb_end() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }

// c = a b^T: the warpgroup's 64 of the TALL rows of a, 8 * N rows of b, both WIDTH wide in shared memory.
template <int WIDTH, int TALL, int M, int N>
static __device__ __forceinline__ void tb_products(float (&c)[M][N][4], const tb_half_t *a, const tb_half_t *b) {
  static_assert(M == 1, "a warp of a warpgroup has 16 rows");
  const tb_half_t *own = a + (int)threadIdx.x / 128 * 64 * 64;
  const unsigned long long of_a = tb_tile(own, 8), of_b = tb_tile(b, 8);
  tb_results_fence(c);
  tb_begin();
#pragma unroll
  for (int k = 0; k < tb_padded(WIDTH); k += 16)
    tb_wgmma<8 * N>::of_tiles(c[0], of_a + (k / 64 * TALL * 64 + k % 64) / 8,
                              of_b + (k / 64 * 8 * N * 64 + k % 64) / 8, k != 0);
  tb_end();
}

// c += w b: weights for 8 * N rows of b, which are WIDTH wide in shared memory.
template <int WIDTH, int M, int N>
static __device__ __forceinline__ void tb_weighted(float (&c)[M][tb_padded(WIDTH) / 8][4],
                                                   const float (&weights)[M][N][4], const tb_half_t *b) {
  unsigned int w[N / 2][4];
#pragma unroll
  for (int n = 0; n < N; ++n) {
    w[n / 2][n % 2 * 2] = tb_pair(weights[0][n][0], weights[0][n][1]);
    w[n / 2][n % 2 * 2 + 1] = tb_pair(weights[0][n][2], weights[0][n][3]);
  }
  const unsigned long long of_b = tb_tile(b, 8 * N * 64);
  tb_results_fence(c);
  tb_begin();
#pragma unroll
  for (int n = 0; n < N / 2; ++n) tb_wgmma<tb_padded(WIDTH)>::of_weights(c[0], w[n], of_b + n * 16 * 64 / 8);
  tb_end();
}
