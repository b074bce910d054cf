// Words of Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

typedef union { double f; int64_t i; uint64_t u; } tb_slot;
enum { LANES = 16, WORDS = 4 };

// Grid (blocks of four words); b: the state, which is the key and the number of the first block, and the words.
// Parameter: how many words there are.
void tb_random(void *const *b, const tb_slot *p, const int64_t *range) {
  const uint64_t *state = b[0];
  uint32_t *out = b[1];
  for (int64_t at = range[0]; at < range[1]; at += LANES) {
    uint32_t x[WORDS][LANES], k0 = state[0], k1 = state[0] >> 32;
    for (int u = 0; u < LANES; ++u) {
      const uint64_t block = state[1] + at + u;
      x[0][u] = block, x[1][u] = block >> 32, x[2][u] = x[3][u] = 0;
    }
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85)
      for (int u = 0; u < LANES; ++u) {
        const uint64_t left = (uint64_t)x[0][u] * 0xD2511F53, right = (uint64_t)x[2][u] * 0xCD9E8D57;
        x[0][u] = right >> 32 ^ x[1][u] ^ k0, x[1][u] = right;
        x[2][u] = left >> 32 ^ x[3][u] ^ k1, x[3][u] = left;
      }
    const int64_t blocks = range[1] - at < LANES ? range[1] - at : LANES;
    const int64_t words = p[0].i - WORDS * at < WORDS * blocks ? p[0].i - WORDS * at : WORDS * blocks;
    for (int k = 0; k < words; ++k) out[WORDS * at + k] = x[k % WORDS][k / WORDS];
  }
}
